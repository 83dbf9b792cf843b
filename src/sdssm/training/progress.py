"""How far a training is, for who watches: a live table on a terminal, plain lines in a pipe, or nothing.

Accuracy comes first everywhere: with a bounded scale the loss stays well above 0 where the accuracy is 100 %.
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

if TYPE_CHECKING:
    from rich.console import RenderableType

#: The most replicas that a live table shows one by one.
ROWS = 20
#: Seconds between two pictures of a live table.
REFRESH = 0.2
#: Steps a second are counted over the last so many seconds.
WINDOW = 15.0
#: Plain lines are at least so many seconds apart; a line comes after this part of the run, or this long a silence.
SECONDS, PART, SILENCE = 10.0, 0.05, 60.0


class Progress(Protocol):
    """What a training tells of itself: `start`, then `update` now and then, then `stop`."""

    def start(self, names: Sequence[str], steps: int, first: int) -> None:
        """Replicas of these names are at step `first` of `steps`."""

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        """So many steps are done; loss, accuracy in percent, and whether it still trains, of each replica. One that
        waits for a place has nan for loss and accuracy; where some have to wait the step is a mean over all."""

    def message(self, text: str) -> None:
        """Something happened that is worth a line."""

    def stop(self) -> None:
        """The training has ended, or was stopped."""


class Silent:
    """Says nothing."""

    def start(self, names: Sequence[str], steps: int, first: int) -> None: ...

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None: ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


class WarningProgress(Silent):
    """No display: messages become warnings."""

    def message(self, text: str) -> None:
        warnings.warn(text, RunWarning, stacklevel=2)


@dataclass(frozen=True)
class Snapshot:
    """Where a training stands."""

    step: int
    loss: Sequence[float]
    accuracy: Sequence[float]
    alive: Sequence[bool]

    def summary(self) -> tuple[str, str]:
        """Accuracy and loss: of the one replica, or the least, median and greatest of those that still train.

        >>> Snapshot(1, [0.5, 0.7, 9.9], [90.0, 80.0, 50.0], [True, True, False]).summary()
        ('80.0 / 85.0 / 90.0', '0.5000 / 0.6000 / 0.7000')
        """
        return self._spread(self.accuracy, "{:.1f}"), self._spread(self.loss, "{:z.4f}")

    def _spread(self, values: Sequence[float], form: str) -> str:
        living = [value for value, alive in zip(values, self.alive, strict=True) if alive and not math.isnan(value)]
        if not living:
            return "-"
        if len(self.alive) == 1:
            return form.format(living[0])
        return " / ".join(form.format(value) for value in (min(living), median(living), max(living)))

    @property
    def diverged(self) -> int:
        return len(self.alive) - sum(self.alive)

    @property
    def others(self) -> str:
        """How many are not counted in it, in words: `, 1 diverged, 4 waiting`."""
        waiting = sum(alive and math.isnan(value) for value, alive in zip(self.accuracy, self.alive, strict=True))
        counts = {"diverged": self.diverged, "waiting": waiting}
        return "".join(f", {count} {word}" for word, count in counts.items() if count)


class Pace:
    """Steps a second of late, and the time that is left."""

    def __init__(self, steps: int, first: int, clock: Callable[[], float]) -> None:
        self.steps = steps
        self._clock = clock
        self._seen = deque([(clock(), first)])

    def note(self, step: int) -> None:
        now = self._clock()
        if len(self._seen) > 1 and now - self._seen[-2][0] < WINDOW / 50:  # a few marks tell as much as thousands
            self._seen.pop()
        self._seen.append((now, step))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW:
            self._seen.popleft()

    @property
    def rate(self) -> float:
        (since, first), (now, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - since) if now > since else 0.0

    def words(self, step: int) -> str:
        """As in `step 300 of 1,000, 52 steps/s, 0:13 left`."""
        out = f"step {step:,} of {self.steps:,}"
        if self.rate > 0:
            left = (self.steps - step) / self.rate
            out += f", {self.rate:,.0f} steps/s" if self.rate >= 10 else f", {self.rate:.2g} steps/s"
            out += f", {spoken(left)} left" if step < self.steps else ""
        return out


def spoken(seconds: float) -> str:
    """A time that a reader takes in at once.

    >>> spoken(75), spoken(2 * 3600 + 61)
    ('1:15', '2:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class PlainLines:
    """A short line every so often, for pipes and files."""

    def __init__(self, file: TextIO | None = None, *, clock: Callable[[], float] = monotonic) -> None:
        self._file = file
        self._clock = clock
        self._pace = Pace(0, 0, clock)
        self._snapshot: Snapshot | None = None
        self._written: tuple[float, int] | None = None

    def start(self, names: Sequence[str], steps: int, first: int) -> None:
        self._pace, self._snapshot, self._written = Pace(steps, first, self._clock), None, None

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self._pace.note(step)
        self._snapshot = Snapshot(step, loss, accuracy, alive)
        if self._due(step):
            self._write_snapshot()

    def _due(self, step: int) -> bool:
        if self._written is None:  # the first sign of life comes at once
            return True
        when, before = self._written
        quiet = self._clock() - when
        return quiet >= SECONDS and (step - before >= PART * self._pace.steps or quiet >= SILENCE)

    def _write_snapshot(self) -> None:
        assert self._snapshot is not None
        self._written = self._clock(), self._snapshot.step
        accuracy, loss = self._snapshot.summary()
        told = f"accuracy {accuracy} %, loss {loss}{self._snapshot.others}"
        self.message(f"{self._pace.words(self._snapshot.step)}: {told}")

    def message(self, text: str) -> None:
        file = sys.stdout if self._file is None else self._file
        if file is not None:  # closed by the shell
            file.write(f"{text}\n")
            file.flush()

    def stop(self) -> None:
        if self._snapshot is not None and (self._written is None or self._written[1] != self._snapshot.step):
            self._write_snapshot()
        self._snapshot = None


class LiveTable:
    """A table on the terminal that follows the training; afterwards it stays there (`keep`) or goes."""

    def __init__(self, *, keep: bool = True, clock: Callable[[], float] = monotonic, console: Any = None) -> None:
        from rich.console import Console
        from rich.live import Live

        # Pictures are drawn between steps, not by a thread beside them that takes time from the training.
        self._live = Live(console=console or Console(), auto_refresh=False, transient=not keep)
        self._clock = clock
        self._pace = Pace(0, 0, clock)
        self._names: list[str] = []
        self._snapshot: Snapshot | None = None
        self._drawn = -REFRESH

    def start(self, names: Sequence[str], steps: int, first: int) -> None:
        self._names = [name if name.isprintable() else format_value(name) for name in names]
        self._pace, self._snapshot = Pace(steps, first, self._clock), None
        self._live.start()

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self._pace.note(step)
        self._snapshot = Snapshot(step, loss, accuracy, alive)
        if self._clock() - self._drawn >= REFRESH:
            self._draw()

    def _draw(self) -> None:
        if self._snapshot is not None:
            self._drawn = self._clock()
            self._live.update(self._picture(self._snapshot), refresh=True)

    def _picture(self, at: Snapshot) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("run")
        for header in ("accuracy %", "loss"):
            table.add_column(header, justify="right", no_wrap=True)
        for name, accuracy, loss, alive in list(zip(self._names, at.accuracy, at.loss, at.alive, strict=True))[:ROWS]:
            if alive and math.isnan(accuracy):
                table.add_row(Text(name), Text("waiting", style="dim"), "")
                continue
            style = "red" if not alive else "green" if accuracy >= 99.95 else ""
            told = f"{accuracy:.1f}" if alive else "diverged"
            table.add_row(Text(name), Text(told, style=style), f"{loss:z.4f}")
        if len(self._names) > ROWS:
            table.add_row(f"all {len(self._names)}: least / median / greatest{at.others}", *at.summary(), style="bold")
        return Group(Text(self._pace.words(at.step)), table)

    def message(self, text: str) -> None:
        from rich.text import Text

        self._live.console.print(Text(text))

    def stop(self) -> None:
        self._draw()
        self._live.stop()


class Unfailing:
    """Shows what another one shows, until that fails: a training does not end because nobody can see it."""

    def __init__(self, inner: Progress) -> None:
        self._inner: Progress = inner

    @contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            yield
        except Exception:  # a closed pipe, a terminal that went away, a letter it lacks
            broken, self._inner = self._inner, Silent()
            with suppress(Exception):
                broken.stop()  # a live table gives standard output back

    def start(self, names: Sequence[str], steps: int, first: int) -> None:
        with self._trying():
            self._inner.start(names, steps, first)

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        with self._trying():
            self._inner.update(step, loss, accuracy, alive)

    def message(self, text: str) -> None:
        with self._trying():
            self._inner.message(text)

    def stop(self) -> None:
        with self._trying():
            self._inner.stop()


def progress_for(quiet: bool, *, keep: bool = True) -> Progress:
    """What fits where standard output goes: a live table, plain lines, or nothing."""
    if quiet:
        return Silent()
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return Unfailing(LiveTable(keep=keep) if terminal and find_spec("rich") is not None else PlainLines())
