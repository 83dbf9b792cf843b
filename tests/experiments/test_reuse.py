"""Runs that were made elsewhere are taken as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import sdssm
from sdssm.errors import RunError
from sdssm.experiments import Narrowing, Spec, evaluate_plan, make_plan, reuse, run_plan, write_results
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.runs import RunFolder

SETTINGS = {"state": 4, "batch": 8, "steps": 20, "train_length": 6}
SPEC = """
name = "mine"
seeds = 2
tasks = ["parity", "cycle"]
[evaluate]
max_length = 12
strings = 16
[[rows]]
model = "lstm"
settings = { state = 4, batch = 8, steps = 20, train_length = 6 }
"""


@pytest.fixture(scope="module")
def spec() -> Spec:
    return parse_spec(SPEC, source="mine.toml")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both seeds of parity, as `sdssm train` leaves them, saved more often than an experiment would."""
    out = tmp_path_factory.mktemp("trained")
    settings = {**SETTINGS, "log_every": 10, "checkpoint_every": 5}
    sdssm.train("parity", model="lstm", seeds=2, settings=settings, out=out / "by hand", device="cpu")
    return out


@pytest.fixture
def before(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "before"))


def test_what_is_finished_is_not_trained_again(spec: Spec, before: Path, tmp_path: Path) -> None:
    weights = {path: path.read_bytes() for path in before.rglob("model.safetensors")}
    plan = reuse(make_plan(spec, tmp_path / "runs"), [before])
    assert [(run.column, run.config.seed, run.reused) for run in plan.wanted()] == [
        ("parity", 0, True),
        ("parity", 1, True),
        ("cycle", 0, False),
        ("cycle", 1, False),
    ]
    run_plan(plan, "cpu")
    evaluate_plan(plan, "cpu")
    assert not (tmp_path / "runs" / "parity").exists()
    assert {path: path.read_bytes() for path in before.rglob("model.safetensors")} == weights
    assert len(list(before.rglob("evaluation.json"))) == 2  # where the runs lie
    found = write_results(plan, tmp_path / "mine", command="", device="cpu")
    assert [run["status"] for run in found["runs"]] == ["finished"] * 4
    assert str(tmp_path) not in json.dumps(found)
    again = reuse(make_plan(spec, tmp_path / "runs"), [before])
    assert {run.status for run in again.runs} == {"finished"}


def test_from_another_out(spec: Spec, tmp_path: Path) -> None:
    plan = make_plan(spec, tmp_path / "one", Narrowing(tasks=["cycle"]))
    run_plan(plan, "cpu")
    other = reuse(make_plan(spec, tmp_path / "other"), [tmp_path / "one", tmp_path])  # one of them within the other
    assert [run.status for run in other.runs] == ["missing", "missing", "finished", "finished"]
    assert not any(run.reused for run in reuse(make_plan(spec, tmp_path / "one"), [tmp_path]).runs)  # its own


def test_one_that_diverged_elsewhere_is_not_trained_beside(spec: Spec, tmp_path: Path) -> None:
    """A copy of a folder goes on where the original came to its end: both say that they were begun together."""
    plan = make_plan(spec, tmp_path / "one", Narrowing(tasks=["cycle"]))
    for run in plan.wanted():
        RunFolder.create(run.folder, run.config).finish("stopped")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    ended = RunFolder.open(plan.wanted()[0].folder)
    ended.log({"step": 1, "diverged": True})
    ended.finish("diverged")
    other = reuse(make_plan(spec, tmp_path / "copy", Narrowing(tasks=["cycle"])), [tmp_path / "one"])
    assert [run.reused for run in other.wanted()] == [True, False]
    assert [folder.parts[-4] for folder, *_ in other.planned()] == ["copy"]
    run_plan(other, "cpu")
    assert [run.status for run in other.wanted()] == ["diverged", "finished"]


def test_what_was_begun_is_given_up_for_what_is_finished(spec: Spec, before: Path, tmp_path: Path) -> None:
    plan = make_plan(spec, tmp_path / "runs")
    RunFolder.create(plan.runs[0].folder, plan.runs[0].config)
    assert [run.reused for run in reuse(make_plan(spec, tmp_path / "runs"), [before]).runs[:2]] == [True, True]


@pytest.mark.parametrize(
    "change",
    [
        {"train": {"lr": 0.5}},
        {"train": {"steps": 19}},
        {"train": {"shortest": 2}},
        {"model": {"readout_bias": True}},
        {"seed": 7},
        {"digest": "0" * 16},
        {"test_length": 100},
    ],
)
def test_other_trainings_are_left(spec: Spec, before: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    for path in before.rglob("config.json"):
        config = json.loads(path.read_text())
        for name, value in change.items():
            config[name] = {**config[name], **value} if isinstance(value, dict) else value
        path.write_text(json.dumps(config))
    assert not any(run.reused for run in reuse(make_plan(spec, tmp_path / "runs"), [before]).runs)


def damage(folder: Path, how: str) -> None:
    if how == "running":
        path = folder / "status.json"
        path.write_text(path.read_text().replace("finished", "running"))
    elif how == "short weights":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "no weights":
        (folder / "model.safetensors").unlink()
    elif how == "unknown setting":
        path = folder / "config.json"
        path.write_text(path.read_text().replace('"lr"', '"rate"'))
    else:
        (folder / how).write_bytes(b'{"a": [' if how == "config.json" else b"\xff")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "how", ["config.json", "status.json", "running", "short weights", "no weights", "unknown setting"]
)
def test_damaged_folders_are_passed_over(spec: Spec, before: Path, tmp_path: Path, how: str) -> None:
    damage(before / "by hand" / "seed-0", how)
    runs = reuse(make_plan(spec, tmp_path / "runs"), [before]).runs
    assert [run.reused for run in runs] == [False, True, False, False]


def test_one_that_is_finished_comes_before_one_that_diverged(spec: Spec, before: Path, tmp_path: Path) -> None:
    shutil.copytree(before / "by hand", before / "another")
    for path in (before / "another").rglob("status.json"):
        path.write_text(path.read_text().replace("finished", "diverged"))
    runs = reuse(make_plan(spec, tmp_path / "runs"), [before]).runs
    assert {run.folder.parent.name for run in runs[:2]} == {"by hand"}
    shutil.rmtree(before / "by hand")
    assert [run.status for run in reuse(make_plan(spec, tmp_path / "runs"), [before]).runs[:2]] == ["diverged"] * 2


def test_only_what_may_fit_is_read(spec: Spec, before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of other runs cost a look at their config each, and no more."""
    for number in range(2, 12):
        copy = shutil.copytree(before / "by hand" / "seed-0", before / f"seed-{number}")
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**config, "seed": number}))
    plan = make_plan(spec, tmp_path / "runs")
    opened: list[Path] = []
    original = RunFolder.open

    def noted(path: Path | str) -> RunFolder:
        opened.append(Path(path))
        return original(path)

    monkeypatch.setattr(RunFolder, "open", noted)
    assert sum(run.reused for run in reuse(plan, [before]).runs) == 2
    assert len(opened) == 2


def test_a_place_that_is_not_there(spec: Spec, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no folder .*none to take runs from"):
        reuse(make_plan(spec, tmp_path / "runs"), [tmp_path / "none"])
