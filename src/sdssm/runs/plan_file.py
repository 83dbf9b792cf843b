"""The plan of a training that is being started: the run folders that it is about to create, in one file.

plan-1f0c93ab.json lies in the folder of all runs. It is written before the first run folder is created and removed when
all of them exist. If the process is killed in between, a resume creates the missing runs with the configs of the plan,
so that they train side by side with the others as if nothing had happened. A run folder that is removed later is not in
any plan, and is not started again.
"""

from __future__ import annotations

import json
import os
import secrets
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from errno import ENOTDIR
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, Self

from sdssm.errors import RunError, RunWarning, SdssmError
from sdssm.files import PARTIAL_SUFFIX, format_path, is_abandoned_part, write_atomic
from sdssm.models.settings import CONFIG_FILE
from sdssm.runs.claim import is_held, lock, release_folder
from sdssm.runs.disk import encode_json, open_json, write_errors
from sdssm.runs.folder import RunFolder
from sdssm.runs.schema import RunConfig

#: The names of plan files, which no other file is likely to have, and the newest format that this version reads.
PATTERN, FORMAT = f"plan-{'[0-9a-f]' * 8}.json", 1
#: Folders between that of all runs and those that hold the seeds, as in out/TASK/VARIANT/seed-0.
PARENTS = 2


@dataclass(frozen=True, kw_only=True)
class StartPlan:
    """A plan file: the configs of the runs that a training creates, by run folder."""

    file: Path
    configs: Mapping[Path, RunConfig]
    overwrite: bool = False  #: whether the runs replace earlier ones

    def __post_init__(self) -> None:
        for folder in self.configs:
            if not folder.is_relative_to(self.file.parent):
                raise RunError(
                    f"{format_path(folder)} is not below {format_path(self.file.parent)}; choose another --out"
                )

    def missing(self) -> dict[Path, RunConfig]:
        """Return the runs that were not created yet, or, with `overwrite`, not yet replaced."""
        return {folder: config for folder, config in self.configs.items() if not self._is_created(folder, config)}

    def _is_created(self, folder: Path, config: RunConfig) -> bool:
        if not (folder / CONFIG_FILE).exists():
            return False
        if not self.overwrite:
            return True
        try:
            return RunFolder.open(folder).config.begun == config.begun
        except RunError:
            return True  # it is not ours to replace

    # -- the file ----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the file, atomically."""
        configs: dict[str, int] = {}  # by their JSON, so that those that differ only in the seed are written once
        runs = []
        for folder, config in self.configs.items():
            text = json.dumps({**config.to_json(), "seed": 0}, sort_keys=True)
            number = configs.setdefault(text, len(configs))
            name = PurePosixPath(folder.relative_to(self.file.parent))
            runs.append({"folder": str(name), "seed": config.seed, "config": number})
        content = {
            "format": FORMAT,
            "overwrite": self.overwrite,
            "configs": list(map(json.loads, configs)),
            "runs": runs,
        }
        with write_errors(self.file):
            write_atomic(self.file, encode_json(content))

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """Return the plan in a file; None, with a warning, if the file is damaged."""
        try:
            content, is_verified = open_json(file)
            if not is_verified or content["format"] != FORMAT:
                raise RunError("it is not a plan")
            return cls._from_json(file, content)
        except (SdssmError, OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
            if not os.path.lexists(file):  # it was completed and removed meanwhile
                return None
            text = f"{format_path(file)} is damaged; runs that were planned there and not created are not started"
            warnings.warn(f"{text}: name the tasks to train, or remove it", RunWarning, stacklevel=3)
            return None

    @classmethod
    def _from_json(cls, file: Path, content: dict[str, Any]) -> Self:
        configs = [RunConfig.from_json(config) for config in content["configs"]]
        runs, out = dict[Path, RunConfig](), file.parent.resolve()
        for run in content["runs"]:
            name = PurePosixPath(run["folder"])
            folder = file.parent / name
            # The file may be a stranger's: nothing is created outside of its folder, also not through a link.
            is_inside = not name.is_absolute() and ".." not in name.parts and name.parts
            if not is_inside or not folder.resolve().is_relative_to(out) or type(run["config"]) is not int:
                raise RunError(f"{run['folder']} is not a run folder")
            runs[folder] = RunConfig.from_json({**configs[run["config"]].to_json(), "seed": run["seed"]})
        return cls(file=file, configs=runs, overwrite=content["overwrite"] is True)

    @property
    def is_held(self) -> bool:
        """Whether another process is creating these runs now."""
        try:
            return is_held(self.file) is True
        except OSError:  # it was completed and removed meanwhile
            return True

    def _open_locked(self, *, is_new: bool) -> int:
        while True:
            try:
                descriptor = os.open(self.file, os.O_RDONLY)
            except FileNotFoundError:
                if not is_new:
                    raise
                self.write()
                continue
            with suppress(OSError):  # a file system without locks
                lock(descriptor)
            if self.file.exists() or not is_new:
                return descriptor
            os.close(descriptor)

    @contextmanager
    def hold(self, *, is_new: bool = False) -> Iterator[None]:
        """Show other processes that this one creates the runs; at the end remove the plan if all of them exist.

        is_new: write the plan again if another process that starts now has removed it before it was held.
        """
        descriptor = self._open_locked(is_new=is_new)
        try:
            yield
        finally:
            if not self.missing():
                with suppress(OSError):
                    self.file.unlink()
            os.close(descriptor)


def _is_folder_held(folder: Path) -> bool:
    try:
        return is_held(folder) is True
    except OSError:
        return False


@contextmanager
def planned_start(out: Path, configs: Mapping[Path, RunConfig], *, overwrite: bool = False) -> Iterator[None]:
    """Write the plan of all runs that are created in the block; it stays on disk if some of them are not."""
    if not configs:
        yield
        return
    with write_errors(out):
        if out.is_file():
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR))
        out.mkdir(parents=True, exist_ok=True)
    _remove_old_parts(out)
    file = out.absolute() / f"plan-{secrets.token_hex(4)}.json"
    plan = StartPlan(
        file=file, configs={folder.absolute(): config for folder, config in configs.items()}, overwrite=overwrite
    )
    plan.write()
    with plan.hold(is_new=True):
        _supersede_plans(plan)
        try:
            yield
        except RunError:
            # Another process has the folders. A resume must not replace its runs later by those of this plan.
            if len(plan.missing()) == len(plan.configs) and any(map(_is_folder_held, plan.configs)):
                file.unlink(missing_ok=True)
            raise


