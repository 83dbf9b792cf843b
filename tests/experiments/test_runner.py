"""One small experiment from start to end: 2 tasks x 2 models x 2 seeds of 30 steps."""

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

from sdssm.cli.reproduce import add_command
from sdssm.errors import OutputError, RunError, RunWarning, SdssmError
from sdssm.experiments import (
    LocalExecutor,
    Plan,
    Selection,
    SpecError,
    evaluate_plan,
    get_spec,
    make_plan,
    reproduce,
    run_plan,
    write_results,
)
from sdssm.experiments.execution.evaluation_files import missing_evaluations
from sdssm.experiments.planning.estimates import FILE, StepTime, estimate_plan
from sdssm.experiments.results.folder import check_results
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.experiments.specs.spec import Spec
from sdssm.progress import ProgressEvent
from sdssm.report import make_curves
from sdssm.report.page.results_data import ResultsFile
from sdssm.report.tables import write_tables
from sdssm.runs import RunFolder
from sdssm.runs.folder import EndStatus
from sdssm.training.progress import SilentProgress
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
#: A measured time of a training step; estimates are a fourth below and above it.
ONE_SECOND = StepTime.around(1.0, 1.0, 1.0)
PUBLISHED = "row,column,max,average,source\nLSTM,parity,100,99.5,a table\nLSTM,cycle,,98,a table\n"


class Killed(BaseException):
    """Simulates a killed process: nothing is saved."""


class Killer(SilentProgress):
    """Kills the training at a step."""

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
    return get_spec(folder / "tiny.toml")


