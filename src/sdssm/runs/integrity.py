"""Which files of a run or of a saved model are intact, without a checksum, damaged or missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sdssm.checksums import ChecksumError, check_tensors, read_tensors_file
from sdssm.errors import RunError, SdssmError, SettingsError
from sdssm.files import describe_file_error
from sdssm.models.model_folder import DESCRIPTIONS
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE
from sdssm.runs.disk import open_json
from sdssm.runs.events import read_log
from sdssm.runs.folder import RunFolder, RunStatus
from sdssm.runs.own_files import CHECKPOINTS, EVENTS_FILE, RESULTS, STATUS_FILE, link_error
from sdssm.runs.status import describe_log_gap
from sdssm.settings import build_settings

FileState = Literal["intact", "unverified", "damaged", "missing"]
#: From good to bad. An unverified file has no checksum: an earlier version wrote it, or someone edited it on purpose.
STATES: tuple[FileState, ...] = ("intact", "unverified", "missing", "damaged")


@dataclass(frozen=True, kw_only=True)
class FileCheck:
    """The state of one file, with a detail in words if it is damaged or missing."""

    name: str
    state: FileState
    detail: str = ""

    @property
    def is_damaged(self) -> bool:
        """Whether the file is damaged or missing, and not only without a checksum."""
        return self.state in ("damaged", "missing")


@dataclass(frozen=True, kw_only=True)
class FolderCheck:
    """The states of all files of a run or of a saved model."""

    path: Path
    files: tuple[FileCheck, ...]

    @property
    def state(self) -> FileState:
        """The worst state of a file."""
        return max((file.state for file in self.files), key=STATES.index)

    @property
    def is_damaged(self) -> bool:
        """Whether a file is damaged or missing."""
        return any(file.is_damaged for file in self.files)

    def find(self, name: str) -> FileCheck | None:
        """Return the check of a file; None if the folder neither has nor needs it."""
        return next((file for file in self.files if file.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the folder, its state and those of its files as JSON values."""
        return {"folder": str(self.path), "state": self.state, "files": [vars(file) for file in self.files]}


def find_folders(path: Path) -> list[Path]:
    """Return the folders below `path` that hold a run or a saved model, also those whose config.json is lost."""
    folders = []
    for folder, subfolders, files in os.walk(path):
        is_run = STATUS_FILE in files and (EVENTS_FILE in files or CHECKPOINTS in subfolders)
        if CONFIG_FILE in files or is_run:
            subfolders.clear()  # a run contains no other runs
            folders.append(Path(folder))
    if not folders:
        raise RunError(f"there is no run folder in {path} or below; sdssm train TASK --out DIR makes one")
    return sorted(folders)


def check_folder(path: Path) -> FolderCheck:
    """Read and verify every file of a run or of a saved model."""
    return FolderCheck(path=path, files=tuple(_check_files(path)))


def _check_files(path: Path) -> Iterator[FileCheck]:
    is_run = (path / STATUS_FILE).exists() or (path / CHECKPOINTS).exists() or (path / EVENTS_FILE).exists()
    (config, content), run = _read_json(path, CONFIG_FILE), None
    if not config.is_damaged:
        if isinstance(content, dict) and "format" not in content and not is_run:
            yield config
            yield _check_weights(path, content)
            yield from (_read_json(path, name)[0] for name in DESCRIPTIONS if _has_json_file(path, name))
            return
        try:
            run = RunFolder.open(path)
        except SdssmError as error:
            config = FileCheck(name=CONFIG_FILE, state="damaged", detail=str(error))
    yield config
    yield from _check_run_files(path, run)


