"""Which requests a studio answers: its own page and programs, never pages of other sites, never paths."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sdssm.errors import StudioError
from sdssm.studio import handler
from sdssm.studio.addresses import ServedAddress
from sdssm.studio.request_rules import MAX_BODY
from sdssm.studio.server import MAX_CONNECTIONS
from tests.studio.conftest import DATA, Client

Serve = Callable[..., Client]
SECRET = "the-secret-outside-the-folder"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs, with a file beside it."""
    parent = tmp_path_factory.mktemp("studio")
    (parent / "secret.json").write_text(json.dumps({"secret": SECRET}))
    return Path(shutil.copytree(DATA / "runs", parent / "runs"))


@pytest.fixture(scope="module")
def client(folder: Path, serve: Serve) -> Client:
    return serve(folder)


@pytest.fixture(scope="module")
def acting(folder: Path, serve: Serve) -> Client:
    return serve(folder, allow_actions=True)


# -- the page and its data ---------------------------------------------------------------------------------------------


def test_every_answer_carries_the_headers_that_protect_it(client: Client) -> None:
    for path in ("/", "/api/report", "/nothing"):
        _, headers, _ = client.ask(path)
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "Python" not in headers["Server"]


def test_a_known_version_is_not_sent_again(client: Client) -> None:
    status, headers, body = client.ask("/api/report")
    assert status == 200 and len(json.loads(body)["report"]["runs"]) == 13
    status, _, body = client.ask("/api/report", headers={"If-None-Match": headers["ETag"]})
    assert (status, body) == (304, b"")
    assert client.ask("/api/report", headers={"If-None-Match": '"other"'})[0] == 200


def test_head_answers_without_a_body(client: Client) -> None:
    status, headers, body = client.ask("/api/report", "HEAD")
    assert status == 200 and body == b"" and int(headers["Content-Length"]) > 100


def test_the_detail_of_a_run_is_found_by_its_id(client: Client) -> None:
    run = client.get_json("/api/report")["report"]["runs"][0]["id"]
    assert client.get_json(f"/api/runs/{run}")["id"] == run


# -- paths -------------------------------------------------------------------------------------------------------------

PATHS = [
    "/../secret.json",
    "/../../etc/passwd",
    "/..%2f..%2fetc%2fpasswd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "/api/runs/",
    "/api/runs/..",
    "/api/runs/../../secret.json",
    "/api/runs/%2e%2e%2fsecret.json",
    "/api/runs//etc/passwd",
    "/api/runs/parity/seed-0/config.json",
    "/api/runs/%00",
    "/runs",
    "/api",
    "/assets/report.js",
    "/secret.json",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_to_a_file(client: Client, path: str) -> None:
    status, _, body = client.ask(path)
    assert status == 404
    assert SECRET.encode() not in body and b"root:" not in body
    assert json.loads(body) == {"error": "there is nothing at this address"}


def test_an_address_of_another_server_is_refused(client: Client) -> None:
    assert client.ask("http://example.org/")[0] == 400
    assert client.ask("*")[0] == 400


# -- pages of other sites ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["example.org", "evil.example:8017", "127.0.0.1.example.org", "10.0.0.1", "", "a b"])
def test_a_name_that_points_here_is_refused(client: Client, host: str) -> None:
    """A page of another site can make its own name point to 127.0.0.1 (DNS rebinding)."""
    status, _, body = client.ask("/api/report", headers={"Host": host})
    assert status == 421 and b"runs" not in body


@pytest.mark.parametrize(
    "host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST", "localhost:9000", "[::1]:{port}"]
)
def test_names_of_this_machine_are_answered(client: Client, host: str) -> None:
    assert client.ask("/api/report", headers={"Host": host.format(port=client.port)})[0] == 200


