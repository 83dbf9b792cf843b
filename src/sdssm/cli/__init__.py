"""The command line: parse, call, print."""

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
from sdssm.errors import RunWarning, SdssmError

#: Exit codes: what the user can mend, and the shell's own for Ctrl-C.
BAD_INPUT, INTERRUPTED = 2, 130


class _Parser(argparse.ArgumentParser):
    """One line on a mistake, like every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    root: argparse.ArgumentParser = _Parser(
        prog="sdssm", description="Train sequence models to emulate finite automata.", allow_abbrev=False
    )
    root.add_argument("--version", action="version", version=f"sdssm {__version__}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    made = (compile_command, extract, certify, horizon, snap)
    for command in (tasks, models, train, evaluate, runs, *made, reproduce, sweep):
        command.add_to(commands)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, or 2 with one line on standard error for what the user can mend."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter still shows the rest
    typed = sys.argv[1:] if arguments is None else arguments
    try:
        options = parser().parse_args(typed)
        options.typed = join(["sdssm", *typed])  # for who must type it again
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            options.run(options)
        if sys.stdout is not None:  # closed by the shell, as in `sdssm tasks >&-`
            sys.stdout.flush()
    except SdssmError as error:
        print(f"sdssm: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe went away, as in `sdssm tasks | head`
        _discard_output()
    except OSError as error:  # what files can raise is caught where they are: this is standard output
        print(f"sdssm: cannot write the output: {error.strerror}", file=sys.stderr)
        _discard_output()
        return BAD_INPUT
    return 0


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own warnings are for the user, in one line; others come with the place in the code."""
    ours = f"sdssm: warning: {message}\n" if issubclass(category, RunWarning) else None
    print(ours or warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)


def _discard_output() -> None:
    """Nothing is left to flush when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
