"""Groups that wait for room on the device: bounded, in order, with the same result as if they had not waited."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import weakref
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from sdssm.errors import RunError, SettingsError
from sdssm.runs import RunFolder
from sdssm.runs.claim import is_held
from sdssm.training import TrainingStopped, resume
from sdssm.training.deferred_errors import DeferredErrors
from sdssm.training.displays import PlainLines
from sdssm.training.group import ReplicaGroup
from sdssm.training.progress import SilentProgress
from sdssm.training.queue import GROUPS_AT_ONCE, MEMORY_SHARE, TrainingQueue
from sdssm.training.trainer import train_runs
from tests.edited_files import edit_json
from tests.training.plans import STATES, plan_groups


class Recorder(SilentProgress):
    """Records each update; sends Ctrl-C or raises `Killed` at a step."""

    def __init__(self, stop: int | None = None, kill: int | None = None) -> None:
        self.stop_at, self.kill_at = stop, kill
        self.steps: list[int] = []
        self.waiting: list[int] = []

    def start(self, names: Sequence[str], steps: int, first: int, chance: Sequence[float] = ()) -> None:
        self.names = names

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self.steps.append(step)
        self.waiting.append(sum(map(math.isnan, accuracy)))
        assert self.waiting[-1] == sum(map(math.isnan, loss))
        if self.stop_at is not None and step >= self.stop_at:
            self.stop_at = None
            os.kill(os.getpid(), signal.SIGINT)
        if self.kill_at is not None and step >= self.kill_at:
            raise Killed


class Killed(BaseException):
    """Ends the training as if the process was killed: nothing is saved."""


@pytest.fixture
def active_groups(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The groups that are on the device, each time one starts or ends."""
    history: list[set[str]] = []
    active: set[str] = set()
    for name, change in (("start", active.add), ("end", active.discard)):
        original = getattr(ReplicaGroup, name)

        def recorded(self: ReplicaGroup, *args: Any, _original: Any = original, _change: Any = change) -> None:
            _original(self, *args)
            _change(self.folders[0].path.parent.name)
            history.append(set(active))

        monkeypatch.setattr(ReplicaGroup, name, recorded)
    return history


def outcome(out: Path) -> dict[str, Any]:
    """Return the weights and the events (without times) of each run, by its folder."""
    results = {}
    for path in sorted(out.rglob("seed-*")):
        events = [{**event, "seconds": 0} for event in RunFolder.open(path).events()]
        results[str(path.relative_to(out))] = ((path / "model.safetensors").read_bytes(), events)
    return results


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("uninterrupted")
    train_runs(out, plan_groups(out), device="cpu")
    return outcome(out)


@pytest.mark.parametrize("at_once", [1, 2])
def test_at_most_at_once_groups_train(
    tmp_path: Path, uninterrupted: dict[str, Any], active_groups: list[set[str]], at_once: int
) -> None:
    recorder = Recorder()
    runs = train_runs(tmp_path, plan_groups(tmp_path), device="cpu", at_once=at_once, progress=recorder)
    assert max(map(len, active_groups)) == at_once
    assert {run.status for run in runs} == {"finished"}
    assert outcome(tmp_path) == uninterrupted  # waiting does not change the result
    assert len(recorder.names) == 6
    assert recorder.waiting[0] == 2 * (3 - at_once) and recorder.waiting[-1] == 0
    assert recorder.steps == sorted(recorder.steps) and recorder.steps[-1] == 10
    assert not any(is_held(run.path) for run in runs)


def test_few_groups_train_without_waiting(tmp_path: Path, active_groups: list[set[str]]) -> None:
    recorder = Recorder()
    train_runs(tmp_path, plan_groups(tmp_path), device="cpu", progress=recorder)
    assert max(map(len, active_groups)) == 3
    assert set(recorder.waiting) == {0}
    assert list(dict.fromkeys(recorder.steps)) == [5, 10]  # a slow machine shows a step twice


