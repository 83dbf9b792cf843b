"""JSON files of a run that a user edits on purpose: without their checksums, which would no longer match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def edit_json(path: Path, **values: Any) -> None:
    """Replace values of a JSON file."""
    content = json.loads(path.read_text())
    content.pop("checksum", None)
    path.write_text(json.dumps({**content, **values}))


def edit_text(path: Path, old: str, new: str) -> None:
    """Replace a part of the text of a JSON file."""
    path.write_text(path.read_text().replace(old, new))
    edit_json(path)
