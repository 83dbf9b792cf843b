"""The axis of lengths of a plot."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

from sdssm.report.curves import Curve
from sdssm.report.layouts import POINTS

#: The width of a character of a tick label, and the space between two labels, relative to the size of the letters.
CHARACTER, SPACE = 0.644, 0.606
#: Ticks on a linear axis, about.
TICKS = 6


def set_limits(axes: Any, curves: Sequence[Curve], *, logarithmic: bool) -> None:
    """Set the scale and the ends of the axis: it starts where training or the curves do, and ends with the curves."""
    first = min(min(int(curve.lengths[0]), curve.train_length) for curve in curves)
    last = max(int(curve.lengths[-1]) for curve in curves)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(max(first, 1) * 0.8, last)
    else:
        axes.set_xlim(0, last)
    axes.margins(x=0)


def set_ticks(axes: Any, curves: Sequence[Curve], *, logarithmic: bool, font: float) -> None:
    """Set the ticks to the lengths that were asked for; if it was every length, to round lengths and the last.

    A tick whose label would cover the label of a greater length has none. `font` is the size of the labels in points.
    """
    listed = sorted({int(length) for curve in curves if curve.listed for length in curve.lengths})
    last = max(int(curve.lengths[-1]) for curve in curves)
    every = any(not curve.listed for curve in curves)
    ticks = listed if listed and not every else round_lengths(last, logarithmic=logarithmic)
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    left, right = (float(axes.transData.transform((x, 1))[0]) for x in axes.get_xlim())
    labels, edge = [], float("inf")
    for tick in reversed(ticks):
        place = (float(axes.transData.transform((tick, 1))[0]) - left) / (right - left) * width
        half = len(f"{tick:,}") * CHARACTER * font / POINTS / 2
        fits = place + half + SPACE * font / POINTS <= edge
        labels.append(f"{tick:,}" if fits else "")
        edge = place - half if fits else edge
    axes.set_xticks(ticks, labels[::-1])
    axes.minorticks_off()
    axes.set_xlabel("length of the string")


def round_lengths(last: int, *, logarithmic: bool) -> list[int]:
    """Return round lengths up to the last one, which is always among them.

    >>> round_lengths(500, logarithmic=False), round_lengths(256, logarithmic=False)
    ([100, 200, 300, 400, 500], [50, 100, 150, 200, 256])
    >>> round_lengths(50_000, logarithmic=True)
    [1, 10, 100, 1000, 10000, 50000]
    """
    if logarithmic:
        powers = [10**power for power in range(int(log10(last)) + 1)]
        return powers if powers[-1] == last else [*powers, last]
    power = 10 ** int(log10(max(last / TICKS, 1)))
    step = next(size * power for size in (1, 2, 5, 10) if last / (size * power) <= TICKS)
    return [*(tick for tick in range(step, last, step) if last - tick > step / 3), last]
