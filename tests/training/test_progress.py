"""Progress displays and TensorBoard scalars."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from sdssm.errors import RunWarning, SettingsError
from sdssm.extras import EXTRAS
from sdssm.training.displays import LiveTable, PlainLines
from sdssm.training.moving_means import MovingMeans
from sdssm.training.progress import (
    AnnouncingProgress,
    Progress,
    SafeProgress,
    SilentProgress,
    progress_for,
    resolve_progress,
)
from sdssm.training.snapshot import group_by_folder
from sdssm.training.tensorboard import TensorBoard
from tests.programs import REQUIRED, run_without


class Clock:
    """A clock that advances only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run_training(progress: Progress, clock: Clock, *, replicas: int = 1, steps: int = 1000, seconds: float) -> None:
    """Update the display a hundred times during a training; the replica of seed 3 has diverged."""
    progress.start([f"a5/seed-{seed}" for seed in range(replicas)], steps, 0)
    for step in range(steps // 100, steps + 1, steps // 100):
        clock.now += seconds / 100
        accuracy = [100.0 * step / steps - seed for seed in range(replicas)]
        progress.update(
            step, [0.5 + seed for seed in range(replicas)], accuracy, [seed != 3 for seed in range(replicas)]
        )
    progress.stop()


def plain_lines(*, seconds: float, replicas: int = 1) -> list[str]:
    clock, file = Clock(), io.StringIO()
    run_training(PlainLines(file, clock=clock), clock, seconds=seconds, replicas=replicas)
    return file.getvalue().splitlines()


def test_plain_lines_are_few() -> None:
    assert len(plain_lines(seconds=1)) == 2  # the first and the last
    assert 5 <= len(plain_lines(seconds=60)) <= 8
    assert 18 <= len(plain_lines(seconds=600)) <= 22
    assert 45 <= len(plain_lines(seconds=3600)) <= 65  # not silent for much longer than a minute


def test_plain_lines_start_at_once() -> None:
    written = plain_lines(seconds=600, replicas=3)
    assert written[0] == "step 0 of 1,000: starting 3 runs; the first steps may take longer"
    assert written[1].startswith("step 20 of 1,000, 1.7 steps/s, 9:48 left: accuracy min 0.00, median 1.00, max 2.00 %")


def test_plain_lines_show_the_best_constant_answer() -> None:
    file = io.StringIO()
    lines = PlainLines(file, clock=lambda: 0.0)
    for chance in ([100 / 60], [50.0, 100 / 60]):
        lines.start(["run"] * len(chance), 10, 0, chance)
        lines.update(1, [1.0] * len(chance), [60.0] * len(chance), [True] * len(chance))
        lines.stop()
    _, first, _, second = file.getvalue().splitlines()
    assert first == "step 1 of 10: accuracy 60.00 % (best constant 1.67), loss 1.0000"
    assert second == (
        "step 1 of 10: accuracy min 60.00, median 60.00, max 60.00 % (best constant 1.67 to 50), median loss 1.0000"
    )


def test_plain_lines_have_a_line_for_each_task() -> None:
    file = io.StringIO()
    lines = PlainLines(file, clock=lambda: 0.0)
    lines.start(["a5/seed-0", "a5/seed-1", "parity/seed-0"], 10, 0, [100 / 60, 100 / 60, 50.0])
    lines.update(5, [4.0, 3.0, 0.5], [2.0, 26.675, 99.999], [True, True, True])
    lines.stop()
    assert file.getvalue().splitlines()[1:] == [
        "step 5 of 10",
        "  a5      accuracy min 2.00, median 14.33, max 26.67 % (best constant 1.67), median loss 3.5000",
        "  parity  accuracy 99.99 % (best constant 50), loss 0.5000",
    ]


def test_many_groups_are_summarised_together() -> None:
    """By their first folder if there are few, and else all of them."""
    names = [f"{task}/{variant}/seed-0" for task in ("a5", "parity") for variant in range(8)]
    assert list(group_by_folder(names)) == ["a5", "parity"]
    assert group_by_folder([f"{candidate}/seed-0" for candidate in range(20)]) == {"": list(range(20))}


def test_plain_lines_show_accuracy_first() -> None:
    assert plain_lines(seconds=600)[-1] == "step 1,000 of 1,000, 1.7 steps/s: accuracy 100.00 %, loss 0.5000"
    many = plain_lines(seconds=600, replicas=5)[-1]
    assert many.endswith("accuracy min 96.00, median 98.50, max 100.00 %, median loss 2.0000, 1 diverged")


@pytest.mark.parametrize("loss", [-0.0, -1e-9, -4.9e-5])
def test_loss_is_never_shown_as_negative_zero(loss: float) -> None:
    from rich.console import Console

    file = io.StringIO()
    for progress in (PlainLines(file), LiveTable(console=Console(file=file, force_terminal=True, width=100))):
        progress.start(["seed-0", "seed-1"], 10, 0)
        progress.update(10, [loss, loss], [100.0, 100.0], [True, True])
        progress.stop()
    assert "0.0000" in file.getvalue() and "-0.0000" not in file.getvalue()


def test_rate_is_measured_over_the_last_seconds() -> None:
    clock, file = Clock(), io.StringIO()
    progress = PlainLines(file, clock=clock)
    progress.start(["seed-0"], 100_000, 0)
    clock.now += 100  # for compiling kernels
    for step in range(100, 40_100, 100):
        clock.now += 0.1
        progress.update(step, [1.0], [50.0], [True])
    progress.stop()
    assert "40,000 of 100,000, 1,000 steps/s, 1:00 left" in file.getvalue()


def test_the_first_estimate_leaves_out_the_first_steps() -> None:
    clock, file = Clock(), io.StringIO()
    progress = PlainLines(file, clock=clock)
    progress.start(["seed-0"], 1000, 0)
    clock.now += 100  # for compiling kernels
    for step in range(1, 60):
        progress.update(step, [1.0], [50.0], [True])
        clock.now += 0.1
    assert file.getvalue().splitlines()[1].startswith("step 32 of 1,000, 10 steps/s, 1:37 left: accuracy")


def test_rate_of_a_resumed_training() -> None:
    clock, file = Clock(), io.StringIO()
    progress = PlainLines(file, clock=clock)
    progress.start(["seed-0"], 1000, 900)
    for step in (910, 950):
        clock.now += 4
        progress.update(step, [1.0], [50.0], [True])
    progress.stop()
    assert file.getvalue().splitlines() == [
        "step 900 of 1,000: starting 1 run; the first steps may take longer",
        "step 950 of 1,000, 10 steps/s, 0:05 left: accuracy 50.00 %, loss 1.0000",
    ]


def test_nothing_to_train() -> None:
    file = io.StringIO()
    for progress in (PlainLines(file), SilentProgress()):
        progress.start(["seed-0"], 10, 10)
        progress.message("nothing to do")
        progress.stop()
    assert file.getvalue() == "nothing to do\n"


def live_table(replicas: int, *, keep: bool = True) -> str:
    from rich.console import Console

    clock, file = Clock(), io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=50, color_system=None)
    table = LiveTable(keep=keep, clock=clock, console=console)
    run_training(table, clock, replicas=replicas, seconds=100)
    return file.getvalue()


