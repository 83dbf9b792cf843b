"""`train` and `resume`: run folders, interruptions, resuming, and invalid input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sdssm
import sdssm.runs
from sdssm.errors import AutomatonError, DeviceError, ModelError, RunError, SettingsError, TaskError, UnknownNameError
from sdssm.evaluation import Evaluation
from sdssm.formatting import format_percent
from sdssm.models import TokenModel
from sdssm.models.names import tensors_for_file
from sdssm.runs import RunFolder
from sdssm.training import Runs, TrainingStopped
from sdssm.training.progress import SilentProgress
from tests.edited_files import edit_text
from tests.training.exploding import EXPLODING, explode

SMALL: dict[str, Any] = {"state": 6, "dictionary": 2, "batch": 8, "train_length": 7, "log_every": 10}


def train(out: Path, **options: Any) -> Any:
    values = {**SMALL, **options.pop("settings", {})}
    task = options.pop("task", "parity")
    return sdssm.train(task, out=out, settings=values, device="cpu", **{"steps": 60, "seeds": 2, **options})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(sdssm.load(folder).state_dict())


def is_same_run(left: Path, right: Path) -> bool:
    """Return whether two runs have bit-identical weights and the same events except for times."""
    a, b = weights(left), weights(right)
    logs = [[{**event, "seconds": 0} for event in RunFolder.open(run).events()] for run in (left, right)]
    return all(torch.equal(a[name], b[name]) for name in a) and logs[0] == logs[1]


def test_contents_of_the_run_folders(tmp_path: Path) -> None:
    runs = train(tmp_path / "out")
    assert [run.path.name for run in runs] == ["seed-0", "seed-1"]
    config = json.loads((tmp_path / "out/seed-1/config.json").read_text())
    assert config["seed"] == 1 and config["task"] == "parity" and config["train"]["steps"] == 60
    assert config["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert config["train_length"] == 7
    events = runs[0].events()
    assert [event["step"] for event in events] == [10, 20, 30, 40, 50, 60]
    assert {"accuracy", "loss", "lr", "seconds"} <= set(events[0])
    assert runs[0].status == "finished"
    evaluation = sdssm.evaluate(runs, max_length=12, strings=16)
    assert [run.seed for run in evaluation.runs] == [0, 1]
    assert "evaluation.json" in {file.name for file in runs[0].path.iterdir()}


def test_tasks_and_variants_have_folders_of_their_own(tmp_path: Path) -> None:
    runs = sdssm.train(
        ["parity", "cycle"],
        out=tmp_path,
        seeds=[4],
        steps=20,
        settings=SMALL,
        variants={"slow": {"lr": 1e-5}, "wide": {"state": 9}},
        device="cpu",
    )
    names = [str(run.path.relative_to(tmp_path)) for run in runs]
    assert names == ["parity/slow/seed-4", "parity/wide/seed-4", "cycle/slow/seed-4", "cycle/wide/seed-4"]
    assert runs[1].config.model.mixer.state == 9
    assert sdssm.load(runs[2].path).n_classes == 5


class StopAt(SilentProgress):
    """Sends Ctrl-C when a step is reached."""

    def __init__(self, step: int) -> None:
        self.step = step

    def update(self, step: int, *_: Any) -> None:
        if step >= self.step:
            os.kill(os.getpid(), signal.SIGINT)
            self.step = 10**9


@pytest.mark.parametrize("settings", [{}, {"readout": "mlp", "dropout": 0.5}], ids=["plain", "dropout"])
def test_resumed_training_equals_an_uninterrupted_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    train(tmp_path / "uninterrupted", settings=settings)
    with pytest.raises(TrainingStopped) as stopped:
        train(tmp_path / "interrupted", progress=StopAt(30), settings=settings)
    assert [run.status for run in stopped.value.runs] == ["stopped", "stopped"]
    assert 30 <= stopped.value.runs[0].step < 60
    resumed = sdssm.resume(tmp_path / "interrupted", device="cpu")
    assert [run.status for run in resumed] == ["finished", "finished"]
    for seed in ("seed-0", "seed-1"):
        assert is_same_run(tmp_path / "uninterrupted" / seed, tmp_path / "interrupted" / seed)
    again = sdssm.resume(tmp_path / "interrupted", device="cpu")
    assert len(again) == 2  # nothing is left to train


def test_resume_in_the_middle_of_a_window(tmp_path: Path) -> None:
    """A timer sends Ctrl-C at an arbitrary step."""
    settings = {"log_every": 50}
    train(tmp_path / "uninterrupted", steps=200, settings=settings)
    timer = threading.Timer(0.15, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        train(tmp_path / "interrupted", steps=200, settings=settings)
        timer.cancel()
    except TrainingStopped:
        sdssm.resume(tmp_path / "interrupted", device="cpu")
    assert is_same_run(tmp_path / "uninterrupted/seed-1", tmp_path / "interrupted/seed-1")


class StatusReader(SilentProgress):
    """Reads the status of a run at each update, and ends the training at a step as if the process was killed."""

    def __init__(self, folder: Path, kill: int = 10**9) -> None:
        self.folder, self.kill = folder, kill
        self.read: list[tuple[int, int, int]] = []  # the step shown, the step of the status, and that of the checkpoint

    def update(self, step: int, *_: Any) -> None:
        run = sdssm.runs.RunFolder.open(self.folder)
        self.read.append((step, run.progress.step, run.step))
        if step >= self.kill:
            raise Killed


class Killed(BaseException):
    """Ends the training as if the process was killed: nothing is saved."""


def test_the_status_is_written_between_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an update and a status after every step, the result is the same, also after a kill between checkpoints."""
    train(tmp_path / "usual", settings={"log_every": 20})
    for name in ("rounds.ROUND_SECONDS", "queue.STATUS_SECONDS"):
        monkeypatch.setattr(f"sdssm.training.{name}", 0.0)
    monkeypatch.setattr("sdssm.training.queue.STATUS_SHARE", 1e9)
    reader = StatusReader(tmp_path / "often" / "seed-0", kill=33)
    with pytest.raises(Killed):
        train(tmp_path / "often", settings={"log_every": 20, "checkpoint_every": 15}, progress=reader)
    assert [shown for shown, _, _ in reader.read[:3]] == [1, 2, 3]  # not only after a window of 20 steps
    assert reader.read[-1] == (33, 32, 30)
    run = sdssm.runs.RunFolder.open(tmp_path / "often" / "seed-0")
    assert (run.progress.step, run.step, run.is_interrupted) == (32, 30, True)
    assert Runs(run.path, [run]).to_records()[0]["step"] == 30  # an interrupted run resumes from there
    sdssm.resume(tmp_path / "often", device="cpu")
    assert run.progress.step == 60
    assert is_same_run(tmp_path / "usual/seed-0", tmp_path / "often/seed-0")


