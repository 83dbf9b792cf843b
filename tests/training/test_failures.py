"""If one run fails, the others are saved."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sdssm.errors import RunError
from sdssm.runs import RunFolder
from sdssm.runs.claim import is_held
from sdssm.training import TrainingStopped
from sdssm.training.engine import TrainingEngine
from sdssm.training.group import ReplicaGroup
from sdssm.training.progress import SilentProgress
from sdssm.training.queue import DeviceMemoryError, TrainingQueue
from sdssm.training.trainer import train_runs
from tests.training.plans import plan_groups


class CallAt(SilentProgress):
    """Records the steps shown, and calls a function once a step is reached."""

    def __init__(self, step: int, function: Callable[[], None]) -> None:
        self.step, self.function = step, function
        self.shown: list[int] = []

    def update(self, step: int, *_: Any) -> None:
        self.shown.append(step)
        if step >= self.step:
            self.step = 10**9
            self.function()


def statuses(out: Path) -> dict[str, tuple[str, int]]:
    """Return the status and the step of each run, by its folder."""
    runs = {str(path.relative_to(out)): RunFolder.open(path) for path in sorted(out.rglob("seed-*"))}
    return {name: (run.status, run.step) for name, run in runs.items()}


def take_over(folder: Path) -> None:
    """Write the mark of a process on another machine into a run folder."""
    (folder / "owner").write_text("another one, on another machine\n")


def test_other_runs_are_saved_if_a_folder_is_taken_over(tmp_path: Path) -> None:
    taken = tmp_path / "state-4" / "seed-0"
    with pytest.raises(RunError, match="another process has taken over .*seed-0"):
        train_runs(tmp_path, plan_groups(tmp_path, 20), device="cpu", progress=CallAt(10, lambda: take_over(taken)))
    runs = statuses(tmp_path)
    assert runs.pop("state-4/seed-0") == ("running", 0)  # it belongs to the other process
    assert set(runs.values()) == {("stopped", 15)}
    for name in runs:
        assert [event["step"] for event in RunFolder.open(tmp_path / name).events()] == [5, 10, 15]
        assert not is_held(tmp_path / name)


def test_stop_with_a_waiting_folder_taken_over(tmp_path: Path) -> None:
    def stop() -> None:
        take_over(tmp_path / "state-4" / "seed-0")
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RunError, match="another process has taken over"):
        train_runs(tmp_path, plan_groups(tmp_path, 20), device="cpu", at_once=1, progress=CallAt(1, stop))
    runs = statuses(tmp_path)
    assert runs.pop("state-4/seed-0") == ("running", 0)
    assert {status for status, _ in runs.values()} == {"stopped"}


def test_failed_step_is_not_saved_but_the_other_groups_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed step leaves parameters of no step: its group resumes from the checkpoint before."""
    original = TrainingEngine.advance

    def failing(self: TrainingEngine, steps: int, *args: Any) -> None:
        original(self, steps, *args)
        if self.runs[0].model.mixer.state == 4 and self.step == 5:
            raise torch.OutOfMemoryError("CUDA out of memory\nsecond line")

    monkeypatch.setattr(TrainingEngine, "advance", failing)
    with pytest.raises(DeviceMemoryError) as error:
        train_runs(tmp_path, plan_groups(tmp_path)[:4], device="cpu")
    assert "\n" not in str(error.value)
    runs = statuses(tmp_path)
    assert set(runs.values()) == {("stopped", 0), ("stopped", 5)}
    assert {name for name, (_, step) in runs.items() if step == 0} == {"state-4/seed-0", "state-4/seed-1"}
    monkeypatch.undo()
    train_runs(tmp_path, plan_groups(tmp_path)[:4], device="cpu", resume=True)
    assert set(statuses(tmp_path).values()) == {("finished", 10)}


