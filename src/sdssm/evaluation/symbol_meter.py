"""How many symbols an evaluation has read, out of those that it will read."""

from __future__ import annotations

from collections.abc import Sequence

from sdssm.progress import SILENT, ProgressReporter


class SymbolMeter:
    """Reports the symbols that were read, over all models of one evaluation.

    Args:
        names: the names of the models or runs, in order.
        symbols: how many symbols will be read of each, as far as is known before they are loaded.
        reporter: receives the progress.

    >>> from sdssm.progress import report_progress
    >>> with report_progress(lambda event: print(event.title, event.done, event.total)) as reporter:
    ...     meter = SymbolMeter(["seed-0", "seed-1"], [100, 100], reporter)
    ...     meter.start_next()
    ...     meter.start_next()
    ...     meter.read(40)
    evaluate seed-0 (run 1 of 2) 0 200
    evaluate seed-1 (run 2 of 2) 100 200
    evaluate seed-1 (run 2 of 2) 140 200
    """

    def __init__(self, names: Sequence[str], symbols: Sequence[int], reporter: ProgressReporter = SILENT) -> None:
        self._names, self._symbols, self._reporter = list(names), list(symbols), reporter
        self._number, self._read = -1, 0

    def start_next(self) -> None:
        """Start the next model; all symbols of the one before count as read."""
        self._number, self._read = self._number + 1, 0
        place = f" (run {self._number + 1} of {len(self._names)})" if len(self._names) > 1 else ""
        title = f"evaluate {self._names[self._number]}{place}"
        if self._number == 0:
            self._reporter.start(title, total=sum(self._symbols), unit="symbols")
        else:
            self._update(title)

    def expect(self, symbols: int) -> None:
        """Say how many symbols will be read of this model, now that it is known."""
        self._symbols[self._number] = symbols

    def read(self, count: int) -> None:
        """Say that `count` more symbols were read."""
        self._read += count
        self._update()

    def _update(self, title: str | None = None) -> None:
        done = sum(self._symbols[: self._number]) + min(self._read, self._symbols[self._number])
        self._reporter.update(done, total=sum(self._symbols), title=title)