def test_progress_true_prints_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = train(tmp_path / "out", progress=True)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("step 0 of 60: starting 2 runs")
    accuracies = sorted(run.progress.accuracy for run in runs)
    assert f"accuracy min {format_percent(accuracies[0])}, median " in shown[-1]  # as `sdssm runs` shows it
    assert f"max {format_percent(accuracies[1])} % (best constant 50), median loss" in shown[-1]
    sdssm.resume(tmp_path / "out", progress=True)
    with pytest.raises(SettingsError, match="progress is 1; pass True, False or a display"):
        train(tmp_path / "other", progress=1)
    assert not (tmp_path / "other").exists()


def test_runs_print_as_a_table(tmp_path: Path) -> None:
    runs = train(tmp_path / "out")
    assert repr(runs) == f"Runs({str(tmp_path / 'out')!r}, 2 runs)"
    title, header, *rows = str(runs).splitlines()
    assert title == f"2 runs in {tmp_path / 'out'}"
    assert header.split()[:6] == ["folder", "task", "model", "preset", "seed", "status"]
    assert [row.split()[5:7] for row in rows] == [["finished", "60/60"]] * 2
    assert rows[0].split()[7:9] == [format_percent(runs[0].progress.accuracy), "50"]
    assert "<table>" in runs._repr_html_()
    assert [record["seed"] for record in runs.to_records()] == [0, 1]