def test_engine_is_freed_when_its_group_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU without the garbage collector, which takes as long as a small training."""
    engines: list[weakref.ref[Any]] = []
    still_alive: list[int] = []
    original = ReplicaGroup.start

    def recorded(self: ReplicaGroup, device: torch.device) -> None:
        still_alive.append(sum(engine() is not None for engine in engines))
        original(self, device)
        engines.append(weakref.ref(self.engine))

    monkeypatch.setattr(ReplicaGroup, "start", recorded)
    gc.disable()
    try:
        train_runs(tmp_path, plan_groups(tmp_path), device="cpu", at_once=1)
    finally:
        gc.enable()
    assert still_alive == [0, 0, 0]


def test_stop_while_groups_wait(tmp_path: Path, uninterrupted: dict[str, Any], active_groups: list[set[str]]) -> None:
    """The first two groups are in the middle, the third has not started."""
    with pytest.raises(TrainingStopped) as stopped:
        train_runs(tmp_path, plan_groups(tmp_path), device="cpu", at_once=2, progress=Recorder(stop=3))
    assert {run.status for run in stopped.value.runs} == {"stopped"}
    assert sum(bool(run.checkpoints()) for run in stopped.value.runs) == 4
    assert not any(is_held(run.path) for run in stopped.value.runs)
    active_groups.clear()
    train_runs(tmp_path, plan_groups(tmp_path), device="cpu", at_once=3, resume=True)
    assert max(map(len, active_groups)) == 3
    assert outcome(tmp_path) == uninterrupted


@pytest.mark.parametrize("step", [1, 5])
def test_kill_while_groups_wait(tmp_path: Path, uninterrupted: dict[str, Any], step: int) -> None:
    with pytest.raises(Killed):
        train_runs(tmp_path, plan_groups(tmp_path), device="cpu", at_once=1, progress=Recorder(kill=step))
    statuses = [RunFolder.open(folder).status for folder, *_ in plan_groups(tmp_path)]
    assert statuses.count("finished") == (0 if step == 1 else 2)
    resume(tmp_path, device="cpu")
    assert outcome(tmp_path) == uninterrupted


def test_resumed_group_has_its_original_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it waited or trained when the training stopped."""
    with pytest.raises(TrainingStopped):
        train_runs(tmp_path, plan_groups(tmp_path), device="cpu", at_once=1, progress=Recorder(stop=5))
    members = []
    original = ReplicaGroup.start

    def recorded(self: ReplicaGroup, device: torch.device) -> None:
        members.append([str(folder.path.relative_to(tmp_path)) for folder in self.folders])
        original(self, device)

    monkeypatch.setattr(ReplicaGroup, "start", recorded)
    resume(tmp_path, device="cpu")
    assert members == [[f"state-{state}/seed-{seed}" for seed in (0, 1)] for state in STATES[1:]]


def test_waiting_group_holds_its_folders(tmp_path: Path) -> None:
    class HeldFolders(SilentProgress):
        def update(self, *_: Any) -> None:
            held.append([is_held(folder) for folder, *_ in plan_groups(tmp_path)])

    held: list[list[bool | None]] = []
    train_runs(tmp_path, plan_groups(tmp_path), device="cpu", at_once=1, progress=HeldFolders())
    assert all(held[0])


def test_other_groups_are_saved_if_one_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        train_runs(tmp_path, plan_groups(tmp_path), device="cpu", progress=Recorder(stop=5))
    path = tmp_path / "state-5" / "seed-0" / "config.json"
    model = json.loads(path.read_text())["model"]
    model["mixer"]["state"] = 7
    edit_json(path, model=model)
    with pytest.raises(RunError, match="but the config says"):
        resume(tmp_path, device="cpu")
    folders = {str(path.relative_to(tmp_path)): RunFolder.open(path) for path in tmp_path.rglob("seed-*")}
    assert {folder.status for folder in folders.values()} == {"stopped"}
    assert all(folder.step >= 5 for folder in folders.values())