def test_live_table() -> None:
    shown = live_table(4)
    last = shown[shown.rindex("step 1,000") :]
    assert "10 steps/s" in last
    assert last.index("accuracy %") < last.index("loss")
    rows = {row.split()[0]: row.split()[1:] for row in last.splitlines() if row.startswith("a5/")}
    assert rows["a5/seed-0"] == ["100.00", "0.5000"]
    assert rows["a5/seed-3"] == ["diverged", "3.5000"]
    assert "all" not in rows


def test_live_table_shows_the_best_constant_answer() -> None:
    from rich.console import Console

    file = io.StringIO()
    table = LiveTable(console=Console(file=file, force_terminal=True, width=100, color_system=None))
    table.start(["a5/seed-0", "parity/seed-0"], 10, 0, [100 / 60, 50.0])
    table.update(5, [1.0, 0.5], [20.0, 90.0], [True, True])
    table.stop()
    rows = {line.split()[0]: line.split()[1:] for line in file.getvalue().splitlines() if "seed-0" in line}
    assert rows == {"a5/seed-0": ["20.00", "1.67", "1.0000"], "parity/seed-0": ["90.00", "50", "0.5000"]}


def test_live_table_of_many_replicas() -> None:
    shown = live_table(64)
    last = shown[shown.rindex("step 1,000") :]
    assert sum(row.startswith("a5/") for row in last.splitlines()) == 19  # and one line for all of them
    assert len(last.splitlines()) <= 25  # the lines of the terminal
    assert "a5, 64 runs: min / median / max, 1 diverged" in last
    assert "37.00 / 68.00 / 100.00" in last


def test_live_table_starts_at_once() -> None:
    from rich.console import Console

    file = io.StringIO()
    table = LiveTable(console=Console(file=file, force_terminal=True, width=100, color_system=None))
    table.start(["seed-0"], 1000, 0)
    assert "step 0 of 1,000: starting 1 run" in file.getvalue()
    table.stop()


