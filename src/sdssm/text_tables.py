"""Tables and sentences as lines of text that fit the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from shutil import get_terminal_size
from unicodedata import combining, east_asian_width

#: Spaces between two columns.
GAP = "  "
#: A text column gets at least the first width before other columns are left out, and never less than the second.
COMFORTABLE_WIDTH, LEAST_WIDTH = 24, 8
#: Words up to this length are not broken to save columns.
MOST_UNBROKEN = 16
#: The columns that are left out first if a table is wider than the terminal, by header or by its first words.
LEAST_USEFUL = (
    "radius",
    "loss",
    "seconds",
    "preset",
    "95 % band",
    "mean to",
    "covering at",
    "balanced at",
    "monoid",
    "transitions",
    "step",
    "steps",
    "min",
    "first below 99",
    "diverged",
    "status",
    "to length",
    "training lengths",
    "beyond",
    "covering constant",
    "covering",
)
#: Columns of numbers that are never left out: what identifies a row, its accuracy, the best constant answer and chance.
ALWAYS_SHOWN = (
    "seed",
    "seeds",
    "length",
    "at",
    "mean",
    "balanced",
    "balanced chance",
    "accuracy",
    "best constant",
    "chance",
)


def terminal_width() -> int | None:
    """Return the width of the terminal; None if standard output is not a terminal."""
    return get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def text_width(text: str) -> int:
    """Return the number of columns that a text takes on a terminal.

    >>> text_width("a5"), text_width("\u81ea\u52a8")  # two ideographs, two columns each
    (2, 4)
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


#: The parts of a text between which a line may break: after a slash, after a hyphen in a word, or at spaces.
_PIECES = re.compile(r"[A-Za-z]{3,}-(?=[A-Za-z])|[^\s/]*/|[^\s/]+\s*|\s+")


def wrap_text(text: str, width: int | None) -> list[str]:
    """Break a text into lines of at most `width` columns: at spaces, after a slash or a hyphen, or else anywhere.

    The lines of the text stay apart. With `width` None they are returned as they are.

    >>> wrap_text("runs/a5/seed-0", 8), wrap_text("one two three", 9), wrap_text("scale-free", 8)
    (['runs/a5/', 'seed-0'], ['one two', 'three'], ['scale-', 'free'])
    """
    lines = text.split("\n")
    return lines if width is None else [part for line in lines for part in _wrap_line(line, width)]


def _wrap_line(text: str, width: int) -> list[str]:
    lines = [""]
    for piece in _PIECES.findall(text):
        if text_width(lines[-1]) + text_width(piece.rstrip()) > width and lines[-1]:
            lines.append("")
        while text_width(piece.rstrip()) > width:
            count = max(1, sum(text_width(piece[: k + 1]) <= width for k in range(min(width, len(piece)))))
            lines[-1], piece = piece[:count], piece[count:]
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines if line.strip()] or [""]


@dataclass(frozen=True)
class FittedTable:
    """The lines of a table that fits a width, and the headers of the columns that are left out."""

    header: Sequence[str]
    body: Sequence[str]
    left_out: Sequence[str] = ()

    def note(self, advice: str, width: int | None = None) -> list[str]:
        """Return lines that name the columns that are left out and say how to see them; none if all are shown."""
        text = f"columns left out: {', '.join(self.left_out)}; {advice}"
        return wrap_text(text, width) if self.left_out else []


def fit_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    width: int | None = None,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> FittedTable:
    """Lay a table out in columns, so that no line is longer than `width`.

    If it is too wide, headers of numbers are wrapped and columns are left out: those of `drop`, then those of
    `LEAST_USEFUL`, then other numbers from the right. Text columns are wrapped. Numbers are never wrapped, and the
    first column, the text columns and the columns of `keep` and `ALWAYS_SHOWN` are never left out. If these do not fit,
    every row becomes a block with a line for each of its cells.

    Args:
        headers: the names of the columns.
        rows: the cells, as text on one line.
        right: the headers of the columns that are aligned to the right: numbers.
        width: the greatest length of a line; None for no limit.
        keep: headers of columns that are never left out.
        drop: headers of columns that are left out first.

    >>> headers, row = ["task", "preset", "mean", "loss"], ["a5", "scale-free", "100.00", "0.0001"]
    >>> fitted = fit_table(headers, [row], right=["mean", "loss"], width=26)
    >>> print(*fitted.header, *fitted.body, *fitted.note("widen the terminal"), sep=chr(10))
    task  preset        mean
    a5    scale-free  100.00
    columns left out: loss; widen the terminal
    """
    columns = [_Column(header, [row[k] for row in rows], header in right) for k, header in enumerate(headers)]
    shown = columns if width is None else _choose_columns(columns, width, keep, drop)
    if width is not None and _total([column.least for column in shown]) > width:
        return FittedTable([], _make_blocks(headers, rows, width))
    widths = [column.natural for column in shown] if width is None else _choose_widths(shown, width)
    header = _join_lines([column.header for column in shown], shown, widths)
    body = [
        line for k in range(len(rows)) for line in _join_lines([column.cells[k] for column in shown], shown, widths)
    ]
    return FittedTable(header, body, [column.header for column in columns if column not in shown])


