"""Folders that earlier versions wrote still load, resume, evaluate and tabulate.

Each folder `tests/data/written-by-*` with a samples.json was written by `python -m tests.write_samples`, which says
what is in it. Never change a committed one. `tests/test_compatibility.py` has the folders of 0.1.0, which are older.
"""

from __future__ import annotations

import csv
import json
import shutil
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import sdssm
from sdssm.cli import main
from sdssm.evaluation.stored import read_result
from sdssm.experiments.mlregtest.reproduction import stored_languages
from sdssm.models.saved import load_saved_task
from sdssm.runs import RunFolder
from tests.write_samples import LANGUAGES, PLACES, TOKENS

DATA = Path(__file__).parent / "data"
SAMPLES = sorted(path.parent for path in DATA.glob("written-by-*/samples.json"))
MODELS = [(folder, name) for folder in SAMPLES for name in json.loads((folder / "samples.json").read_text())["logits"]]


@pytest.fixture(params=SAMPLES, ids=lambda path: path.name)
def written(request: pytest.FixtureRequest) -> Path:
    """The folder of a version, as it was written."""
    folder: Path = request.param
    return folder


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    """A copy of the folder of a version, because commands write into it."""
    return Path(shutil.copytree(written, tmp_path / "written"))


def read_samples(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "samples.json").read_text())
    return values


@pytest.mark.parametrize(("folder", "name"), MODELS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_a_model_computes_the_same_logits(folder: Path, name: str) -> None:
    logits = sdssm.load(folder / name, trust="module" in name)(TOKENS)[0]
    torch.testing.assert_close(logits, torch.tensor(read_samples(folder)["logits"][name]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["stopped", "killed"])
def test_runs_resume_to_the_weights_of_uninterrupted_ones(copied: Path, name: str) -> None:
    runs = sdssm.resume(copied / "runs" / name, device="cpu")
    assert [run.status for run in runs] == ["finished", "finished"]
    for seed in (0, 1):
        resumed = load_file(copied / f"runs/{name}/seed-{seed}/model.safetensors")
        uninterrupted = load_file(copied / f"runs/finished/seed-{seed}/model.safetensors")
        assert resumed.keys() == uninterrupted.keys()
        for key, value in uninterrupted.items():
            torch.testing.assert_close(resumed[key], value, rtol=1e-4, atol=1e-5)


def test_runs_are_listed_and_evaluated_to_the_same_accuracy(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = read_samples(copied)
    assert main(["runs", str(copied / "runs"), "--json"]) == 0
    listed = {Path(row["folder"]).relative_to(copied): row for row in json.loads(capsys.readouterr().out)}
    assert len(listed) == samples["runs"]
    assert listed[Path("runs/killed/seed-0")]["status"] == "interrupted"
    for name, mean in samples["means"].items():
        assert listed[Path(name)]["mean"] == pytest.approx(mean)
    evaluation = sdssm.evaluate(
        copied / "runs/finished/seed-0", max_length=20, strings=32, device="cpu", overwrite=True
    )
    assert evaluation[0].mean == pytest.approx(samples["means"]["runs/finished/seed-0"])


def test_stored_results_are_read(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder.open(copied / "runs/finished/seed-0")
    for name in ("certificate.json", "extraction.json", "horizon.json"):
        assert read_result(run, name, run.status, run.config.digest) is not None, name
    assert load_file(run.path / "evaluation-states.safetensors")
    page = tmp_path / "report.html"
    assert main(["report", str(copied / "runs"), str(copied / "results/tiny"), "-o", str(page)]) == 0
    assert "damaged" not in capsys.readouterr().err and page.stat().st_size > 10_000


def test_an_experiment_is_tabulated_from_its_old_runs(copied: Path) -> None:
    with chdir(copied):
        assert (
            main(["reproduce", "experiment.toml", *PLACES, "--no-train", "--reuse", "--device", "cpu", "--quiet"]) == 0
        )
    old = read_samples(copied)["cells"]
    with (copied / "results/tiny/table.csv").open() as file:
        assert [
            {name: cell[name] for name in old[0]} for cell in csv.DictReader(file)
        ] == old  # there may be more columns


def test_saved_models_keep_their_task_and_their_proof(written: Path) -> None:
    task = load_saved_task(written / "models/saved")
    assert task is not None and task.name == "parity"
    for name in ("compiled", "snapped"):
        assert sdssm.certify(written / "models" / name, "parity").horizon is None, name


def test_records_of_languages_are_read(written: Path) -> None:
    plan = stored_languages(LANGUAGES, results=written / "results")
    assert list(plan.records) == ["02.02.Zp.2.1.0"] and len(plan.records["02.02.Zp.2.1.0"].balanced) == 3