def test_live_table_is_erased_without_keep() -> None:
    assert live_table(2, keep=False).rstrip().endswith("\x1b[2K")  # erase the line


def test_announced_lines_are_shown_before_the_display_starts() -> None:
    """The arguments have the names of the protocol."""
    file = io.StringIO()
    display: Progress = AnnouncingProgress(PlainLines(file), ["device: cpu"])
    display.start(names=["seed-0"], steps=10, first=0, constant=[50.0])
    assert file.getvalue().splitlines()[0] == "device: cpu"


class Broken(SilentProgress):
    """Fails at each update, and is interrupted at each message."""

    def __init__(self) -> None:
        self.calls = 0

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self.calls += 1
        raise BrokenPipeError

    def message(self, text: str) -> None:
        raise KeyboardInterrupt


def test_broken_display_does_not_stop_the_training() -> None:
    inner = Broken()
    progress = SafeProgress(inner)
    progress.start(["seed-0"], 10, 0)
    for step in range(3):
        progress.update(step, [1.0], [1.0], [True])
    progress.stop()
    assert inner.calls == 1
    with pytest.raises(KeyboardInterrupt):  # Ctrl-C is not an error of the display
        SafeProgress(Broken()).message("x")
    file = io.StringIO()
    file.close()
    closed = SafeProgress(PlainLines(file))
    closed.start(["seed-0"], 10, 0)
    closed.update(1, [1.0], [1.0], [True])
    closed.stop()


def test_progress_for_suits_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(progress_for(True), SilentProgress)
    plain = progress_for(False)
    plain.message("plain")
    assert capsys.readouterr().out == "plain\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    live = progress_for(False)
    assert isinstance(live, SafeProgress)
    assert isinstance(live._inner, LiveTable)
    monkeypatch.setattr(sys.modules[SafeProgress.__module__], "find_spec", lambda _: None)
    without_rich = progress_for(False)
    assert isinstance(without_rich, SafeProgress)
    assert isinstance(without_rich._inner, PlainLines)
    monkeypatch.setattr(sys, "stdout", None)  # sdssm train a5 >&-
    progress_for(False).message("not shown")


def test_the_argument_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(resolve_progress(True), SafeProgress)
    for nothing in (False, None):
        with pytest.warns(RunWarning, match="a message"):
            resolve_progress(nothing).message("a message")
    own = SilentProgress()
    assert resolve_progress(own) is own
    for wrong in (1, "yes", print, SilentProgress):
        with pytest.raises(SettingsError, match="pass True, False or a display with the methods start, update"):
            resolve_progress(wrong)  # type: ignore[arg-type]  # the wrong type is what is tested


def test_moving_means_do_not_jump_with_the_lengths() -> None:
    """Windows of short strings and of long ones alternate."""
    means, shown = MovingMeans(2), []
    for window in range(60):
        means.add(10, [1.0, math.nan], [60.0 if window % 2 else 20.0, 50.0])
        shown.append(means.values()[1].tolist())
    assert shown[0] == [20.0, 50.0]
    late = [accuracy for accuracy, _ in shown[20:]]
    assert max(late) - min(late) < 5
    assert abs(sum(late) / len(late) - 40) < 0.1
    assert means.values()[0][0] == pytest.approx(1.0)
    part = means.values(5, [3.0, 1.0], [100.0, 50.0])[1][0]  # an open window counts, but is not added
    assert late[-1] < part < 60 and means.values()[1].tolist() == shown[-1]
    assert np.isnan(MovingMeans(1).values()).all()


def test_tensorboard_scalars(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folders = [tmp_path / "seed-0", tmp_path / "seed-1"]

    def write(steps: Sequence[int], first: int, accuracy: float) -> None:
        board = TensorBoard(folders, first=first)
        for step in steps:
            board.update(step, [0.5, 0.7], [accuracy, 80.0], [True, step < 3], [1e-3, 1e-4])
        board.close()

    write([1, 2, 3], 0, 90.0)
    write([3, 4], 2, 95.0)  # killed after step 3, resumed from a checkpoint of step 2
    scalars = []
    for folder in folders:
        events = accumulator.EventAccumulator(str(folder))
        events.Reload()
        assert set(events.Tags()["scalars"]) == {"accuracy", "loss", "learning_rate"}
        scalars.append([(scalar.step, scalar.value) for scalar in events.Scalars("accuracy")])
    assert scalars == [[(1, 90.0), (2, 90.0), (3, 95.0), (4, 95.0)], [(1, 80.0), (2, 80.0)]]


def test_tensorboard_is_not_installed() -> None:
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
