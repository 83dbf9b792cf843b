"""Means and ranges over neighbouring lengths, for curves with more lengths than a picture can show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sdssm.report.curves import Curve

#: Curves with at most this many lengths are drawn as they are.
MOST_POINTS = 150
#: Points of a curve that was smoothed, and how far it looks to each side, both as parts of the axis.
POINTS, REACH = 250, 0.008


def smooth_curve(curve: Curve, *, logarithmic: bool = False) -> Curve:
    """Return a curve of at most 250 points, each the mean and range over the lengths near it on the axis.

    Lengths without an accuracy are left out. A curve with few lengths is otherwise returned as it is.

    Accuracies of neighbouring lengths differ by noise, as each is measured on other strings, and on some tasks even
    and odd lengths alternate. Drawn as they are, such curves fill an area. The mean is by the trapezoid rule, which
    cancels such alternation for any number of neighbours.
    """
    known = ~np.isnan(curve.mean)
    lengths, mean, low, high = (values[known] for values in (curve.lengths, curve.mean, curve.low, curve.high))
    if len(lengths) <= MOST_POINTS:
        return replace(curve, lengths=lengths, mean=mean, low=low, high=high)
    place = np.log(lengths) if logarithmic else lengths.astype(float)
    place = (place - place[0]) / (place[-1] - place[0])
    first = np.searchsorted(place, place - REACH)
    last = np.searchsorted(place, place + REACH, side="right") - 1
    lowest, highest = (
        np.array([function(values[i : j + 1]) for i, j in zip(first, last, strict=True)])
        for function, values in ((np.min, low), (np.max, high))
    )
    points = np.unique(np.searchsorted(place, np.linspace(0, 1, POINTS)).clip(max=len(lengths) - 1))
    first, last = first[points], last[points]
    return replace(
        curve,
        lengths=lengths[points],
        # Rounding errors are clipped: a mean of 100s is 100.
        mean=_mean(mean, points, first, last).clip(lowest[points], highest[points]),
        # The mean of ranges has no steps, and still contains every accuracy that was measured.
        low=_mean(lowest, points, first, last).clip(0, 100),
        high=_mean(highest, points, first, last).clip(0, 100),
        neighbours=int(np.median(last - first)) + 1,
    )


def _mean(values: np.ndarray, points: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return means of values between two indices by the trapezoid rule, one for each point."""
    total = np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2)])
    return np.where(last > first, (total[last] - total[first]) / np.maximum(last - first, 1), values[points])