OFTEN_SAVED: dict[str, Any] = {"settings": {**SMALL, "checkpoint_every": 3}, "steps": 200}  # it writes most of the time
PROGRAM = f"""
import sys, sdssm, torch
torch.set_num_threads(1)
sdssm.train("parity", out=sys.argv[1], seeds=2, device="cpu", **{OFTEN_SAVED})
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted")
    train(out, **OFTEN_SAVED)
    return out


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2])
def test_resume_after_kill_at_any_moment(tmp_path: Path, uninterrupted: Path, after: float) -> None:
    """kill -9 some time after the first checkpoint, often while one is written, then resume."""
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "interrupted")])
    while not list((tmp_path / "interrupted").glob("seed-1/checkpoints/*.safetensors")):
        assert child.poll() is None
        time.sleep(0.005)
    time.sleep(after)
    child.kill()
    child.wait()
    sdssm.resume(tmp_path / "interrupted", device="cpu")
    for seed in ("seed-0", "seed-1"):
        assert is_same_run(uninterrupted / seed, tmp_path / "interrupted" / seed)


def test_damaged_checkpoint_is_skipped(tmp_path: Path) -> None:
    settings = {"checkpoint_every": 10}
    train(tmp_path / "uninterrupted", settings=settings)
    with pytest.raises(TrainingStopped):
        train(tmp_path / "interrupted", progress=StopAt(40), settings=settings)
    newest = sorted((tmp_path / "interrupted/seed-0/checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="damaged"):
        sdssm.resume(tmp_path / "interrupted", device="cpu")
    for seed in ("seed-0", "seed-1"):
        assert is_same_run(tmp_path / "uninterrupted" / seed, tmp_path / "interrupted" / seed)


class Messages(SilentProgress):
    """Collects messages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


def test_run_with_an_infinite_loss_diverges_and_the_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explode(monkeypatch)
    messages = Messages()
    variants = {"good": {}, "bad": {"lr": EXPLODING}}
    runs = train(tmp_path, variants=variants, seeds=1, progress=messages)
    assert [run.status for run in runs] == ["finished", "diverged"]
    assert len(messages.texts) == 1 and "bad" in messages.texts[0] and "checkpoint of step 0" in messages.texts[0]
    kept = runs[1].load_checkpoint()
    assert all(torch.isfinite(value).all() for value in kept.tensors.values())
    assert sdssm.load(runs[1].path).n_classes == 2
    assert {run.path.parent.name: run.status for run in sdssm.resume(tmp_path, device="cpu")} == {
        "good": "finished",
        "bad": "diverged",
    }


def test_divergence_is_a_warning_without_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explode(monkeypatch)
    with pytest.warns(UserWarning, match="not finite by step"):
        train(tmp_path, seeds=1, settings={"lr": EXPLODING})


def test_validation_keeps_the_best_weights(tmp_path: Path) -> None:
    settings = {"validate_length": 7, "validate_every": 10, "lr": 0.05, "schedule": "constant"}
    (run,) = train(tmp_path / "uninterrupted", settings=settings, seeds=1)
    scores = {event["step"]: event["validation"] for event in run.events() if "validation" in event}
    assert list(scores) == [10, 20, 30, 40, 50, 60]
    kept = sdssm.evaluate(sdssm.load(run.path), task="parity", max_length=7, seed=2).runs[0].mean
    assert kept == pytest.approx(max(scores.values()))
    with pytest.raises(TrainingStopped):
        train(tmp_path / "interrupted", settings=settings, seeds=1, progress=StopAt(30))
    sdssm.resume(tmp_path / "interrupted", device="cpu")
    assert is_same_run(tmp_path / "uninterrupted/seed-0", tmp_path / "interrupted/seed-0")


