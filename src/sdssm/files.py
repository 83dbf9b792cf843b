"""Reading and writing of files: regular files only, atomic writes, no links where links are refused, error messages.

A run folder may come from someone else. Its files are read with `read_regular_file`, which neither waits for a pipe nor
reads a device nor follows a link. Its `checkpoints` folder is written with `is_real_folder`: a link in its place is
refused. The run folder itself may be a link: the user chose it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from errno import EDQUOT, EFBIG, EINVAL, EIO, EISDIR, ELOOP, ENOSPC
from pathlib import Path

from sdssm.errors import OutputError, format_value, most_similar


def memory_bytes() -> int:
    """Return the memory of this machine in bytes; 0 if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


#: The suffix of files that are being written. A killed process may leave such a file; it is never read.
PARTIAL_SUFFIX = ".part"
#: The error numbers of a full disk.
DISK_FULL_ERRNOS = (ENOSPC, EDQUOT)
#: Files in a run folder are read up to these sizes: JSON files and logs, and files of tensors.
MAX_TEXT_BYTES, MAX_TENSOR_BYTES = 1 << 28, max(1 << 31, memory_bytes() // 4)
#: Why a link is refused.
LINK_REFUSED = "it is a symbolic link, which is not followed here; replace it by a file or folder of its own"
#: Flags that not every system has. Without O_NOFOLLOW links are looked for just before a file is opened.
_NO_FOLLOW, _NO_WAIT, _BINARY, _FOLDER = (
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_DIRECTORY")
)
#: Whether files can be named relative to an open folder, which nothing can replace by a link meanwhile.
_HAS_OPEN_FOLDERS = {os.open, os.unlink, os.rename} <= os.supports_dir_fd


def open_regular_file(path: Path, flags: int = os.O_RDONLY, *, follow_links: bool = False) -> int:
    """Open a regular file and return its descriptor; a pipe, device, folder or link is an OSError at once.

    `follow_links` allows a link to a regular file.
    """
    if follow_links:
        with suppress(FileNotFoundError):
            _check_regular(path.stat().st_mode)  # before it is opened: opening a device may have effects
    else:
        _refuse_link(path)
    try:
        links = 0 if follow_links else _NO_FOLLOW
        descriptor = os.open(path, flags | links | _NO_WAIT | _BINARY, 0o666)
    except OSError:
        with suppress(FileNotFoundError):
            _check_regular(path.lstat().st_mode)  # says what it is, if that is why
        raise
    try:
        _check_regular(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular_file(path: Path, max_bytes: int = MAX_TEXT_BYTES, *, follow_links: bool = False) -> bytes:
    """Return the contents of a regular file of at most `max_bytes`; anything else is an OSError at once."""
    with os.fdopen(open_regular_file(path, follow_links=follow_links), "rb") as file:
        size = check_file_size(file.fileno(), max_bytes)
        return file.read(size)


def check_file_size(descriptor: int, max_bytes: int) -> int:
    """Return the size of an open file; raise an OSError if it is greater than `max_bytes`."""
    size = os.fstat(descriptor).st_size
    if size > max_bytes:
        raise OSError(EFBIG, f"it has {size:,} bytes, and at most {max_bytes:,} are read")
    return size


def _refuse_link(path: Path) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISLNK(path.lstat().st_mode):
            raise OSError(ELOOP, LINK_REFUSED)


def _check_regular(mode: int) -> None:
    """Raise an OSError that says what a file is, if it is not a regular file."""
    if stat.S_ISLNK(mode):
        raise OSError(ELOOP, LINK_REFUSED)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(EINVAL, "it is a pipe, a socket or a device, not a regular file")


def write_atomic(path: Path, data: bytes, *, durable: bool = True, is_real_folder: bool = False) -> None:
    """Write `data` to a file atomically; on an error raise the OSError and leave the old file unchanged.

    The bytes are written to a temporary file in the same folder, which is renamed when all of them are on the disk: a
    killed process or a power cut leaves either the old file or the new one. Without `durable` it does not wait for the
    disk, and a power cut may leave an empty file. A link in place of the file is replaced, and its target unchanged;
    with `is_real_folder` a link in place of the file's folder is refused.
    """
    write_together({path: data}, durable=durable, is_real_folder=is_real_folder)


def write_together(files: Mapping[Path, bytes], *, durable: bool = True, is_real_folder: bool = False) -> None:
    """Write files that belong together, each as `write_atomic` does.

    None is renamed before the bytes of all of them are written: a full disk leaves all old files unchanged.
    """
    with ExitStack() as stack:
        opened = {folder: stack.enter_context(_open_folder(folder, is_real_folder)) for folder in _folders(files)}
        places = {path: (_in_folder(path, opened[path.parent]), opened[path.parent]) for path in files}
        parts = {path: f"{name}.{os.getpid()}{PARTIAL_SUFFIX}" for path, (name, _) in places.items()}
        try:
            for path, (_, folder) in places.items():
                if path.is_dir():
                    raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
                _write_part(parts[path], folder, files[path], durable)
            for path, (name, folder) in places.items():
                os.replace(parts[path], name, src_dir_fd=folder, dst_dir_fd=folder)
            for folder in opened.values() if durable else ():
                with suppress(OSError):  # some file systems cannot write a renamed entry to the disk
                    if folder is not None:
                        os.fsync(folder)
        except BaseException:  # Ctrl-C too
            for path, (_, folder) in places.items():
                with suppress(OSError, ValueError):
                    os.unlink(parts[path], dir_fd=folder)
            raise


def check_output_folder(path: Path) -> None:
    """Raise an `OutputError` if there is no folder for a file that a user wants to have, before it is computed."""
    if not path.parent.is_dir():
        raise OutputError(
            f"cannot write {format_path(path)}: there is no folder {format_path(path.parent)}; create it first"
        )


def write_output(path: Path, data: bytes) -> None:
    """Write a file that a user wants to have, as `write_atomic` does; say why in an `OutputError` if it fails."""
    try:
        write_atomic(path, data)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(path)}: {describe_file_error(error)}; choose another path"
        ) from None


