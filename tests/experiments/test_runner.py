"""One tiny experiment from beginning to end: 2 tasks x 2 models x 2 seeds of 30 steps."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from sdssm.cli.reproduce import add_to
from sdssm.errors import OutputError, RunError, SdssmError
from sdssm.experiments import Narrowing, Plan, evaluate_plan, make_plan, run_plan, spec_named, write_results
from sdssm.experiments.execution.runner import missing
from sdssm.experiments.planning.estimates import FILE, estimate
from sdssm.experiments.results.folder import check_results
from sdssm.experiments.specs.spec import Spec
from sdssm.report import curves
from sdssm.runs import RunFolder
from sdssm.runs.folder import Ended
from sdssm.training.progress import Silent
from sdssm.training.trainer import TrainingStopped

TINY = """
name = "tiny"
title = "A tiny one"
published = "tiny.csv"
seeds = 2
tasks = ["parity", "cycle"]
[evaluate]
max_length = 12
strings = 32
scores = ["all", "5..12"]
[[rows]]
model = "sd-ssm"
label = "SD-SSM"
settings = { state = 8, dictionary = 4, batch = 16, steps = 30, train_length = 6, checkpoint_every = 10 }
[[rows]]
model = "lstm"
label = "LSTM"
settings = { state = 8, batch = 16, steps = 30, train_length = 6, checkpoint_every = 10 }
"""
PUBLISHED = "row,column,max,average,source\nLSTM,parity,100,99.5,a table\nLSTM,cycle,,98,a table\n"


class Killed(BaseException):
    """As if the process ended: nothing gets saved."""


class Killer(Silent):
    """Stops it hard once the step is reached."""

    def __init__(self, at: int) -> None:
        self.at = at

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        if step >= self.at:
            raise Killed


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    folder = tmp_path_factory.mktemp("spec")
    (folder / "tiny.toml").write_text(TINY)
    (folder / "tiny.csv").write_text(PUBLISHED)
    return spec_named(folder / "tiny.toml")


@pytest.fixture(scope="module")
def whole(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders of the uninterrupted experiment, evaluated."""
    out = tmp_path_factory.mktemp("whole")
    plan = make_plan(spec, out)
    run_plan(plan, "cpu")
    evaluate_plan(plan, "cpu")
    return out


def weights(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("model.safetensors"))}


def numbers(found: dict[str, Any]) -> list[Any]:
    return [{**run, "seconds": 0} for run in found["runs"]]


def test_what_it_leaves(spec: Spec, whole: Path, tmp_path: Path) -> None:
    plan = make_plan(spec, whole)
    assert len(plan.wanted()) == 8
    assert {run.status for run in plan.runs} == {"finished"}
    assert not any(missing(run.folder, run.task, spec.evaluate) for run in plan.runs)
    found = write_results(plan, tmp_path / "tiny", command="sdssm reproduce tiny.toml", device="CPU")
    assert json.loads((tmp_path / "tiny" / "results.json").read_text()) == found
    told = json.loads((tmp_path / "tiny" / "spec.json").read_text())
    assert (told["name"], told["source"]) == ("tiny", "tiny.toml")
    (made,) = told["made"]
    assert (made["command"], made["device"]) == ("sdssm reproduce tiny.toml", "CPU") and "torch" in made["versions"]
    old = {key: told[key] for key in ("name", "source", "kind")} | {"command": "before", "device": "a GPU"}
    (tmp_path / "tiny" / "spec.json").write_text(json.dumps(old))
    for command_line in ("again", "again"):  # each command once, those of an older form too
        write_results(plan, tmp_path / "tiny", command=command_line, device="CPU")
    made = json.loads((tmp_path / "tiny" / "spec.json").read_text())["made"]
    assert [(one["command"], one["device"]) for one in made] == [("before", "a GPU"), ("again", "CPU")]
    assert (found["rows"], found["columns"]) == (["SD-SSM", "LSTM"], ["parity", "cycle"])
    assert len(found["runs"]) == 8
    assert len(found["cells"]) == 8  # four cells, two scores
    for cell in found["cells"]:
        runs = [run for run in found["runs"] if (run["row"], run["column"]) == (cell["row"], cell["column"])]
        values = [run["scores"][cell["score"]] for run in runs]
        assert (cell["seeds"], cell["steps"], cell["diverged"]) == (2, 30, 0)
        assert (cell["max"], cell["min"]) == (max(values), min(values))
        assert cell["average"] == pytest.approx(sum(values) / 2)
        assert cell["average_low"] <= cell["average"] + 0.01
    beside = {(cell["row"], cell["column"]): cell["published_max"] for cell in found["cells"]}
    assert beside == {
        ("SD-SSM", "parity"): None,
        ("SD-SSM", "cycle"): None,
        ("LSTM", "parity"): 100.0,
        ("LSTM", "cycle"): None,
    }
    assert [(one.name, one.seeds) for one in curves(found)] == [
        (f"{task}, {model}", 2) for model in ("sd-ssm", "lstm") for task in ("parity", "cycle")
    ]
    assert {run["settings"]["state"] for run in found["runs"]} == {8}  # what tells curves of one model apart
    text = json.dumps(told) + json.dumps(found)
    assert str(whole) not in text and str(tmp_path) not in text  # no paths of this machine