@pytest.fixture(scope="module")
def finished(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders of the uninterrupted experiment, evaluated."""
    out = tmp_path_factory.mktemp("finished")
    plan = make_plan(spec, out)
    run_plan(plan, "cpu")
    evaluate_plan(plan, "cpu")
    return out


def weights(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("model.safetensors"))}


def runs_without_times(results: dict[str, Any]) -> list[Any]:
    return [{**run, "seconds": 0} for run in results["runs"]]


def test_results_folder_contents(spec: Spec, finished: Path, tmp_path: Path) -> None:
    plan = make_plan(spec, finished)
    assert len(plan.selected_runs()) == 8
    assert {run.status for run in plan.runs} == {"finished"}
    assert not any(missing_evaluations(run.folder, run.task, spec.evaluate) for run in plan.runs)
    results = write_results(plan, tmp_path / "tiny", command="sdssm reproduce tiny.toml", device="CPU")
    stored = json.loads((tmp_path / "tiny" / "results.json").read_text())
    assert stored.pop("checksum").startswith("sha256:") and stored == results
    whole = (tmp_path / "tiny" / "results.json").read_text()
    (tmp_path / "tiny" / "results.json").write_text(whole.replace('"steps": ', '"steps": 1', 1))
    with pytest.raises(RunError, match="do not match its checksum"):
        ResultsFile(tmp_path / "tiny")
    with pytest.raises(OutputError, match="do not match its checksum"):
        write_tables(tmp_path / "tiny")
    (tmp_path / "tiny" / "results.json").write_text(whole)
    identity = json.loads((tmp_path / "tiny" / "spec.json").read_text())
    assert (identity["name"], identity["source"]) == ("tiny", "tiny.toml")
    (made,) = identity["made"]
    assert (made["command"], made["device"]) == ("sdssm reproduce tiny.toml", "CPU") and "torch" in made["versions"]
    old = {key: identity[key] for key in ("name", "source", "kind")} | {"command": "before", "device": "a GPU"}
    (tmp_path / "tiny" / "spec.json").write_text(json.dumps(old))
    for command_line in ("again", "again"):  # each command once, also in the format of older versions
        write_results(plan, tmp_path / "tiny", command=command_line, device="CPU")
    made = json.loads((tmp_path / "tiny" / "spec.json").read_text())["made"]
    assert [(entry["command"], entry["device"]) for entry in made] == [("before", "a GPU"), ("again", "CPU")]
    assert (results["rows"], results["columns"]) == (["SD-SSM", "LSTM"], ["parity", "cycle"])
    assert len(results["runs"]) == 8
    assert len(results["cells"]) == 8  # four cells, two scores
    for cell in results["cells"]:
        runs = [run for run in results["runs"] if (run["row"], run["column"]) == (cell["row"], cell["column"])]
        values = [run["scores"][cell["score"]] for run in runs]
        assert (cell["seeds"], cell["steps"], cell["diverged"]) == (2, 30, 0)
        assert (cell["max"], cell["min"]) == (max(values), min(values))
        assert cell["average"] == pytest.approx(sum(values) / 2)
        assert cell["average_low"] <= cell["average"] + 0.01
    published = {(cell["row"], cell["column"]): cell["published_max"] for cell in results["cells"]}
    assert published == {
        ("SD-SSM", "parity"): None,
        ("SD-SSM", "cycle"): None,
        ("LSTM", "parity"): 100.0,
        ("LSTM", "cycle"): None,
    }
    assert [(curve.name, curve.seeds) for curve in make_curves(results)] == [
        (f"{task}, {model}", 2) for model in ("sd-ssm", "lstm") for task in ("parity", "cycle")
    ]
    assert {run["settings"]["state"] for run in results["runs"]} == {8}
    text = json.dumps(identity) + json.dumps(results)
    assert str(finished) not in text and str(tmp_path) not in text  # no absolute paths


@pytest.mark.parametrize("at", [10, 20])
def test_killed_and_resumed_equals_uninterrupted(spec: Spec, finished: Path, tmp_path: Path, at: int) -> None:
    out = tmp_path / "runs"
    with pytest.raises(Killed):
        run_plan(make_plan(spec, out), "cpu", Killer(at))
    assert "finished" not in {run.status for run in make_plan(spec, out).runs}
    plan = make_plan(spec, out)
    run_plan(plan, "cpu")
    evaluate_plan(plan, "cpu")
    assert weights(out) == weights(finished)
    resumed, uninterrupted = (
        write_results(make_plan(spec, folder), tmp_path / name / "tiny", command="", device="cpu")
        for folder, name in ((out, "a"), (finished, "b"))
    )
    assert runs_without_times(resumed) == runs_without_times(uninterrupted)


def test_nothing_is_trained_or_evaluated_twice(spec: Spec, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("trained or evaluated again")

    monkeypatch.setattr("sdssm.experiments.execution.runner.train_runs", never)
    monkeypatch.setattr("sdssm.experiments.execution.evaluations.evaluate_subjects", never)
    plan = make_plan(spec, finished)
    run_plan(plan, "cpu")
    evaluate_plan(plan, "cpu")


def test_results_are_merged_and_keep_the_most_steps(spec: Spec, finished: Path, tmp_path: Path) -> None:
    """A selection fills only its cells; a shorter training does not replace a longer one."""
    out, results = tmp_path / "runs", tmp_path / "tiny"
    shutil.copytree(finished, out)

    def reproduce(**selected: Any) -> dict[str, Any]:
        plan = make_plan(spec, out, Selection(**selected))
        run_plan(plan, "cpu")
        evaluate_plan(plan, "cpu")
        return write_results(plan, results, command="", device="cpu")

    short = reproduce(budget=0.1, models=["lstm"], tasks=["parity"], seeds=[0])
    measured = {(c["row"], c["column"]): c["steps"] for c in short["cells"] if c["max"] is not None}
    assert measured == {("LSTM", "parity"): 3}
    everything = reproduce()
    assert {cell["steps"] for cell in everything["cells"]} == {30}
    again = reproduce(budget=0.1, models=["lstm"], tasks=["parity"], seeds=[0])
    assert runs_without_times(again) == runs_without_times(everything)


def test_longer_range_is_evaluated_again(spec: Spec, finished: Path) -> None:
    run = make_plan(spec, finished).runs[0]
    assert missing_evaluations(run.folder, run.task, replace(spec.evaluate, max_length=11)) == []
    assert missing_evaluations(run.folder, run.task, replace(spec.evaluate, max_length=13)) == ["evaluation.json"]
    assert missing_evaluations(run.folder, run.task, replace(spec.evaluate, fresh=True)) == ["evaluation.json"]
    assert missing_evaluations(run.folder, run.task, replace(spec.evaluate, lengths=(20,))) == [
        "evaluation-lengths.json"
    ]


def test_results_folder_of_another_experiment_is_refused(spec: Spec, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds files of no experiment"):
        check_results(spec, tmp_path / "other")
    plan = Plan(spec=replace(spec, source="sdssm:tiny"), out=tmp_path, runs=())
    write_results(plan, tmp_path / "tiny", command="", device="cpu")
    with pytest.raises(OutputError, match="belongs to another experiment"):
        check_results(spec, tmp_path / "tiny")


def test_run_folder_with_another_training_is_refused(spec: Spec, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    shutil.copytree(finished, out)
    run = make_plan(spec, out).runs[0]
    config = json.loads((run.folder / "config.json").read_text())
    del config["checksum"]  # edited on purpose
    config["train"]["lr"] = 0.5
    (run.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match="holds another training"):
        make_plan(spec, out)


def test_presets_with_the_same_settings_share_a_run(spec: Spec, finished: Path) -> None:
    """A run that was trained under another preset name is used."""
    rows = tuple(replace(row, preset="scale-free" if row.model == "sd-ssm" else "default") for row in spec.rows)
    run = make_plan(replace(spec, rows=rows), finished).runs[0]
    folder = RunFolder.open(run.folder)
    assert run.config == folder.config


def test_estimates_are_stored(spec: Spec, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimate_plan(make_plan(spec, finished), "cpu") == []  # nothing left to train
    plan = make_plan(spec, tmp_path / "runs", Selection(budget=10))
    groups = estimate_plan(plan, "cpu", limit=0.5)
    assert sum(len(group.runs) for group in groups) == 8
    assert all(group.steps == 300 for group in groups)
    assert any(group.seconds is not None for group in groups)
    known = json.loads((tmp_path / "runs" / FILE).read_text())
    monkeypatch.setattr("sdssm.experiments.planning.estimates._time_steps", lambda *_: pytest.fail("measured again"))
    again = estimate_plan(make_plan(spec, tmp_path / "runs", Selection(budget=10)), "cpu", limit=0.0)
    assert [group.seconds for group in again] == [group.seconds for group in groups]
    assert all(name.startswith("CPU ") for name in known)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [FILE]  # no run was started


def test_estimates_count_the_runs_that_train_in_a_group(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A diverged run stays in its group, a finished one does not; the steps of neither count."""
    monkeypatch.setattr("sdssm.experiments.planning.estimates._time_steps", lambda *_: ONE_SECOND)
    plan = make_plan(spec, tmp_path, Selection(models=["lstm"], seeds=[0, 1, 2]))
    statuses: tuple[EndStatus, ...] = ("diverged", "finished", "stopped", "stopped", "stopped", "stopped")
    for run, status in zip(plan.selected_runs(), statuses, strict=True):
        RunFolder.create(run.folder, run.config).finish(status)
    by_column = {group.runs[0].column: group for group in estimate_plan(plan, "cpu")}
    assert {name: len(group.runs) for name, group in by_column.items()} == {"parity": 2, "cycle": 3}
    assert {group.steps for group in by_column.values()} == {30}


# -- one call ----------------------------------------------------------------------------------------------------------


def test_reproduce_in_one_call(spec: Spec, finished: Path, tmp_path: Path) -> None:
    """Finished runs are not trained again, and the table has what was asked for."""
    events: list[ProgressEvent] = []
    part = reproduce(
        spec, models=["lstm"], device="cpu", out=finished, results=tmp_path, reuse=[], progress=events.append
    )
    assert repr(part) == f"<Reproduction: tiny, 4 cells, in {tmp_path / 'tiny'}>"
    lines = str(part).splitlines()
    assert lines[0] == "A tiny one" and lines[1].split()[:3] == ["row", "column", "score"]
    assert [line.split()[:3] for line in lines[2:4]] == [["LSTM", "parity", "all"], ["LSTM", "cycle", "all"]]
    assert {record["row"] for record in part.to_records()} == {"LSTM"} and "<table>" in part._repr_html_()
    assert events[0].title == "evaluate tiny"
    stored = json.loads((tmp_path / "tiny" / "spec.json").read_text())
    assert stored["made"][-1]["command"] == "sdssm.reproduce('tiny', models=['lstm'])"
    whole = reproduce(spec, device="cpu", out=finished, results=tmp_path, reuse=[])
    assert len(whole.results["runs"]) == 8
    assert json.loads((tmp_path / "tiny" / "spec.json").read_text())["made"][-1]["command"] == "sdssm.reproduce('tiny')"


def test_messages_of_the_training_are_warnings_without_progress(
    spec: Spec, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LocalExecutor, "run_plan", lambda self, plan, progress: progress.message("a remark"))
    arguments: dict[str, Any] = {"device": "cpu", "out": finished, "results": tmp_path, "reuse": []}
    events: list[ProgressEvent] = []
    for progress in (False, events.append):
        with pytest.warns(RunWarning, match="^a remark$"):
            reproduce(spec, **arguments, progress=progress)
    reproduce(spec, **arguments, progress=True)
    assert "a remark" in capsys.readouterr().out


def test_reproduce_claims_and_times(tmp_path: Path) -> None:
    claims = reproduce("claims", results=tmp_path)
    assert str(claims).splitlines()[1].split() == ["claim", "what", "published", "ours", "chance", "%"]
    times = parse_spec(
        'name = "times"\nkind = "timing"\n[timing]\nlengths = [4]\nbatch = 2\nstate = 4\nseconds = 0.01', source="x"
    )
    result = reproduce(times, device="cpu", results=tmp_path)
    assert len(result.to_records()) == 3 and "recurrent" in str(result) and "ms" in str(result)
    with pytest.raises(SpecError, match="times trains nothing, and seeds=3 is about training"):
        reproduce(times, seeds=3, device="cpu", results=tmp_path)


# -- the command -------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    add_command(parser.add_subparsers())
    options = parser.parse_args(["reproduce", *arguments])
    options.typed = shlex.join(["sdssm", "reproduce", *arguments])  # as `main` does
    options.run(options)


def test_command(spec: Spec, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spec.folder is not None
    file = str(spec.folder / "tiny.toml")
    options = ("--out", str(finished), "--results", str(tmp_path), "--device", "cpu", "--quiet")
    command(file, *options)
    out = capsys.readouterr().out
    assert "A tiny one" in out and "(100 / 99.5)" in out and "30 steps, 2 seeds" in out
    names = {path.name for path in (tmp_path / "tiny").iterdir()}
    assert {"spec.json", "results.json", "table.csv", "table.md", "table.tex"} <= names
    assert {"curves-parity.png", "curves-cycle.svg"} <= names
    command(file, *options, "--dry-run")
    out = capsys.readouterr().out
    assert "8 runs: 8 finished" in out and out.endswith("\n\nNothing is left to train, or to evaluate.\n")
    longer = tmp_path / "longer.toml"
    longer.write_text(TINY.replace("max_length = 12", "max_length = 13").replace("5..12", "5..13"))
    (tmp_path / "tiny.csv").write_text(PUBLISHED)
    command(str(longer), "--out", str(finished), "--results", str(tmp_path / "other"), "--dry-run")
    assert capsys.readouterr().out.endswith("\n\nNothing is left to train; 8 evaluations are.\n")
    command("--list")
    assert "table1" in capsys.readouterr().out


def test_command_reuses_runs(
    spec: Spec, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spec.folder is not None
    file = str(spec.folder / "tiny.toml")
    monkeypatch.chdir(tmp_path)
    command(file, "--dry-run", "--reuse", str(finished))
    assert "8 runs: 8 finished (8 of them elsewhere)" in capsys.readouterr().out
    shutil.copytree(finished, "runs/before")
    command(file, "--quiet", "--device", "cpu")  # from runs, the default
    assert "30 steps, 2 seeds" in capsys.readouterr().out
    assert not Path("runs/experiments").exists()
    monkeypatch.setattr("sdssm.experiments.planning.estimates._time_steps", lambda *_: ONE_SECOND)
    command(file, "--dry-run", "--reuse")
    out = capsys.readouterr().out
    assert "8 runs: 8 missing" in out and "without evaluation: about 1.6 to 2.5 min; nothing was started" in out
    device = import_module("sdssm.devices")
    monkeypatch.setattr(device, "resolve_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(device, "device_name", lambda _: "a GPU")
    monkeypatch.setattr("sdssm.experiments.execution.executors.resolve_devices", lambda _: [torch.device("cuda")])
    monkeypatch.setattr("sdssm.experiments.planning.estimates.device_name", lambda _: "a GPU")
    command(file, "--dry-run", "--reuse", "--device", "cuda")
    assert "On a GPU up to 16 groups train at once" in capsys.readouterr().out


def test_interrupt_prints_the_command_that_resumes(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stopper(SilentProgress):
        def update(self, step: int, loss: Any, accuracy: Any, alive: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    module = import_module("sdssm.training.progress")
    monkeypatch.setattr(module, "progress_for", lambda *_, **__: Stopper())
    assert spec.folder is not None
    options = ("--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results"), "--device", "cpu")
    with pytest.raises(TrainingStopped):
        command(file := str(spec.folder / "tiny.toml"), *options)
    assert (
        f"run the same command again: {shlex.join(['sdssm', 'reproduce', file, *options])}" in capsys.readouterr().err
    )
    assert not (tmp_path / "results").exists()


@pytest.fixture
def unchanged_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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
def test_invalid_arguments_start_nothing(unchanged_folder: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SdssmError) as error:
        command(*arguments)
    assert "\n" not in str(error.value)
