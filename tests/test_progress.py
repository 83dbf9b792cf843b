"""The line that shows how far a computation is, and time limits."""

from __future__ import annotations

from io import StringIO

import pytest

from sdssm.errors import SettingsError
from sdssm.progress import SILENT, ProgressEvent, ProgressLine, ProgressReporter, TimeLimit, report_progress


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def show(file: StringIO, times: list[float]) -> str:
    """Report one unit of work at each time, and return what was written before the line is closed."""
    clock = Clock()
    line = ProgressLine(file, clock=clock)
    reporter = ProgressReporter(line, clock)
    reporter.start("evaluate a5", total=100, unit="lengths")
    for done, clock.now in enumerate(times, 1):
        reporter.update(done)
    text = file.getvalue()
    line.close()
    return text


def test_short_calls_show_nothing() -> None:
    assert show(StringIO(), [0.5, 1.0, 1.9]) == ""


def test_a_pipe_gets_a_line_every_ten_seconds() -> None:
    lines = show(StringIO(), [1.0, 3.0, 4.0, 12.0, 14.0]).splitlines()
    assert lines == [
        "evaluate a5: 2 of 100 lengths, about 3:16 left",
        "evaluate a5: 5 of 100 lengths, about 5:09 left",
    ]


def test_an_estimate_leaves_out_a_slow_start() -> None:
    """The first piece of work compiles code; but a piece of half the work is all that is known."""
    clock, events = Clock(), list[ProgressEvent]()
    reporter = ProgressReporter(events.append, clock)
    for pieces in (100, 2):
        reporter.start("evaluate a5", total=pieces)
        clock.now += 60
        reporter.update(1)
        clock.now += 2
        reporter.update(2)
    assert [event.remaining for event in events] == [None, None, 196.0, None, 60.0, 0.0]


def test_a_terminal_gets_one_line_that_is_erased_at_the_end() -> None:
    file = Terminal()
    text = show(file, [2.0, 2.5, 3.0])
    assert text.count("\r\x1b[K") == 3 and "\n" not in text
    assert file.getvalue().endswith("\r\x1b[K")


def test_a_closed_pipe_does_not_stop_the_computation() -> None:
    file, clock = StringIO(), Clock()
    line = ProgressLine(file, clock=clock)
    file.close()
    clock.now = 3.0
    line(ProgressEvent("evaluate a5", 1, 2, "", 3.0))
    line.close()


def test_progress_is_a_switch_or_a_function() -> None:
    with report_progress(False) as reporter:
        assert reporter is SILENT
    with pytest.raises(SettingsError, match="pass True, False or a function"), report_progress("yes"):  # type: ignore[arg-type]
        pass


def test_a_limit_is_over_after_its_seconds() -> None:
    clock = Clock()
    limit = TimeLimit(5, clock=clock)
    assert not limit.is_over
    clock.now = 5.0
    assert limit.is_over
    with pytest.raises(SettingsError, match="max_seconds is -1"):
        TimeLimit(-1)
