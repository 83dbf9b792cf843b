"""Files that are whole or not there: the one place that writes them."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EDQUOT, EIO, EISDIR, ENOSPC
from pathlib import Path

from sdssm.errors import format_value

#: The ending of files that are being written. One that stays behind is of a writer that was killed, and never read.
PARTIAL_SUFFIX = ".part"
#: The error numbers of a full disk.
DISK_FULL_ERRNOS = (ENOSPC, EDQUOT)


def write_atomic(path: Path, data: bytes) -> None:
    """Put `data` at `path`, or raise the OSError and leave what stands there.

    The bytes go to a file beside it that takes its name only when all of them are on the disk, so that a process
    killed or a power cut at any moment leaves the old file or the new one.
    """
    part = Path(
        f"{path}.{os.getpid()}{PARTIAL_SUFFIX}"
    )  # two processes that write the same file do not mix their bytes
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            if os.fstat(file.fileno()).st_size != len(data):  # a file system that writes less without an error
                raise OSError(EIO, f"only a part of the {len(data):,} bytes was written")
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except BaseException:  # Ctrl-C too
        with suppress(OSError, ValueError):
            part.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk only when its folder is; some file systems cannot be asked."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def describe_file_error(error: OSError | ValueError) -> str:
    """Why a file could not be read or written, in a few words."""
    if isinstance(error, UnicodeError):
        return "not UTF-8 text"
    if not isinstance(error, OSError):
        return "a path holds no null bytes"
    return "the disk is full" if error.errno in DISK_FULL_ERRNOS else error.strerror or str(error)


def format_path(path: Path) -> str:
    """A path in an error message: as it is typed, or quoted where it would break the line."""
    text = str(path)
    return text if text.isprintable() else format_value(text)
