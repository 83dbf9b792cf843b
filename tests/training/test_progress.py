from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sdssm.extras import EXTRAS
from sdssm.training.progress import LiveTable, PlainLines, Progress, Silent, Unfailing, progress_for
from sdssm.training.tensorboard import TensorBoard
from tests.programs import REQUIRED, run_without


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def train(progress: Progress, clock: Clock, *, replicas: int = 1, steps: int = 1000, seconds: float) -> None:
    """A training that updates every hundredth of the way."""
    progress.start([f"a5/seed-{seed}" for seed in range(replicas)], steps, 0)
    for step in range(steps // 100, steps + 1, steps // 100):
        clock.now += seconds / 100
        accuracy = [100.0 * step / steps - seed for seed in range(replicas)]
        progress.update(
            step, [0.5 + seed for seed in range(replicas)], accuracy, [seed != 3 for seed in range(replicas)]
        )
    progress.stop()


def lines(*, seconds: float, replicas: int = 1) -> list[str]:
    clock, file = Clock(), io.StringIO()
    train(PlainLines(file, clock=clock), clock, seconds=seconds, replicas=replicas)
    return file.getvalue().splitlines()


def test_plain_lines_are_few() -> None:
    assert len(lines(seconds=1)) == 2  # the first and the last
    assert 5 <= len(lines(seconds=60)) <= 8
    assert 18 <= len(lines(seconds=600)) <= 22
    assert 45 <= len(lines(seconds=3600)) <= 65  # not silent for much longer than a minute


def test_plain_lines_say_accuracy_first() -> None:
    written = lines(seconds=600)
    assert written[0] == "step 10 of 1,000, 1.7 steps/s, 9:54 left: accuracy 1.0 %, loss 0.5000"
    assert written[-1] == "step 1,000 of 1,000, 1.7 steps/s: accuracy 100.0 %, loss 0.5000"
    many = lines(seconds=600, replicas=5)[-1]
    assert many.endswith("accuracy 96.0 / 98.5 / 100.0 %, loss 0.5000 / 2.0000 / 4.5000, 1 diverged")


def test_the_rate_is_that_of_late() -> None:
    clock, file = Clock(), io.StringIO()
    progress = PlainLines(file, clock=clock)
    progress.start(["one"], 100_000, 0)
    clock.now += 100  # kernels were compiled
    for step in range(100, 40_100, 100):
        clock.now += 0.1
        progress.update(step, [1.0], [50.0], [True])
    progress.stop()
    assert "40,000 of 100,000, 1,000 steps/s, 1:00 left" in file.getvalue()


def test_a_training_that_went_on() -> None:
    clock, file = Clock(), io.StringIO()
    progress = PlainLines(file, clock=clock)
    progress.start(["one"], 1000, 900)
    clock.now += 1
    progress.update(950, [1.0], [50.0], [True])
    progress.stop()
    assert file.getvalue() == "step 950 of 1,000, 50 steps/s, 0:01 left: accuracy 50.0 %, loss 1.0000\n"


def test_nothing_was_trained() -> None:
    file = io.StringIO()
    for progress in (PlainLines(file), Silent()):
        progress.start(["one"], 10, 10)
        progress.message("nothing to do")
        progress.stop()
    assert file.getvalue() == "nothing to do\n"


def picture(replicas: int, *, keep: bool = True) -> str:
    from rich.console import Console

    clock, file = Clock(), io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=50, color_system=None)
    table = LiveTable(keep=keep, clock=clock, console=console)
    train(table, clock, replicas=replicas, seconds=100)
    return file.getvalue()


def test_a_live_table() -> None:
    shown = picture(4)
    last = shown[shown.rindex("step 1,000") :]
    assert "10 steps/s" in last
    assert last.index("accuracy %") < last.index("loss")
    rows = {row.split()[0]: row.split()[1:] for row in last.splitlines() if row.startswith("a5/")}
    assert rows["a5/seed-0"] == ["100.0", "0.5000"]
    assert rows["a5/seed-3"] == ["diverged", "3.5000"]
    assert "all" not in rows


def test_a_live_table_of_many() -> None:
    shown = picture(64)
    last = shown[shown.rindex("step 1,000") :]
    assert sum(row.startswith("a5/") for row in last.splitlines()) == 20
    assert "all 64: least / median / greatest, 1 diverged" in last
    assert "37.0 / 68.0 / 100.0" in last


def test_a_live_table_that_goes() -> None:
    assert picture(2, keep=False).rstrip().endswith("\x1b[2K")  # its lines are wiped


class Broken(Silent):
    def __init__(self) -> None:
        self.tried = 0

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self.tried += 1
        raise BrokenPipeError

    def message(self, text: str) -> None:
        raise KeyboardInterrupt


def test_a_display_that_breaks_does_not_end_the_training() -> None:
    inner = Broken()
    progress = Unfailing(inner)
    progress.start(["one"], 10, 0)
    for step in range(3):
        progress.update(step, [1.0], [1.0], [True])
    progress.stop()
    assert inner.tried == 1
    with pytest.raises(KeyboardInterrupt):  # that is the user
        Unfailing(Broken()).message("x")
    file = io.StringIO()
    file.close()
    closed = Unfailing(PlainLines(file))
    closed.start(["one"], 10, 0)
    closed.update(1, [1.0], [1.0], [True])
    closed.stop()


def test_which_one_fits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(progress_for(True), Silent)
    plain = progress_for(False)
    plain.message("plain")
    assert capsys.readouterr().out == "plain\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    fancy = progress_for(False)
    assert isinstance(fancy, Unfailing)
    assert isinstance(fancy._inner, LiveTable)
    monkeypatch.setattr(sys.modules[LiveTable.__module__], "find_spec", lambda _: None)
    bare = progress_for(False)
    assert isinstance(bare, Unfailing)
    assert isinstance(bare._inner, PlainLines)
    monkeypatch.setattr(sys, "stdout", None)  # sdssm train a5 >&-
    progress_for(False).message("nobody hears")


def test_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folders = [tmp_path / "seed-0", tmp_path / "seed-1"]

    def write(steps: Sequence[int], first: int, accuracy: float) -> None:
        board = TensorBoard(folders, first=first)
        for step in steps:
            board.update(step, [0.5, 0.7], [accuracy, 80.0], [True, step < 3], [1e-3, 1e-4])
        board.close()

    write([1, 2, 3], 0, 90.0)
    write([3, 4], 2, 95.0)  # killed after step 3, gone on from a checkpoint of step 2
    found = []
    for folder in folders:
        events = accumulator.EventAccumulator(str(folder))
        events.Reload()
        assert set(events.Tags()["scalars"]) == {"accuracy", "loss", "learning_rate"}
        found.append([(one.step, one.value) for one in events.Scalars("accuracy")])
    assert found == [[(1, 90.0), (2, 90.0), (3, 95.0), (4, 95.0)], [(1, 80.0), (2, 80.0)]]


def test_tensorboard_that_is_not_installed() -> None:
    code = """
from pathlib import Path
from sdssm.errors import MissingExtraError
from sdssm.training.tensorboard import TensorBoard
try:
    TensorBoard([Path("run")])
except MissingExtraError as error:
    print(error)
"""
    assert run_without(set(EXTRAS) - REQUIRED, code) == "--tensorboard needs tensorboard; install sdssm[tensorboard]\n"
