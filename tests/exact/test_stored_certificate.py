"""The certificate that `sdssm certify` writes into a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import sdssm
from sdssm.automata import get_machine
from sdssm.exact.certification import Certificate
from sdssm.exact.certification.stored import store_certificate
from sdssm.models.evidence import find_evidence
from sdssm.runs import RunFolder
from tests.evaluation.machines import exact
from tests.evaluation.test_evaluate import create_run
from tests.programs import run_command
from tests.test_compatibility import WRITTEN

Capture = pytest.CaptureFixture[str]


def make_certificate(horizon: int | None, float_horizon: int | None) -> Certificate:
    return Certificate(horizon, float_horizon, 3, False, "a reason", task="parity")


def read(run: RunFolder) -> dict[str, Any]:
    return dict(run.read_json("certificate.json") or {})


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
    assert store_certificate(run, make_certificate(400, 300), "finished", overwrite=False) is None
    note = store_certificate(run, make_certificate(400, 20), "finished", overwrite=False)
    kept = "certificate.json is kept, because it proves length 400 in exact arithmetic and length 300 in float32"
    assert note == f"{kept}; --overwrite replaces it"
    assert read(run)["float_horizon"] == 300
    assert store_certificate(run, make_certificate(400, 20), "finished", overwrite=True) is None
    assert read(run)["float_horizon"] == 20
    (run.path / "certificate.json").write_text("damaged")
    assert store_certificate(run, make_certificate(5, 5), "finished", overwrite=False) is None
    assert read(run)["horizon"] == 5
    assert store_certificate(run, make_certificate(None, 5), "stopped", overwrite=False) is None  # it trains again
    assert read(run)["horizon"] == 5
    store_certificate(run, make_certificate(None, None), "finished", overwrite=False)
    out = run_command(capsys, "certify", str(run.path), "--quiet", "--max-seconds", "0")[1]
    assert "Note: certificate.json is kept, because it proves every length" in " ".join(out.split())


def test_nothing_is_stored_for_another_task_a_saved_model_or_a_run_that_trains(tmp_path: Path, capsys: Capture) -> None:
    run = create_run(tmp_path / "run", get_machine("parity")).path
    assert run_command(capsys, "certify", str(run), "--task", "even_pairs", "--quiet")[0] == 0
    running = create_run(tmp_path / "running", get_machine("parity"), ended=None).path
    assert run_command(capsys, "certify", str(running), "--quiet")[0] == 0
    exact(get_machine("parity")).save(tmp_path / "saved")
    assert run_command(capsys, "certify", str(tmp_path / "saved"), "--task", "parity", "--quiet")[0] == 0
    assert not list(tmp_path.rglob("certificate.json"))


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", get_machine("parity"))
    (run.path / "certificate.json").mkdir()
    with pytest.warns(sdssm.errors.RunWarning, match="certificate.json cannot be written: .*not kept"):
        store_certificate(run, make_certificate(1, 1), "finished", overwrite=True)


def test_run_folders_of_version_0_1_0(tmp_path: Path, capsys: Capture) -> None:
    copytree(WRITTEN / "runs", tmp_path / "runs")
    run = tmp_path / "runs" / "parity" / "seed-0"
    code, _, err = run_command(capsys, "certify", str(run), "--quiet", "--max-seconds", "1")
    assert (code, err) == (0, "")
    known = find_evidence(sdssm.load(run)).certificate
    assert known is not None and known["task"] == "parity"
