"""`sdssm runs`, run as a command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from sdssm.automata import get_machine
from sdssm.runs import RunFolder
from tests.evaluation.machines import exact
from tests.programs import run_command
from tests.runs.configs import make_config


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run that was evaluated, one that diverged, one that is training, and one that was killed."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("a5", 10), ("a5", 2), ("parity", 0), ("parity", 1)):
        folder = RunFolder.create(Path("runs") / name / f"seed-{seed}", make_config(seed, name))
        folder.save_checkpoint(50 + seed, {"w": torch.ones(2)}, seconds=1.5, loss=0.25, accuracy=98.765)
        if seed == 10:
            folder.write_json("evaluation.json", {"mean": 99.5, "max_length": 500})
            folder.finish("finished")
        elif seed == 2:
            folder.finish("diverged")
        elif seed == 1:
            from sdssm.runs.claim import release_folder

            release_folder(folder.path)  # as the operating system does when a process is killed
    return tmp_path / "runs"


def test_table_of_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "runs", "runs/")
    assert (code, err) == (0, "")
    rows = [" ".join(line.split()) for line in out.splitlines()[1:5]]
    assert rows == [
        "runs/a5/seed-2 a5 sd-ssm scale-free 2 diverged 52/100 98.76 5.81 0.2500 - - - -",
        "runs/a5/seed-10 a5 sd-ssm scale-free 10 finished 60/100 98.76 5.81 0.2500 - - 99.50 to 500 2 to 500",
        "runs/parity/seed-0 parity sd-ssm scale-free 0 running 50/100 98.76 50 0.2500 - - - -",
        "runs/parity/seed-1 parity sd-ssm scale-free 1 interrupted 51/100 98.76 50 0.2500 - - - -",
    ]
    assert run_command(capsys, "runs")[1] == out
    assert "best constant: the accuracy, on the same strings, of always giving the most frequent label" in out


def test_the_balanced_accuracy_stands_beside_its_own_chance(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A guess among all labels may be worse than a constant answer on balanced strings."""
    balanced = {"mean": 30.0, "best_constant_mean": 25.0}
    evaluation = {"mean": 12.5, "max_length": 500, "best_constant_mean": 25.05, "balanced": balanced}
    RunFolder.open(runs / "a5" / "seed-10").write_json("evaluation.json", evaluation)
    _, out, _ = run_command(capsys, "runs", "runs/a5/seed-10")
    header, row = (re.split(r"\s{2,}", line.strip()) for line in out.splitlines()[:2])
    assert [name for name in header if "chance" in name] == ["balanced chance %"]
    assert dict(zip(header, row, strict=True)) == {
        **dict(zip(header, row, strict=True)),
        "balanced % to length": "30.00 to 500",
        "balanced chance %": "25",
        "accuracy % to length": "12.50 to 500",
        "constant % to length": "25.05 to 500",
    }


def test_runs_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "runs", "runs/a5/seed-10", "--json")
    assert code == 0
    assert json.loads(out) == [
        {
            "folder": "runs/a5/seed-10",
            "task": "a5",
            "model": "sd-ssm",
            "preset": "scale-free",
            "seed": 10,
            "status": "finished",
            "step": 60,
            "steps": 100,
            "seconds": 1.5,
            "accuracy": 98.765,
            "best_constant": pytest.approx(5.807426),
            "chance": 100 / 60,
            "loss": 0.25,
            "balanced": None,
            "balanced_chance": None,
            "mean": 99.5,
            "mean_constant": pytest.approx(1.99912, abs=1e-5),
            "max_length": 500,
        }
    ]


def test_damaged_folders_are_reported_in_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "a5" / "seed-2" / "config.json").write_text("{")
    (runs / "a5" / "seed-10" / "evaluation.json").write_text("[")
    code, out, err = run_command(capsys, "runs", "runs")
    assert code == 0
    assert len(out.split("\n\n")[0].splitlines()) == 4
    assert err.splitlines() == [
        "sdssm: warning: runs/a5/seed-2/config.json is damaged: it is not JSON; left out",
        "sdssm: warning: runs/a5/seed-10/evaluation.json is damaged: it is not JSON; it counts as missing",
    ]


def test_saved_models_beside_runs_are_not_damaged_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exact(get_machine("parity")).save(runs / "exact")
    code, out, err = run_command(capsys, "runs", "runs")
    assert (code, err, len(out.split("\n\n")[0].splitlines())) == (0, "", 5)
    code, out, err = run_command(capsys, "runs", "runs/exact")
    assert (code, out) == (2, "")
    assert err == "sdssm: runs/exact holds a saved model and no run; sdssm evaluate runs/exact measures it\n"


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("nowhere", "there is no folder nowhere"),
        ("empty", "there is no run folder in empty or below; sdssm train TASK --out DIR makes one"),
        ("file", "file is a file; pass the folder that it is in"),
        ("other", "other is not a run folder"),
        ("newer", "newer was written by sdssm 9.9 in format 7"),
        ("runs/a5/seed-2/checkpoints", "there is no run folder in runs/a5/seed-2/checkpoints or below"),
    ],
)
def test_bad_input_is_one_line(folder: str, message: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    Path("file").touch()
    for name, config in (("other", {"theme": "dark"}), ("newer", {"format": 7, "versions": {"sdssm": "9.9"}})):
        Path(name).mkdir()
        (Path(name) / "config.json").write_text(json.dumps(config))
    code, out, err = run_command(capsys, "runs", folder)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
