"""One process at a time trains in a run folder."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from sdssm.errors import RunError
from sdssm.files import shown_path

try:
    import fcntl
except ImportError:  # Windows: folders go unguarded there
    fcntl = None  # type: ignore[assignment]  # a module or nothing

#: The folders that this process holds: device and inode -> open handle. The kernel lets go of them when it ends,
#: however it ends, so that a killed run leaves no lock behind.
_held: dict[tuple[int, int], int] = {}


def claim(path: Path) -> bool:
    """Hold the folder until `release` or the end of the process; whether it was not held before."""
    key = _key(path)
    if key in _held:
        return False
    if fcntl is None:
        _held[key] = -1
        return True
    handle = os.open(path, os.O_RDONLY)
    try:
        _lock(handle)
    except BlockingIOError:
        os.close(handle)
        raise RunError(
            f"another process trains in {shown_path(path)}; stop it first or choose another folder"
        ) from None
    except OSError:  # a file system without locks
        pass
    _held[key] = handle
    return True


def _lock(handle: int, tries: int = 5) -> None:
    """Tried again for a moment: who asks `is_held` holds the folder while asking."""
    for left in reversed(range(tries)):
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left == 0:
                raise
            time.sleep(0.05)


def is_held(path: Path) -> bool | None:
    """Whether a process trains in the folder, this one or another; None where that cannot be known."""
    if _key(path) in _held:
        return True
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False


def release(path: Path) -> None:
    """Let another process have the folder."""
    with suppress(OSError):
        handle = _held.pop(_key(path), -1)
        if handle >= 0:
            os.close(handle)


def _key(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