def limit_groups(monkeypatch: pytest.MonkeyPatch, limit: int) -> list[int]:
    """Let groups beyond `limit` run out of memory; return a list of how many train whenever one starts."""
    active: set[ReplicaGroup] = set()
    counts: list[int] = []
    original_start, original_end = ReplicaGroup.start, ReplicaGroup.end

    def start(self: ReplicaGroup, device: torch.device) -> None:
        if len(active) >= limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        original_start(self, device)
        active.add(self)
        counts.append(len(active))

    def end(self: ReplicaGroup) -> None:
        original_end(self)
        active.discard(self)

    monkeypatch.setattr(ReplicaGroup, "start", start)
    monkeypatch.setattr(ReplicaGroup, "end", end)
    return counts


def test_group_without_memory_waits_until_another_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = limit_groups(monkeypatch, 1)
    progress = CallAt(10**9, lambda: None)
    train_runs(tmp_path, plan_groups(tmp_path), device="cpu", progress=progress)
    assert counts == [1, 1, 1]
    assert set(statuses(tmp_path).values()) == {("finished", 10)}
    assert progress.shown == [1, 3, 5, 6, 8, 10]  # the mean over the three groups


def test_no_memory_for_any_group_is_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_groups(monkeypatch, 0)
    with pytest.raises(DeviceMemoryError, match="the memory of cpu is too small") as error:
        train_runs(tmp_path, plan_groups(tmp_path), device="cpu")
    assert "\n" not in str(error.value)
    assert not any(is_held(folder) for folder, *_ in plan_groups(tmp_path))


def test_group_that_fails_to_start_keeps_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs out of memory after its models were built: it waits, and can start later."""
    folder, task, config = plan_groups(tmp_path)[0]
    group = ReplicaGroup([(RunFolder.create(folder, config), task)])

    def failing(self: ReplicaGroup) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch, pytest.raises(torch.OutOfMemoryError):
        patch.setattr(ReplicaGroup, "save", failing)
        group.start(torch.device("cpu"))
    assert (group.state, group.step, group._engine) == ("waiting", 0, None)
    group.start(torch.device("cpu"))
    assert group.state == "training"
    group.end()
    assert (group.state, group._engine, group.folders[0].status) == ("stopped", None, "stopped")


def test_a_closed_terminal_saves_the_runs(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run below `nohup`, which ignores it
    try:
        progress = CallAt(5, lambda: os.kill(os.getpid(), signal.SIGHUP))
        with pytest.raises(TrainingStopped):
            train_runs(tmp_path, plan_groups(tmp_path, 10_000)[:1], device="cpu", progress=progress)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert all(status == "stopped" and step > 0 for status, step in statuses(tmp_path).values())


def test_signal_in_the_last_round_stops_the_caller(tmp_path: Path) -> None:
    """All runs are finished, but the work that would follow the training must not start."""
    with pytest.raises(TrainingStopped):
        progress = CallAt(10, lambda: os.kill(os.getpid(), signal.SIGTERM))
        train_runs(tmp_path, plan_groups(tmp_path)[:2], device="cpu", progress=progress)
    assert set(statuses(tmp_path).values()) == {("finished", 10)}


def test_displayed_step_includes_groups_that_wait_for_memory(tmp_path: Path) -> None:
    """A GPU with memory for one of three groups."""

    class FakeGroup(ReplicaGroup):
        fake_step = 0

        @property
        def step(self) -> int:
            return self.fake_step

        def start(self, device: torch.device) -> None:
            self.state = "training"

    runs = [(RunFolder(folder, config), task) for folder, task, config in plan_groups(tmp_path, 100)]
    groups = [FakeGroup([run]) for run in runs[::2]]
    queue = TrainingQueue(groups, torch.device("cuda"), memory=lambda: (70, 10))
    shown = [queue.step]
    for group in groups:
        queue.start_groups()
        assert len(queue.training) == 1
        for group.fake_step in (50, 100):
            shown.append(queue.step)
        group.state = "ended"
    assert shown == [0, 16, 33, 50, 66, 83, 100]
