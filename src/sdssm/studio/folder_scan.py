"""Notice what changed below a folder of runs, by the names, sizes and times of files alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from sdssm.files import PARTIAL_SUFFIX
from sdssm.models.settings import CONFIG_FILE
from sdssm.report.tables import RESULTS_FILE
from sdssm.runs.claim import OWNER, is_held

#: Folders that are looked into at most: more are an accident, such as the root of a disk.
MAX_FOLDERS = 20_000


@dataclass(frozen=True, kw_only=True)
class FolderScan:
    """What a folder holds at one moment.

    `versions` has the path of each run folder and results folder, with a text that differs if one of its files does.
    `links` are links to places outside the folder; nothing is read through them. `is_cut_off` says that there are more
    folders than are looked into.
    """

    versions: dict[Path, str] = field(default_factory=dict)
    links: tuple[Path, ...] = ()
    is_cut_off: bool = False

    @property
    def version(self) -> str:
        """A text that differs if anything in the folder does."""
        lines = [f"{path}={version}" for path, version in sorted(self.versions.items())]
        lines += [f"{path} is a link" for path in sorted(self.links)]
        return sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:32]


def scan_folder(root: Path) -> FolderScan:
    """Look at a folder and everything below it. One that does not exist, or cannot be read, is empty.

    Links within the folder are followed to files, and never to folders, as `find_runs` does.
    """
    inside = os.path.realpath(root)
    versions, links = dict[Path, str](), list[Path]()
    for number, (folder, subfolders, files) in enumerate(os.walk(root)):
        if number == MAX_FOLDERS:
            return FolderScan(versions=versions, links=tuple(links), is_cut_off=True)
        path = Path(folder)
        outside = [name for name in (*subfolders, *files) if _leads_outside(path / name, inside)]
        links += [path / name for name in outside]
        if CONFIG_FILE in files or RESULTS_FILE in files:
            if not any(name in files for name in outside):
                versions[path] = _describe_files(path)
            if CONFIG_FILE in files:
                subfolders.clear()  # a run contains no other runs
        subfolders.sort()
    return FolderScan(versions=versions, links=tuple(links))


def _leads_outside(path: Path, inside: str) -> bool:
    """Return whether a path is a link to a place outside the folder `inside`."""
    if not path.is_symlink():
        return False
    target = os.path.realpath(path)
    return target != inside and not target.startswith(inside.rstrip(os.sep) + os.sep)


def _describe_files(folder: Path) -> str:
    """Return a text that differs if a file of the folder does, or if a training in it starts or is killed."""
    lines = sorted(_file_lines(folder))
    with suppress(OSError):
        if (folder / OWNER).exists():
            lines.append(f"held: {is_held(folder)}")
    return sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:16]


def _file_lines(folder: Path) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as items:
        for item in items:
            if item.name.endswith(PARTIAL_SUFFIX):
                continue
            with suppress(OSError):  # it has just been replaced or removed
                if item.is_file():
                    stat = item.stat()
                    yield f"{item.name} {stat.st_mtime_ns} {stat.st_size} {stat.st_ino}"
