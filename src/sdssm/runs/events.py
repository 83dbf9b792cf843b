"""The event log events.jsonl: one JSON object per line with a checksum of its own, appended as it happens."""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from errno import EINVAL
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sdssm.checksums import LINE_CHECKSUM, ChecksumError
from sdssm.errors import RunError, RunWarning
from sdssm.files import (
    describe_file_error,
    format_path,
    open_regular_file,
    read_regular_file,
    write_atomic,
)

#: The end of a line that was written in full, and perhaps one more byte: a damaged line end.
_HAS_CHECKSUM = re.compile(rb'"crc": "[0-9a-f]{8}"\}.?$', re.DOTALL)

#: Logs are read up to this size, which is that of millions of events. The longest line is much shorter than the other.
MAX_LOG_BYTES, MAX_LINE_BYTES = 1 << 29, 1 << 20
#: Bytes that no line has: JSON escapes control characters and, here, all letters beyond ASCII.
_FOREIGN = re.compile(rb"[^\x20-\x7e]")


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Encode an event as one line of strict JSON with its checksum, and with null for numbers that are not finite.

    >>> encode_event({"step": 3, "loss": float("nan")})
    b'{"step": 3, "loss": null, "crc": "a7fcd08e"}\\n'
    """
    return LINE_CHECKSUM.add(json.dumps(to_json_value(event), allow_nan=False).encode()) + b"\n"


def decode_event(line: bytes) -> tuple[dict[str, Any] | None, bool]:
    """Return the event of a line, None if the line is damaged, and whether it has a checksum."""
    try:
        event, is_verified = LINE_CHECKSUM.verify(line)
    except ChecksumError:
        return None, False
    return (event, is_verified) if isinstance(event, dict) else (None, False)


def to_json_value(value: Any) -> Any:
    """Convert a value to what JSON can hold: None for NaN and infinities, lists for arrays.

    >>> to_json_value({"loss": [0.5, float("inf")]})
    {'loss': [0.5, None]}
    """
    if type(value) is float:  # most values are
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if hasattr(value, "tolist"):
        return to_json_value(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def append(path: Path, event: Mapping[str, Any]) -> None:
    """Append an event to the file, which must not be a link.

    An incomplete last line, which a killed process or a full disk may leave, is removed first.
    """
    with os.fdopen(open_regular_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+b") as file:
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
    start = max(0, size - MAX_LINE_BYTES)
    file.seek(start)
    complete = file.read().rfind(b"\n") + 1
    if start and not complete:
        raise OSError(EINVAL, "its last line is too long for an event")
    return start + complete


def read(path: Path) -> list[dict[str, Any]]:
    """Return all events, without an incomplete last line: it may be being written right now."""
    log = read_log(path)
    for number in log.damaged:
        warnings.warn(f"line {number} of {format_path(path)} is damaged; ignored", RunWarning, stacklevel=3)
    return log.events


class LogLines(NamedTuple):
    """The events of a log, the numbers of its damaged lines, from 1, and how many events have no checksum."""

    events: list[dict[str, Any]]
    damaged: list[int]
    unverified: int
    is_cut_off: bool = False  #: whether an incomplete last line follows, which may be being written right now


def read_log(path: Path) -> LogLines:
    """Return all complete lines of a log; none if there is no such file. Raise a RunError if it cannot be read."""
    try:
        *lines, last = read_regular_file(path, MAX_LOG_BYTES).split(b"\n")
    except FileNotFoundError:
        return LogLines([], [], 0)
    except OSError as error:
        raise RunError(f"cannot read {format_path(path)}: {describe_file_error(error)}") from None
    is_cut_off = bool(last)
    # Only its line end is missing or damaged, or it has bytes that no event has, so that no writer is in the middle.
    if _HAS_CHECKSUM.search(last) or _FOREIGN.search(last):
        lines.append(last)
        is_cut_off = False
    events, damaged, unverified = list[dict[str, Any]](), list[int](), 0
    for number, line in enumerate(lines, start=1):
        event, is_verified = decode_event(line)
        if event is None:
            damaged.append(number)
        else:
            events.append(event)
            unverified += not is_verified
    return LogLines(events, damaged, unverified, is_cut_off)


def write(path: Path, events: Iterable[Mapping[str, Any]]) -> None:
    """Replace the contents of the file by these events."""
    write_atomic(path, b"".join(map(encode_event, events)))
