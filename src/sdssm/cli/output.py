"""Print tables and facts on standard output: with rich on a terminal, in plain columns elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from shlex import quote
from typing import Any

from sdssm.formatting import format_chance
from sdssm.tasks import chance_accuracy


def make_printable(text: str) -> str:
    """Escape characters that would move the cursor or break a line; names in a file may contain them.

    >>> make_printable("two" + chr(10) + "lines") == "two" + chr(92) + "nlines"
    True
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def make_lines_printable(text: str) -> str:
    """Apply `make_printable` to each line of a text."""
    return "\n".join(make_printable(line) for line in text.split("\n"))


def quote_argument(argument: Any) -> str:
    """Return a path or word as it is typed in a shell."""
    return make_printable(quote(str(argument)))


def format_chance_level(*class_counts: int) -> str:
    """Return the accuracy in % of guessing uniformly at random, as text.

    It is a range if the tasks have different numbers of classes.

    >>> format_chance_level(2, 2), format_chance_level(2, 60)
    ('50', '1.67 to 50')
    """
    return format_chance(*map(chance_accuracy, class_counts))


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


def _can_use_rich() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and find_spec("rich") is not None


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print rows below headers; the columns named in `right` are aligned to the right."""
    rows = [[make_printable(cell) for cell in row] for row in rows]
    if _can_use_rich():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        for header in headers:
            table.add_column(header, justify="right" if header in right else "left", no_wrap=header in right)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    widths = [max(len(row[k]) for row in [headers, *rows]) for k in range(len(headers))]
    for row in [headers, *rows]:
        cells = [
            cell.rjust(width) if header in right else cell.ljust(width)
            for header, cell, width in zip(headers, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def print_facts(title: str, facts: dict[str, str]) -> None:
    """Print a title and one line for each fact."""
    title, facts = make_printable(title), {name: make_printable(value) for name, value in facts.items()}
    if _can_use_rich():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column()
        for name, value in facts.items():
            table.add_row(name, Text(value))
        console = Console()
        console.print(Text(title, style="bold"))
        console.print(table)
        return
    print(title)
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"  {name.ljust(width)}  {value}")
