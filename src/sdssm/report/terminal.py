"""Accuracy-against-length plots in plain text, for any terminal."""

from __future__ import annotations

from textwrap import wrap

import numpy as np

from sdssm.formatting import format_chance
from sdssm.report.axes import round_lengths
from sdssm.report.curves import Curve, has_log_axis

#: Columns of the labels on the left, and of the narrowest and the widest plot with them.
MARGIN, NARROWEST, WIDEST = 5, 20, 105
#: Rows of a plot; below 60 columns it has fewer, so that its shape stays.
ROWS, ROWS_OF_NARROW, NARROW = 11, 7, 60


def terminal_plot(curve: Curve, *, width: int = 77, height: int | None = None) -> str:
    """Return a plot whose lines have at most `width` characters, with axes and a legend around it.

    In each column `*` is the mean over its lengths and seeds, `:` reaches down to the minimum, and `.` marks chance.
    `o` is the balanced accuracy, at the lengths at which it was measured and where it differs from `*`.
    Training lengths are marked by `=` on the axis. The legend explains the characters that are used.

    Args:
        curve: of `make_curves`.
        width: of the terminal, in columns. A plot has at least 20 and at most 105.
        height: rows between the axes; by default 11, or 7 if the width is below 60.

    >>> lengths = np.arange(1, 101)
    >>> accuracy = np.where(lengths <= 60, 100.0, 50.0)
    >>> curve = Curve("a5, sd-ssm", 1, 40, lengths, accuracy, accuracy, accuracy, chance=100 / 60)
    >>> print(terminal_plot(curve, width=45, height=3))
    accuracy in %, a5, sd-ssm
    100 |************************
     50 |                        ****************
      0 |........................................
        +================------------------------
         1     20      40      60      80     100
         **** mean over the lengths of a column
         .... chance of a random guess, 1.67 %
         ==== training lengths, up to 40
    """
    width = min(max(width, NARROWEST), WIDEST)
    height = height or (ROWS if width >= NARROW else ROWS_OF_NARROW)
    columns = width - MARGIN
    grid = _grid(curve, columns, height)
    seeds = f", mean of {curve.seeds} seeds" if curve.seeds > 1 else ""
    lines = wrap(f"accuracy in %, {curve.name}{seeds}", width)
    for row, cells in enumerate(grid):
        level = 100 * (height - 1 - row) / (height - 1)
        label = f"{level:.0f}" if row in (0, height // 2, height - 1) else ""
        lines.append(f"{label:>3} |{cells}".rstrip())
    trained = 0
    if curve.lengths[0] <= curve.train_length:
        trained = int(_column(curve, float(curve.train_length), columns)) + 1
    lines.append("    +" + "=" * trained + "-" * (columns - trained))
    lines.append("     " + _ticks(curve, columns))
    for text in _legend(curve, "".join(grid), columns, is_trained=trained > 0):
        lines += wrap(text, width, initial_indent=" " * MARGIN, subsequent_indent=" " * (MARGIN + 5))
    return "\n".join(lines)


def _grid(curve: Curve, width: int, height: int) -> list[str]:
    """Return the rows between the axes, from the top."""
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
    for length, share in curve.balanced:
        place = grid[_row(share, height)]
        column = int(_column(curve, float(length), width))
        place[column] = place[column] if place[column] == "*" else "o"
    return ["".join(cells) for cells in grid]


def _legend(curve: Curve, cells: str, width: int, *, is_trained: bool) -> list[str]:
    """Return what each character means."""
    over = ["seeds"] if curve.seeds > 1 else []
    over += ["the lengths of a column"] if len(curve.lengths) > width else []
    texts = {"*": f"mean over {' and '.join(over)}" if over else "accuracy", ":": "down to the minimum of these"}
    texts["o"] = "balanced accuracy"
    legend = [f"{character * 4} {text}" for character, text in texts.items() if character in cells]
    if curve.chance is not None:  # also if the curve covers it everywhere
        constant = (
            "" if curve.best_constant is None else f"; best constant answer {format_chance(curve.best_constant)} %"
        )
        legend.append(f".... chance of a random guess, {format_chance(curve.chance)} %{constant}")
    return [*legend, *([f"==== training lengths, up to {curve.train_length:,}"] if is_trained else [])]


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
    if curve.listed:
        more = [int(length) for length in curve.lengths]
    else:
        more = round_lengths(last, logarithmic=has_log_axis(curve.lengths))
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
