"""Accuracy against length in plain text, for any terminal."""

from __future__ import annotations

import numpy as np

from sdssm.report.curves import Curve, logarithmic


def terminal_plot(curve: Curve, *, width: int = 72, height: int = 11) -> str:
    """A plot of `width` columns and `height` rows and a few lines around it.

    A column shows the mean over its lengths and seeds as `*`, down to the least of them as `:`. Lengths that were
    trained on are marked on the axis.

    >>> lengths = np.arange(1, 101)
    >>> accuracy = np.where(lengths <= 60, 100.0, 20.0)
    >>> curve = Curve("a5, sd-ssm", 1, 40, lengths, accuracy, accuracy, accuracy)
    >>> print(terminal_plot(curve, width=40, height=3))
    accuracy in %, a5, sd-ssm
    100 |************************
     50 |
      0 |                        ****************
        +================------------------------
         1       25    40  50        75       100
         ==== trained up to length 40
    """
    at = _columns(curve, width)
    shown = ~np.isnan(curve.mean)
    grid = [[" "] * width for _ in range(height)]
    for column in np.unique(at[shown]):
        here = shown & (at == column)
        middle, least = (_row(float(value), height) for value in (curve.mean[here].mean(), curve.low[here].min()))
        for row in range(middle + 1, least + 1):
            grid[row][column] = ":"
        grid[middle][column] = "*"
    seeds = f", mean of {curve.seeds} seeds" if curve.seeds > 1 else ""
    lines = [f"accuracy in %, {curve.name}{seeds}"]
    for row, cells in enumerate(grid):
        level = 100 * (height - 1 - row) / (height - 1)
        name = f"{level:.0f}" if row in (0, height // 2, height - 1) else ""
        lines.append(f"{name:>3} |{''.join(cells)}".rstrip())
    trained = int(_column(curve, float(curve.train_length), width)) + 1 if curve.lengths[0] <= curve.train_length else 0
    lines.append("    +" + "=" * trained + "-" * (width - trained))
    lines.append("     " + _ticks(curve, width))
    if trained:
        lines.append(f"     ==== trained up to length {curve.train_length}")
    return "\n".join(lines)


def _columns(curve: Curve, width: int) -> np.ndarray:
    return np.array(_column(curve, curve.lengths.astype(float), width))


def _column(curve: Curve, length: float | np.ndarray, width: int) -> np.ndarray:
    """Where a length stands on the axis."""
    first, last = float(curve.lengths[0]), float(curve.lengths[-1])
    if logarithmic(curve.lengths):
        share = np.log(np.asarray(length) / first) / np.log(last / first) if last > first else np.zeros_like(length)
    else:
        share = (np.asarray(length) - first + 0.5) / (last - first + 1)
    return np.clip((share * width).astype(int), 0, width - 1)


def _row(accuracy: float, height: int) -> int:
    """The row of an accuracy, counted from the top."""
    return height - 1 - round(min(max(accuracy, 0.0), 100.0) / 100 * (height - 1))


def _ticks(curve: Curve, width: int) -> str:
    """The lengths under the axis: the ends first, then where training ended, then others that find room."""
    first, last = int(curve.lengths[0]), int(curve.lengths[-1])
    if logarithmic(curve.lengths):
        more = [10**power for power in range(1, 7)]
    else:
        more = [int(float(f"{first - 1 + (last - first + 1) * part / 4:.2g}")) for part in (2, 1, 3)]
    line = [" "] * width
    for length in [first, last, curve.train_length, *more]:
        if not first <= length <= last:
            continue
        text = str(length)
        column = int(_column(curve, float(length), width))
        begin = min(max(column - (len(text) - 1 if length == last else len(text) // 2), 0), width - len(text))
        if all(cell == " " for cell in line[max(begin - 1, 0) : begin + len(text) + 1]):
            line[begin : begin + len(text)] = text
    return "".join(line).rstrip()
