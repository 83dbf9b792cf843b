"""`sdssm studio` as a program: its options, its address, its end."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep

import pytest

from sdssm.studio.addresses import DEFAULT_PORT, MORE_PORTS
from tests.programs import is_running, run_command, started_studio

DATA = Path(__file__).parents[1] / "data" / "written-by-0.1.0"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_at_once(number: signal.Signals, tmp_path: Path) -> None:
    with started_studio(str(DATA / "runs"), "--port", "0") as (process, port):
        hanging = socket.create_connection(("127.0.0.1", port))
        hanging.sendall(b"GET /")  # a client that waits does not delay the end
        start = monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert monotonic() - start < 3
        assert (process.returncode, out, err) == (0, "stopped\n", "")
        hanging.close()


def ask(port: int, path: str, *, body: str | None = None, token: str = "") -> str:
    """Return the body of the answer to a request."""
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {} if body is None else {"Content-Type": "application/json", "X-Sdssm-Token": token}
    connection.request("GET" if body is None else "POST", path, body=body, headers=headers)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_the_end_of_the_studio_ends_its_command(tmp_path: Path) -> None:
    shutil.copytree(DATA / "runs" / "parity", tmp_path / "parity")
    with started_studio(str(tmp_path), "--port", "0", "--allow-actions") as (process, port):
        match = re.search(r'<meta name="sdssm-token" content="([\w-]+)">', ask(port, "/"))
        assert match is not None
        run = json.loads(ask(port, "/api/report"))["report"]["runs"][0]["id"]
        ask(port, "/api/actions", body=json.dumps({"run": run, "action": "evaluate"}), token=match[1])
        deadline = monotonic() + 20
        while not (children := children_of(process.pid)) and monotonic() < deadline:
            sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "stopped\n", "")
        assert len(children) == 1 and not is_running(children[0])


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started."""
    listings = Path(f"/proc/{process}/task").glob("*/children")
    return [int(number) for listing in listings for number in listing.read_text().split()]


def test_the_first_free_port_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with started_studio(str(DATA / "runs")) as (_, first), started_studio(str(DATA / "runs")) as (_, second):
        assert first != second
        assert {first, second} <= set(range(DEFAULT_PORT, DEFAULT_PORT + MORE_PORTS))
        code, _, error = run_command(capsys, "studio", str(DATA / "runs"), "--port", str(first))
        assert (code, error.count("\n")) == (2, 1)
        assert f"port {first} of 127.0.0.1 is in use" in error


def test_a_folder_that_does_not_exist_yet_is_served(tmp_path: Path) -> None:
    with started_studio(str(tmp_path / "runs"), "--port", "0") as (_, port):
        assert '"runs":[]' in ask(port, "/api/report")


def test_the_browser_is_opened_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "browser.sh"
    script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/part && mv {tmp_path}/part {tmp_path}/opened\n')
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    with started_studio(str(tmp_path), "--port", "0", "--open") as (_, port):
        deadline = monotonic() + 20
        while not (tmp_path / "opened").exists() and monotonic() < deadline:
            sleep(0.02)
        assert (tmp_path / "opened").read_text() == f"http://127.0.0.1:{port}/\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "other machines reach the host 0.0.0.0; leave --host out, or add --allow-remote"),
        (["--host", "192.0.2.1", "--allow-remote"], "this machine has no address 192.0.2.1"),
        (["--host", ""], "is not a host"),
        (["--port", "65536"], "is not a whole number from 0 to 65,535"),
        ([str(DATA / "experiment.toml")], "is a file; pass the folder"),
    ],
)
def test_bad_options_are_errors_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = run_command(capsys, "studio", *arguments)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert message in error


def test_other_machines_are_allowed_with_a_warning(tmp_path: Path) -> None:
    with started_studio(str(tmp_path), "--port", "0", "--host", "0.0.0.0", "--allow-remote") as (process, _):
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
        assert error == ("sdssm: warning: every machine that reaches 0.0.0.0 can read the runs; nothing is encrypted\n")
