"""Run one command: errors in one line, warnings, pipes that are closed early."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from shlex import join
from typing import TextIO

from sdssm.cli.options import BAD_INPUT
from sdssm.cli.parser import make_parser
from sdssm.errors import FormatWarning, RunWarning, SdssmError, first_line, format_value
from sdssm.printable import make_lines_printable, printable_output, shorten_line


def run_command_line(typed: Sequence[str]) -> int:
    """Run the command that was typed and return its exit code; what it prints has no control characters of others."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without some letters still shows the others
    with printable_output():
        return _run(typed)


def _run(typed: Sequence[str]) -> int:
    try:
        _check_words(typed)
        options = make_parser(typed[0] if typed else None).parse_args(typed or ["--help"])
        options.typed = join(["sdssm", *typed])  # commands print it as the command to rerun
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            options.run(options)
        if sys.stdout is not None:  # None if the shell closed it, as in `sdssm tasks >&-`
            sys.stdout.flush()
    except SdssmError as error:
        return _report(error.shell)
    except BrokenPipeError:  # the reader of a pipe has ended, as in `sdssm tasks | head`
        _discard_output()
    except OSError as error:
        if error.filename is not None:  # of a path that a command did not expect to be one, such as a name too long
            return _report(f"cannot use {format_value(str(error.filename))}: {error.strerror}; choose another path")
        # Errors of files are handled where they occur, so this is standard output.
        _report(f"cannot write the output: {error.strerror}")
        _discard_output()
        return BAD_INPUT
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        return _report(f"there is not enough memory: {first_line(error, 120)}; use smaller sizes, such as --strings 64")
    return 0


def _check_words(typed: Sequence[str]) -> None:
    """Raise an error if an argument cannot be the name of a file, before any command uses it as one."""
    for word in typed:
        try:
            is_valid = b"\0" not in os.fsencode(word)
        except UnicodeEncodeError:
            is_valid = False
        if not is_valid:
            raise SdssmError(f"the argument {format_value(word)} has a null byte or is no Unicode; leave it out")


def _report(message: str) -> int:
    """Print an error in one line of limited length, and return the exit code."""
    print(shorten_line(f"sdssm: {message}"), file=sys.stderr)
    return BAD_INPUT


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Return whether Python, numpy or torch could not allocate memory; torch has no class of its own for a CPU."""
    texts = ("can't allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print warnings of this package in one line, and all others with their place in the code."""
    is_ours = issubclass(category, (FormatWarning, RunWarning))
    text = f"{shorten_line(f'sdssm: warning: {message}')}\n" if is_ours else None
    text = text or make_lines_printable(warnings.formatwarning(message, category, filename, lineno, line))
    print(text, end="", file=file or sys.stderr)


def _discard_output() -> None:
    """Redirect standard output to nowhere, so that Python does not fail when it flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
