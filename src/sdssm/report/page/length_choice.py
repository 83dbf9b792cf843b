"""Which of many lengths, or steps, a page shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def choose_lengths_shown(lengths: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of the lengths: all of the short ones, then fewer and fewer, and the last.

    >>> choose_lengths_shown(range(1, 7), 10)
    [1, 2, 3, 4, 5, 6]
    >>> choose_lengths_shown(range(1, 10_001), 9)
    [1, 2, 3, 4, 5, 33, 224, 1495, 10000]
    """
    if len(lengths) <= most:
        return list(lengths)
    dense = most // 2
    places = np.unique(np.geomspace(dense + 1, len(lengths), most - dense).round().astype(int)) - 1
    places[-1] = len(lengths) - 1
    return [*lengths[:dense], *(lengths[place] for place in places)]


def choose_positions(count: int, most: int) -> list[int]:
    """Return at most `most` positions of a list of `count` items, evenly spaced, with the first and the last.

    >>> choose_positions(3, 400), choose_positions(1_000, 5)
    ([0, 1, 2], [0, 250, 500, 749, 999])
    """
    if count <= most:
        return list(range(count))
    return [int(place) for place in np.unique(np.linspace(0, count - 1, most).round())]
