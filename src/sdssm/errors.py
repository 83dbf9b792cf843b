"""Error and warning classes, and helpers for their messages.

Every error that a user can cause is an `SdssmError`. Its message is one line: what is wrong, the value, and what to do.
The command line prints that line, in the words of a shell if these differ, and exits with code 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class SdssmError(ValueError):
    """Invalid input to the library; the base class of its errors.

    `shell` is the message for a user of the command line; pass it if its advice has other words than in Python.

    >>> error = SdssmError("the task is missing; pass task='a5'", shell="the task is missing; add --task a5")
    >>> str(error), error.shell, SdssmError("no runs").shell
    ("the task is missing; pass task='a5'", 'the task is missing; add --task a5', 'no runs')
    """

    def __init__(self, *args: object, shell: str | None = None) -> None:
        super().__init__(*args)
        self.shell = str(self) if shell is None else shell


class AutomatonError(SdssmError):
    """An invalid machine, or an operation that it does not support."""


class FormatError(SdssmError):
    """A text or file that cannot be parsed as a machine."""


class UnknownNameError(SdssmError):
    """A name that is not in the catalogue."""


class TaskError(SdssmError):
    """An invalid task, or strings that it does not have."""


class SettingsError(SdssmError):
    """An unknown setting, or an invalid value of a setting."""


class ModelError(SdssmError):
    """An invalid model, or an operation that it does not support."""


class DeviceError(SdssmError):
    """A device that does not exist."""


class OutputError(SdssmError):
    """A result that cannot be written to the requested file."""


class RunError(SdssmError):
    """A run folder that cannot be read, written or trained in."""


class StudioError(SdssmError):
    """An address that cannot be served, or a request that a studio refuses."""


class FormatWarning(UserWarning):
    """A file with a machine is read, but part of it looks like a mistake."""


class RunWarning(UserWarning):
    """Part of a run folder is damaged or unavailable and is ignored."""


class CheckpointWarning(RunWarning):
    """A checkpoint is damaged; an older one is used."""


class MissingExtraError(SdssmError, ImportError):
    """An optional package is not installed."""


def format_value(value: object, max_length: int = 60) -> str:
    """Format a value for an error message: on one line, with at most `max_length` characters.

    >>> format_value("x" * 100, max_length=12)
    "'xxxxxxx...'"
    """
    try:
        text = re.sub(r"\s*\n\s*", " ", repr(value))  # a module prints itself on several lines
    except ValueError:  # Python refuses to print integers of thousands of digits
        text = f"a {type(value).__name__} too long to print"
    return text if len(text) <= max_length else f"{text[: max_length - 4]}...{text[-1]}"


def first_line(error: BaseException, max_length: int = 300) -> str:
    """Return the first line of the message of any error, or its class if it has no message.

    >>> first_line(RuntimeError("out of memory\\nat line 3")), first_line(KeyError())
    ('out of memory', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:max_length]


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return the end of an error message: the known names most similar to `name`, or all known names.

    If there are too many names to list, pass as `otherwise` a text that says where they are listed.

    >>> did_you_mean("parety", ["parity", "cycle"])
    "did you mean 'parity'?"
    """
    names = list(known)
    similar = _similar_names(name, names, 3)
    if similar:
        return "did you mean " + " or ".join(map(repr, similar)) + "?"
    return "known: " + ", ".join(names) if otherwise is None else otherwise


def most_similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`; None if none is similar.

    >>> most_similar("step", ["set", "steps"]), most_similar("x", ["set", "steps"])
    ('steps', None)
    """
    return next(iter(_similar_names(name, list(known), 1)), None)


def _similar_names(name: str, known: list[str], most: int) -> list[str]:
    from difflib import get_close_matches  # only errors need it

    by_lower = {other.lower(): other for other in reversed(known)}  # the first of equals wins
    return [by_lower[other] for other in get_close_matches(name.lower(), by_lower, n=most, cutoff=0.6)]