def _check_run_files(path: Path, run: RunFolder | None) -> Iterator[FileCheck]:
    """Check all files but the config; without a config nothing says whether the run should have a model."""
    status, values = _read_json(path, STATUS_FILE)
    if not status.is_damaged:
        try:
            progress: RunStatus | None = build_settings(RunStatus, values)
        except (TypeError, AttributeError, SettingsError) as error:
            progress, status = None, FileCheck(name=STATUS_FILE, state="damaged", detail=str(error))
    else:
        progress = None if run is None else _derive_status(run)
    yield status
    log = _check_log(path, run, progress if status.state == "intact" else None)
    if log is not None:
        yield log
    if (path / CHECKPOINTS).is_symlink():
        yield FileCheck(name=CHECKPOINTS, state="damaged", detail=str(link_error(path / CHECKPOINTS)))
        return
    for file in sorted((path / CHECKPOINTS).glob("step-*.safetensors")):
        check = _check_tensors(path, f"{CHECKPOINTS}/{file.name}", is_checkpoint=True)
        if os.path.lexists(file):  # otherwise a training has replaced it meanwhile
            yield check
    if progress is not None and status.state == "intact" and progress.status == "stopped" and progress.step:
        name = f"{CHECKPOINTS}/step-{progress.step:09d}.safetensors"
        if not (path / name).exists():
            yield FileCheck(name=name, state="missing", detail=f"the run was stopped at step {progress.step}")
    if os.path.lexists(path / WEIGHTS_FILE):
        yield _check_weights(path, {"format": 0, "model": {"import_path": _import_path(run)}})
    elif progress is not None and progress.status == "finished":
        yield FileCheck(name=WEIGHTS_FILE, state="missing", detail="the run is finished")
    for pattern in RESULTS:
        for file in sorted(path.glob(pattern)):
            yield _read_json(path, file.name)[0] if file.suffix == ".json" else _check_tensors(path, file.name)


def _derive_status(run: RunFolder) -> RunStatus | None:
    try:
        return run.derive_status()
    except RunError:
        return None


def _import_path(run: RunFolder | None) -> str | None:
    return "" if run is None else run.config.model.import_path


def _has_json_file(path: Path, name: str) -> bool:
    return name.endswith(".json") and (path / name).exists()


def _read_json(path: Path, name: str) -> tuple[FileCheck, Any]:
    """Return the state of a JSON file, and its contents; None if it cannot be read."""
    if not os.path.lexists(path / name):
        return FileCheck(name=name, state="missing", detail="there is no such file"), None
    try:
        content, is_verified = open_json(path / name)
    except RunError as error:
        return FileCheck(name=name, state="damaged", detail=str(error)), None
    return _readable(name, is_verified), content


def _check_log(path: Path, run: RunFolder | None, status: RunStatus | None) -> FileCheck | None:
    """Check the log; None if there is none and the run need not have one. `status` is None if it is not verified."""
    try:
        lines = read_log(path / EVENTS_FILE)
    except RunError as error:
        return FileCheck(name=EVENTS_FILE, state="damaged", detail=str(error))
    if lines.damaged:
        others = f" and {len(lines.damaged) - 1} more" if len(lines.damaged) > 1 else ""
        return FileCheck(name=EVENTS_FILE, state="damaged", detail=f"line {lines.damaged[0]}{others} is damaged")
    is_there = os.path.lexists(path / EVENTS_FILE)
    gap = None
    if run is not None and status is not None:
        every = run.config.train.log_every
        gap = describe_log_gap(lines, status=status.status, step=status.step, steps=status.steps, log_every=every)
    if gap is not None:
        return FileCheck(name=EVENTS_FILE, state="damaged" if is_there else "missing", detail=gap)
    if not is_there:
        return None
    return _readable(EVENTS_FILE, not lines.unverified)


def _check_tensors(path: Path, name: str, *, is_checkpoint: bool = False) -> FileCheck:
    try:
        metadata, is_verified = check_tensors(read_tensors_file(path / name))
        step = int(Path(name).stem.removeprefix("step-")) if is_checkpoint else None
        if is_checkpoint and (not is_verified or metadata.get("step") != str(step)):
            return FileCheck(name=name, state="damaged", detail=f"it is not a checkpoint of step {step}")
    except (OSError, ChecksumError, ValueError) as error:
        detail = describe_file_error(error) if isinstance(error, OSError) else str(error)
        return FileCheck(name=name, state="damaged", detail=detail)
    return _readable(name, is_verified)


def _check_weights(path: Path, config: dict[str, Any]) -> FileCheck:
    from sdssm.models.weight_file import read_weights  # needs torch, which listing runs does not

    if not os.path.lexists(path / WEIGHTS_FILE):
        return FileCheck(name=WEIGHTS_FILE, state="missing", detail="there is no such file")
    try:
        _, is_verified = read_weights(path, config)
    except SdssmError as error:
        return FileCheck(name=WEIGHTS_FILE, state="damaged", detail=str(error))
    return _readable(WEIGHTS_FILE, is_verified)


def _readable(name: str, is_verified: bool) -> FileCheck:
    return FileCheck(name=name, state="intact" if is_verified else "unverified")
