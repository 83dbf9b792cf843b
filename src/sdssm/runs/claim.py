"""One process at a time trains in a run folder.

On one machine the kernel's lock says so. A lock does not reach every machine that shares the folder, so who trains also
writes its mark there: the last to come has the folder, and whoever was there before finds that out before it writes.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from sdssm.errors import RunError
from sdssm.files import format_path

try:
    import fcntl
except ImportError:  # Windows: folders go unguarded there
    fcntl = None  # type: ignore[assignment]  # a module or nothing
try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]  # likewise

#: The mark of who trains in a folder. It goes when the training ends; that of a process that was killed says nothing.
OWNER = "owner"
#: Files that a training opens beside the folders that it holds: for comfort, and at the very least.
SPARE, LEAST = 256, 8
#: The folders that this process holds: device and inode -> open handle and mark. The kernel lets go of them when it
#: ends, however it ends, so that a killed run leaves no lock behind.
_held: dict[tuple[int, int], tuple[int, str]] = {}


def make_room(folders: int) -> None:
    """See to it that this process may hold so many folders more, each of them an open file, and raise its limit where
    it has to; an error where the system's own limit is below that. Who holds several asks before it makes the first."""
    if resource is None or fcntl is None or not folders:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = folders + _open_files()
    if soft == resource.RLIM_INFINITY or needed + SPARE <= soft:
        return
    most = needed + SPARE if hard == resource.RLIM_INFINITY else min(hard, needed + SPARE)
    with suppress(OSError, ValueError):  # some systems promise more than they give
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if soft < needed + LEAST:
        raise RunError(
            f"{folders} runs, those that wait too, need an open file each, and this process may have {soft} in all; "
            f"raise the limit (ulimit -n {needed + SPARE}) or train fewer at a time"
        )


def _open_files() -> int:
    for listing in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return len(list(Path(listing).iterdir()))
    return 3


def claim(path: Path) -> bool:
    """Hold the folder until `release` or the end of the process; whether it was not held before."""
    key = _key(path)
    if key in _held:
        check_owner(path)
        return False
    handle = -1 if fcntl is None else _handle(path)
    mark = f"process {os.getpid()} {secrets.token_hex(8)}\n"
    try:
        (path / OWNER).write_text(mark)  # in place: other machines see that sooner than a new file of the name
    except OSError:
        if handle >= 0:
            os.close(handle)
        raise
    _held[key] = handle, mark
    return True


def check_owner(path: Path) -> None:
    """Refuse to go on in a folder that another process has taken since, on another machine maybe."""
    mark = _held.get(_key(path), (-1, None))[1]
    if mark is not None and _mark(path) != mark:
        raise RunError(f"another process has taken over the training in {format_path(path)}; this one ends")


def _mark(path: Path) -> str | None:
    try:
        return (path / OWNER).read_text()
    except (OSError, ValueError):
        return None


def _handle(path: Path) -> int:
    """The folder, open and locked."""
    handle = os.open(path, os.O_RDONLY)
    try:
        _lock(handle)
    except BlockingIOError:
        os.close(handle)
        raise RunError(
            f"another process trains in {format_path(path)}; stop it first or choose another folder"
        ) from None
    except OSError:  # a file system without locks
        pass
    return handle


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
        handle, mark = _held.pop(_key(path), (-1, None))
        if mark is not None and _mark(path) == mark:
            (path / OWNER).unlink(missing_ok=True)
        if handle >= 0:
            os.close(handle)


def _key(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
