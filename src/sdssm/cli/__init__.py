"""The command line: parse options, call the library, print results."""

from __future__ import annotations

import sys
from collections.abc import Sequence

#: A shell's exit code for a process that a signal has ended is this and the number of the signal.
SIGNALLED = 128
#: That of Ctrl-C.
INTERRUPTED = SIGNALLED + 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, or 2 after an error in one line on standard error.

    After a signal it is that of a shell: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP.
    """
    try:
        # Only here, so that Ctrl-C while modules are imported ends the command without a traceback too.
        from sdssm.cli.program import run_command_line

        return run_command_line(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt as error:
        number = getattr(error, "number", None)  # of `sdssm.training.signals.Interrupted`, which is not imported here
        return SIGNALLED + number if isinstance(number, int) else INTERRUPTED
