"""Print tables and facts on standard output: with rich on a terminal, in plain columns elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any

from sdssm.errors import OutputError
from sdssm.files import format_path
from sdssm.printable import make_printable, styled_stream
from sdssm.text_tables import LEAST_WIDTH, fit_table, terminal_width, wrap_text

#: How to see the columns of a table that a narrow terminal leaves out.
NARROW_ADVICE = "to see them, widen the terminal or add | less -S"


def quote_argument(argument: Any) -> str:
    """Return a path or word as it is typed in a shell."""
    return make_printable(quote(str(argument)))


def print_json(value: Any) -> None:
    """Print a value as JSON in ASCII, in which every control character is escaped."""
    print(json.dumps(value, indent=1).replace("\x7f", "\\u007f"))  # the one that json leaves as it is


def _can_use_rich() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and find_spec("rich") is not None


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> list[str]:
    """Print rows below headers; the columns named in `right` are numbers, aligned to the right.

    On a terminal that is too narrow, text is wrapped and the least useful columns are left out, as `fit_table`
    describes; a line below names them. `keep` and `drop` name columns that are never left out, or left out first.
    Returns the headers of the columns that were left out.
    """
    headers, *rows = ([make_printable(cell) for cell in row] for row in [headers, *rows])
    width = terminal_width()
    fitted = fit_table(headers, rows, right=right, width=width, keep=keep, drop=drop)
    _print_bold(fitted.header)
    for line in [*fitted.body, *fitted.note(NARROW_ADVICE, width)]:
        print(line)
    return list(fitted.left_out)


def print_facts(title: str, facts: dict[str, str]) -> None:
    """Print a title and one line for each fact; on a terminal, long facts are wrapped."""
    _print_bold([make_printable(title)])
    indent, terminal = max(map(len, facts)) + 4, terminal_width()
    for name, value in facts.items():
        text = make_printable(value)
        lines = wrap_text(text, None if terminal is None else max(terminal - indent, LEAST_WIDTH))
        for k, line in enumerate(lines):
            print(f"  {(name if k == 0 else '').ljust(indent - 4)}  {line}".rstrip())


def print_text(text: str) -> None:
    """Print a sentence, with a control character escaped; on a terminal, lines break between words."""
    for line in wrap_text(make_printable(text), terminal_width()):
        print(line)


def _print_bold(lines: Sequence[str]) -> None:
    """Print lines, in bold on a terminal if rich is installed."""
    if not _can_use_rich():
        for line in lines:
            print(line)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=styled_stream(sys.stdout))
    for line in lines:
        console.print(Text(line, style="bold"), soft_wrap=True)


def check_suffix(option: str, path: Path | None, known: Sequence[str], what: str) -> None:
    """Raise an error if the ending of a file does not say how to write it, before anything is computed."""
    if path is not None and path.suffix not in known:
        endings = " or ".join(known)
        example = path.with_suffix(known[0]) if path.name else f"FILE{known[0]}"
        raise OutputError(
            f"{option} {format_path(path)}: {what} is written as {endings}; use {option} {format_path(Path(example))}"
        )
