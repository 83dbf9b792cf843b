"""The event log events.jsonl: one JSON object per line, appended as it happens."""

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


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Encode an event as one line of strict JSON, with null for numbers that are not finite.

    >>> encode_event({"step": 3, "loss": float("nan")})
    b'{"step": 3, "loss": null}\\n'
    """
    return json.dumps(to_json_value(event), allow_nan=False).encode() + b"\n"


def to_json_value(value: Any) -> Any:
    """Convert a value to what JSON can hold: None for NaN and infinities, lists for arrays.

    >>> to_json_value({"loss": [0.5, float("inf")]})
    {'loss': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {key: to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if hasattr(value, "tolist"):
        return to_json_value(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def append(path: Path, event: Mapping[str, Any]) -> None:
    """Append an event to the file.

    An incomplete last line, which a killed process or a full disk may leave, is removed first.
    """
    with path.open("a+b") as file:
        end = _complete_size(file)
        file.truncate(end)
        file.write(encode_event(event))


def _complete_size(file: BinaryIO) -> int:
    """Return the number of bytes up to the end of the last complete line."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return size
    file.seek(0)
    return file.read().rfind(b"\n") + 1


def read(path: Path) -> list[dict[str, Any]]:
    """Return all events, without an incomplete last line: it may be being written right now."""
    events, damaged = read_complete_lines(path)
    for number in damaged:
        warnings.warn(f"line {number} of {format_path(path)} is not an event; ignored", RunWarning, stacklevel=3)
    return events


def read_complete_lines(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the events of all complete lines, and the numbers of the lines, from 1, that are not events."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return [], []
    events, damaged = list[dict[str, Any]](), list[int]()
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            events.append(event)
        else:
            damaged.append(number)
    return events, damaged


def write(path: Path, events: Iterable[Mapping[str, Any]]) -> None:
    """Replace the contents of the file by these events."""
    write_atomic(path, b"".join(map(encode_event, events)))
