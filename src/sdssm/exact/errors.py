"""The exceptions and the warning of this package."""

from __future__ import annotations

from sdssm.errors import RunWarning, SdssmError


class ExactError(SdssmError):
    """A model or a machine is not supported by the requested conversion or proof."""


class WrongMachineWarning(RunWarning):
    """The machine that was extracted from a model is not the machine of its task."""


class TimeIsUpError(Exception):
    """The time limit of a computation is over; `certify`, `extract` and `horizon` then return what they have."""
