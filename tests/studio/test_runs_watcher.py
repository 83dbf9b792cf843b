"""What the page gets while runs are written, damaged or removed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sdssm.errors import StudioError
from sdssm.report.page.run_data import PageRun, read_run
from sdssm.runs.claim import claim_folder, release_folder
from sdssm.studio import RunsWatcher, StudioServer, page_reader, runs_watcher
from sdssm.studio.addresses import DEFAULT_HOST
from tests.studio.conftest import Client


@pytest.fixture(autouse=True)
def look_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_watcher, "SCAN_SECONDS", 0.0)


@pytest.fixture
def run(runs: Path) -> Path:
    return runs / "parity" / "seed-0"


def report_of(watcher: RunsWatcher) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(watcher.snapshot().body)["report"]
    return report


def identifier(watcher: RunsWatcher, folder: Path) -> str:
    return next(str(run["id"]) for run in report_of(watcher)["runs"] if run["folder"] == str(folder))


def test_a_folder_fills_while_it_is_watched(tmp_path: Path, runs: Path) -> None:
    watcher = RunsWatcher(tmp_path / "later")
    assert report_of(watcher)["runs"] == [] and report_of(watcher)["problems"] == []
    shutil.copytree(runs / "parity", tmp_path / "later" / "parity")
    assert len(report_of(watcher)["runs"]) > 0
    shutil.rmtree(tmp_path / "later")
    assert report_of(watcher)["runs"] == []


def test_the_folder_may_be_that_of_one_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    for root in (run, Path()):
        watcher = RunsWatcher(root)
        (shown,) = report_of(watcher)["runs"]
        assert shown["folder"] == str(root) and watcher.detail(shown["id"]) is not None


def test_new_events_change_the_detail_of_their_run_alone(runs: Path, run: Path) -> None:
    watcher = RunsWatcher(runs)
    before, name = watcher.snapshot(), identifier(watcher, run)
    first = watcher.detail(name)
    assert first is not None and watcher.detail(name) is first
    with (run / "events.jsonl").open("a") as file:
        file.write('{"step": 1000, "loss": 0.25, "accuracy": 75.0}\n')
    after, second = watcher.snapshot(), watcher.detail(name)
    assert {key for key in after.versions if after.versions[key] != before.versions[key]} == {name}
    assert second is not None and second.version != first.version
    events = json.loads(second.body)["events"]
    assert (events["step"][-1], events["loss"][-1], events["accuracy"][-1]) == (1000, 0.25, 75.0)


def test_folders_that_have_not_changed_are_not_read_again(
    runs: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, read = RunsWatcher(runs), list[Path]()
    watcher.snapshot()

    def note(path: Path) -> PageRun:
        read.append(path)
        return read_run(path)

    monkeypatch.setattr(page_reader, "read_run", note)
    watcher.snapshot()
    assert read == []
    (run / "status.json").write_bytes((run / "status.json").read_bytes())
    watcher.snapshot()
    assert read == [run]


@pytest.mark.parametrize("name", ["events.jsonl", "status.json", "evaluation.json", "config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [b"", b"{", b'{"step": 12', b"[]", b"\xff\xfe", b"null\n"])
def test_a_file_that_is_half_written_breaks_neither_report_nor_detail(
    runs: Path, run: Path, name: str, content: bytes
) -> None:
    (run / name).write_bytes(content)
    watcher = RunsWatcher(runs)
    report = report_of(watcher)
    assert len(report["runs"]) + len(report["problems"]) == 13
    for other in report["runs"]:
        assert watcher.detail(other["id"]) is not None


def test_half_a_line_of_events_waits_for_its_rest(runs: Path, run: Path) -> None:
    watcher = RunsWatcher(runs)
    line = '{"step": 1000, "loss": 0.25, "accuracy": 75.0}\n'
    steps = []
    for piece in (line[:20], line[20:]):
        with (run / "events.jsonl").open("a") as file:
            file.write(piece)
        detail = watcher.detail(identifier(watcher, run))
        assert detail is not None
        steps.append(json.loads(detail.body)["events"]["step"][-1])
    assert steps[0] < 1000 == steps[1]


def test_links_out_of_the_folder_are_problems(runs: Path, run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(runs / "lstm", tmp_path / "elsewhere" / "lstm")
    (runs / "linked").symlink_to(tmp_path / "elsewhere")
    (run / "horizon.json").symlink_to("/etc/passwd")
    report = report_of(RunsWatcher(runs))
    assert len(report["runs"]) == 12
    assert {problem["path"] for problem in report["problems"]} == {str(runs / "linked"), str(run / "horizon.json")}
    assert "root:" not in json.dumps(report)


def test_a_run_that_trains_gets_no_command(runs: Path, run: Path) -> None:
    watcher = RunsWatcher(runs)
    name = identifier(watcher, run)
    assert watcher.folder_for_action(name) == run
    status = json.loads((run / "status.json").read_text())
    status.pop("checksum", None)  # edited on purpose
    (run / "status.json").write_text(json.dumps({**status, "status": "running"}))
    claim_folder(run)
    try:
        with pytest.raises(StudioError, match="is being trained"):
            watcher.folder_for_action(name)
    finally:
        release_folder(run)


def test_an_error_of_the_reader_is_told_once_and_names_no_path(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise RuntimeError(f"cannot read {path}")

    monkeypatch.setattr(page_reader, "read_run", fail)
    lines: list[str] = []
    with StudioServer(RunsWatcher(runs), host=DEFAULT_HOST, port=0, report_error=lines.append) as server:
        for _ in range(2):
            status, _, body = Client(server).ask("/api/report")
            assert status == 500 and b"terminal" in body and str(runs).encode() not in body
    assert len(lines) == 1 and lines[0].startswith("RuntimeError: cannot read")
