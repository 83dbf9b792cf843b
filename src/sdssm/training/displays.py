"""Progress displays of a training: a live table on a terminal, and plain lines in a pipe.

Accuracy comes first everywhere: with a bounded scale the loss stays well above 0 at an accuracy of 100 %.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from sdssm.formatting import format_chance, format_loss, format_percent
from sdssm.printable import make_lines_printable, make_printable, styled_stream
from sdssm.training.snapshot import Snapshot, StepRate, describe_start, group_by_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

#: The greatest number of replicas that a live table shows one by one.
MAX_ROWS = 20
#: Seconds between two updates of a live table.
REFRESH_SECONDS = 0.2
#: Plain lines are at least LINE_SECONDS apart. A line is due after LINE_SHARE of the steps, or after MAX_LINE_SECONDS.
LINE_SECONDS, LINE_SHARE, MAX_LINE_SECONDS = 10.0, 0.05, 60.0


class PlainLines:
    """A progress display for pipes and files: a line of text now and then, with a line for each task."""

    def __init__(self, file: TextIO | None = None, *, clock: Callable[[], float] = monotonic) -> None:
        self._file = file
        self._clock = clock
        self._rate = StepRate(0, clock)
        self._snapshot: Snapshot | None = None
        self._last_line: tuple[float, int] | None = None  # time and step
        self._first_time: float | None = None  # of the first update
        self._groups: dict[str, list[int]] = {}
        self._constant: list[float] = []

    def start(self, names: Sequence[str], steps: int, first: int, constant: Sequence[float] = ()) -> None:
        self._rate, self._snapshot, self._last_line = StepRate(steps, self._clock), None, None
        self._first_time = None
        self._groups, self._constant = group_by_folder([make_printable(name) for name in names]), list(constant)
        if first < steps:
            self.message(describe_start(len(names), steps, first))

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self._rate.add(step)
        self._snapshot = Snapshot(step, loss, accuracy, alive)
        if self._is_due(step):
            self._write_snapshot()

    def _is_due(self, step: int) -> bool:
        if self._last_line is None:  # the first line comes as soon as it can say how long it will take
            self._first_time = self._clock() if self._first_time is None else self._first_time
            return self._rate.rate > 0 or self._clock() - self._first_time >= LINE_SECONDS
        last_time, last_step = self._last_line
        elapsed = self._clock() - last_time
        has_advanced = step - last_step >= LINE_SHARE * self._rate.steps
        return elapsed >= LINE_SECONDS and (has_advanced or elapsed >= MAX_LINE_SECONDS)

    def _write_snapshot(self) -> None:
        assert self._snapshot is not None
        self._last_line = self._clock(), self._snapshot.step
        results = {
            name: self._snapshot.select(replicas).describe(
                [self._constant[k] for k in replicas] if self._constant else ()
            )
            for name, replicas in self._groups.items()
        }
        progress = self._rate.describe(self._snapshot.step)
        if len(results) == 1:
            self.message(f"{progress}: {''.join(results.values())}")
            return
        width = max(map(len, results))
        self.message("\n".join([progress, *(f"  {name.ljust(width)}  {text}" for name, text in results.items())]))

    def message(self, text: str) -> None:
        file = sys.stdout if self._file is None else self._file
        if file is not None:  # None if the shell closed standard output
            file.write(f"{make_lines_printable(text)}\n")
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
        console = console or Console(file=styled_stream(sys.stdout))
        self._live = Live(console=console, auto_refresh=False, transient=not keep)
        self._clock = clock
        self._rate = StepRate(0, clock)
        self._names: list[str] = []
        self._groups: dict[str, list[int]] = {}
        self._constant: list[float] = []
        self._snapshot: Snapshot | None = None
        self._draw_time = -REFRESH_SECONDS

    def start(self, names: Sequence[str], steps: int, first: int, constant: Sequence[float] = ()) -> None:
        self._names = [make_printable(name) for name in names]
        self._groups, self._constant = group_by_folder(self._names), list(constant)
        self._rate, self._snapshot = StepRate(steps, self._clock), None
        self._live.start()
        if first < steps:
            from rich.text import Text

            self._live.update(Text(describe_start(len(names), steps, first)), refresh=True)

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
        # Without the scores of constant answers there is no such column.
        for header in ("accuracy %", *(["best constant %"] if self._constant else []), "loss"):
            table.add_column(header, justify="right", no_wrap=True)
        rows = list(zip(self._names, state.accuracy, state.loss, state.alive, strict=True))
        # The lines above and below the rows, and a line for each group, must fit the terminal too.
        most = min(MAX_ROWS, self._live.console.height - 4)
        shown = len(rows) if len(rows) <= most else max(0, most - len(self._groups))
        for number, (name, accuracy, loss, alive) in enumerate(rows[:shown]):
            constant = [format_chance(level) for level in self._constant[number : number + 1]]
            if alive and math.isnan(accuracy):
                table.add_row(Text(name), Text("waiting", style="dim"), *constant, "")
                continue
            style = "red" if not alive else "green" if accuracy >= 99.95 else ""
            text = format_percent(accuracy) if alive else "diverged"
            table.add_row(Text(name), Text(text, style=style), *constant, format_loss(loss))
        if shown < len(rows):
            for name, replicas in self._groups.items():
                selected = state.select(replicas)
                title = f"{name or 'all'}, {len(replicas)} runs: min / median / max{selected.others}"
                accuracies, losses = selected.summary()
                constant = [format_chance(*(self._constant[k] for k in replicas))] if self._constant else []
                table.add_row(Text(title), accuracies, *constant, losses, style="bold")
        return Group(Text(self._rate.describe(state.step)), table)

    def message(self, text: str) -> None:
        from rich.text import Text

        self._live.console.print(Text(make_lines_printable(text)))

    def stop(self) -> None:
        self._draw()
        self._live.stop()
