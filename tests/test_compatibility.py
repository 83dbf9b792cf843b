"""Folders that version 0.1.0 wrote still load, resume, evaluate and tabulate.

`tests/data/written-by-0.1.0` holds run folders, compiled models and a results folder as that version wrote them, and
the logits that it computed (`logits.json`). Never regenerate these files: every later version must read them unchanged.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import sdssm
from sdssm.cli import main

WRITTEN = Path(__file__).parent / "data" / "written-by-0.1.0"
LOGITS = json.loads((WRITTEN / "logits.json").read_text())
TOKENS = torch.tensor([[0, 1, 1, 0, 1, 1, 1, 0]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of all folders, because commands write into them."""
    return Path(shutil.copytree(WRITTEN, tmp_path / "written"))


@pytest.mark.parametrize("name", LOGITS)
def test_a_saved_model_computes_the_same_logits(name: str) -> None:
    torch.testing.assert_close(sdssm.load(WRITTEN / name)(TOKENS)[0], torch.tensor(LOGITS[name]), rtol=1e-4, atol=1e-5)


def test_a_compiled_model_is_still_certified_for_every_length() -> None:
    assert sdssm.certify(sdssm.load(WRITTEN / "models/parity"), sdssm.machine("parity")).horizon is None


def test_stopped_runs_resume_to_the_weights_of_uninterrupted_ones(folder: Path) -> None:
    runs = sdssm.resume(folder / "runs" / "stopped", device="cpu")
    assert [run.status for run in runs] == ["finished", "finished"]
    for seed in (0, 1):
        resumed = load_file(folder / f"runs/stopped/seed-{seed}/model.safetensors")
        uninterrupted = load_file(folder / f"runs/parity/seed-{seed}/model.safetensors")
        assert resumed.keys() == uninterrupted.keys()
        for name, value in uninterrupted.items():
            torch.testing.assert_close(resumed[name], value, rtol=1e-4, atol=1e-5)


def test_runs_are_listed_and_evaluated_to_the_same_accuracy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(folder / "runs"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 13
    stored = json.loads((WRITTEN / "runs/parity/seed-0/evaluation.json").read_text())
    (evaluated,) = sdssm.evaluate(folder / "runs/parity/seed-0", max_length=20, device="cpu")
    assert evaluated.mean == pytest.approx(stored["mean"])


def test_an_experiment_is_tabulated_from_its_old_runs(folder: Path) -> None:
    options = ["--no-train", "--reuse", "--device", "cpu", "--quiet"]
    places = ["--out", str(folder / "runs/experiments"), "--results", str(folder / "results")]
    assert main(["reproduce", str(folder / "experiment.toml"), *places, *options]) == 0
    old, new = read_cells(WRITTEN), read_cells(folder)
    assert [{name: cell[name] for name in old[0]} for cell in new] == old  # later versions may add columns


def test_the_results_folder_keeps_the_old_command(folder: Path) -> None:
    old = json.loads((WRITTEN / "results/tiny/spec.json").read_text())
    test_an_experiment_is_tabulated_from_its_old_runs(folder)
    new = json.loads((folder / "results/tiny/spec.json").read_text())
    assert new["made"][0] == old["made"][0]


def read_cells(folder: Path) -> list[dict[str, str]]:
    """The rows of the experiment's table."""
    with (folder / "results/tiny/table.csv").open() as file:
        return list(csv.DictReader(file))
