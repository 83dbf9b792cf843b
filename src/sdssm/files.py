"""Atomic writes, and error messages about files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from errno import EDQUOT, EIO, EISDIR, ENOSPC
from pathlib import Path

from sdssm.errors import format_value, most_similar

#: The suffix of files that are being written. A killed process may leave such a file; it is never read.
PARTIAL_SUFFIX = ".part"
#: The error numbers of a full disk.
DISK_FULL_ERRNOS = (ENOSPC, EDQUOT)


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write `data` to a file atomically; on an error raise the OSError and leave the old file unchanged.

    The bytes are written to a temporary file in the same folder, which is renamed when all of them are on the disk: a
    killed process or a power cut leaves either the old file or the new one. Without `durable` it does not wait for the
    disk, and a power cut may leave an empty file.
    """
    write_together({path: data}, durable=durable)


def write_together(files: Mapping[Path, bytes], *, durable: bool = True) -> None:
    """Write files that belong together, each as `write_atomic` does; on an error leave all old files unchanged.

    None is renamed before the bytes of all of them are written, so that a full disk does not mix old and new files.
    """
    parts = {path: Path(f"{path}.{os.getpid()}{PARTIAL_SUFFIX}") for path in files}  # another process has other names
    try:
        for path, part in parts.items():
            if path.is_dir():
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
            _write_part(part, files[path], durable)
        for path, part in parts.items():
            part.replace(path)
        for folder in {path.parent for path in files} if durable else ():
            _sync_folder(folder)
    except BaseException:  # Ctrl-C too
        for part in parts.values():
            with suppress(OSError, ValueError):
                part.unlink(missing_ok=True)
        raise


def _write_part(part: Path, data: bytes, durable: bool) -> None:
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        if os.fstat(file.fileno()).st_size != len(data):  # some file systems write less without an error
            raise OSError(EIO, f"only a part of the {len(data):,} bytes was written")
        if durable:
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Write a renamed entry of the folder to the disk; some file systems do not support that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def describe_file_error(error: OSError | ValueError) -> str:
    """Return in a few words why a file could not be read or written."""
    if isinstance(error, UnicodeError):
        return "not UTF-8 text"
    if not isinstance(error, OSError):
        return "a path must not contain null bytes"
    if error.errno in DISK_FULL_ERRNOS:
        return "the disk is full"
    similar = None
    if (
        isinstance(error, FileNotFoundError)
        and isinstance(error.filename, str)
        and Path(error.filename).parent.is_dir()
    ):
        similar = similar_path(Path(error.filename))
    hint = "" if similar is None else f"; did you mean {format_path(similar)}?"
    return (error.strerror or str(error)) + hint


def similar_path(path: Path) -> Path | None:
    """Return the existing path that is most similar to one that does not exist; None if none is similar."""
    with suppress(OSError, ValueError):
        if path.parent.is_dir():
            name = most_similar(path.name, (item.name for item in path.parent.iterdir()))
            return None if name is None else path.parent / name
        folder = similar_path(path.parent)
        if folder is not None and (folder / path.name).exists():
            return folder / path.name
    return None


def format_path(path: Path) -> str:
    """Format a path for an error message; quote it if it contains characters that are not printable."""
    text = str(path)
    return text if text.isprintable() else format_value(text)
