"""What `certify`, `extract` and `horizon` write into a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import sdssm
from sdssm.automata import from_json, get_machine
from sdssm.exact import Certificate, ExactError, Extraction, Horizon, store_result
from sdssm.models.evidence import find_evidence
from sdssm.runs import RunFolder
from tests.evaluation.machines import exact
from tests.evaluation.test_evaluate import create_run
from tests.programs import run_command
from tests.test_compatibility import WRITTEN

Capture = pytest.CaptureFixture[str]
FILES = {"certify": "certificate.json", "extract": "extraction.json", "horizon": "horizon.json"}
OPTIONS = {"certify": [], "extract": ["--lengths", "5,20", "--strings", "8"], "horizon": ["--max-length", "100"]}
every_command = pytest.mark.parametrize("command", FILES)


def make_certificate(horizon: int | None, float_horizon: int | None) -> Certificate:
    return Certificate(horizon, float_horizon, 3, False, "a reason", task="parity", digest=sdssm.task("parity").digest)


@cache
def extraction() -> Extraction:
    return sdssm.extract(exact(get_machine("parity")), "parity", lengths=[5, 20], strings=8)


@cache
def measured() -> Horizon:
    return sdssm.horizon(exact(get_machine("parity")), "parity", max_length=100, strings=8)


def read(run: RunFolder, file: str = "certificate.json") -> dict[str, Any]:
    return dict(run.read_json(file) or {})


@every_command
def test_the_result_of_a_run_is_stored_until_it_trains_further(tmp_path: Path, capsys: Capture, command: str) -> None:
    run = create_run(tmp_path / "run", get_machine("parity"))
    code, out, err = run_command(capsys, command, str(run.path), *OPTIONS[command], "--quiet", "--json")
    assert (code, err) == (0, "")
    stored = read(run, FILES[command])
    assert (stored["task"], stored["status"], stored["digest"]) == ("parity", "finished", run.config.digest)
    printed = json.loads(out)
    assert {**printed, "status": "finished"}.items() >= stored.items()
    assert not {"note", "storage_note"} & {name for name, value in printed.items() if value is not None}
    run.rewind(0)  # as training it further does
    assert not (run.path / FILES[command]).exists()


def test_a_stored_extraction_has_the_machine(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", get_machine("parity"))
    assert store_result(run, sdssm.extract(run, lengths=[5], strings=8)) is None
    stored = read(run, "extraction.json")
    assert from_json(json.dumps(stored["machine"])).distinguish(get_machine("parity")) is None
    assert (stored["equals_task"], stored["faithful"], stored["difference"]) == (True, True, None)


def test_a_model_card_states_the_certified_length_of_a_run(tmp_path: Path, capsys: Capture) -> None:
    path = create_run(tmp_path / "run", get_machine("parity")).path
    assert find_evidence(sdssm.load(path)).certificate is None
    code, out, err = run_command(capsys, "certify", str(path), "--quiet")
    assert (code, err) == (0, "") and "every length" in out
    stored = json.loads((path / "certificate.json").read_text())
    assert (stored["task"], stored["horizon"], stored["status"]) == ("parity", None, "finished")
    model = sdssm.load(path)
    known = find_evidence(model).certificate
    assert known is not None and known["horizon"] is None and known["reason"] == stored["reason"]
    model.save_pretrained(tmp_path / "card")
    assert "is provably classified correctly at every length" in (tmp_path / "card" / "README.md").read_text()
    RunFolder.open(path).rewind(0)  # as training it further does
    assert not (path / "certificate.json").exists()


def test_a_certificate_that_proves_more_is_kept_unless_it_is_overwritten(tmp_path: Path, capsys: Capture) -> None:
    run = create_run(tmp_path / "run", get_machine("parity"))
    assert store_result(run, make_certificate(400, 300)) is None
    note = store_result(run, make_certificate(400, 20))
    kept = "certificate.json is kept, because it proves length 400 in exact arithmetic and length 300 in float32"
    assert note == f"{kept}; overwrite=True or --overwrite replaces it"
    assert read(run)["float_horizon"] == 300
    assert store_result(run, make_certificate(400, 20), overwrite=True) is None
    assert read(run)["float_horizon"] == 20
    (run.path / "certificate.json").write_text("damaged")
    assert store_result(run, make_certificate(5, 5)) is None
    assert read(run)["horizon"] == 5
    assert store_result(run, make_certificate(None, 5), status="stopped") is None  # it trained further meanwhile
    assert read(run)["horizon"] == 5
    store_result(run, make_certificate(None, None))
    out = run_command(capsys, "certify", str(run.path), "--quiet", "--max-seconds", "0")[1]
    assert "Note: certificate.json is kept, because it proves every length" in " ".join(out.split())


def test_an_extraction_that_was_stopped_or_shorter_replaces_no_other(tmp_path: Path, capsys: Capture) -> None:
    run, result = create_run(tmp_path / "run", get_machine("parity")), extraction()
    stopped, shorter = replace(result, stopped=True), replace(result, fidelity=result.fidelity[:1])
    assert store_result(run, stopped) is None
    assert store_result(run, shorter) is None  # it was not stopped
    kept = "extraction.json is kept, because it was compared on 8 strings of length 5 and not stopped by a time limit"
    assert store_result(run, stopped) == f"{kept}; overwrite=True or --overwrite replaces it"
    assert store_result(run, result) is None  # of longer strings
    assert store_result(run, shorter) is not None
    assert len(read(run, "extraction.json")["fidelity"]) == 2
    assert store_result(run, shorter, overwrite=True) is None
    assert len(read(run, "extraction.json")["fidelity"]) == 1
    short = ["--lengths", "4", "--strings", "8", "--quiet"]
    assert "Note: extraction.json is kept" in run_command(capsys, "extract", str(run.path), *short)[1]
    note = json.loads(run_command(capsys, "extract", str(run.path), *short, "--json")[1])["storage_note"]
    assert note.startswith("extraction.json is kept")
    assert "Note" not in run_command(capsys, "extract", str(run.path), *short, "--overwrite")[1]
    assert read(run, "extraction.json")["fidelity"][-1]["length"] == 4


def test_a_horizon_of_shorter_or_fewer_strings_replaces_no_other(tmp_path: Path, capsys: Capture) -> None:
    run, result = create_run(tmp_path / "run", get_machine("parity")), measured()
    stopped = replace(result, max_length=10_000, stopped=True)  # it was to read more, and read up to 100
    assert store_result(run, result) is None
    assert store_result(run, stopped) is None  # it covers as much
    assert store_result(run, replace(stopped, readings=result.readings[:3])) is not None
    kept = "horizon.json is kept, because it was measured up to length 100, on 8 strings"
    assert store_result(run, replace(result, strings=4)) == f"{kept}; overwrite=True or --overwrite replaces it"
    assert store_result(run, replace(result, strings=16)) is None
    options = ["--max-length", "50", "--quiet"]
    assert "Note: horizon.json is kept" in run_command(capsys, "horizon", str(run.path), *options)[1]
    assert "Note" not in run_command(capsys, "horizon", str(run.path), *options, "--overwrite")[1]
    assert read(run, "horizon.json")["lengths"][-1] == 50


@every_command
def test_nothing_is_stored_for_another_task_a_saved_model_or_a_run_that_trains(
    tmp_path: Path, capsys: Capture, command: str
) -> None:
    run = create_run(tmp_path / "run", get_machine("parity")).path
    options = [*OPTIONS[command], "--quiet"]
    assert run_command(capsys, command, str(run), "--task", "even_pairs", *options)[0] == 0
    running = create_run(tmp_path / "running", get_machine("parity"), ended=None).path
    code, out, _ = run_command(capsys, command, str(running), *options)
    assert code == 0 and f"Note: {FILES[command]} is not written, because the run has not ended" in out
    exact(get_machine("parity")).save(tmp_path / "saved")
    assert run_command(capsys, command, str(tmp_path / "saved"), "--task", "parity", *options)[0] == 0
    assert not list(tmp_path.rglob(FILES[command]))


@pytest.mark.parametrize("result", [lambda: make_certificate(1, 1), extraction, measured])
def test_a_result_for_another_task_is_refused(tmp_path: Path, result: Callable[[], Any]) -> None:
    run = create_run(tmp_path / "run", get_machine("even_pairs"), task="even_pairs")
    with pytest.raises(ExactError, match=r"this result is for parity, but .*run was trained on .*; only results"):
        store_result(run, result())


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", get_machine("parity"))
    for result, file in ((make_certificate(1, 1), "certificate.json"), (extraction(), "extraction.json")):
        (run.path / file).mkdir()
        with pytest.warns(sdssm.errors.RunWarning, match=f"{file} cannot be written: .*not kept"):
            store_result(run, result, overwrite=True)


def test_run_folders_of_version_0_1_0(tmp_path: Path, capsys: Capture) -> None:
    copytree(WRITTEN / "runs", tmp_path / "runs")
    run = tmp_path / "runs" / "parity" / "seed-0"
    code, _, err = run_command(capsys, "certify", str(run), "--quiet", "--max-seconds", "1")
    assert (code, err) == (0, "")
    known = find_evidence(sdssm.load(run)).certificate
    assert known is not None and known["task"] == "parity"
