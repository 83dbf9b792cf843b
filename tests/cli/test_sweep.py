"""`sdssm sweep`, run as a command."""

from __future__ import annotations

import json
import os
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sdssm.training.progress import SilentProgress
from tests.programs import run_command

SMALL = ("--set", "state=4", "dictionary=2", "batch=8", "steps=40", "train_length=4", "--max-length", "8")
GRID = ("--grid", "lr=1e-3,1e-2", "--choice", "weight_decay=0,1e-4")
MINE = (
    'name = "mine"\nseeds = 1\ntasks = ["parity"]\n[evaluate]\nmax_length = 8\n[[rows]]\nmodel = "sd-ssm"\n'
    "settings = { state = 4, dictionary = 2, batch = 8, steps = 20, train_length = 4 }\ngrid = { lr = [0.1, 0.2] }\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_grid_of_a_task(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    typed = ("sweep", "parity", *SMALL, *GRID, "--seeds", "2", "--device", "cpu")
    code, out, _ = run_command(capsys, *typed, "--dry-run")
    assert code == 0 and "8 runs: 8 missing" in out and not (folder / "results").exists()
    code, out, err = run_command(capsys, *typed, "--quiet")
    assert (code, err) == (0, "")
    assert "4 candidates by accuracy at training lengths" in out
    assert "best of 4 by accuracy at training lengths" in out
    [results] = (folder / "results").iterdir()
    assert {"spec.json", "results.json", "ranking.csv", "ranking.md", "table.csv"} <= {
        path.name for path in results.iterdir()
    }
    command = json.loads((results / "spec.json").read_text())["made"][-1]["command"]
    assert command.startswith("sdssm sweep parity ") and "--grid lr=1e-3,1e-2 weight_decay=0,1e-4" in command
    code, out, _ = run_command(capsys, *typed, "--dry-run")
    assert "8 runs: 8 finished" in out


def test_grid_of_an_experiment_and_random_draws_from_it(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "mine.toml").write_text(MINE)
    rest = ("--device", "cpu", "--quiet")
    assert run_command(capsys, "sweep", "mine.toml", *rest, "--search", "random", "--trials", "1")[0] == 0
    assert run_command(capsys, "sweep", "mine.toml", *rest, "--select", "score")[0] == 0
    assert sorted(path.name for path in (folder / "results").iterdir()) == ["mine", "mine-random"]
    code, out, _ = run_command(
        capsys, "reproduce", "mine.toml", *rest
    )  # the same table, selected as the experiment says
    assert code == 0 and "best of 2 by accuracy at training lengths" in out


def test_search_with_optuna(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    pytest.importorskip("optuna")
    search = ("--range", "lr=1e-4..1e-1", "--search", "optuna", "--parallel", "2", "--device", "cpu")
    typed = ("sweep", "parity", *SMALL, *search, "--trials")
    code, out, _ = run_command(capsys, *typed, "4", "--dry-run")
    assert code == 0 and "The next 2 candidates by Optuna, after 0 of 4" in out and "2 runs: 2 missing" in out
    assert not (folder / "results").exists()
    assert run_command(capsys, *typed, "2", "--quiet")[0] == 0
    code, out, err = run_command(capsys, *typed, "4", "--quiet")
    assert (code, err) == (0, "") and "4 candidates" in out
    [results] = (folder / "results").iterdir()  # more trials continue the same search
    assert (results / "study.json").exists()


@pytest.mark.parametrize("command", ["sweep", "reproduce"])
def test_ctrl_c_prints_the_command_to_rerun(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, command: str
) -> None:
    """With all options: without --out, --results or --reuse it would start another experiment."""

    class Stopper(SilentProgress):
        def update(self, step: int, loss: Any, accuracy: Any, alive: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(import_module("sdssm.training.progress"), "progress_for", lambda *_, **__: Stopper())
    (folder / "my files").mkdir()
    (folder / "my files" / "mine.toml").write_text(MINE)
    places = (
        "--out",
        "trained",
        "--results",
        "tables",
        "--reuse",
        "--device",
        "cpu",
        "--engine",
        "local",
        "--workers",
        "1",
    )
    code, _, err = run_command(capsys, command, "my files/mine.toml", *places)
    assert code == 128 + signal.SIGTERM
    assert err.endswith(f"run the same command again: sdssm {command} 'my files/mine.toml' {' '.join(places)}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a5",), "nothing to search"),
        (("a5", "--grid", "lr"), "has no value"),
        (("a5", "--grid", "lr=1e-3,0.001"), "twice"),
        (("a5", "--grid", "lr=1", "--grid", "lr=2"), "lr twice"),
        (("a5", "--grid", "lrr=1e-3"), "did you mean 'lr'"),
        (("a5", "--grid", "lr=abc"), "lr is 'abc'"),
        (("a5", "--grid", "lr=1", "--set", "lr=2"), "lr is set twice"),
        (("a5x", "--grid", "lr=1"), "a5x"),
        (("a5", "a5", "--grid", "lr=1"), "given twice"),
        (("a5", "--model", "mamb", "--grid", "lr=1"), "did you mean 'mamba'"),
        (("a5", "--grid", "lr=1", "--select", "best"), "sdssm: --select is 'best'"),
        (("a5", "--grid", "lr=1", "--name", "a/b"), "names a folder"),
        (("a5", "--grid", "lr=1", "--max-length", "0"), "'0' is not a whole number from 1 to 1,000,000"),
        (("a5", "--grid", "lr=1", "--search", "randon", "--trials", "3"), "did you mean 'random'"),
        (("a5", "--grid", "lr=1", "--trials", "3"), "--search random or optuna"),
        (("a5", "--grid", "lr=1", "--search", "random"), "--trials"),
        (("a5", "--range", "lr=1e-3..1e-2"), "--search random"),
        (("a5", "--range", "lr=1e-2..1e-3", "--search", "random", "--trials", "3"), "below the second"),
        (("a5", "--range", "state=2..800000", "--search", "random", "--trials", "3"), "state is"),
        (("a5", "--grid", "lr=1", "--keep", "2"), "sdssm: --keep is 2;"),
        (("a5", "--grid", "lr=1", "--rungs", "0.5,0.2"), "sdssm: --rungs are 0.5, 0.2;"),
        (("a5", "--grid", "lr=1", "--rungs", "0.25,0.5", "--dry-run"), "give --keep 0.5 too"),
        (
            ("a5", "--grid", "lr=1", "--search", "random", "--trials", "2", "--rungs", "0.5", "--dry-run"),
            "give --keep 0.5 too",
        ),
        (("a5", "--grid", "lr=1", "--models", "mamba"), "--models narrows"),
        (("a5", "--grid", "lr=1", "--device", "cuda:99"), "cuda:99"),
        (("table1",), "no grid to search"),
        (("literature-search", "a5"), "--tasks narrows"),
        (("literature-search", "--grid", "lr=1"), "--grid is for the sweep of a task"),
        (("none.toml",), "cannot read"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run_command(capsys, "sweep", *arguments)
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1
    assert list(folder.iterdir()) == []
