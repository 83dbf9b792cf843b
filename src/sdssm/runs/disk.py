"""JSON files of a run folder, and one-line errors for files that cannot be read or written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sdssm.checksums import FILE_CHECKSUM, ChecksumError, encode_json_with_checksum
from sdssm.errors import RunError, SdssmError
from sdssm.files import DISK_FULL_ERRNOS, describe_file_error, format_path, read_regular_file
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


def encode_json(value: Mapping[str, Any]) -> bytes:
    """Encode a mapping as a JSON file with its checksum, and with null for NaN."""
    return encode_json_with_checksum(to_json_value(value))


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file without its checksum; raise a RunError if it is damaged or cannot be read.

    A file without a checksum, such as one of an earlier version, is read as it is.
    """
    return open_json(path)[0]


def open_json(path: Path) -> tuple[Any, bool]:
    """Return what `read_json` returns, and whether the file has a checksum."""
    try:
        return FILE_CHECKSUM.verify(read_regular_file(path))
    except OSError as error:
        raise RunError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
    except ChecksumError as error:
        raise RunError(f"{format_path(path)} is damaged: {error}{error.advice}") from None