def remove_file(path: Path, *, is_real_folder: bool = False) -> None:
    """Remove a file or a link, if it exists; with `is_real_folder` its folder must not be a link."""
    with suppress(FileNotFoundError), _open_folder(path.parent, is_real_folder) as folder:
        os.unlink(_in_folder(path, folder), dir_fd=folder)


def _folders(files: Mapping[Path, bytes]) -> list[Path]:
    return list(dict.fromkeys(path.parent for path in files))


@contextmanager
def _open_folder(folder: Path, is_real_folder: bool) -> Iterator[int | None]:
    """Hold a folder open while files in it are written; None on systems that cannot name files relative to it."""
    if is_real_folder:
        _refuse_link(folder)
    if not _HAS_OPEN_FOLDERS:
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | _FOLDER | (_NO_FOLLOW if is_real_folder else 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _in_folder(path: Path, folder: int | None) -> str:
    """Return how a file is named: relative to the open folder, or by its path."""
    return str(path) if folder is None else path.name


def _write_part(part: str, folder: int | None, data: bytes, durable: bool) -> None:
    with suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)  # of a killed process with the same number, or a link that was put there
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY, 0o666, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if os.fstat(file.fileno()).st_size != len(data):  # some file systems write less without an error
            raise OSError(EIO, f"only a part of the {len(data):,} bytes was written")
        if durable:
            os.fsync(file.fileno())


def is_abandoned_part(path: Path) -> bool:
    """Return whether a file was left, partly written, by a process that no longer exists on this machine.

    >>> is_abandoned_part(Path(f"evaluation.json.{os.getpid()}.part")), is_abandoned_part(Path("evaluation.json"))
    (False, False)
    """
    number = path.name.removesuffix(PARTIAL_SUFFIX).rpartition(".")[2]
    if not path.name.endswith(PARTIAL_SUFFIX) or not number.isascii() or not number.isdigit():
        return False
    if os.name == "nt":  # os.kill would end the process there
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # it belongs to someone else
        return False
    return False


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
