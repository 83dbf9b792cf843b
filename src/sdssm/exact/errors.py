"""The exceptions and the warning of this package."""

from __future__ import annotations

from sdssm.errors import RunWarning, SdssmError


class ExactError(SdssmError):
    """A model or a machine is not supported by the requested conversion or proof.

    `shell` is the message for a user of the command line, where its advice has other words than in Python.
    """

    def __init__(self, message: str, *, shell: str | None = None) -> None:
        super().__init__(message)
        self.shell = message if shell is None else shell


class WrongMachineWarning(RunWarning):
    """The machine that was extracted from a model is not the machine of its task."""


class TimeIsUpError(Exception):
    """The time limit of a computation is over; `certify`, `extract` and `horizon` then return what they have."""