@pytest.mark.parametrize("path", ["/", "/api/report"])
@pytest.mark.parametrize("origin", ["http://example.org", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_other_origins_are_refused(client: Client, path: str, origin: str) -> None:
    assert client.ask(path, headers={"Origin": origin.format(port=client.port)})[0] == 403


def test_the_own_origin_is_answered(client: Client) -> None:
    headers = {"Origin": f"http://127.0.0.1:{client.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.ask("/api/report", headers=headers)[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_link_to_the_page_and_do_nothing_else(client: Client, site: str) -> None:
    """Such a request has no Origin, as for a picture or a script."""
    assert client.ask("/api/report", headers={"Sec-Fetch-Site": site})[0] == 403
    assert client.ask("/api/report", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Dest": "document"})[0] == 403
    assert client.ask("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Dest": "iframe"})[0] == 403
    assert client.ask("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Dest": "document"})[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "::", "example.org", ""])
def test_hosts_that_others_reach_are_refused(host: str) -> None:
    with pytest.raises(StudioError, match="host"):
        ServedAddress(host=host, port=8017)


def test_a_remote_studio_answers_to_numbers_and_not_to_names() -> None:
    address = ServedAddress(host="0.0.0.0", port=8017, remote=True)
    assert address.url == "http://127.0.0.1:8017/" and not address.is_local
    assert address.is_own_name("192.168.0.7:8017") and address.is_own_name(socket.gethostname().lower())
    assert not address.is_own_name("example.org:8017")


# -- methods and bodies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_without_permission_requests_only_read(client: Client, method: str) -> None:
    status, headers, body = client.ask("/api/actions", method, headers={"X-Sdssm-Token": client.server.token})
    assert status == 405 and headers["Allow"] == "GET, HEAD" and b"--allow-actions" in body
    assert client.ask("/api/actions")[0] == 404


def test_without_permission_the_page_has_no_token(client: Client, acting: Client) -> None:
    assert client.server.token.encode() not in client.ask("/")[2]
    assert acting.server.token.encode() in acting.ask("/")[2]
    assert acting.server.token.encode() not in acting.ask("/api/report")[2] + acting.ask("/api/actions")[2]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Sdssm-Token": "wrong"}, 403),
        ({"X-Sdssm-Token": ""}, 403),
        ({"X-Sdssm-Token": "é"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://example.org"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, 403),
        ({"Host": "example.org"}, 421),
        ({"Content-Length": str(MAX_BODY + 1)}, 413),
        ({"Content-Length": "9" * 40}, 413),
        ({"Content-Length": "-1"}, 411),
        ({"Content-Length": "x"}, 411),
        ({"Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_an_action_needs_token_type_length_and_origin(acting: Client, headers: dict[str, str], status: int) -> None:
    run = acting.get_json("/api/report")["report"]["runs"][0]["id"]
    assert acting.act(run, "evaluate", headers=headers)[0] == status
    assert acting.get_json("/api/actions") == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b'{"run": 1, "action": "evaluate"}', b"[" * 4000])
def test_a_body_that_is_no_action_is_refused(acting: Client, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "X-Sdssm-Token": acting.server.token}
    assert acting.ask("/api/actions", "POST", headers=headers, body=body)[0] == 400


@pytest.mark.parametrize("run", ["nothing", "../secret", "/etc", ""])
def test_actions_know_only_the_runs_of_the_folder(acting: Client, run: str) -> None:
    status, answer = acting.act(run, "evaluate")
    assert status == 409 and "no such run" in answer["error"]


@pytest.mark.parametrize("action", ["train", "rm", "--help", "evaluate --trust", ""])
def test_only_four_commands_can_be_started(acting: Client, action: str) -> None:
    run = acting.get_json("/api/report")["report"]["runs"][0]["id"]
    status, answer = acting.act(run, action)
    assert status == 409 and "no action" in answer["error"]
    assert acting.get_json("/api/actions") == []


def test_long_requests_are_refused(client: Client) -> None:
    assert client.ask("/" + "a" * 70_000)[0] == 414
    assert client.ask("/", headers={"Cookie": "a" * 70_000})[0] == 431


# -- slow clients ------------------------------------------------------------------------------------------------------


def test_clients_that_hang_neither_block_others_nor_stay(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "REQUEST_SECONDS", 1.0)
    hanging = [socket.create_connection(("127.0.0.1", client.port), timeout=10) for _ in range(MAX_CONNECTIONS // 2)]
    for connection in hanging:
        connection.sendall(b"GET / HT")
    assert client.ask("/api/report")[0] == 200
    for connection in hanging:
        with connection:
            assert connection.recv(100) == b""  # closed by the server


def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "REQUEST_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", client.port), timeout=0.1) as connection:
        for _ in range(50):
            try:
                connection.sendall(b"G")
                if connection.recv(100) == b"":
                    return
            except ConnectionError:
                return
            except TimeoutError:  # not yet
                continue
    raise AssertionError("the server waits for ever")


def test_too_many_connections_are_closed_and_the_next_ones_answered(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "REQUEST_SECONDS", 1.0)
    hanging = [socket.create_connection(("127.0.0.1", client.port), timeout=10) for _ in range(MAX_CONNECTIONS + 5)]
    closed_at_once = hanging[-1].recv(10)
    assert closed_at_once == b""
    for connection in hanging:
        connection.close()
    for _ in range(100):
        try:
            assert client.ask("/api/report")[0] == 200
            return
        except ConnectionError:  # the places become free within a moment
            continue
    raise AssertionError("the server does not recover")
