"""What a curve of accuracies says, and how sure it is. Accuracies are shares of 1 here; only records hold percent."""

from __future__ import annotations

import numpy as np

#: How often strings are drawn again for a band, and the share of the draws it holds.
RESAMPLES, LEVEL = 2000, 0.95
#: The most strings drawn again at a time.
MOST_DRAWN = 1 << 21
#: The normal distribution's quantile for that share.
_Z = 1.959963984540054

Band = tuple[float, float]


def mean(accuracy: np.ndarray) -> float | None:
    """The mean over the lengths that have an accuracy (others are NaN), or None where none has.

    >>> mean(np.array([1.0, 0.5, np.nan])), mean(np.array([]))
    (0.75, None)
    """
    known = accuracy[~np.isnan(accuracy)]
    return float(known.mean()) if len(known) else None


def first_below(lengths: np.ndarray, accuracy: np.ndarray, threshold: float) -> int | None:
    """The first length with an accuracy below the threshold, or None.

    >>> first_below(np.array([1, 2, 3]), np.array([1.0, 0.98, 1.0]), 0.99)
    2
    """
    below = np.flatnonzero(accuracy < threshold)  # NaN is below nothing
    return int(lengths[below[0]]) if len(below) else None


def band_of_each(correct: np.ndarray, strings: int) -> tuple[np.ndarray, np.ndarray]:
    """A band for the accuracy at each length on its own, from the number of correct strings (Wilson's).

    At one length the strings are independent, so their number says all. Unlike drawing the strings again, it does not
    shrink to nothing where every string is correct.

    >>> low, high = band_of_each(np.array([512, 256]), 512)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.993, 0.457], [1.0, 0.543])
    """
    share = correct / strings
    spread = _Z**2 / strings
    middle = (share + spread / 2) / (1 + spread)
    half = np.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    # Rounding must not put an accuracy of 0 or 1 outside its own band.
    return np.clip(middle - half, 0.0, share), np.clip(middle + half, share, 1.0)


def band_of_strings(scores: np.ndarray, generator: np.random.Generator) -> Band:
    """A band for the mean over lengths where all lengths share their strings: whole strings are drawn again.

    `scores` (B,) is the share of its lengths at which each string was correct. A string that fails at one length goes
    on failing, so lengths are not independent and a band that takes them for it is several times too narrow.

    >>> scores = np.repeat([1.0, 0.0], 256)  # half of the strings fail from the start
    >>> low, high = band_of_strings(scores, np.random.default_rng(0))
    >>> round(high - low, 2)
    0.09
    >>> low, high = band_of_strings(np.ones(512), np.random.default_rng(0))  # none fails, of these
    >>> round(low, 3), high
    (0.993, 1.0)
    """
    strings = len(scores)
    means = np.empty(RESAMPLES)
    for part in np.array_split(means, -(-RESAMPLES * strings // MOST_DRAWN)):  # views, filled in place
        drawn = generator.integers(strings, size=(len(part), strings))
        part[:] = scores[drawn].mean(1)
    return _middle(means, float(scores.mean()), strings)


def band_of_lengths(correct: np.ndarray, strings: int, generator: np.random.Generator) -> Band:
    """A band for the mean over lengths where each has strings of its own: they are drawn again within each length.

    `correct` (K,) is the number of correct strings of each length; of strings drawn again a binomial number is.

    >>> low, high = band_of_lengths(np.full(100, 256), 512, np.random.default_rng(0))
    >>> round(high - low, 3)
    0.008
    """
    total = np.zeros(RESAMPLES)
    for number, times in zip(*np.unique(correct, return_counts=True), strict=True):
        total += generator.binomial(int(times) * strings, number / strings, size=RESAMPLES)
    return _middle(total / (strings * len(correct)), float(correct.mean()) / strings, strings * len(correct))


def _middle(means: np.ndarray, share: float, strings: int) -> Band:
    """The middle of what was found with strings drawn again.

    Where all strings fare alike, drawing them again finds nothing else, but other strings might: then it is Wilson's
    band for the `share` of so many strings, which holds whatever a string may score from 0 to 1.
    """
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if low == high:
        low, high = (bound[0] for bound in band_of_each(np.array([share * strings]), strings))
    return float(low), float(high)
