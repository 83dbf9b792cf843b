"""One failure must not keep the others from being saved."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Failures:
    """Errors of parts of a work, each within `with failures:`, the first of them raised when all parts have had a turn.

    What is no `Exception` ends the work at once, as Ctrl-C does.

    >>> failures, done = Failures(), []
    >>> for one in (1, 0, 2):
    ...     with failures:
    ...         done.append(2 / one)
    >>> done, failures.first
    ([2.0, 1.0], ZeroDivisionError('division by zero'))
    """

    def __init__(self) -> None:
        self.first: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Exception):
            self.first = self.first or error
            return True
        return False

    def tell(self) -> None:
        """Raise what failed first, if anything did."""
        if self.first is not None:
            raise self.first
