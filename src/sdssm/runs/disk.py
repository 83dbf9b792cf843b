"""Texts of a run folder, and what goes wrong with its files in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sdssm.errors import RunError, SdssmError
from sdssm.files import DISK_FULL_ERRNOS, describe_file_error, format_path
from sdssm.runs.events import finite


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say what went wrong with a file in one line."""
    try:
        yield
    except OSError as error:
        full = (
            "; what was saved before is whole: free some space, then --resume"
            if error.errno in DISK_FULL_ERRNOS
            else ""
        )
        raise RunError(f"cannot write {format_path(path)}: {describe_file_error(error)}{full}") from error
    except ValueError as error:
        if isinstance(error, SdssmError):
            raise
        raise RunError(f"cannot write {format_path(path)}: {describe_file_error(error)}") from None


def to_text(value: Any) -> bytes:
    """A value as JSON; NaN becomes null."""
    return json.dumps(finite(value), indent=1, allow_nan=False).encode() + b"\n"


def read_text(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{format_path(path)} is damaged: it is not JSON") from None