def find_plans(path: Path, *, below: bool = False) -> list[StartPlan]:
    """Return the plans in `path` and in the folders above that may list runs of it, newest first.

    below: also those in the folders below.
    """
    path = path.absolute()
    files = [file for folder in (path, *path.parents[:PARENTS]) for file in folder.glob(PATTERN)]
    for folder, subfolders, names in os.walk(path) if below else ():
        if CONFIG_FILE in names:
            subfolders.clear()  # a run contains no plans
        if Path(folder) != path:
            files += [Path(folder) / name for name in names if fnmatch(name, PATTERN)]
    plans = (StartPlan.read(file) for file in sorted(files, key=_modified, reverse=True))
    return [plan for plan in plans if plan is not None]


def missing_runs(path: Path, *, below: bool = False) -> dict[Path, RunConfig]:
    """Return the runs in `path` that a killed training had planned but not created, by their absolute paths."""
    missing: dict[Path, RunConfig] = {}
    for plan in find_plans(path, below=below):
        if not plan.is_held:
            for folder, config in plan.missing().items():
                if folder.is_relative_to(path.absolute()):
                    missing.setdefault(folder, config)
    return missing


def create_missing(
    path: Path,
    *,
    only: Collection[Path] | None = None,
    below: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> list[Path]:
    """Create the run folders of `missing_runs`, or those of them in `only`; return their absolute paths.

    Nothing is trained. Plans of which all runs exist are removed.
    """
    created: list[Path] = []
    _remove_old_parts(path)
    for plan in find_plans(path, below=below):
        if plan.is_held:
            continue
        with suppress(FileNotFoundError), plan.hold():
            for folder, config in plan.missing().items():
                if stop():
                    break
                if folder.is_relative_to(path.absolute()) and (only is None or folder in only):
                    RunFolder.create(folder, config, overwrite=plan.overwrite)
                    release_folder(folder)
                    created.append(folder)
    return created


def check_not_starting(path: Path, folders: Collection[Path]) -> None:
    """Raise an error if another process is about to create one of these run folders."""
    for plan in find_plans(path):
        taken = {folder.absolute() for folder in folders} & plan.missing().keys() if plan.is_held else set()
        for folder in sorted(taken)[:1]:
            raise RunError(
                f"another process is starting the training in {format_path(folder)}; wait for it, or stop it first"
            )


def _supersede_plans(new: StartPlan) -> None:
    """Remove the runs of a new plan from those that killed trainings have left in the same folder.

    A plan of which nothing was created is removed: its user has started over. So are all if the new one overwrites.
    """
    for file in new.file.parent.glob(PATTERN):
        plan = None if file == new.file else StartPlan.read(file)
        if plan is None or plan.is_held:
            continue
        missing = plan.missing()
        kept = {folder: config for folder, config in missing.items() if folder not in new.configs}
        if new.overwrite or not kept or len(missing) == len(plan.configs):
            file.unlink(missing_ok=True)
        elif len(kept) < len(missing):
            replace(plan, configs=kept).write()


def _modified(file: Path) -> int:
    try:
        return file.lstat().st_mtime_ns
    except OSError:
        return 0


def _remove_old_parts(out: Path) -> None:
    """Remove plans that killed processes have written only in part."""
    with suppress(OSError):
        for part in filter(is_abandoned_part, out.glob(f"{PATTERN}.*{PARTIAL_SUFFIX}")):
            part.unlink(missing_ok=True)
