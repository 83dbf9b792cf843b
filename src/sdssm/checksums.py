"""Checksums that files carry themselves, so that one atomic write keeps a file and its checksum together.

A JSON object has a last field "checksum", a line of a log a last field "crc", and a safetensors file an entry "sha256"
of its metadata. The checksum of JSON is that of its text without white space, so that new indentation is no damage. A
file without a checksum was written by an earlier version, or its checksum was removed by someone who edited it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from sdssm.errors import SdssmError
from sdssm.files import MAX_TENSOR_BYTES, check_file_size, open_regular_file

#: The entry of the metadata of a safetensors file with its checksum.
TENSOR_CHECKSUM = "sha256"
#: The longest header of a safetensors file that is read.
MAX_HEADER_BYTES = 1 << 26
#: The names of dtypes in checksums, which are those of torch.
_TORCH_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "C64": "complex64",
}


class ChecksumError(SdssmError):
    """A file that is damaged; the message says how, without naming the file.

    `advice` ends a message about the file, if someone may have edited it on purpose.
    """

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


# -- JSON --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class JsonChecksum:
    """How JSON objects of one kind carry their checksum: the last field, and the checksum of a compact text."""

    field: str
    compute: Callable[[bytes], str]
    pattern: str  #: what every checksum matches

    def add(self, text: bytes) -> bytes:
        r"""Return the text of a JSON object with its checksum as the last field.

        >>> LINE_CHECKSUM.add(b'{"step": 3}')
        b'{"step": 3, "crc": "232fcf13"}'
        """
        body = text.rstrip()[:-1].rstrip()
        is_indented = b"\n" in body
        space = b"\n " if is_indented else b" "
        comma = b"" if body.endswith(b"{") else b"," + space
        field = b'"%s": "%s"' % (self.field.encode(), self.compute(_compact(body + b"}")).encode())
        return body + comma + field + (b"\n}" if is_indented else b"}")

    def verify(self, text: bytes) -> tuple[Any, bool]:
        """Return the value of a JSON text without its checksum, and whether it has one.

        Raises a `ChecksumError` if the text is not JSON, or not what the checksum belongs to.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise ChecksumError("it is not JSON") from None
        if not isinstance(value, dict):
            return value, False
        if self.field not in value:
            # One flipped bit in the name of the field must not turn the check off.
            if any(isinstance(item, str) and re.fullmatch(self.pattern, item) for item in value.values()):
                raise ChecksumError("the name of its checksum is damaged")
            return value, False
        checksum = value.pop(self.field)
        if not isinstance(checksum, str) or not re.fullmatch(self.pattern, checksum):
            raise ChecksumError("its checksum is damaged")
        if not self._matches(text, value, checksum):
            advice = f"; if it was edited on purpose, remove its field {self.field}"
            raise ChecksumError("its contents do not match its checksum", advice=advice)
        return value, True

    def _matches(self, text: bytes, value: dict[str, Any], checksum: str) -> bool:
        field = f',"{self.field}":"{checksum}"}}'.encode()
        compact = _compact(text)
        if compact.endswith(field) and self.compute(compact.removesuffix(field) + b"}") == checksum:
            return True
        # Written anew by another program, which may have moved the field and escaped letters differently.
        return bool(self.compute(_compact(json.dumps(value).encode())) == checksum)


def _compact(text: bytes) -> bytes:
    """Return a JSON text without white space, also within strings: this is fast, and no damage adds only spaces."""
    return text.translate(None, b" \t\r\n")


def _sha256(text: bytes) -> str:
    return f"sha256:{sha256(text).hexdigest()}"


def _crc32(text: bytes) -> str:
    return f"{crc32(text):08x}"


#: The checksum of a JSON file.
FILE_CHECKSUM = JsonChecksum("checksum", _sha256, "sha256:[0-9a-f]{64}")
#: The checksum of a line of a log.
LINE_CHECKSUM = JsonChecksum("crc", _crc32, "[0-9a-f]{8}")


def encode_json_with_checksum(values: Mapping[str, Any]) -> bytes:
    """Return the text of a JSON file with its checksum; NaN is an error."""
    return FILE_CHECKSUM.add(json.dumps(values, indent=1, allow_nan=False).encode()) + b"\n"


