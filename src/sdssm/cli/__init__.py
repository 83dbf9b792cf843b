"""The command line: parse options, call the library, print results."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from shlex import join
from typing import NoReturn, TextIO

from sdssm import __version__
from sdssm.cli import certify, evaluate, extract, horizon, models, reproduce, runs, snap, sweep, tasks, train
from sdssm.cli import compile as compile_command
from sdssm.cli.options import HelpFormatter
from sdssm.errors import RunWarning, SdssmError

#: In the order of `sdssm --help`.
COMMANDS = (
    tasks,
    models,
    train,
    evaluate,
    runs,
    compile_command,
    extract,
    certify,
    horizon,
    snap,
    reproduce,
    sweep,
)
#: Exit codes: for errors that the user can fix, and the shell's own for Ctrl-C.
BAD_INPUT, INTERRUPTED = 2, 130


class CommandParser(argparse.ArgumentParser):
    """Prints errors in one line, like all other errors of the command."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands and their options."""
    parser = CommandParser(
        prog="sdssm",
        description="Train sequence models to emulate finite automata on short strings, measure how they generalise to "
        "long strings, and prove it. sdssm COMMAND --help describes a command.",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sdssm {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, or 2 after an error in one line on standard error."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without some letters still shows the others
    typed = sys.argv[1:] if arguments is None else arguments
    try:
        options = make_parser().parse_args(typed)
        options.typed = join(["sdssm", *typed])  # commands print it as the command to rerun
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            options.run(options)
        if sys.stdout is not None:  # None if the shell closed it, as in `sdssm tasks >&-`
            sys.stdout.flush()
    except SdssmError as error:
        print(f"sdssm: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has ended, as in `sdssm tasks | head`
        _discard_output()
    except OSError as error:  # errors of files are handled where they occur, so this is standard output
        print(f"sdssm: cannot write the output: {error.strerror}", file=sys.stderr)
        _discard_output()
        return BAD_INPUT
    return 0


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print warnings of this package in one line, and all others with their place in the code."""
    text = f"sdssm: warning: {message}\n" if issubclass(category, RunWarning) else None
    print(text or warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)


def _discard_output() -> None:
    """Redirect standard output to nowhere, so that Python does not fail when it flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
