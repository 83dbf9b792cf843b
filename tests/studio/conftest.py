"""Studios that are served within the test, and requests to them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from sdssm.studio import RunsWatcher, StudioServer
from sdssm.studio.addresses import DEFAULT_HOST

DATA = Path(__file__).parents[1] / "data" / "written-by-0.1.0"


class Client:
    """Sends requests to a studio as no browser would: any method, any header."""

    def __init__(self, server: StudioServer) -> None:
        self.server = server
        self.port = server.address.port

    def ask(
        self, path: str, method: str = "GET", *, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer."""
        connection = HTTPConnection(DEFAULT_HOST, self.port, timeout=20)
        connection.putrequest(method, path, skip_host="Host" in (headers or {}), skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None and "Content-Length" not in (headers or {}):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, dict(response.getheaders()), content

    def get_json(self, path: str) -> Any:
        status, _, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def act(self, run: str, action: str, *, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Ask for an action as the page does, with these headers changed."""
        sent = {"Content-Type": "application/json", "X-Sdssm-Token": self.server.token} | (headers or {})
        body = json.dumps({"run": run, "action": action}).encode()
        status, _, answer = self.ask("/api/actions", "POST", headers=sent, body=body)
        return status, json.loads(answer)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with the 13 runs that version 0.1.0 wrote."""
    return Path(shutil.copytree(DATA / "runs", tmp_path / "runs"))


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Client]]:
    """Start studios on any free port; they are closed when the test ends."""
    with ExitStack() as stack:

        def start(root: Path, *, allow_actions: bool = False) -> Client:
            server = StudioServer(RunsWatcher(root), host=DEFAULT_HOST, port=0, allow_actions=allow_actions)
            return Client(stack.enter_context(server))

        yield start
