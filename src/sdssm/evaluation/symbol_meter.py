"""How many symbols an evaluation has read, out of those that it will read."""

from __future__ import annotations

from collections.abc import Sequence

from sdssm.progress import SILENT, ProgressReporter


class SymbolMeter:
    """Reports the symbols that were read, over all models of one evaluation.

    Args:
        names: the names of the models or runs, in the order in which they are read.
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

    Models that are read side by side are started together:

    >>> with report_progress(lambda event: print(event.title, event.done, event.total)) as reporter:
    ...     meter = SymbolMeter(["seed-0", "seed-1", "seed-2"], [100, 100, 100], reporter)
    ...     meter.start_next()
    ...     meter.start_next(2)
    evaluate seed-0 (run 1 of 3) 0 300
    evaluate seed-1 and 1 more (runs 2 to 3 of 3) 100 300
    """

    def __init__(self, names: Sequence[str], symbols: Sequence[int], reporter: ProgressReporter = SILENT) -> None:
        self._names, self._symbols, self._reporter = list(names), list(symbols), reporter
        self._first, self._end, self._read = 0, 0, 0  # the models that are being read

    def start_next(self, count: int = 1) -> None:
        """Start the next models, which are read side by side; all symbols of those before count as read."""
        self._first, self._end, self._read = self._end, self._end + count, 0
        total = len(self._names)
        first, end = self._first + 1, self._end
        others = f" and {count - 1} more" if count > 1 else ""
        place = (
            "" if total == 1 else f" (runs {first} to {end} of {total})" if count > 1 else f" (run {end} of {total})"
        )
        title = f"evaluate {self._names[self._first]}{others}{place}"
        if self._first == 0:
            self._reporter.start(title, total=sum(self._symbols), unit="symbols")
        else:
            self._update(title)

    def expect(self, symbols: int) -> None:
        """Say how many symbols will be read of these models together, now that it is known."""
        self._symbols[self._first : self._end] = [symbols] + [0] * (self._end - self._first - 1)

    def read(self, count: int) -> None:
        """Say that `count` more symbols were read."""
        self._read += count
        self._update()

    def _update(self, title: str | None = None) -> None:
        done = sum(self._symbols[: self._first]) + min(self._read, sum(self._symbols[self._first : self._end]))
        self._reporter.update(done, total=sum(self._symbols), title=title)