def _make_blocks(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines of a table that is too wide for columns: one for each cell, and an empty one between rows."""
    indent = max(map(text_width, headers)) + len(GAP)
    lines: list[str] = []
    for row in rows:
        lines += [""] if lines else []
        for header, cell in zip(headers, row, strict=True):
            for k, text in enumerate(wrap_text(cell, max(width - indent, LEAST_WIDTH))):
                lines.append((header if k == 0 else "").ljust(indent) + text)
    return lines


@dataclass(frozen=True, eq=False)
class _Column:
    """A column and its widths: with nothing wrapped, comfortable, and the least."""

    header: str
    cells: Sequence[str]
    is_number: bool

    @cached_property
    def natural(self) -> int:
        return max(map(text_width, [self.header, *self.cells]))

    @cached_property
    def comfortable(self) -> int:
        return self._at_least(COMFORTABLE_WIDTH)

    @cached_property
    def least(self) -> int:
        if self.is_number:
            return self._at_least(LEAST_WIDTH)
        pieces = [text_width(piece.rstrip()) for cell in set(self.cells) for piece in _PIECES.findall(cell)]
        return self._at_least(min(max([*pieces, LEAST_WIDTH]), MOST_UNBROKEN))

    def _at_least(self, width: int) -> int:
        words = [text_width(word) for word in self.header.split()]
        cells = max(map(text_width, self.cells), default=0)
        return max([*words, cells if self.is_number else min(cells, width)], default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _choose_columns(
    columns: Sequence[_Column], width: int, keep: Sequence[str], drop: Sequence[str]
) -> Sequence[_Column]:
    """Return the columns that fit, in their order."""
    if _total([column.natural for column in columns]) <= width:
        return columns

    def named(column: _Column, names: Sequence[str]) -> list[int]:
        return [k for k, name in enumerate(names) if column.header == name or column.header.startswith(f"{name} ")]

    order = [*drop, *LEAST_USEFUL]
    free = [column for column in columns[1:] if column.header not in keep]
    listed = [column for column in free if named(column, order)]
    listed.sort(key=lambda column: (named(column, order)[0], -columns.index(column)))
    others = [column for column in reversed(free) if column.is_number and column not in listed]
    others = [column for column in others if not named(column, ALWAYS_SHOWN)]
    removed: list[_Column] = []

    def fits(widths: str) -> bool:
        return _total([getattr(column, widths) for column in columns if column not in removed]) <= width

    while listed and not fits("comfortable"):
        removed.append(listed.pop(0))
    while others and not fits("least"):
        removed.append(others.pop(0))
    return [column for column in columns if column not in removed]


def _choose_widths(columns: Sequence[_Column], width: int) -> list[int]:
    """Return the width of each column, starting from comfortable or from least widths."""
    naturals = [column.natural for column in columns]
    if _total(naturals) <= width:
        return naturals
    comfortable = [column.comfortable for column in columns]
    widths = comfortable if _total(comfortable) <= width else [column.least for column in columns]
    left = width - _total(widths)
    # Texts come before the headers of numbers: a wrapped header costs one line, a wrapped text one line in each row.
    texts = [k for k, column in enumerate(columns) if not column.is_number]
    while left > 0 and (wrapped := [k for k in texts if widths[k] < naturals[k]]):
        widths[max(wrapped, key=lambda k: naturals[k] / widths[k])] += 1
        left -= 1
    for k in sorted(range(len(columns)), key=lambda k: naturals[k] - widths[k]):
        growth = max(0, min(naturals[k] - widths[k], left))
        widths[k] += growth
        left -= growth
    return widths


def _join_lines(cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int]) -> list[str]:
    """Return the lines of one row, as many as its highest cell has."""
    blocks = [wrap_text(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for k in range(max(map(len, blocks), default=0)):
        parts = []
        for block, column, width in zip(blocks, columns, widths, strict=True):
            text = block[k] if k < len(block) else ""
            space = " " * (width - text_width(text))
            parts.append(space + text if column.is_number else text + space)
        lines.append(GAP.join(parts).rstrip())
    return lines
