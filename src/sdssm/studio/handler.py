"""Answer one request: the page, its data, and with permission commands on runs."""

from __future__ import annotations

import io
import json
import socket
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from sdssm.errors import StudioError, first_line
from sdssm.studio.request_rules import Refusal, check_action_headers, check_sender

if TYPE_CHECKING:
    from sdssm.studio.server import StudioServer

#: Seconds that a client has to send its request, and again to receive the answer.
REQUEST_SECONDS = 10.0
#: Headers of every answer, besides those of its contents.
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: The policy of answers that are not the page: they may do nothing.
NO_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"
JSON_TYPE = "application/json; charset=utf-8"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer to a request. `version` names its contents; a client that has them gets 304 and no body."""

    body: bytes = b""
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = JSON_TYPE
    policy: str = NO_CONTENT_POLICY
    version: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


def encode_refusal(refusal: Refusal, headers: dict[str, str] | None = None) -> Answer:
    """Return the answer that says why a request is refused."""
    body = json.dumps({"error": refusal.message}).encode()
    return Answer(body=body, status=refusal.status, headers=headers or {})


class StudioHandler(BaseHTTPRequestHandler):
    """Handles the one request of a connection.

    GET /                    the page
    GET /api/report          all runs without their heavy parts, see `RunsWatcher`
    GET /api/runs/ID         the heavy parts of one run
    GET /api/actions         the commands that the page has started
    POST /api/actions        start one: {"run": ID, "action": "evaluate"}

    The names of runs are looked up among the runs that were found and never become a part of a path.
    """

    server: StudioServer
    timeout = REQUEST_SECONDS
    server_version, sys_version = "sdssm", ""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(DeadlineReader(self.connection, REQUEST_SECONDS))

    # -- methods -----------------------------------------------------------------------------------------------------

    def do_GET(self) -> None:
        self._answer(self._refuse_sender() or self._get())

    def do_HEAD(self) -> None:
        self.do_GET()  # `_answer` leaves the body out

    def do_POST(self) -> None:
        self._answer(self._refuse_sender() or self._post())

    def _get(self) -> Answer:
        path = urlsplit(self.path).path
        watcher = self.server.watcher
        if path == "/":
            return Answer(body=self.server.page, content_type="text/html; charset=utf-8", policy=self.server.policy)
        if path == "/api/report":
            snapshot = watcher.snapshot()
            return Answer(body=snapshot.body, version=snapshot.version)
        if path.startswith("/api/runs/"):
            detail = watcher.detail(unquote(path.removeprefix("/api/runs/")))
            if detail is not None:
                return Answer(body=detail.body, version=detail.version)
        if path == "/api/actions" and self.server.actions is not None:
            return _encode([started.to_json() for started in self.server.actions.started()])
        if path == "/favicon.ico":
            return Answer(status=HTTPStatus.NO_CONTENT)
        return encode_refusal(Refusal(HTTPStatus.NOT_FOUND, "there is nothing at this address"))

    def _post(self) -> Answer:
        actions = self.server.actions
        if actions is None or urlsplit(self.path).path != "/api/actions":
            return self._refuse_method()
        refusal = check_action_headers(self.headers, self.server.token)
        if refusal is not None:
            return encode_refusal(refusal)
        try:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            run, action = request["run"], request["action"]
            if not (isinstance(run, str) and isinstance(action, str)):
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            message = 'the body of an action is like {"run": "ID", "action": "evaluate"}'
            return encode_refusal(Refusal(HTTPStatus.BAD_REQUEST, message))
        try:
            folder = self.server.watcher.folder_for_action(run)
            return _encode(actions.submit(action, run, folder).to_json(), HTTPStatus.ACCEPTED)
        except StudioError as error:
            return encode_refusal(Refusal(HTTPStatus.CONFLICT, str(error)))

    # -- refusals ----------------------------------------------------------------------------------------------------

    def _refuse_sender(self) -> Answer | None:
        if not self.path.startswith("/"):
            return encode_refusal(Refusal(HTTPStatus.BAD_REQUEST, "the address of a request starts with /"))
        refusal = check_sender(self.headers, self.server.address, is_page=urlsplit(self.path).path == "/")
        return None if refusal is None else encode_refusal(refusal)

    def _refuse_method(self) -> Answer:
        may_act = self.server.actions is not None
        allowed = "GET, HEAD, POST" if may_act else "GET, HEAD"
        message = (
            "actions are sent to /api/actions" if may_act else "this studio only reads; start it with --allow-actions"
        )
        return encode_refusal(Refusal(HTTPStatus.METHOD_NOT_ALLOWED, message), {"Allow": allowed})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that the base class cannot parse, in the form of all other answers."""
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:  # a method without a function here
            self._answer(self._refuse_sender() or self._refuse_method())
        else:
            status = HTTPStatus(code)
            self._answer(encode_refusal(Refusal(status, status.phrase.lower())))

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> None:
        tag = None if answer.version is None else f'"{answer.version}"'
        is_known = tag is not None and self.headers.get("If-None-Match") == tag
        self.send_response(HTTPStatus.NOT_MODIFIED if is_known else answer.status)
        headers = SECURITY_HEADERS | {"Content-Security-Policy": answer.policy} | answer.headers
        if not is_known:
            headers |= {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
        if tag is not None:
            headers["ETag"] = tag
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if not is_known and self.command != "HEAD":
            self.wfile.write(answer.body)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):  # the client went away, or is too slow
            self.close_connection = True
        except Exception as error:  # a folder that breaks the reader must not look like a lost connection
            self.close_connection = True
            self.server.note_error(f"{type(error).__name__}: {first_line(error)}")
            message = "the runs could not be read; the terminal of the studio says why"
            self._answer(encode_refusal(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, message)))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the base class
        """Print nothing: the page asks every few seconds."""


def _encode(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(body=json.dumps(value, allow_nan=False).encode(), status=status)


class DeadlineReader(io.RawIOBase):
    """Reads from a socket until a number of seconds has passed in all, however slowly the bytes arrive."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._deadline = monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        before = self._connection.gettimeout()
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(before)
