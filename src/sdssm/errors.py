"""What can go wrong, by name.

Every error a user can cause is an `SdssmError`. Its message is one line that names the rule, the value that broke
it and the way to mend it; the command line prints that line and exits with code 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SdssmError(ValueError):
    """A rule of the library was broken by its input."""


class AutomatonError(SdssmError):
    """A machine that cannot exist, or a question it cannot answer."""


class FormatError(SdssmError):
    """A text or file that is not the machine it claims to be."""


class UnknownNameError(SdssmError):
    """A name that stands in no catalogue."""


class TaskError(SdssmError):
    """A string that cannot be asked of a task."""


class SettingsError(SdssmError):
    """A setting that does not exist, or a value it cannot have."""


class ModelError(SdssmError):
    """A model that cannot exist, or a question it cannot answer."""


class DeviceError(SdssmError):
    """A device that is not there."""


class OutputError(SdssmError):
    """A result that cannot be written where it was asked for."""


class RunError(SdssmError):
    """A run folder that cannot be read, written or trained in."""


class RunWarning(UserWarning):
    """Something in a run folder is damaged; the work goes on without it."""


class CheckpointWarning(RunWarning):
    """A checkpoint is damaged; the one before it is used."""


class MissingExtraError(SdssmError, ImportError):
    """An optional package that is not installed."""


def format_value(value: object, most: int = 60) -> str:
    """A value inside an error message: on one line, and not longer than a reader wants it.

    >>> format_value("x" * 100, most=12)
    "'xxxxxxx...'"
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of thousands of digits
        text = f"a {type(value).__name__} too long to write"
    return text if len(text) <= most else f"{text[: most - 4]}...{text[-1]}"


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """A hint that ends an error message: the known names most like `name`, or when none is all of them.

    Where they are too many to name, `otherwise` says where they stand.

    >>> did_you_mean("parety", ["parity", "cycle"])
    "did you mean 'parity'?"
    """
    known = list(known)
    close = get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    return otherwise or "known: " + ", ".join(known)
