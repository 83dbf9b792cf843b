"""Collect errors of several pieces of work, so that after one failure the others are still saved."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class DeferredErrors:
    """A context manager that catches errors, to raise the first after all pieces of work have run.

    Put each piece of work in a `with errors:` block, then call `raise_first`. Only subclasses of `Exception` are
    caught: Ctrl-C still stops at once.

    >>> errors, results = DeferredErrors(), []
    >>> for divisor in (1, 0, 2):
    ...     with errors:
    ...         results.append(2 / divisor)
    >>> results, errors.first
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

    def raise_first(self) -> None:
        """Raise the first error that was caught, if any."""
        if self.first is not None:
            raise self.first
