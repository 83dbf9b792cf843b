"""Whatever fails in one run, the others are saved."""

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
from sdssm.training.engine import Engine
from sdssm.training.group import Group
from sdssm.training.progress import Silent
from sdssm.training.queue import Entry, NoRoomError, Queue
from sdssm.training.trainer import train_all
from tests.training.groups import planned


class At(Silent):
    """Does something once a step is shown."""

    def __init__(self, step: int, do: Callable[[], None]) -> None:
        self.step, self.do = step, do
        self.shown: list[int] = []

    def update(self, step: int, *_: Any) -> None:
        self.shown.append(step)
        if step >= self.step:
            self.step = 10**9
            self.do()


def left(out: Path) -> dict[str, tuple[str, int]]:
    """Status and step of each run, by its folder."""
    found = {str(path.relative_to(out)): RunFolder.open(path) for path in sorted(out.rglob("seed-*"))}
    return {name: (run.status, run.step) for name, run in found.items()}


def take(folder: Path) -> None:
    (folder / "owner").write_text("another one, on another machine\n")


def test_a_folder_that_was_taken_over_costs_the_others_nothing(tmp_path: Path) -> None:
    taken = tmp_path / "state-4" / "seed-0"
    with pytest.raises(RunError, match="another process has taken over .*seed-0"):
        train_all(tmp_path, planned(tmp_path, 20), device="cpu", progress=At(10, lambda: take(taken)))
    found = left(tmp_path)
    assert found.pop("state-4/seed-0") == ("running", 0)  # that of the other one
    assert set(found.values()) == {("stopped", 15)}
    for name in found:
        assert [event["step"] for event in RunFolder.open(tmp_path / name).events()] == [5, 10, 15]
        assert not is_held(tmp_path / name)


def test_stopped_with_a_waiting_folder_taken_over(tmp_path: Path) -> None:
    def stop() -> None:
        take(tmp_path / "state-4" / "seed-0")
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RunError, match="another process has taken over"):
        train_all(tmp_path, planned(tmp_path, 20), device="cpu", at_once=1, progress=At(1, stop))
    found = left(tmp_path)
    assert found.pop("state-4/seed-0") == ("running", 0)
    assert {status for status, _ in found.values()} == {"stopped"}


def test_a_step_that_fails_is_not_saved_and_the_others_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed step leaves is of no step: its group goes on from the checkpoint before."""
    original = Engine.advance

    def fails(self: Engine, steps: int, *more: Any) -> None:
        original(self, steps, *more)
        if self.runs[0].model.mixer.state == 4 and self.step == 5:
            raise torch.OutOfMemoryError("CUDA out of memory\nof much")

    monkeypatch.setattr(Engine, "advance", fails)
    with pytest.raises(NoRoomError) as error:
        train_all(tmp_path, planned(tmp_path)[:4], device="cpu")
    assert "\n" not in str(error.value)
    assert set(left(tmp_path).values()) == {("stopped", 0), ("stopped", 5)}
    assert {name for name, at in left(tmp_path).items() if at[1] == 0} == {"state-4/seed-0", "state-4/seed-1"}
    monkeypatch.undo()
    train_all(tmp_path, planned(tmp_path)[:4], device="cpu", resume=True)
    assert set(left(tmp_path).values()) == {("finished", 10)}


def begins(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """No more than `most` groups have memory at a time; how many had it whenever one began."""
    alive: list[int] = []
    begin, end = Group.__init__, Group.end
    counts: list[int] = []

    def new(self: Group, *given: Any, **options: Any) -> None:
        if len(alive) >= most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        begin(self, *given, **options)
        alive.append(id(self))
        counts.append(len(alive))

    def over(self: Group, *given: Any, **options: Any) -> None:
        end(self, *given, **options)
        alive.remove(id(self))

    monkeypatch.setattr(Group, "__init__", new)
    monkeypatch.setattr(Group, "end", over)
    return counts


def test_one_that_finds_no_memory_waits_until_another_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = begins(monkeypatch, 1)
    progress = At(10**9, lambda: None)
    train_all(tmp_path, planned(tmp_path), device="cpu", progress=progress)
    assert counts == [1, 1, 1]
    assert set(left(tmp_path).values()) == {("finished", 10)}
    assert progress.shown == [1, 3, 5, 6, 8, 10]  # of all three


def test_no_memory_for_any_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begins(monkeypatch, 0)
    with pytest.raises(NoRoomError, match="the memory of cpu is too small") as error:
        train_all(tmp_path, planned(tmp_path), device="cpu")
    assert "\n" not in str(error.value)
    assert not any(is_held(folder) for folder, *_ in planned(tmp_path))


def test_a_signal_in_the_last_round_is_heard(tmp_path: Path) -> None:
    """What would have come after the training is not wanted."""
    with pytest.raises(TrainingStopped):
        progress = At(10, lambda: os.kill(os.getpid(), signal.SIGTERM))
        train_all(tmp_path, planned(tmp_path)[:2], device="cpu", progress=progress)
    assert set(left(tmp_path).values()) == {("finished", 10)}


def test_the_step_counts_those_that_memory_makes_wait(tmp_path: Path) -> None:
    """A GPU with memory for one of three groups."""

    class Waits(Entry):
        at = 0

        @property
        def step(self) -> int:
            return self.at

        def begin(self, device: torch.device) -> None:
            self.group = object()  # type: ignore[assignment]  # as if it trained

    runs = [(RunFolder(folder, config), of) for folder, of, config in planned(tmp_path, 100)]
    entries = [Waits([one]) for one in runs[::2]]
    queue = Queue(entries, torch.device("cuda"), memory=lambda: (70, 10))
    seen = [queue.step]
    for entry in entries:
        queue.fill()
        assert len(queue.training) == 1
        for entry.at in (50, 100):
            seen.append(queue.step)
        entry.group, entry.ended = None, True
    assert seen == [0, 16, 33, 50, 66, 83, 100]