def test_nothing_is_logged_if_stopped_before_the_first_step(tmp_path: Path) -> None:
    """The signal arrives after the group has checked for it and before the engine's first step."""
    folder, task, config = plan_groups(tmp_path)[0]
    group = ReplicaGroup([(RunFolder.create(folder, config), task)])
    group.start(torch.device("cpu"))
    answers = iter([False, True, True])
    assert list(group.advance(1, lambda: next(answers))) == [None]
    errors = DeferredErrors()
    group.write_results(print, errors)
    errors.raise_first()
    assert (group.engine.step, group.latest, group.folders[0].events()) == (0, None, [])


def test_part_of_a_window(tmp_path: Path) -> None:
    """Slow steps on a GPU: a round ends after a part of a window, in whole CUDA graphs, and the window stays open."""
    folder, task, config = plan_groups(tmp_path, steps=100, log_every=50)[0]
    group = ReplicaGroup([(RunFolder.create(folder, config), task)])
    group.start(torch.device("cpu"))
    errors, steps = DeferredErrors(), []
    assert group.snapshot() is None
    for windows in (0.002, 0.5, 0.5, 1.7):
        list(group.advance(windows, lambda: False))
        group.write_results(print, errors)
        steps.append(group.engine.step)
        assert group.snapshot() is not None
    assert steps == [10, 30, 50, 100]
    assert [event["step"] for event in folder_events(group)] == [50, 100]
    errors.raise_first()


def test_a_turn_ends_after_some_time(tmp_path: Path) -> None:
    folder, task, config = plan_groups(tmp_path)[0]
    group = ReplicaGroup([(RunFolder.create(folder, config), task)])
    group.start(torch.device("cpu"))
    snapshots = [group.snapshot() for _ in group.advance(1, lambda: False, turn_seconds=0.0)]
    assert len(snapshots) == 5  # at least one step each, and all of them before the window is logged
    assert None not in snapshots and folder_events(group) == []
    [(loss, accuracy, alive)] = group.snapshot() or []
    errors = DeferredErrors()
    group.write_results(print, errors)
    [event] = folder_events(group)
    assert (event["accuracy"], alive) == (accuracy, True)  # of one window, the moving average is its mean
    assert event["loss"] == pytest.approx(loss)


def folder_events(group: ReplicaGroup) -> list[dict[str, Any]]:
    return group.folders[0].events()


# -- how many groups start ---------------------------------------------------------------------------------------------


def free_places(training: int, at_once: int | None, reserved: int, free: int) -> int:
    """Return how many groups a GPU with this memory starts while `training` groups train."""
    queue = TrainingQueue([], torch.device("cuda"), at_once, lambda: (reserved, free))
    queue.__class__ = type("BusyQueue", (TrainingQueue,), {"training": property(lambda _: [None] * training)})
    return queue._free_places()


def test_gpu_starts_groups_as_its_memory_allows() -> None:
    assert free_places(0, None, 0, 0) == 1  # one always starts: then the memory that it needs is known
    assert [free_places(n, None, n * 10, 10**6) for n in (1, 2, 4, 8, 15, 16)] == [1, 2, 4, 8, 1, 0]
    assert free_places(4, None, 400, round(250 / MEMORY_SHARE) + 1) == 2  # 100 each: room for two and a half
    assert free_places(4, None, 400, 20) == 0
    assert free_places(3, 4, 0, 10**6) == 1
    assert TrainingQueue([], torch.device("cpu"))._free_places() == GROUPS_AT_ONCE["cpu"]


@pytest.mark.parametrize("at_once", [0, -1, 2.0, True, "all"])
def test_invalid_at_once(tmp_path: Path, at_once: Any) -> None:
    with pytest.raises(SettingsError, match="at_once is"):
        train_runs(tmp_path / "out", plan_groups(tmp_path / "out"), device="cpu", at_once=at_once)
    assert not (tmp_path / "out").exists()


def test_plain_lines_count_waiting_replicas() -> None:
    out = StringIO()
    lines = PlainLines(out)
    lines.start(["a", "b", "c"], 100, 0)
    lines.update(10, [0.5, math.nan, 0.1], [80.0, math.nan, 1.0], [True, True, False])
    lines.stop()
    assert "accuracy min 80.00, median 80.00, max 80.00 %" in out.getvalue()
    assert out.getvalue().endswith(", 1 diverged, 1 waiting\n")
