"""Progress and time limit of one computation, passed together to all of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sdssm.exact.errors import TimeIsUpError
from sdssm.progress import SILENT, ProgressOption, ProgressReporter, TimeLimit, report_progress


class Watch:
    """Shows how far a computation is, and says when its time is up.

    >>> Watch(limit=TimeLimit(0.0)).is_over, UNWATCHED.is_over
    (True, False)
    """

    def __init__(self, title: str = "", reporter: ProgressReporter = SILENT, limit: TimeLimit | None = None) -> None:
        self.title = title
        self._reporter = reporter
        self._limit = TimeLimit(None) if limit is None else limit
        self._done = 0.0

    def start(self, phase: str, *, total: float | None = None, unit: str = "") -> None:
        """Start a phase; `total` is its work in units that take about equally long, None if unknown."""
        self._done = 0.0
        self._reporter.start(f"{self.title}: {phase}", total=total, unit=unit)

    def update(self, done: float) -> None:
        """Say that this much of the phase is done."""
        self._done = done
        self._reporter.update(done)

    def tick(self) -> None:
        """Show that the phase still runs, in loops that do not know how much of it they have done."""
        self._reporter.update(self._done)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._limit.is_over

    def check(self) -> None:
        """Raise an error if the time is up."""
        if self.is_over:
            raise TimeIsUpError

    @property
    def stop_reason(self) -> str:
        """Why the computation ended, for a note or an error message.

        >>> Watch(limit=TimeLimit(3.94225)).stop_reason, Watch(limit=TimeLimit(120)).stop_reason
        ('stopped by the time limit after 3.9 s', 'stopped by the time limit after 120 s')
        """
        return f"stopped by the time limit after {round(self._limit.seconds or 0, 1):g} s"

    def without_limit(self) -> Watch:
        """Return a watch with the same display, for what must be finished after the time is up."""
        return Watch(self.title, self._reporter)


#: A watch that shows nothing and has no limit.
UNWATCHED = Watch()


@contextmanager
def open_watch(title: str, progress: ProgressOption, max_seconds: float | None) -> Iterator[Watch]:
    """Open the display and start the time for the arguments `progress` and `max_seconds` of a function."""
    limit = TimeLimit(max_seconds)
    with report_progress(progress) as reporter:
        yield Watch(title, reporter, limit)
