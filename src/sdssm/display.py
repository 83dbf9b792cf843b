"""How results print: a short table as text, as HTML in a notebook, and as a pandas DataFrame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from sdssm.extras import import_extra

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class ResultTable:
    """A small table: headers, rows of text, and lines of text above and below.

    Args:
        headers: the names of the columns.
        rows: the cells, as text.
        title: a line above the table.
        notes: lines below the table.
        right: the headers of the columns that are aligned to the right.

    >>> print(ResultTable(["task", "mean %"], [["a5", "100.00"], ["d4", "9.50"]], title="2 runs", right=["mean %"]))
    2 runs
    task  mean %
    a5    100.00
    d4      9.50
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()
    right: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [self.headers, *self.rows] if self.rows else []
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headers))] if lines else []
        text = []
        for line in lines:
            cells = [
                cell.rjust(width) if header in self.right else cell.ljust(width)
                for header, cell, width in zip(self.headers, line, widths, strict=True)
            ]
            text.append("  ".join(cells).rstrip())
        return "\n".join([*([self.title] if self.title else []), *text, *self.notes])

    def to_html(self) -> str:
        """Return the table as HTML."""
        parts = [f"<p><b>{escape(self.title)}</b></p>"] if self.title else []
        if self.rows:
            parts.append(f"<table><thead>{self._html_row(self.headers, 'th')}</thead><tbody>")
            parts += [self._html_row(row, "td") for row in self.rows]
            parts.append("</tbody></table>")
        parts += [f"<p>{escape(note)}</p>" for note in self.notes]
        return "".join(parts)

    def _html_row(self, cells: Sequence[str], tag: str) -> str:
        aligned = ["right" if header in self.right else "left" for header in self.headers]
        row = "".join(
            f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, aligned, strict=True)
        )
        return f"<tr>{row}</tr>"


class Displayed(ABC):
    """A result that prints as a table: `print(result)`, its HTML in a notebook, and `to_pandas()`.

    A subclass defines `to_table` and `to_records`, and keeps a `__repr__` of one line.
    """

    @abstractmethod
    def to_table(self) -> ResultTable:
        """Return the table that is printed."""

    @abstractmethod
    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary of plain values for each row of a data frame."""

    def __str__(self) -> str:
        return str(self.to_table())

    def _repr_html_(self) -> str:
        return self.to_table().to_html()

    def to_pandas(self) -> pandas.DataFrame:
        """Return the records as a pandas DataFrame; pandas must be installed."""
        frame: pandas.DataFrame = import_extra("pandas", "to_pandas").DataFrame(self.to_records())
        return frame
