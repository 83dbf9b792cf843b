"""The files of pages: how large they may be, and how they are written."""

from __future__ import annotations

from pathlib import Path

from sdssm.errors import OutputError
from sdssm.files import describe_file_error, format_path, write_atomic

#: The largest page, in megabytes, unless the caller says otherwise, and the bounds of that.
MAX_MB, LEAST_MB, MOST_MB = 4.8, 0.5, 1_000.0


def write_page(path: Path, text: str) -> None:
    """Write a page atomically; a file of that name is replaced."""
    try:
        write_atomic(path, text.encode())
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(path)}: {describe_file_error(error)}; choose another path"
        ) from None
