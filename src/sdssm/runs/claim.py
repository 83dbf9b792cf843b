"""Claims on run folders: at most one process trains in a run folder at a time.

On one machine a lock of the kernel ensures this. Such a lock does not reach every machine that shares the folder, so a
process that trains also writes its mark into the folder: the last process to claim it owns it, and the previous owner
finds out before its next write.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from sdssm.errors import RunError
from sdssm.files import format_path, open_regular_file, read_regular_file

try:
    import fcntl
except ImportError:  # on Windows folders are not locked
    fcntl = None  # type: ignore[assignment]  # a module or None
try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]  # likewise

#: The file with the mark of the process that trains in a folder. It is removed when the training ends; the mark of a
#: killed process has no effect.
OWNER = "owner"
#: The most bytes of a mark.
MAX_MARK_BYTES = 1_000
#: Files that a training opens besides the folders that it holds: the number to allow for, and the minimum.
SPARE_FILES, MIN_SPARE_FILES = 256, 8
#: The folders that this process holds: (device, inode) -> (open file descriptor, mark). The kernel releases the locks
#: when the process ends in any way, so a killed process leaves no lock behind.
_held: dict[tuple[int, int], tuple[int, str]] = {}


def reserve_open_files(folders: int) -> None:
    """Ensure that this process may hold `folders` more folders, each of which needs an open file.

    If necessary, its limit of open files is raised; if the system does not allow that, it is an error. Call this before
    the first of several folders is created.
    """
    if resource is None or fcntl is None or not folders:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = folders + _count_open_files()
    if soft == resource.RLIM_INFINITY or needed + SPARE_FILES <= soft:
        return
    limit = needed + SPARE_FILES if hard == resource.RLIM_INFINITY else min(hard, needed + SPARE_FILES)
    with suppress(OSError, ValueError):  # some systems report a higher hard limit than they allow
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft = limit
    if soft < needed + MIN_SPARE_FILES:
        raise RunError(
            f"{folders} runs, including those that wait, need an open file each, but this process may open {soft} in "
            f"all; raise the limit (ulimit -n {needed + SPARE_FILES}) or train fewer at a time"
        )


def _count_open_files() -> int:
    for listing in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return len(list(Path(listing).iterdir()))
    return 3


def claim_folder(path: Path) -> bool:
    """Hold the folder until `release_folder` or the end of the process.

    Return False if this process holds it already.
    """
    key = _key(path)
    if key in _held:
        check_owner(path)
        return False
    descriptor = -1 if fcntl is None else _open_locked(path)
    mark = f"process {os.getpid()} {secrets.token_hex(8)}\n"
    try:
        _write_mark(path / OWNER, mark)
    except OSError:
        if descriptor >= 0:
            os.close(descriptor)
        raise
    _held[key] = descriptor, mark
    return True


def _write_mark(path: Path, mark: str) -> None:
    """Write the mark in place: other machines see this sooner than a new file of the same name. A link is refused."""
    with suppress(FileNotFoundError):
        if path.lstat().st_nlink > 1:  # the same file has another name, perhaps in another folder
            path.unlink()
    with os.fdopen(open_regular_file(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.truncate(0)
        file.write(mark.encode())


def holds_folder(path: Path) -> bool:
    """Return whether this process holds the folder."""
    return _key(path) in _held


def check_owner(path: Path) -> None:
    """Raise an error if another process has claimed a folder that this process holds.

    The other process may be on another machine.
    """
    mark = _held.get(_key(path), (-1, None))[1]
    if mark is not None and _read_mark(path) != mark:
        raise RunError(f"another process has taken over the training in {format_path(path)}; this one stops")


def _read_mark(path: Path) -> str | None:
    try:
        return read_regular_file(path / OWNER, MAX_MARK_BYTES).decode()
    except (OSError, ValueError):
        return None


def _open_locked(path: Path) -> int:
    """Open and lock the folder; return its file descriptor."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        lock(descriptor)
    except BlockingIOError:
        os.close(descriptor)
        raise RunError(
            f"another process trains in {format_path(path)}; stop it first or choose another folder"
        ) from None
    except OSError:  # a file system without locks
        pass
    return descriptor


def lock(descriptor: int, attempts: int = 5) -> None:
    """Lock an open folder or file, if the system can; another process that holds it is a BlockingIOError.

    There are a few attempts: a process that calls `is_held` holds it for a moment.
    """
    if fcntl is None:
        return
    for remaining in reversed(range(attempts)):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if remaining == 0:
                raise
            time.sleep(0.05)


def is_held(path: Path) -> bool | None:
    """Return whether this or another process trains in the folder; None if that cannot be determined."""
    if _key(path) in _held:
        return True
    if fcntl is None:
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def release_folder(path: Path) -> None:
    """Give up the claim on the folder, so that another process may train there."""
    with suppress(OSError):
        descriptor, mark = _held.pop(_key(path), (-1, None))
        if mark is not None and _read_mark(path) == mark:
            (path / OWNER).unlink(missing_ok=True)  # a link itself, not its target
        if descriptor >= 0:
            os.close(descriptor)


def _key(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino
