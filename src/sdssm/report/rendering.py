"""Tables as data, and their rendering as text, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdssm.errors import OutputError
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.formatting import UNKNOWN
from sdssm.text_tables import fit_table, text_width, wrap_text

#: Shown in a cell that has no value.
NOTHING = UNKNOWN


@dataclass(frozen=True)
class Grid:
    """A caption, and texts by row and column."""

    caption: str
    corner: str  #: heading of the column that holds the row names
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]  #: the name of a row and its cells
    texts: Sequence[str] = ()  #: the columns that hold sentences, which a narrow terminal wraps


@dataclass(frozen=True)
class Table:
    """The content of a table: grids to read, one dictionary per line of the CSV file, and notes."""

    title: str
    grids: Sequence[Grid]
    facts: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


def write_table(table: Table, folder: Path, formats: Mapping[str, Callable[[Table], str]]) -> None:
    """Write a table into a folder, in a file for each format, given by file name."""
    for name, render in formats.items():
        try:
            write_atomic(folder / name, render(table).encode())
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot write {format_path(folder / name)}: {describe_file_error(error)}") from None


def to_text(table: Table, width: int | None = None) -> str:
    """Render a table as plain text with lines of at most `width` characters.

    Columns that do not fit follow below the others; in a grid with sentences, these are wrapped.
    """
    parts = ["\n".join(wrap_text(table.title, width))]
    for grid in table.grids:
        headers, rows = [grid.corner, *grid.columns], [[row, *cells] for row, cells in grid.rows]
        solid = [name for name in grid.columns if name not in grid.texts] if grid.texts else []
        widths = [max(text_width(line[k]) for line in [headers, *rows]) for k in range(len(headers))]
        blocks = []
        for columns in [list(range(len(headers)))] if grid.texts else _split_columns(widths, width):
            cells = [[row[k] for k in columns] for row in rows]
            fitted = fit_table([headers[k] for k in columns], cells, right=solid, width=width, keep=headers)
            blocks.append("\n".join([*fitted.header, *fitted.body]))
        parts.append("\n".join(wrap_text(grid.caption, width)) + "\n" + "\n\n".join(blocks))
    notes = [line for note in table.notes for line in wrap_text(note, width)]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])]) + "\n"


def _split_columns(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """Split columns into blocks that fit into `width`; each starts with column 0, the row names.

    >>> _split_columns([4, 10, 10, 10], 30), _split_columns([4, 10], None)
    ([[0, 1, 2], [0, 3]], [[0, 1]])
    """
    blocks = [[0]]
    for k in range(1, len(widths)):
        taken = sum(widths[j] + 2 for j in blocks[-1])
        if width is not None and taken + widths[k] > width and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(k)
    return blocks


def to_csv(table: Table) -> str:
    """Render the facts of a table as CSV; missing values are empty."""
    out = io.StringIO()
    names = list(dict.fromkeys(name for fact in table.facts for name in fact))
    writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _csv_value(value) for name, value in fact.items()} for fact in table.facts)
    return out.getvalue()


def _csv_value(value: Any) -> Any:
    return "" if value is None else round(value, 4) if isinstance(value, float) else value


def to_markdown(table: Table) -> str:
    """Render a table in GitHub's Markdown."""
    parts = [f"# {table.title}"]
    for grid in table.grids:
        lines = [[grid.corner, *grid.columns], ["---"] * (len(grid.columns) + 1)]
        lines += [[row, *cells] for row, cells in grid.rows]
        rows = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        parts.append(f"{grid.caption}\n\n{rows}")
    parts += ["\n".join(f"- {note}" for note in table.notes)] if table.notes else []
    return "\n\n".join(parts) + "\n"


#: Characters with a special meaning in LaTeX.
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"±": r"$\pm$"} | {letter: f"\\{letter}" for letter in "&%$#_{}"}


def to_latex(table: Table) -> str:
    """Render each grid of a table as a LaTeX tabular with rules of the booktabs package."""
    parts = [f"% {table.title}"]
    for grid in table.grids:
        head, *body = ([grid.corner, *grid.columns], *([row, *cells] for row, cells in grid.rows))
        lines = [rf"% {grid.caption}", rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}", r"\toprule"]
        lines += [_latex_row(head), r"\midrule", *map(_latex_row, body), r"\bottomrule", r"\end{tabular}"]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, *(["\n".join(f"% {note}" for note in table.notes)] if table.notes else [])]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    texts = ("".join(_LATEX.get(letter, letter) for letter in cell) for cell in cells)
    return " & ".join("--" if text == NOTHING else text for text in texts) + r" \\"
