"""Groups that wait for a place: bounded, in their order, and as if they had never waited."""

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
from sdssm.training.group import Group
from sdssm.training.progress import PlainLines, Silent
from sdssm.training.queue import AT_ONCE, SHARE, Entry, Queue
from sdssm.training.trainer import train_all
from tests.training.groups import STATES, planned


class Watcher(Silent):
    """Notes what it is told, and can stop or kill the training."""

    def __init__(self, stop: int | None = None, kill: int | None = None) -> None:
        self.stop_at, self.kill_at = stop, kill
        self.steps: list[int] = []
        self.waiting: list[int] = []
        self.most = 0

    def start(self, names: Sequence[str], steps: int, first: int) -> None:
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
    """As if the process ended: nothing gets saved."""


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The states of the groups that train, each time that one of them does."""
    seen: list[set[str]] = []
    alive: set[str] = set()
    for name, change in (("__init__", alive.add), ("end", alive.discard)):
        original = getattr(Group, name)

        def noted(self: Group, *given: Any, _do: Any = original, _change: Any = change, **options: Any) -> Any:
            found = _do(self, *given, **options)
            _change(self.folders[0].path.parent.name)
            seen.append(set(alive))
            return found

        monkeypatch.setattr(Group, name, noted)
    return seen


def outcome(out: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(out.rglob("seed-*")):
        events = [{**json.loads(line), "seconds": 0} for line in (path / "events.jsonl").open()]
        found[str(path.relative_to(out))] = ((path / "model.safetensors").read_bytes(), events)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("whole")
    train_all(out, planned(out), device="cpu")
    return outcome(out)


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_than_asked_train_at_once(
    tmp_path: Path, whole: dict[str, Any], at_work: list[set[str]], at_once: int
) -> None:
    watcher = Watcher()
    runs = train_all(tmp_path, planned(tmp_path), device="cpu", at_once=at_once, progress=watcher)
    assert max(map(len, at_work)) == at_once
    assert {run.status for run in runs} == {"finished"}
    assert outcome(tmp_path) == whole  # whether it waited or not
    assert len(watcher.names) == 6
    assert watcher.waiting[0] == 2 * (3 - at_once) and watcher.waiting[-1] == 0
    assert watcher.steps == sorted(watcher.steps) and watcher.steps[-1] == 10
    assert not any(is_held(run.path) for run in runs)


def test_few_groups_train_as_ever(tmp_path: Path, at_work: list[set[str]]) -> None:
    watcher = Watcher()
    train_all(tmp_path, planned(tmp_path), device="cpu", progress=watcher)
    assert max(map(len, at_work)) == 3
    assert set(watcher.waiting) == {0}
    assert watcher.steps == [5, 10]


def test_an_engine_goes_with_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU nothing else holds it: no garbage is collected, which takes as long as a small training."""
    engines: list[weakref.ref[Any]] = []
    still: list[int] = []
    original = Group.__init__

    def noted(self: Group, *given: Any, **options: Any) -> None:
        still.append(sum(engine() is not None for engine in engines))
        original(self, *given, **options)
        engines.append(weakref.ref(self.engine))

    monkeypatch.setattr(Group, "__init__", noted)
    gc.disable()
    try:
        train_all(tmp_path, planned(tmp_path), device="cpu", at_once=1)
    finally:
        gc.enable()
    assert still == [0, 0, 0]


def test_stopped_while_some_wait(tmp_path: Path, whole: dict[str, Any], at_work: list[set[str]]) -> None:
    """The first two groups are in the middle, the third has not begun."""
    with pytest.raises(TrainingStopped) as stopped:
        train_all(tmp_path, planned(tmp_path), device="cpu", at_once=2, progress=Watcher(stop=3))
    assert {run.status for run in stopped.value.runs} == {"stopped"}
    assert sum(bool(run.checkpoints()) for run in stopped.value.runs) == 4
    assert not any(is_held(run.path) for run in stopped.value.runs)
    at_work.clear()
    train_all(tmp_path, planned(tmp_path), device="cpu", at_once=3, resume=True)
    assert max(map(len, at_work)) == 3
    assert outcome(tmp_path) == whole