def test_validation_is_balanced_if_uniform_strings_do_not_cover_the_machine(tmp_path: Path) -> None:
    """On uniform strings the weights that always give the frequent label would be the best ones."""
    settings = {"validate_length": 10, "validate_every": 60, "state": 4}
    (run,) = train(tmp_path, task="regex:(ab|c)*", settings=settings, seeds=1)
    assert run.config.train.sampling == "covering"
    [score] = [event["validation"] for event in run.events() if "validation" in event]
    evaluation = sdssm.evaluate(sdssm.load(run.path), task="regex:(ab|c)*", max_length=10, seed=2).runs[0]
    assert evaluation.balanced is not None and score == pytest.approx(evaluation.balanced.mean)
    assert score != pytest.approx(evaluation.mean)


def test_evaluations_during_training_are_recorded_and_change_nothing(tmp_path: Path) -> None:
    settings = {"train_length": 5, "evaluate_every": 25, "log_every": 10}
    runs = train(tmp_path / "evaluated", settings=settings)
    others = train(tmp_path / "other", settings={**settings, "evaluate_every": None})
    for run, other in zip(runs, others, strict=True):
        a, b = weights(run.path), weights(other.path)
        assert all(torch.equal(a[name], b[name]) for name in a)
        events = {event["step"]: event for event in run.events() if "beyond" in event}
        assert list(events) == [25, 50, 60]
        assert not any("beyond" in event for event in other.events())
        last = sdssm.evaluate(run, measures=()).runs[0]  # at the last step the model is the one that is saved
        assert (last.mean, last.mean_within, last.mean_beyond) == tuple(
            events[60][name] for name in ("all", "within", "beyond")
        )
    with pytest.raises(TrainingStopped):
        train(tmp_path / "interrupted", settings=settings, progress=StopAt(50))
    sdssm.resume(tmp_path / "interrupted", device="cpu")
    for run in runs:
        assert is_same_run(run.path, tmp_path / "interrupted" / run.path.name)