@pytest.mark.parametrize("at", [10, 20])
def test_killed_and_continued_is_uninterrupted(spec: Spec, whole: Path, tmp_path: Path, at: int) -> None:
    out = tmp_path / "runs"
    with pytest.raises(Killed):
        run_plan(make_plan(spec, out), "cpu", Killer(at))
    assert "finished" not in {run.status for run in make_plan(spec, out).runs}
    plan = make_plan(spec, out)
    run_plan(plan, "cpu")
    evaluate_plan(plan, "cpu")
    assert weights(out) == weights(whole)
    both = [
        numbers(write_results(make_plan(spec, one), tmp_path / name / "tiny", command="", device="cpu"))
        for one, name in ((out, "a"), (whole, "b"))
    ]
    assert both[0] == both[1]


def test_nothing_is_trained_or_evaluated_twice(spec: Spec, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("trained or evaluated again")

    monkeypatch.setattr("sdssm.experiments.execution.runner.train_all", never)
    monkeypatch.setattr("sdssm.experiments.execution.runner.evaluate", never)
    plan = make_plan(spec, whole)
    run_plan(plan, "cpu")
    evaluate_plan(plan, "cpu")


def test_parts_add_up_and_more_steps_win(spec: Spec, whole: Path, tmp_path: Path) -> None:
    """A narrow command fills its cells; a shorter training does not displace a longer one."""
    out, results = tmp_path / "runs", tmp_path / "tiny"
    shutil.copytree(whole, out)

    def reproduced(**narrow: Any) -> dict[str, Any]:
        plan = make_plan(spec, out, Narrowing(**narrow))
        run_plan(plan, "cpu")
        evaluate_plan(plan, "cpu")
        return write_results(plan, results, command="", device="cpu")

    short = reproduced(budget=0.1, models=["lstm"], tasks=["parity"], seeds=[0])
    measured = {(c["row"], c["column"]): c["steps"] for c in short["cells"] if c["max"] is not None}
    assert measured == {("LSTM", "parity"): 3}
    everything = reproduced()
    assert {cell["steps"] for cell in everything["cells"]} == {30}
    again = reproduced(budget=0.1, models=["lstm"], tasks=["parity"], seeds=[0])
    assert numbers(again) == numbers(everything)


def test_a_longer_range_is_evaluated_anew(spec: Spec, whole: Path) -> None:
    run = make_plan(spec, whole).runs[0]
    assert missing(run.folder, run.task, replace(spec.evaluate, max_length=11)) == []
    assert missing(run.folder, run.task, replace(spec.evaluate, max_length=13)) == ["evaluation.json"]
    assert missing(run.folder, run.task, replace(spec.evaluate, fresh=True)) == ["evaluation.json"]
    assert missing(run.folder, run.task, replace(spec.evaluate, lengths=(20,))) == ["evaluation-lengths.json"]


def test_results_of_another_experiment(spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds files of no experiment"):
        check_results(spec, tmp_path / "other")
    plan = Plan(spec=replace(spec, source="sdssm:tiny"), out=tmp_path, runs=())
    write_results(plan, tmp_path / "tiny", command="", device="cpu")
    with pytest.raises(OutputError, match="made by another experiment"):
        check_results(spec, tmp_path / "tiny")


def test_a_folder_with_another_training_is_refused(spec: Spec, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    shutil.copytree(whole, out)
    run = make_plan(spec, out).runs[0]
    config = json.loads((run.folder / "config.json").read_text())
    config["train"]["lr"] = 0.5
    (run.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match="holds another training"):
        make_plan(spec, out)


def test_other_presets_with_the_same_settings_share_a_run(spec: Spec, whole: Path) -> None:
    """What was trained under another preset's name is taken as it is."""
    rows = tuple(replace(row, preset="scale-free" if row.model == "sd-ssm" else "default") for row in spec.rows)
    run = make_plan(replace(spec, rows=rows), whole).runs[0]
    folder = RunFolder.open(run.folder)
    assert run.config == folder.config


def test_estimates_are_remembered(spec: Spec, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimate(make_plan(spec, whole), "cpu") == []  # nothing left to train
    plan = make_plan(spec, tmp_path / "runs", Narrowing(budget=10))
    groups = estimate(plan, "cpu", limit=0.5)
    assert sum(len(one.runs) for one in groups) == 8
    assert all(one.steps == 300 for one in groups)
    assert any(one.seconds is not None for one in groups)
    known = json.loads((tmp_path / "runs" / FILE).read_text())
    monkeypatch.setattr(
        "sdssm.experiments.planning.estimates._seconds_a_step", lambda *_: pytest.fail("measured again")
    )
    assert [
        one.seconds for one in estimate(make_plan(spec, tmp_path / "runs", Narrowing(budget=10)), "cpu", limit=0.0)
    ] == [one.seconds for one in groups]
    assert all(name.startswith("CPU ") for name in known)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [FILE]  # no run was begun


def test_estimates_are_of_groups_as_they_train(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that diverged stays beside the others; one that is finished does not, nor do their steps count."""
    monkeypatch.setattr("sdssm.experiments.planning.estimates._seconds_a_step", lambda *_: 1.0)
    plan = make_plan(spec, tmp_path, Narrowing(models=["lstm"], seeds=[0, 1, 2]))
    statuses: tuple[Ended, ...] = ("diverged", "finished", "stopped", "stopped", "stopped", "stopped")
    for run, status in zip(plan.wanted(), statuses, strict=True):
        RunFolder.create(run.folder, run.config).finish(status)
    by_cell = {one.runs[0].column: one for one in estimate(plan, "cpu")}
    assert {name: len(one.runs) for name, one in by_cell.items()} == {"parity": 2, "cycle": 3}
    assert {one.steps for one in by_cell.values()} == {30}


# -- the command -------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    options = parser.parse_args(["reproduce", *arguments])
    options.typed = shlex.join(["sdssm", "reproduce", *arguments])  # as `main` does
    options.run(options)


def test_the_command(spec: Spec, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spec.folder is not None
    file = str(spec.folder / "tiny.toml")
    where = ("--out", str(whole), "--results", str(tmp_path), "--device", "cpu", "--quiet")
    command(file, *where)
    out = capsys.readouterr().out
    assert "A tiny one" in out and "(100 / 99.5)" in out and "30 steps, 2 seeds" in out
    names = {path.name for path in (tmp_path / "tiny").iterdir()}
    assert {"spec.json", "results.json", "table.csv", "table.md", "table.tex"} <= names
    assert {"curves-parity.png", "curves-cycle.svg"} <= names
    command(file, *where, "--dry-run")
    out = capsys.readouterr().out
    assert "8 runs: 8 finished" in out and out.endswith("\n\nNothing is left to train, or to evaluate.\n")
    longer = tmp_path / "longer.toml"
    longer.write_text(TINY.replace("max_length = 12", "max_length = 13").replace("5..12", "5..13"))
    (tmp_path / "tiny.csv").write_text(PUBLISHED)
    command(str(longer), "--out", str(whole), "--results", str(tmp_path / "other"), "--dry-run")
    assert capsys.readouterr().out.endswith("\n\nNothing is left to train; 8 evaluations are.\n")
    command("--list")
    assert "table1" in capsys.readouterr().out


def test_the_command_takes_what_is_there(
    spec: Spec, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spec.folder is not None
    file = str(spec.folder / "tiny.toml")
    monkeypatch.chdir(tmp_path)
    command(file, "--dry-run", "--reuse", str(whole))
    assert "8 runs: 8 finished (8 of them elsewhere)" in capsys.readouterr().out
    shutil.copytree(whole, "runs/before")
    command(file, "--quiet", "--device", "cpu")  # from runs, unasked
    assert "30 steps, 2 seeds" in capsys.readouterr().out
    assert not Path("runs/experiments").exists()
    monkeypatch.setattr("sdssm.experiments.planning.estimates._seconds_a_step", lambda *_: 1.0)
    command(file, "--dry-run", "--reuse")
    out = capsys.readouterr().out
    assert "8 runs: 8 missing" in out and "one group after the other: about 2 min; nothing was started" in out
    device = import_module("sdssm.devices")
    monkeypatch.setattr(device, "device_named", lambda _: torch.device("cuda"))
    monkeypatch.setattr("sdssm.experiments.execution.executors.device_named", lambda _: torch.device("cuda"))
    monkeypatch.setattr("sdssm.experiments.planning.estimates.device_name", lambda _: "a GPU")
    command(file, "--dry-run", "--reuse", "--device", "cuda")
    assert "On a GPU up to 16 groups train at once" in capsys.readouterr().out


def test_stopping_says_how_to_go_on(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stopper(Silent):
        def update(self, step: int, loss: Any, accuracy: Any, alive: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    module = import_module("sdssm.training.progress")  # the name sdssm.train is a function
    monkeypatch.setattr(module, "progress_for", lambda *_, **__: Stopper())
    assert spec.folder is not None
    where = ("--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results"), "--device", "cpu")
    with pytest.raises(TrainingStopped):
        command(file := str(spec.folder / "tiny.toml"), *where)
    assert f"run the same command again: {shlex.join(['sdssm', 'reproduce', file, *where])}" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.fixture
def nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("table2",),
        ("table1", "--models", "rn"),
        ("table1", "--tasks", "d30"),
        ("table1", "--device", "cuda:99"),
        ("table1", "--reuse", "nowhere"),
        ("runtime", "--models", "rnn"),
        ("claims", "--budget", "0.5"),
        ("none.toml",),
    ],
)
def test_bad_input_begins_nothing(nothing_begins: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SdssmError) as error:
        command(*arguments)
    assert "\n" not in str(error.value)
