"""Progress display of a training: a live table on a terminal, plain lines in a pipe, or nothing.

Accuracy comes first everywhere: with a bounded scale the loss stays well above 0 at an accuracy of 100 %.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from sdssm.errors import RunWarning, format_value
from sdssm.formatting import format_chance, format_duration, format_loss

if TYPE_CHECKING:
    from rich.console import RenderableType

#: The greatest number of replicas that a live table shows one by one.
MAX_ROWS = 20
#: Seconds between two updates of a live table.
REFRESH_SECONDS = 0.2
#: The rate in steps per second is measured over this many seconds.
RATE_SECONDS = 15.0
#: Plain lines are at least LINE_SECONDS apart. A line is due after LINE_SHARE of the steps, or after MAX_LINE_SECONDS.
LINE_SECONDS, LINE_SHARE, MAX_LINE_SECONDS = 10.0, 0.05, 60.0


class Progress(Protocol):
    """What a progress display implements: `start` once, then `update` and `message`, then `stop`."""

    def start(self, names: Sequence[str], steps: int, first: int, chance: Sequence[float] = ()) -> None:
        """Show that replicas with these names are at step `first` of `steps`.

        `chance` is the chance level of each replica in percent, empty if it is unknown.
        """

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        """Show loss, accuracy in percent and whether it is alive, for each replica after `step` steps.

        A replica that diverged is not alive. One that waits for room on the device has NaN as loss and accuracy; if
        some had to wait, `step` is a mean over all replicas.
        """

    def message(self, text: str) -> None:
        """Show one line of text."""

    def stop(self) -> None:
        """Show the final state: the training has ended or was stopped."""


class SilentProgress:
    """A progress display that shows nothing."""

    def start(self, names: Sequence[str], steps: int, first: int, chance: Sequence[float] = ()) -> None: ...

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None: ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


class WarningProgress(SilentProgress):
    """A progress display that shows nothing but messages, which are warnings."""

    def message(self, text: str) -> None:
        warnings.warn(text, RunWarning, stacklevel=2)


@dataclass(frozen=True)
class Snapshot:
    """Loss, accuracy in percent and whether it is alive, for each replica after `step` steps."""

    step: int
    loss: Sequence[float]
    accuracy: Sequence[float]
    alive: Sequence[bool]

    def summary(self) -> tuple[str, str]:
        """Format accuracy and loss of a single replica, or the least, median and greatest of several.

        Replicas that have diverged or wait are left out.

        >>> Snapshot(1, [0.5, 0.7, 9.9], [90.0, 80.0, 50.0], [True, True, False]).summary()
        ('80.0 / 85.0 / 90.0', '0.5000 / 0.6000 / 0.7000')
        """
        return self._summarize(self.accuracy, lambda value: f"{value:.1f}"), self._summarize(self.loss, format_loss)

    def _summarize(self, values: Sequence[float], form: Callable[[float], str]) -> str:
        known = [value for value, alive in zip(values, self.alive, strict=True) if alive and not math.isnan(value)]
        if not known:
            return "-"
        if len(self.alive) == 1:
            return form(known[0])
        return " / ".join(form(value) for value in (min(known), median(known), max(known)))

    @property
    def others(self) -> str:
        """The number of replicas that the summary leaves out, as in `, 1 diverged, 4 waiting`."""
        waiting = sum(alive and math.isnan(value) for value, alive in zip(self.accuracy, self.alive, strict=True))
        counts = {"diverged": len(self.alive) - sum(self.alive), "waiting": waiting}
        return "".join(f", {count} {word}" for word, count in counts.items() if count)


class StepRate:
    """Measures steps per second over the last seconds, and estimates the remaining time."""

    def __init__(self, steps: int, first: int, clock: Callable[[], float]) -> None:
        self.steps = steps
        self._clock = clock
        self._samples = deque([(clock(), first)])  # time and step

    def add(self, step: int) -> None:
        """Record that `step` steps are done now."""
        now = self._clock()
        if len(self._samples) > 1 and now - self._samples[-2][0] < RATE_SECONDS / 50:  # a few samples are enough
            self._samples.pop()
        self._samples.append((now, step))
        while len(self._samples) > 2 and now - self._samples[0][0] > RATE_SECONDS:
            self._samples.popleft()

    @property
    def rate(self) -> float:
        """Steps per second, 0 if not yet known."""
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start) if end > start else 0.0

    def describe(self, step: int) -> str:
        """Format the progress, as in `step 300 of 1,000, 52 steps/s, 0:13 left`."""
        text = f"step {step:,} of {self.steps:,}"
        if self.rate > 0:
            remaining = (self.steps - step) / self.rate
            text += f", {self.rate:,.0f} steps/s" if self.rate >= 10 else f", {self.rate:.2g} steps/s"
            text += f", {format_duration(remaining)} left" if step < self.steps else ""
        return text


class PlainLines:
    """A progress display for pipes and files: a line of text now and then."""

    def __init__(self, file: TextIO | None = None, *, clock: Callable[[], float] = monotonic) -> None:
        self._file = file
        self._clock = clock
        self._rate = StepRate(0, 0, clock)
        self._snapshot: Snapshot | None = None
        self._last_line: tuple[float, int] | None = None  # time and step
        self._chance = ""

    def start(self, names: Sequence[str], steps: int, first: int, chance: Sequence[float] = ()) -> None:
        self._rate, self._snapshot, self._last_line = StepRate(steps, first, self._clock), None, None
        self._chance = f" (chance {format_chance(*chance)})" if chance else ""

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self._rate.add(step)
        self._snapshot = Snapshot(step, loss, accuracy, alive)
        if self._is_due(step):
            self._write_snapshot()

    def _is_due(self, step: int) -> bool:
        if self._last_line is None:  # the first line comes at once
            return True
        last_time, last_step = self._last_line
        elapsed = self._clock() - last_time
        has_advanced = step - last_step >= LINE_SHARE * self._rate.steps
        return elapsed >= LINE_SECONDS and (has_advanced or elapsed >= MAX_LINE_SECONDS)

    def _write_snapshot(self) -> None:
        assert self._snapshot is not None
        self._last_line = self._clock(), self._snapshot.step
        accuracy, loss = self._snapshot.summary()
        results = f"accuracy {accuracy} %{self._chance}, loss {loss}{self._snapshot.others}"
        self.message(f"{self._rate.describe(self._snapshot.step)}: {results}")

    def message(self, text: str) -> None:
        file = sys.stdout if self._file is None else self._file
        if file is not None:  # None if the shell closed standard output
            file.write(f"{text}\n")
            file.flush()

    def stop(self) -> None:
        if self._snapshot is not None and (self._last_line is None or self._last_line[1] != self._snapshot.step):
            self._write_snapshot()
        self._snapshot = None


class LiveTable:
    """A progress display for terminals: a table that is redrawn.

    With `keep` it remains on the screen at the end.
    """

    def __init__(self, *, keep: bool = True, clock: Callable[[], float] = monotonic, console: Any = None) -> None:
        from rich.console import Console
        from rich.live import Live

        # Drawn between steps: a refresh thread would take time from the training.
        self._live = Live(console=console or Console(), auto_refresh=False, transient=not keep)
        self._clock = clock
        self._rate = StepRate(0, 0, clock)
        self._names: list[str] = []
        self._chance: list[str] = []
        self._snapshot: Snapshot | None = None
        self._draw_time = -REFRESH_SECONDS

    def start(self, names: Sequence[str], steps: int, first: int, chance: Sequence[float] = ()) -> None:
        self._names = [name if name.isprintable() else format_value(name) for name in names]
        self._chance = list(map(format_chance, chance))
        self._rate, self._snapshot = StepRate(steps, first, self._clock), None
        self._live.start()

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self._rate.add(step)
        self._snapshot = Snapshot(step, loss, accuracy, alive)
        if self._clock() - self._draw_time >= REFRESH_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self._snapshot is not None:
            self._draw_time = self._clock()
            self._live.update(self._render(self._snapshot), refresh=True)

    def _render(self, state: Snapshot) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("run")
        # Without chance levels there is no such column.
        for header in ("accuracy %", *(["chance %"] if self._chance else []), "loss"):
            table.add_column(header, justify="right", no_wrap=True)
        rows = list(zip(self._names, state.accuracy, state.loss, state.alive, strict=True))
        for number, (name, accuracy, loss, alive) in enumerate(rows[:MAX_ROWS]):
            chance = self._chance[number : number + 1]
            if alive and math.isnan(accuracy):
                table.add_row(Text(name), Text("waiting", style="dim"), *chance, "")
                continue
            style = "red" if not alive else "green" if accuracy >= 99.95 else ""
            text = f"{accuracy:.1f}" if alive else "diverged"
            table.add_row(Text(name), Text(text, style=style), *chance, format_loss(loss))
        if len(rows) > MAX_ROWS:
            title = f"all {len(rows)}: least / median / greatest{state.others}"
            accuracies, losses = state.summary()
            table.add_row(title, accuracies, *([""] if self._chance else []), losses, style="bold")
        return Group(Text(self._rate.describe(state.step)), table)

    def message(self, text: str) -> None:
        from rich.text import Text

        self._live.console.print(Text(text))

    def stop(self) -> None:
        self._draw()
        self._live.stop()


class SafeProgress:
    """Wraps a progress display and drops it at its first error: training continues without a display."""

    def __init__(self, inner: Progress) -> None:
        self._inner: Progress = inner

    @contextmanager
    def _catch_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception:  # a closed pipe, a terminal that is gone, a character that it cannot encode
            broken, self._inner = self._inner, SilentProgress()
            with suppress(Exception):
                broken.stop()  # a live table gives standard output back

    def start(self, names: Sequence[str], steps: int, first: int, chance: Sequence[float] = ()) -> None:
        with self._catch_errors():
            self._inner.start(names, steps, first, chance)

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        with self._catch_errors():
            self._inner.update(step, loss, accuracy, alive)

    def message(self, text: str) -> None:
        with self._catch_errors():
            self._inner.message(text)

    def stop(self) -> None:
        with self._catch_errors():
            self._inner.stop()


def progress_for(quiet: bool, *, keep: bool = True) -> Progress:
    """Return the display that suits standard output: a live table, plain lines, or nothing if `quiet`."""
    if quiet:
        return SilentProgress()
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return SafeProgress(LiveTable(keep=keep) if is_terminal and find_spec("rich") is not None else PlainLines())
