"""Text that is safe to print: names in files may contain codes that move the cursor or retitle the terminal.

Whatever the command line prints passes a `PrintableStream`, which escapes such characters. Displays that move the
cursor themselves write to the `styled_stream` below it, and pass every name through `make_printable`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

#: The most characters of an error message of the command line.
LONGEST_MESSAGE = 300


def make_printable(text: str) -> str:
    """Escape all characters that are not printable: control codes, line breaks, bidi overrides, lone surrogates.

    >>> make_printable("two" + chr(10) + "lines") == "two" + chr(92) + "nlines"
    True
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def make_lines_printable(text: str) -> str:
    """Apply `make_printable` to each line of a text."""
    return "\n".join(make_printable(line) for line in text.split("\n"))


def shorten_line(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Return a message as one printable line; a long one loses its middle, since its end says what to do.

    >>> shorten_line("the name " + "x" * 50 + " is too long; use a shorter one", 60)
    'the name xxxxxxxxxxxxxxxxxxx ... too long; use a shorter one'
    """
    line = make_printable(" ".join(part.strip() for part in text.strip().split("\n")))
    if len(line) <= most:
        return line
    kept = most - len(" ... ")
    return f"{line[: kept - kept // 2]} ... {line[len(line) - kept // 2 :].lstrip()}"


class PrintableStream:
    """A text stream that writes to another one, with all characters escaped that are not printable; lines stay."""

    def __init__(self, styled: TextIO) -> None:
        self.styled = styled  #: the stream below, for displays that style their own text

    def write(self, text: str) -> int:
        self.styled.write(make_lines_printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.styled, name)  # encoding, flush, isatty, fileno and so on


def styled_stream(stream: TextIO) -> TextIO:
    """Return the stream below a `PrintableStream`, any other one as it is; only our own codes may go there."""
    return stream.styled if isinstance(stream, PrintableStream) else stream


@contextmanager
def printable_output() -> Iterator[None]:
    """Escape what is printed on standard output and standard error in the block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        # None if the shell closed it, as in `sdssm tasks >&-`
        stream if stream is None or isinstance(stream, PrintableStream) else cast(TextIO, PrintableStream(stream))
        for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
