"""JSON files of a run folder, and one-line errors for files that cannot be read or written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sdssm.errors import RunError, SdssmError
from sdssm.files import DISK_FULL_ERRNOS, describe_file_error, format_path
from sdssm.runs.events import to_json_value


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system in the block into a RunError of one line that names the path."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in DISK_FULL_ERRNOS
        hint = "; all earlier checkpoints are intact: free some space, then --resume" if is_full else ""
        raise RunError(f"cannot write {format_path(path)}: {describe_file_error(error)}{hint}") from error
    except ValueError as error:
        if isinstance(error, SdssmError):
            raise
        raise RunError(f"cannot write {format_path(path)}: {describe_file_error(error)}") from None


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON, with null for NaN."""
    return json.dumps(to_json_value(value), indent=1, allow_nan=False).encode() + b"\n"


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file; raise a RunError if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{format_path(path)} is damaged: it is not JSON") from None
