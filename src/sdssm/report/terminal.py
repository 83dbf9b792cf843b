"""Accuracy-against-length plots in plain text, for any terminal."""

from __future__ import annotations

import numpy as np

from sdssm.report.curves import Curve, has_log_axis
from sdssm.report.rendering import format_chance


def terminal_plot(curve: Curve, *, width: int = 72, height: int = 11) -> str:
    """Return a plot of `width` columns and `height` rows, with axes and a legend around it.

    In each column `*` is the mean over its lengths and seeds, `:` reaches down to the minimum, and `.` marks chance.
    Training lengths are marked by `=` on the axis.

    >>> lengths = np.arange(1, 101)
    >>> accuracy = np.where(lengths <= 60, 100.0, 50.0)
    >>> curve = Curve("a5, sd-ssm", 1, 40, lengths, accuracy, accuracy, accuracy, chance=100 / 60)
    >>> print(terminal_plot(curve, width=40, height=3))
    accuracy in %, a5, sd-ssm
    100 |************************
     50 |                        ****************
      0 |........................................
        +================------------------------
         1       25    40  50        75       100
         ==== trained up to length 40
         .... chance, 1.67 %
    """
    columns = _columns(curve, width)
    known = ~np.isnan(curve.mean)
    grid = [[" "] * width for _ in range(height)]
    if curve.chance is not None:
        grid[_row(curve.chance, height)] = ["."] * width
    for column in np.unique(columns[known]):
        mask = known & (columns == column)
        mean, least = (_row(float(value), height) for value in (curve.mean[mask].mean(), curve.low[mask].min()))
        for row in range(mean + 1, least + 1):
            grid[row][column] = ":"
        grid[mean][column] = "*"
    seeds = f", mean of {curve.seeds} seeds" if curve.seeds > 1 else ""
    lines = [f"accuracy in %, {curve.name}{seeds}"]
    for row, cells in enumerate(grid):
        level = 100 * (height - 1 - row) / (height - 1)
        label = f"{level:.0f}" if row in (0, height // 2, height - 1) else ""
        lines.append(f"{label:>3} |{''.join(cells)}".rstrip())
    trained = int(_column(curve, float(curve.train_length), width)) + 1 if curve.lengths[0] <= curve.train_length else 0
    lines.append("    +" + "=" * trained + "-" * (width - trained))
    lines.append("     " + _ticks(curve, width))
    if trained:
        lines.append(f"     ==== trained up to length {curve.train_length}")
    if curve.chance is not None:
        lines.append(f"     .... chance, {format_chance(curve.chance)} %")
    return "\n".join(lines)


def _columns(curve: Curve, width: int) -> np.ndarray:
    return np.array(_column(curve, curve.lengths.astype(float), width))


def _column(curve: Curve, length: float | np.ndarray, width: int) -> np.ndarray:
    """Return the column of a length on the axis."""
    first, last = float(curve.lengths[0]), float(curve.lengths[-1])
    if has_log_axis(curve.lengths):
        share = np.log(np.asarray(length) / first) / np.log(last / first) if last > first else np.zeros_like(length)
    else:
        share = (np.asarray(length) - first + 0.5) / (last - first + 1)
    return np.clip((share * width).astype(int), 0, width - 1)


def _row(accuracy: float, height: int) -> int:
    """Return the row of an accuracy, counted from the top."""
    return height - 1 - round(min(max(accuracy, 0.0), 100.0) / 100 * (height - 1))


def _ticks(curve: Curve, width: int) -> str:
    """Return the labels of the length axis: both ends, the training length, and others that fit."""
    first, last = int(curve.lengths[0]), int(curve.lengths[-1])
    if has_log_axis(curve.lengths):
        more = [10**power for power in range(1, 7)]
    else:
        more = [int(float(f"{first - 1 + (last - first + 1) * part / 4:.2g}")) for part in (2, 1, 3)]
    line = [" "] * width
    for length in [first, last, curve.train_length, *more]:
        if not first <= length <= last:
            continue
        text = str(length)
        column = int(_column(curve, float(length), width))
        start = min(max(column - (len(text) - 1 if length == last else len(text) // 2), 0), width - len(text))
        if all(cell == " " for cell in line[max(start - 1, 0) : start + len(text) + 1]):
            line[start : start + len(text)] = text
    return "".join(line).rstrip()
