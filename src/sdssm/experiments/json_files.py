"""Reading JSON files that may be missing or damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sdssm.checksums import FILE_CHECKSUM, ChecksumError
from sdssm.files import read_regular_file


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None if the file is missing or invalid."""
    try:
        content, _ = FILE_CHECKSUM.verify(read_regular_file(path, follow_links=True))
    except (OSError, ChecksumError):
        return None
    return content if isinstance(content, dict) else None
