"""Means of values of which some are not known."""

from __future__ import annotations

from collections.abc import Iterable


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if there are none.

    >>> mean_of_known([1.0, None, 2.0]), mean_of_known([None])
    (1.5, None)
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
