"""Statistics of accuracies at many lengths, with confidence intervals.

Accuracies are from 0 to 1 here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

#: The number of bootstrap resamples, and the confidence level.
RESAMPLES, LEVEL = 2000, 0.95
#: The most strings that are resampled at a time.
MOST_DRAWN = 1 << 21
#: The quantile of the normal distribution for this level.
_Z = 1.959963984540054

Interval = tuple[float, float]


def mean(accuracy: np.ndarray) -> float | None:
    """Return the mean of the accuracies that are not NaN, or None if there are none.

    >>> mean(np.array([1.0, 0.5, np.nan])), mean(np.array([]))
    (0.75, None)
    """
    known = accuracy[~np.isnan(accuracy)]
    return float(known.mean()) if len(known) else None


def percents(shares: np.ndarray) -> tuple[float, ...]:
    """Return shares from 0 to 1 in percent, as plain numbers.

    >>> percents(np.array([0.5, 1.0]))
    (50.0, 100.0)
    """
    return tuple((100 * shares).tolist())


def first_below(lengths: np.ndarray, accuracy: np.ndarray, threshold: float) -> int | None:
    """Return the first length with an accuracy below the threshold, or None.

    >>> first_below(np.array([1, 2, 3]), np.array([1.0, 0.98, 1.0]), 0.99)
    2
    """
    below = np.flatnonzero(accuracy < threshold)  # comparisons with NaN are false
    return int(lengths[below[0]]) if len(below) else None


def wilson_intervals(correct: np.ndarray, strings: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the Wilson interval of the accuracy at each length, from the number of correct strings.

    At one length the strings are independent, so their number is all that matters. Unlike a bootstrap interval, it does
    not shrink to a point if every string is correct.

    >>> low, high = wilson_intervals(np.array([512, 256]), 512)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.993, 0.457], [1.0, 0.543])
    """
    share = correct / strings
    spread = _Z**2 / strings
    middle = (share + spread / 2) / (1 + spread)
    half = np.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    # Rounding must not move an accuracy of 0 or 1 out of its own interval.
    return np.clip(middle - half, 0.0, share), np.clip(middle + half, share, 1.0)


def bootstrap_over_strings(scores: np.ndarray, seed: int) -> Interval:
    """Return an interval for the mean over lengths that share their strings, by resampling whole strings.

    `scores` (B,) is the share of the lengths at which each string was correct. A string that fails at one length mostly
    fails at all greater ones, so lengths are not independent. An interval that assumes so is several times too narrow.
    The resamples depend on the number of strings and the seed only.

    >>> scores = np.repeat([1.0, 0.0], 256)  # half of the strings fail from the start
    >>> low, high = bootstrap_over_strings(scores, 0)
    >>> round(high - low, 2)
    0.09
    >>> low, high = bootstrap_over_strings(np.ones(512), 0)  # no string fails
    >>> round(low, 3), high
    (0.993, 1.0)
    """
    strings = len(scores)
    if (scores == scores[0]).all():  # all resamples have the same mean
        return _wilson_interval(float(scores.mean()), strings)
    parts = _draw_once(strings, seed) if RESAMPLES * strings <= MOST_DRAWN else _draw_resamples(strings, seed)
    means = np.concatenate([scores[resampled].mean(1) for resampled in parts])
    return _central_interval(means, float(scores.mean()), strings)


def _draw_resamples(strings: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the indices of the strings of all resamples in parts, (resamples, strings)."""
    generator = np.random.default_rng(seed)
    for part in np.array_split(np.empty(RESAMPLES), -(-RESAMPLES * strings // MOST_DRAWN)):
        yield generator.integers(strings, size=(len(part), strings))


@lru_cache(maxsize=1)
def _draw_once(strings: int, seed: int) -> list[np.ndarray]:
    """Return what `_draw_resamples` yields; the models of an experiment have the same resamples."""
    return list(_draw_resamples(strings, seed))


def bootstrap_over_lengths(correct: np.ndarray, strings: int, generator: np.random.Generator) -> Interval:
    """Return an interval for the mean over lengths that have their own strings, by resampling these.

    `correct` (K,) is the number of correct strings at each length. In a resample this number is binomial.

    >>> low, high = bootstrap_over_lengths(np.full(100, 256), 512, np.random.default_rng(0))
    >>> round(high - low, 3)
    0.008
    """
    total = np.zeros(RESAMPLES)
    for number, times in zip(*np.unique(correct, return_counts=True), strict=True):
        total += generator.binomial(int(times) * strings, number / strings, size=RESAMPLES)
    return _central_interval(total / (strings * len(correct)), float(correct.mean()) / strings, strings * len(correct))


def _central_interval(means: np.ndarray, share: float, strings: int) -> Interval:
    """Return the central part of the resampled means.

    If all strings have the same score, resampling always gives the same mean although other strings might not. It is
    then the Wilson interval for this share of the strings, which is valid for any score from 0 to 1.
    """
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return _wilson_interval(share, strings) if low == high else (float(low), float(high))


def _wilson_interval(share: float, strings: int) -> Interval:
    low, high = wilson_intervals(np.array([share * strings]), strings)
    return float(low[0]), float(high[0])