# -- safetensors -------------------------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """Where a tensor of a safetensors file is, relative to the end of the header."""

    dtype: str
    shape: list[int]
    start: int
    end: int


class _Header(NamedTuple):
    metadata: dict[str, str]
    entries: dict[str, _Entry]
    size: int  #: of the header, without the eight bytes before it

    @property
    def file_size(self) -> int:
        return 8 + self.size + max((entry.end for entry in self.entries.values()), default=0)


def add_tensor_checksum(data: bytes, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a safetensors file with this metadata and with its checksum; equal tensors give equal bytes."""
    header = _parse_header(data)
    values = dict(metadata or {})
    values[TENSOR_CHECKSUM] = _tensor_checksum(header._replace(metadata=values), data)
    fields = {"__metadata__": dict(sorted(values.items()))} | {
        name: {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [entry.start, entry.end]}
        for name, entry in header.entries.items()
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the tensors
    return len(text).to_bytes(8, "little") + text + data[8 + header.size :]


def check_tensors(data: bytes) -> tuple[dict[str, str], bool]:
    """Return the metadata of a safetensors file, and whether it has a checksum; a damaged one is a ChecksumError."""
    header = _parse_header(data)
    if header.file_size != len(data):
        raise ChecksumError("it is truncated or not a safetensors file")
    metadata = dict(header.metadata)
    checksum = metadata.pop(TENSOR_CHECKSUM, None)
    if checksum is None:
        if any(re.fullmatch("[0-9a-f]{64}", value) for value in metadata.values()):
            raise ChecksumError("the name of its checksum is damaged")
        return metadata, False
    if _tensor_checksum(header, data) != checksum:
        raise ChecksumError("its contents do not match its checksum")
    return metadata, True


def read_tensors_file(path: Path, *, follow_links: bool = False) -> bytes:
    """Return the bytes of a safetensors file; one whose size is not what its header says is not read.

    Raises an OSError if it cannot be read and a `ChecksumError` if its header is damaged.
    """
    with os.fdopen(open_regular_file(path, follow_links=follow_links), "rb") as file:
        size = check_file_size(file.fileno(), MAX_TENSOR_BYTES)
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if not 0 < length <= min(size - 8, MAX_HEADER_BYTES):
            raise ChecksumError("it is truncated or not a safetensors file")
        start += file.read(length)
        if _parse_header(start).file_size != size:
            raise ChecksumError("it is truncated or not a safetensors file")
        return start + file.read(size - len(start))


def _parse_header(data: bytes) -> _Header:
    """Return the header at the start of a safetensors file."""
    try:
        size = int.from_bytes(data[:8], "little")
        fields: Any = json.loads(data[8 : 8 + size] if 0 < size <= len(data) - 8 else b"")
        metadata = fields.pop("__metadata__", {})
        entries = {
            name: _Entry(entry["dtype"], entry["shape"], *entry["data_offsets"]) for name, entry in fields.items()
        }
        # An error for whatever is not a string, and for a string with half of a character.
        "".join([*metadata.values(), *entries, *(entry.dtype for entry in entries.values())]).encode()
        numbers = [number for entry in entries.values() for number in (*entry.shape, entry.start, entry.end)]
        is_valid = all(type(number) is int and number >= 0 for number in numbers)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ChecksumError("it is truncated or not a safetensors file") from None
    if not is_valid or any(entry.start > entry.end for entry in entries.values()):
        raise ChecksumError("it is truncated or not a safetensors file")
    return _Header(metadata, entries, size)


def _tensor_checksum(header: _Header, data: bytes) -> str:
    """Return the SHA-256 of the metadata and of the names, dtypes, shapes and bytes of all tensors."""
    lines = (f"{key} {value}\n" for key, value in sorted(header.metadata.items()) if key != TENSOR_CHECKSUM)
    digest, contents = sha256("".join(lines).encode()), memoryview(data)[8 + header.size :]
    for name, entry in sorted(header.entries.items()):
        dtype = f"torch.{_TORCH_NAMES.get(entry.dtype, entry.dtype)}"  # checkpoints of 0.1.0 have these names
        digest.update(f"{json.dumps(name)} {dtype} {entry.shape}\n".encode())
        digest.update(contents[entry.start : entry.end])
    return digest.hexdigest()