def test_replicas_of_the_same_task_are_evaluated_in_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings are drawn once for all of them, and the results are those of each replica alone."""
    calls = list[int]()
    module = sys.modules["sdssm.training.scheduled_evaluations"]

    def count(models: list[TokenModel], **options: Any) -> Evaluation:
        calls.append(len(models))
        return sdssm.evaluate(models, **options)

    monkeypatch.setattr(module, "evaluate", count)
    settings = {"train_length": 5, "evaluate_every": 60, "validate_length": 5, "validate_every": 60}
    runs = train(tmp_path, settings=settings, seeds=3)
    assert calls == [3, 3]
    for run in runs:
        alone = sdssm.evaluate(sdssm.load(run.path), task="parity", max_length=5, seed=2, measures=()).runs[0]
        assert [event["validation"] for event in run.events() if "validation" in event] == [alone.mean]


def test_latest_of_equal_validation_scores_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equal = SimpleNamespace(runs=[SimpleNamespace(headline=100.0)])
    monkeypatch.setattr(sys.modules["sdssm.training.scheduled_evaluations"], "evaluate", lambda *_, **__: equal)
    (run,) = train(tmp_path, settings={"validate_length": 7, "validate_every": 10}, seeds=1)
    last = run.load_checkpoint(run.step).tensors
    for name, value in tensors_for_file(sdssm.load(run.path)).items():
        assert torch.equal(value.cpu(), last[name])


def test_train_on_a_machine(tmp_path: Path) -> None:
    machine = sdssm.Machine(table=[[1, 0], [2, 1], [0, 2]], outputs=[1, 0, 0])
    runs = train(tmp_path, task=machine, seeds=1)
    assert runs[0].config.machines is not None
    assert sdssm.evaluate(tmp_path, max_length=5, strings=8).runs[0].task == "machine"


def test_runs_started_separately_resume_each_from_its_own_step(tmp_path: Path) -> None:
    train(tmp_path / "uninterrupted", seeds=[1, 2])
    train(tmp_path / "interrupted", seeds=[0])
    finished = weights(tmp_path / "interrupted/seed-0")
    sdssm.evaluate(tmp_path / "interrupted/seed-0", max_length=5, strings=8)
    for seed, step in ((1, 20), (2, 40)):
        with pytest.raises(TrainingStopped):
            train(tmp_path / "interrupted", seeds=[seed], progress=StopAt(step))
    steps_done = {seed: sdssm.runs.RunFolder.open(tmp_path / f"interrupted/seed-{seed}").step for seed in (1, 2)}
    assert steps_done[1] < steps_done[2]
    first_steps: list[int] = []

    class FirstStep(SilentProgress):
        def start(self, names: Any, steps: int, first: int, chance: Any = ()) -> None:
            first_steps.append(first)

    sdssm.resume(tmp_path / "interrupted", device="cpu", progress=FirstStep())
    assert first_steps == [steps_done[1]]
    assert all(torch.equal(value, finished[name]) for name, value in weights(tmp_path / "interrupted/seed-0").items())
    assert (tmp_path / "interrupted/seed-0/evaluation.json").exists()
    for name in ("seed-1", "seed-2"):
        a, b = weights(tmp_path / "uninterrupted" / name), weights(tmp_path / "interrupted" / name)
        assert all(torch.allclose(a[key], b[key], atol=1e-4) for key in a)


def test_resume_with_a_task_starts_missing_runs_and_refuses_different_ones(tmp_path: Path) -> None:
    train(tmp_path, seeds=1)
    before = weights(tmp_path / "seed-0")
    runs = train(tmp_path, seeds=3, resume=True)
    assert [run.status for run in runs] == ["finished"] * 3
    assert all(torch.equal(value, before[name]) for name, value in weights(tmp_path / "seed-0").items())
    for change in ({"task": "cycle"}, {"steps": 70}, {"settings": {"lr": 0.5}}):
        with pytest.raises(RunError, match="another training") as caught:
            train(tmp_path, seeds=1, resume=True, **change)
        name, value = ("lr", 0.5) if "settings" in change else next(iter(change.items()))
        assert re.search(rf"[( ]{name} [\w.]+, asked {value}[,)]", str(caught.value))
        assert "which has ended and cannot be extended; train again in another folder" in str(caught.value)
        assert caught.value.shell.endswith("with another --out, or replace it with --overwrite in place of --resume")


def test_folders_that_would_collide_or_mix_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="would both train in"):
        train(tmp_path, task=["regex:a*b", "regex:a?b"])
    assert not list(tmp_path.iterdir())
    train(tmp_path, seeds=2)
    with pytest.raises(RunError, match="also holds seed-1"):
        train(tmp_path, seeds=1, overwrite=True, settings={"lr": 0.1})
    train(tmp_path, seeds=1, overwrite=True)
    for out in ("", "."):
        with pytest.raises(SettingsError, match="out is the current folder"):
            sdssm.train("parity", out=out, device="cpu")
    with pytest.raises(RunError, match="seed-0 is a run itself"):
        train(tmp_path / "seed-0")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").touch()
    train(tmp_path / "other", seeds=1, overwrite=True)
    assert (tmp_path / "other/notes.txt").exists()


@pytest.mark.parametrize("outputs", [[0], [1, 1]])
def test_a_machine_with_one_class_is_refused(tmp_path: Path, outputs: list[int]) -> None:
    machine = sdssm.Machine(table=[[(q + 1) % len(outputs)] * 2 for q in range(len(outputs))], outputs=outputs)
    with pytest.raises(TaskError, match="there is nothing to learn"):
        train(tmp_path, task=machine, seeds=1)


def test_machine_file_may_be_removed_after_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.json"
    file.write_text('{"table": [[0, 1], [1, 0]]}')
    train(tmp_path / "out", task=str(file), seeds=1)
    file.unlink()
    assert sdssm.evaluate(tmp_path / "out", max_length=5, strings=8).runs[0].task == str(file)


def test_task_keeps_its_own_lengths(tmp_path: Path) -> None:
    own = sdssm.Task(name="parity", machine=sdssm.machine("parity"), train_length=6, test_length=11)
    (run,) = sdssm.train(own, out=tmp_path, steps=5, settings={"state": 4, "batch": 4}, device="cpu")
    task = run.config.load_task()
    assert (task.train_length, task.test_length) == (6, 11)
    assert sdssm.evaluate(run, strings=4).runs[0].max_length == 11


def test_checkpoint_of_another_size_than_the_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        train(tmp_path, seeds=1, progress=StopAt(20))
    config = tmp_path / "seed-0/config.json"
    edit_text(config, '"state": 6', '"state": 7')
    with pytest.raises(RunError, match="dictionary of the checkpoint is"):
        sdssm.resume(tmp_path, device="cpu")


# -- invalid input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"task": "parety"}, UnknownNameError, "did you mean 'parity'"),
        ({"preset": "papr"}, UnknownNameError, "did you mean 'paper'"),
        ({"model": "mambo"}, UnknownNameError, "no model 'mambo'"),
        ({"task": "z7", "preset": "paper"}, SettingsError, "no settings for sd-ssm on z7"),
        ({"settings": {"learning_rate": 1}}, SettingsError, "there is no setting 'learning_rate'"),
        ({"steps": 0}, SettingsError, "steps is 0"),
        ({"seeds": []}, SettingsError, "seeds are"),
        ({"seeds": [1, 1]}, SettingsError, "different"),
        ({"seeds": 2.0}, SettingsError, "seeds are 2.0"),
        ({"task": 5}, AutomatonError, "a machine is a name, a path, a table"),
        ({"variants": {"../up": {}}}, SettingsError, "a name for a folder"),
        ({"variants": {"x": 5}}, SettingsError, "a variant is 'x'"),
        ({"settings": {"state": 10**7}}, SettingsError, "from 1 to 4,096"),
        ({"settings": {"train_length": 10**13}}, SettingsError, "from 1 to 100,000"),
        ({"settings": {"batch": 10**12}}, SettingsError, "from 1 to 1,048,576"),
        ({"seeds": True}, SettingsError, "seeds are True"),
        ({"task": []}, SettingsError, "no task"),
        ({"settings": {"validate_length": 41}}, SettingsError, "test lengths must not choose weights"),
        ({"settings": {"shortest": 0}}, SettingsError, "shortest is 0"),
        ({"settings": {"shortest": 41, "train_length": None}}, SettingsError, "trained on strings of at most 40"),
        ({"settings": {"shortest": 9, "train_length": 8}}, SettingsError, "at most as long as the longest"),
        ({"settings": {"width": 1}}, ModelError, "need 2"),
        ({"settings": {"initial_state": "given"}}, SettingsError, "no initial states to give"),
        ({"settings": {"lr": float("inf")}}, SettingsError, "lr is inf; it must be a finite number"),
        ({"settings": {"lr": 10**400}}, SettingsError, "finite number"),
        ({"settings": {"column_norm": 1000.0}}, SettingsError, "from 1 to 16"),
        ({"resume": True, "overwrite": True}, SettingsError, "leave one of them out"),
    ],
)
def test_invalid_requests_start_nothing(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        train(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_task_without_valid_strings_is_refused(tmp_path: Path) -> None:
    machine = sdssm.machine("parity")
    never = sdssm.Machine(table=[[0, 0]], outputs=[0])
    with pytest.raises(TaskError, match="no string of none is valid"):
        train(tmp_path / "out", task=sdssm.Task(name="none", machine=machine, valid=never))
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no GPU here"):
        sdssm.train("parity", out=tmp_path / "out", device="cuda")
    with pytest.raises(DeviceError, match="no device 'tpu'"):
        sdssm.train("parity", out=tmp_path / "out", device="tpu")


def test_existing_run_is_refused_without_overwrite_or_resume(tmp_path: Path) -> None:
    train(tmp_path, seeds=1)
    with pytest.raises(RunError, match="overwrite=True"):
        train(tmp_path, seeds=1)
    train(tmp_path, seeds=1, overwrite=True)
    assert train(tmp_path, seeds=1, resume=True)[0].status == "finished"


def test_a_stored_machine_is_resumed_whatever_its_file_holds(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text('{"table": [[0, 1], [1, 0]]}')
    with pytest.raises(TrainingStopped):
        train(tmp_path / "out", task=str(file), progress=StopAt(20))
    file.write_text('{"table": [[0, 1], [1, 1]]}')
    run = sdssm.resume(tmp_path / "out", device="cpu")[0]
    assert run.status == "finished" and run.config.load_task().machine.table.tolist() == [[0, 1], [1, 0]]
