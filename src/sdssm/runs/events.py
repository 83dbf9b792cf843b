"""events.jsonl: what happened, one JSON object a line, appended as it happens."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from sdssm.errors import RunWarning
from sdssm.files import format_path, write_atomic


def to_line(event: Mapping[str, Any]) -> bytes:
    """One event as one line of strict JSON, where a number that is not finite is null.

    >>> to_line({"step": 3, "loss": float("nan")})
    b'{"step": 3, "loss": null}\\n'
    """
    return json.dumps(finite(event), allow_nan=False).encode() + b"\n"


def finite(value: Any) -> Any:
    """The value as JSON can hold it: None in the place of NaN and infinities, lists in the place of arrays."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def append(path: Path, event: Mapping[str, Any]) -> None:
    """Add one line, after cutting off what a killed writer or a full disk left of one."""
    with path.open("a+b") as file:
        end = _end_of_lines(file)
        file.truncate(end)
        file.write(to_line(event))


def _end_of_lines(file: BinaryIO) -> int:
    """How many bytes of the file are lines that end."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    return file.read().rfind(b"\n") + 1


def read(path: Path) -> list[dict[str, Any]]:
    """Every event; a last line that does not end is one that is being written, or never will be."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            events.append(event)
        else:
            warnings.warn(f"line {number} of {format_path(path)} is no event; left out", RunWarning, stacklevel=3)
    return events


def write(path: Path, events: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file by these events."""
    write_atomic(path, b"".join(map(to_line, events)))
