"""How far a computation is: one line that appears when a call takes longer than two seconds.

Functions that may take long have an argument `progress`: False shows nothing, True shows a line on standard error, and
a function receives every `ProgressEvent`. Training has its own display, `sdssm.training.progress`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from shutil import get_terminal_size
from time import monotonic
from typing import TextIO

from sdssm.errors import SettingsError, format_value
from sdssm.formatting import format_duration
from sdssm.printable import make_printable, styled_stream

#: Seconds before the first line; shorter calls show nothing.
FIRST_SECONDS = 2.0
#: Seconds between two updates of the line on a terminal, and between two lines elsewhere.
TERMINAL_SECONDS, PIPE_SECONDS = 0.2, 10.0
#: An estimate of the remaining time needs this share of the work and this many seconds.
ESTIMATE_SHARE, ESTIMATE_SECONDS = 0.01, 1.0
#: A first piece of work up to this share is left out of the estimate: it may have compiled code.
START_SHARE = 0.1


@dataclass(frozen=True)
class ProgressEvent:
    """How far one phase of a computation is.

    Args:
        title: what is computed, such as "evaluate runs/a5/seed-0".
        done: the work that is done, in units that take about equally long.
        total: the work of the whole phase; None if it is unknown.
        unit: the name of a unit of work, such as "symbols"; empty if it means nothing to a user.
        seconds: the time since the phase was started.
        start: work and seconds at the start of the phase that an estimate leaves out.

    >>> print(ProgressEvent("evaluate a5", 1_000, 5_000, "symbols", 4.0).describe())
    evaluate a5: 1,000 of 5,000 symbols, about 0:16 left
    >>> print(ProgressEvent("extract a5", 300, None, "states", 61.0).describe())
    extract a5: 300 states, 1:01 so far
    >>> print(ProgressEvent("certify a5", 0.4, 1.0, "", 6.0).describe())
    certify a5: 40 %, about 0:09 left
    """

    title: str
    done: float
    total: float | None
    unit: str
    seconds: float
    start: tuple[float, float] = (0.0, 0.0)

    @property
    def remaining(self) -> float | None:
        """The estimated remaining time in seconds; None if it cannot be estimated yet."""
        done, seconds = self.done - self.start[0], self.seconds - self.start[1]
        if not self.total or seconds < ESTIMATE_SECONDS or done < ESTIMATE_SHARE * self.total:
            return None
        return max(self.total - self.done, 0.0) / done * seconds

    def describe(self, width: int | None = None) -> str:
        """Return the event as one line of text; in a narrow terminal the title is shortened, and the time is kept.

        >>> print(ProgressEvent("evaluate runs/experiments/a5/seed-0", 1_000, 5_000, "symbols", 4.0).describe(60))
        evaluate...5/seed-0: 1,000 of 5,000 symbols, about 0:16 left
        """
        unit = f" {self.unit}" if self.unit else ""
        if self.total is None:
            amount = f"{self.done:,.0f}{unit}, " if self.unit and self.done else ""
        elif self.unit:
            amount = f"{self.done:,.0f} of {self.total:,.0f}{unit}, "
        else:
            amount = f"{100 * self.done / self.total:.0f} %, " if self.total else ""
        time = f"{format_duration(self.seconds)} so far"
        if self.remaining is not None:
            time = f"about {format_duration(self.remaining)} left"
        title, rest = make_printable(self.title), f": {amount}{time}"
        if width is not None and len(title) + len(rest) > width:
            room = max(width - len(rest) - 3, 8)
            title = f"{title[: room // 2]}...{title[len(title) - (room - room // 2) :]}"
        line = f"{title}{rest}"
        return line if width is None or len(line) <= width else line[-width:]


#: The argument `progress` of a function: whether to show a line, or a function that receives every event.
ProgressOption = bool | Callable[[ProgressEvent], None]


class ProgressReporter:
    """Receives the progress of a computation, phase by phase, and passes it on to a display or a function.

    >>> events = []
    >>> with report_progress(events.append) as reporter:
    ...     reporter.start("evaluate a5", total=2, unit="lengths")
    ...     reporter.update(1)
    >>> events[-1].done, events[-1].total
    (1, 2)
    """

    def __init__(self, receive: Callable[[ProgressEvent], None] | None, clock: Callable[[], float] = monotonic) -> None:
        self._receive = receive
        self._clock = clock
        self._title, self._unit = "", ""
        self._total: float | None = None
        self._started = clock()
        self._start: tuple[float, float] | None = None  # the first piece of work, and its seconds

    def start(self, title: str, *, total: float | None = None, unit: str = "") -> None:
        """Start a phase; `total` is its work in units that take about equally long, None if unknown."""
        self._title, self._total, self._unit = title, total, unit
        self._started, self._start = self._clock(), None
        self.update(0)

    def update(self, done: float, *, total: float | None = None, title: str | None = None) -> None:
        """Say that this much of the phase is done; `total` and `title` replace those of `start`."""
        self._total = self._total if total is None else total
        self._title = self._title if title is None else title
        if self._receive is not None:
            seconds = self._clock() - self._started
            if self._start is None and done > 0:
                is_small = self._total is not None and done <= START_SHARE * self._total
                self._start = (done, seconds) if is_small else (0.0, 0.0)
            start = self._start or (0.0, 0.0)
            self._receive(ProgressEvent(self._title, done, self._total, self._unit, seconds, start))


#: A reporter that shows nothing: the default of inner functions.
SILENT = ProgressReporter(None)


class ProgressLine:
    """Shows events as one line that is rewritten on a terminal, and as a line now and then elsewhere."""

    def __init__(self, file: TextIO | None, *, clock: Callable[[], float] = monotonic) -> None:
        self._file = None if file is None else styled_stream(file)
        self._clock = clock
        self._opened = clock()
        self._is_terminal = file is not None and file.isatty()
        self._last: float | None = None  # time of the last line
        self._is_drawn = False

    def __call__(self, event: ProgressEvent) -> None:
        now = self._clock()
        interval = TERMINAL_SECONDS if self._is_terminal else PIPE_SECONDS
        is_due = now - self._opened >= FIRST_SECONDS if self._last is None else now - self._last >= interval
        if self._file is None or not is_due:
            return
        self._last = now
        try:
            if self._is_terminal:
                width = get_terminal_size().columns - 1  # a line as wide as the terminal would wrap
                self._file.write(f"\r\x1b[K{event.describe(width)}")
                self._is_drawn = True
            else:
                self._file.write(f"{event.describe()}\n")
            self._file.flush()
        except (OSError, ValueError):  # a closed pipe: the computation continues without a display
            self._file = None

    def close(self) -> None:
        """Erase the line from a terminal."""
        if self._is_drawn and self._file is not None:
            try:
                self._file.write("\r\x1b[K")
                self._file.flush()
            except (OSError, ValueError):
                self._file = None
        self._is_drawn = False


@contextmanager
def report_progress(progress: ProgressOption) -> Iterator[ProgressReporter]:
    """Open the display for an argument `progress`, and close it at the end or after an error."""
    if progress is False:
        yield SILENT
    elif progress is True:
        line = ProgressLine(sys.stderr)
        try:
            yield ProgressReporter(line)
        finally:
            line.close()
    elif callable(progress):
        yield ProgressReporter(progress)
    else:
        raise SettingsError(
            f"progress is {format_value(progress)}; pass True, False or a function that receives a ProgressEvent"
        )


class TimeLimit:
    """A time after which a computation should stop and return what it has; None for no limit.

    >>> TimeLimit(None).is_over, TimeLimit(0.0).is_over
    (False, True)
    """

    def __init__(self, seconds: float | None, *, clock: Callable[[], float] = monotonic) -> None:
        if seconds is not None and not seconds >= 0:
            raise SettingsError(f"max_seconds is {format_value(seconds)}; pass a number of seconds from 0, or None")
        self.seconds = seconds
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and self._clock() >= self._end
