"""What the studio notices below a folder, and what it does not look at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sdssm.runs.claim import claim_folder, release_folder
from sdssm.studio import folder_scan
from sdssm.studio.folder_scan import scan_folder


@pytest.fixture
def run(runs: Path) -> Path:
    return runs / "parity" / "seed-0"


def test_a_folder_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert scan_folder(tmp_path / "runs").versions == {}


def test_a_change_of_one_run_changes_its_version_and_that_of_the_folder(runs: Path, run: Path) -> None:
    before = scan_folder(runs)
    assert len(before.versions) == 13
    assert scan_folder(runs) == before and scan_folder(runs).version == before.version
    with (run / "events.jsonl").open("a") as file:
        file.write('{"step": 9}\n')
    after = scan_folder(runs)
    assert {path for path in after.versions if after.versions[path] != before.versions[path]} == {run}
    assert after.version != before.version


def test_a_file_that_is_replaced_by_one_of_the_same_size_and_time_is_noticed(runs: Path, run: Path) -> None:
    before, stat = scan_folder(runs), (run / "status.json").stat()
    (run / "new").write_bytes((run / "status.json").read_bytes())
    os.utime(run / "new", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (run / "new").replace(run / "status.json")
    assert scan_folder(runs).versions[run] != before.versions[run]


def test_partly_written_files_are_not_changes(runs: Path, run: Path) -> None:
    before = scan_folder(runs)
    (run / "status.json.123.part").write_text("{")
    assert scan_folder(runs).version == before.version


def test_the_start_and_the_end_of_a_training_are_noticed(runs: Path, run: Path) -> None:
    """A killed training changes no file; the kernel releases its lock."""
    free = scan_folder(runs).versions[run]
    claim_folder(run)
    held = scan_folder(runs).versions[run]
    mark = (run / "owner").read_text()
    release_folder(run)
    (run / "owner").write_text(mark)  # as a killed process leaves it
    assert len({free, held, scan_folder(runs).versions[run]}) == 3


def test_results_folders_count(runs: Path) -> None:
    (runs / "table1").mkdir()
    (runs / "table1" / "results.json").write_text("{}")
    assert runs / "table1" in scan_folder(runs).versions


def test_links_to_places_outside_are_named_and_not_followed(runs: Path, run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.json").write_text("{}")
    (runs / "linked").symlink_to(tmp_path / "elsewhere")
    (run / "horizon.json").symlink_to("/etc/passwd")
    scan = scan_folder(runs)
    assert set(scan.links) == {runs / "linked", run / "horizon.json"}
    assert run not in scan.versions and runs / "linked" not in scan.versions


def test_links_within_the_folder_and_the_folder_as_a_link_are_fine(runs: Path, run: Path, tmp_path: Path) -> None:
    (run / "horizon.json").symlink_to(runs / "lstm" / "seed-0" / "status.json")
    (tmp_path / "link").symlink_to(runs)
    scan = scan_folder(tmp_path / "link")
    assert scan.links == () and len(scan.versions) == 13


def test_a_disk_full_of_folders_is_cut_off(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_scan, "MAX_FOLDERS", 5)
    assert scan_folder(runs).is_cut_off