@pytest.mark.parametrize("at", [1, 5])
def test_killed_while_some_wait(tmp_path: Path, whole: dict[str, Any], at: int) -> None:
    with pytest.raises(Killed):
        train_all(tmp_path, planned(tmp_path), device="cpu", at_once=1, progress=Watcher(kill=at))
    statuses = [RunFolder.open(folder).status for folder, *_ in planned(tmp_path)]
    assert statuses.count("finished") == (0 if at == 1 else 2)
    resume(tmp_path, device="cpu")
    assert outcome(tmp_path) == whole


def test_a_resumed_group_has_the_members_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waited, and wherever it was when the training stopped."""
    with pytest.raises(TrainingStopped):
        train_all(tmp_path, planned(tmp_path), device="cpu", at_once=1, progress=Watcher(stop=5))
    sizes = []
    original = Entry.begin

    def noted(self: Entry, device: torch.device) -> None:
        sizes.append([str(folder.path.relative_to(tmp_path)) for folder in self.folders])
        original(self, device)

    monkeypatch.setattr(Entry, "begin", noted)
    resume(tmp_path, device="cpu")
    assert sizes == [[f"state-{state}/seed-{seed}" for seed in (0, 1)] for state in STATES[1:]]


def test_who_waits_holds_its_folder(tmp_path: Path) -> None:
    class Asks(Silent):
        def update(self, *_: Any) -> None:
            held.append([is_held(folder) for folder, *_ in planned(tmp_path)])

    held: list[list[bool | None]] = []
    train_all(tmp_path, planned(tmp_path), device="cpu", at_once=1, progress=Asks())
    assert all(held[0])


def test_one_that_cannot_begin_leaves_the_others_saved(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        train_all(tmp_path, planned(tmp_path), device="cpu", progress=Watcher(stop=5))
    path = tmp_path / "state-5" / "seed-0" / "config.json"
    config = json.loads(path.read_text())
    config["model"]["mixer"]["state"] = 7
    path.write_text(json.dumps(config))
    with pytest.raises(RunError, match="but the config says"):
        resume(tmp_path, device="cpu")
    folders = {str(path.relative_to(tmp_path)): RunFolder.open(path) for path in tmp_path.rglob("seed-*")}
    assert {folder.status for folder in folders.values()} == {"stopped"}
    assert all(folder.step >= 5 for folder in folders.values())


def test_stopped_before_the_first_step_nothing_is_told(tmp_path: Path) -> None:
    """Asked between a look at the clock and the step itself."""
    folder, of, config = planned(tmp_path)[0]
    group = Group([(RunFolder.create(folder, config), of)], torch.device("cpu"))
    answers = iter([False, True, True])
    assert list(group.advance(1, lambda: next(answers))) == [None]
    group.report(print)
    assert (group.engine.step, group.latest, group.folders[0].events()) == (0, None, [])


# -- the rule ----------------------------------------------------------------------------------------------------------


def room(training: int, at_once: int | None, taken: int, free: int) -> int:
    queue = Queue([], torch.device("cuda"), at_once, lambda: (taken, free))
    queue.__class__ = type("Busy", (Queue,), {"training": property(lambda _: [None] * training)})
    return queue._room()


def test_a_gpu_fills_as_far_as_its_memory_goes() -> None:
    assert room(0, None, 0, 0) == 1  # one always begins: what it takes is known then
    assert [room(n, None, n * 10, 10**6) for n in (1, 2, 4, 8, 15, 16)] == [1, 2, 4, 8, 1, 0]
    assert room(4, None, 400, round(250 / SHARE) + 1) == 2  # 100 each: two and a half have room
    assert room(4, None, 400, 20) == 0
    assert room(3, 4, 0, 10**6) == 1
    assert Queue([], torch.device("cpu"))._room() == AT_ONCE["cpu"]


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, "all"])
def test_bad_numbers(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(SettingsError, match="at_once is"):
        train_all(tmp_path / "out", planned(tmp_path / "out"), device="cpu", at_once=wrong)
    assert not (tmp_path / "out").exists()


def test_lines_count_who_waits() -> None:
    out = StringIO()
    lines = PlainLines(out)
    lines.start(["a", "b", "c"], 100, 0)
    lines.update(10, [0.5, math.nan, 0.1], [80.0, math.nan, 1.0], [True, True, False])
    assert "accuracy 80.0 / 80.0 / 80.0 %" in out.getvalue()
    assert out.getvalue().endswith(", 1 diverged, 1 waiting\n")
