"""The studio's HTTP interface: strange paths, methods, origins, bodies and protocols, at 127.0.0.1 only."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.campaign.attack import Attack, Trial
from tests.campaign.mutation import mutate_bytes
from tests.campaign.templates import FINISHED, make_templates

SECRET = "the-text-of-a-file-beside-the-runs"
REQUESTS = 40
#: Seconds within which the server answers a complete request.
ANSWER_SECONDS = 15.0
PATHS = (
    "/", "/api/report", "/api/runs/x", "/api/actions", "/../secret.json", "/api/runs/../../secret.json",
    "/%2e%2e/secret.json",
    "/api/runs/..%2f..%2fsecret.json", "/api/runs/%2fetc%2fpasswd", "//etc/passwd", "/api/runs/%00",
    "/api/runs/a%0d%0aX:1",
    "/api/runs/\\..\\secret.json", "http://example.org/", "*", "secret.json", "/?x=/../secret.json",
    "/api/runs/" + "a" * 5000,
    "/api/runs/%ff%fe", "/api/runs/.", "/api/runs/runs", "/favicon.ico", "/#", "/api/runs/%252e%252e%252fsecret.json",
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "get", "X" * 100, "")
HOSTS = (
    "OWN",
    "OWN",
    "OWN",
    "example.org",
    "127.0.0.1.example.org",
    "",
    "localhost@example.org",
    "0.0.0.0",
    "[::1]",
    "169.254.1.1",
)
ORIGINS = (None, None, "OWN", "http://example.org", "null", "https://127.0.0.1", "http://127.0.0.1:1", "file://")
BODIES = (
    b"", b"{}", b"[" * 3000, b'{"run": 1, "action": "evaluate"}', b'{"run": "x", "action": "rm"}', b"\xff\xfe",
    b"x" * 5000,
    b'{"run": "../../secret", "action": "evaluate"}', b'{"run": {}, "action": []}',
)  # fmt: skip


def make_request(random: Random, port: int) -> tuple[bytes, bool]:
    """Return a request, and whether it comes from another site."""
    own = f"127.0.0.1:{port}"
    method, path, host, origin = (random.choice(values) for values in (METHODS, PATHS, HOSTS, ORIGINS))
    body = random.choice(BODIES) if method == "POST" or random.random() < 0.1 else b""
    headers = [("Host", own if host == "OWN" else host)]
    if origin is not None:
        headers.append(("Origin", f"http://{own}" if origin == "OWN" else origin))
    if random.random() < 0.2:
        headers.append(("Sec-Fetch-Site", random.choice(("cross-site", "same-site", "same-origin"))))
    if body or random.random() < 0.2:
        length = random.choice((str(len(body)), str(len(body)), "-1", "99999999999", "x", "0x10", "1e3", ""))
        headers += [("Content-Length", length), ("Content-Type", random.choice(("application/json", "text/plain")))]
    if random.random() < 0.1:
        headers.append(("Transfer-Encoding", "chunked"))
    if random.random() < 0.1:
        headers.append(("X-Sdssm-Token", random.choice(("", "x" * 43, "é"))))
    if random.random() < 0.05:
        headers += [(f"X-{k}", "y") for k in range(200)]
    if random.random() < 0.05:
        headers.append(("X-Long", "z" * 70_000))
    is_foreign = host not in ("OWN", "[::1]") or origin not in (None, "OWN")
    text = f"{method} {path} HTTP/1.{random.choice('0119')}\r\n" + "".join(f"{n}: {v}\r\n" for n, v in headers)
    request = text.encode("utf-8") + b"\r\n" + body
    if random.random() < 0.25:
        return mutate_bytes(random, request), False  # where it comes from is not known any more
    return request, is_foreign


def send(port: int, request: bytes) -> bytes | None:
    """Send bytes, close the sending side, and return the answer; None if there is none in time."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
        with suppress(OSError):  # the server may close before it has read everything
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := connection.recv(1 << 16):
                answer += piece
        except TimeoutError:
            return None
        except OSError:
            pass
        return answer


def find_breach(answer: bytes | None, is_foreign: bool) -> str | None:
    """Return what is wrong with an answer, or None."""
    if answer is None:
        return f"no answer within {ANSWER_SECONDS:.0f} s"
    if SECRET.encode() in answer:
        return "the answer has the contents of a file beside the runs"
    if not answer:
        return None  # closed without an answer
    status = answer.split(b" ", 2)[1:2]
    if not answer.startswith(b"HTTP/1.") or not status or not status[0].isdigit():
        # HTTP 0.9 has no headers: a body alone may only be a refusal
        return None if answer.startswith(b'{"error"') else f"an answer without a status: {answer[:60]!r}"
    code, head = int(status[0]), answer.partition(b"\r\n\r\n")[0]
    if code >= 500 and code not in (501, 505):
        return f"status {code}"
    if is_foreign and code < 400:
        return f"a request of another site got status {code}"
    if b"Traceback" in answer:
        return "a traceback was sent"
    if code == 202:
        return "a command was started without the token"
    missing = [name for name in (b"X-Content-Type-Options", b"Content-Security-Policy") if name not in head]
    return f"the answer has no {missing[0].decode()}" if missing else None


def attack_studio(random: Random, folder: Path) -> Iterator[Trial]:
    """Serve runs, send requests, and check at the end that the studio still answers."""
    from sdssm.studio import RunsWatcher, StudioServer

    make_templates().copy(folder, FINISHED)
    (folder / "secret.json").write_text(json.dumps({"secret": SECRET}))
    errors: list[str] = []
    watcher, may_act = RunsWatcher(folder / "runs"), random.random() < 0.5
    server = StudioServer(watcher, host="127.0.0.1", port=0, allow_actions=may_act, report_error=errors.append)
    with server:
        port = server.address.port
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(random.choice((0, 0, 5)))]
        for connection in slow:  # clients that never finish their request
            connection.sendall(b"GET / HTTP/1.1\r\nHost:")
        for _ in range(REQUESTS):
            request, is_foreign = make_request(random, port)
            breach = find_breach(send(port, request), is_foreign)
            if breach is None and errors:
                breach = f"the studio reported {errors[0]!r}"
            yield Trial(kind="request", problem=None if breach is None else f"{breach} for {request[:150]!r}")
            errors.clear()
        start = time.monotonic()
        answer = send(port, f"GET /api/report HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        is_alive = answer is not None and b" 200 " in answer[:20] and time.monotonic() - start < ANSWER_SECONDS
        yield Trial(kind="still answers", problem=None if is_alive else f"afterwards: {(answer or b'nothing')[:80]!r}")
        for connection in slow:
            connection.close()


ATTACKS = (
    Attack(
        name="studio-requests",
        subject="malformed and foreign HTTP requests: no file beside the runs, no command, no failure of the server",
        attempt=attack_studio,
        share=1.0,
        patience=200.0,
        isolated=True,
    ),
)
