"""The command line: parse options, call the library, print results."""

from __future__ import annotations

import sys
from collections.abc import Sequence

#: The shell's exit code for Ctrl-C.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, or 2 after an error in one line on standard error."""
    try:
        # Only here, so that Ctrl-C while modules are imported ends the command without a traceback too.
        from sdssm.cli.program import run_command_line

        return run_command_line(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
