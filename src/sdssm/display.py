"""How results print: as a table of text, as HTML in a notebook, and as a pandas DataFrame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from sdssm.extras import import_extra
from sdssm.text_tables import fit_table, terminal_width, wrap_text

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
        return self.to_text(terminal_width())

    def to_text(self, width: int | None = None) -> str:
        """Return the table as text with lines of at most `width` characters; None for no limit.

        Columns that do not fit are wrapped or left out, as `fit_table` describes. Title and notes are wrapped.
        """
        lines = wrap_text(self.title, width) if self.title else []
        if self.rows:
            fitted = fit_table(self.headers, self.rows, right=self.right, width=width)
            lines += [*fitted.header, *fitted.body, *fitted.note("to see them, widen the terminal", width)]
        return "\n".join([*lines, *(line for note in self.notes for line in wrap_text(note, width))])

    def to_html(self) -> str:
        """Return the table as HTML; a wide one scrolls sideways."""
        parts = [f"<p><b>{escape(self.title)}</b></p>"] if self.title else []
        if self.rows:
            parts.append('<div style="overflow-x: auto"><table>')
            parts.append(f"<thead>{self._html_row(self.headers, 'th')}</thead><tbody>")
            parts += [self._html_row(row, "td") for row in self.rows]
            parts.append("</tbody></table></div>")
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
