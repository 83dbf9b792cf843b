"""Repair of run folders: the model from the last checkpoint, the status from the other files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from sdssm.errors import ModelError, RunError
from sdssm.files import format_path
from sdssm.formatting import count_of
from sdssm.models.settings import CONFIG_FILE, WEIGHTS_FILE
from sdssm.runs.claim import release_folder
from sdssm.runs.folder import RunFolder
from sdssm.runs.integrity import FileCheck, check_folder
from sdssm.runs.own_files import CHECKPOINTS, EVENTS_FILE, RESULTS, STATUS_FILE


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What was done about a damaged or missing file, or why nothing could be done, in words."""

    path: Path
    is_done: bool
    text: str

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.text}"


def repair_folder(path: Path) -> list[Repair]:
    """Repair what can be repaired in a run folder, and say what cannot.

    The model is restored from the last checkpoint, the status derived from the other files, damaged lines of the log
    and damaged results are removed: `sdssm evaluate` and the like compute results again.
    """
    broken = _find_broken(path)
    if not broken:
        return []
    if CONFIG_FILE in broken:
        detail = "restore it from a copy, or train again with --overwrite; the other files stay as they are"
        return [_refuse(path, CONFIG_FILE, detail)]
    try:
        run = RunFolder.open(path)
    except RunError:  # a saved model
        return [_refuse(path, name, "save the model again") for name in broken]
    try:
        run.claim()  # not while it is trained
    except RunError as error:
        return [Repair(path=path, is_done=False, text=f"not repaired: {error}")]
    try:
        return list(_repair_files(run, _find_broken(path)))  # looked for again: a training may have ended meanwhile
    finally:
        release_folder(path)


def _find_broken(path: Path) -> dict[str, FileCheck]:
    """Return the files of a folder that are damaged or missing, by name."""
    return {file.name: file for file in check_folder(path).files if file.is_damaged}


def _repair_files(run: RunFolder, broken: dict[str, FileCheck]) -> Iterator[Repair]:
    """Repair file after file; the log comes first, because the status is derived from it."""
    if EVENTS_FILE in broken:
        yield _repair_log(run)
    if STATUS_FILE in broken:
        yield _try(run.path, STATUS_FILE, lambda: _repair_status(run))
    if WEIGHTS_FILE in broken:
        yield _try(run.path, WEIGHTS_FILE, lambda: write_model_again(run))
    for name in broken:
        if name.startswith(f"{CHECKPOINTS}/"):
            yield _try(run.path, name, partial(_repair_checkpoint, run, name))
        elif name == CHECKPOINTS:
            yield _refuse(run.path, name, broken[name].detail)
        elif any(fnmatch(name, pattern) for pattern in RESULTS):
            yield _try(run.path, name, partial(_remove_result, run, name))


def _try(path: Path, name: str, repair: Callable[[], str]) -> Repair:
    """Repair a file with a function that returns what it did; if it fails, the others are repaired all the same."""
    try:
        return _done(path, name, repair())
    except RunError as error:
        return _refuse(path, name, str(error))


def _repair_status(run: RunFolder) -> str:
    status = run.derive_status()
    run.write_status(status)
    return f"written again: {status.status}, step {status.step:,}"


def _remove_result(run: RunFolder, name: str) -> str:
    run.remove_result(name)
    return "removed, to be computed again"


def _repair_log(run: RunFolder) -> Repair:
    """Remove damaged lines; events that are lost cannot be restored, and a log without its end stays damaged."""
    text = "the events that are lost cannot be restored; all else of the run can be used"
    if not (run.path / EVENTS_FILE).exists():
        return _refuse(run.path, EVENTS_FILE, text)
    try:
        count = run.remove_damaged_events()
    except RunError as error:
        return _refuse(run.path, EVENTS_FILE, str(error))
    removed = f"{count_of(count, 'damaged line')} removed"
    if EVENTS_FILE in _find_broken(run.path):
        return _refuse(run.path, EVENTS_FILE, f"{removed}, but {text}")
    return _done(run.path, EVENTS_FILE, removed)


def _repair_checkpoint(run: RunFolder, name: str) -> str:
    """Remove a damaged checkpoint if the run does not need it: another one is intact, or the run has ended."""
    others = check_folder(run.path)
    weights = others.find(WEIGHTS_FILE)
    has_other = any(file.name.startswith(CHECKPOINTS) and file.state == "intact" for file in others.files)
    has_ended = run.status == "finished" and weights is not None and not weights.is_damaged
    if not has_other and not has_ended:
        raise RunError("there is no other checkpoint; train again with --overwrite")
    run.remove_checkpoint_file(Path(name).name)
    return "removed; " + ("another one is intact" if has_other else "the run has ended")


def write_model_again(run: RunFolder) -> str:
    """Write model.safetensors from the last checkpoint, and return in words what was done.

    Raises a RunError if the last intact checkpoint is of an earlier step than the model was.
    """
    from sdssm.runs.checkpoint import restore_model_file  # needs torch, which listing runs does not

    checkpoint, step = run.load_checkpoint(), run.progress.step
    if checkpoint.step != step:
        raise RunError(
            f"the last intact checkpoint is of step {checkpoint.step:,}, and the model was of step {step:,}; train "
            "again with --overwrite"
        )
    run.write_model(restore_model_file(checkpoint))
    return f"restored from the checkpoint of step {step:,}"


def restore_model(run: RunFolder) -> str | None:
    """Restore the model of a finished run if it is damaged or missing; return a line that says so, or else None.

    If it cannot be restored, the line says why.
    """
    from sdssm.models.weight_file import read_weights

    if run.status != "finished":
        return None
    problem = "missing"
    if (run.path / WEIGHTS_FILE).exists():
        try:
            read_weights(run.path, {"format": 0, **run.config.to_json()})
        except ModelError:
            problem = "damaged"
        else:
            return None
    name = format_path(run.path / WEIGHTS_FILE)
    try:
        run.claim()
        try:
            return f"{name} was {problem}: {write_model_again(run)}"
        finally:
            release_folder(run.path)
    except RunError as error:
        return f"{name} is {problem} and cannot be restored: {error}"


def _done(path: Path, name: str, text: str) -> Repair:
    return Repair(path=path / name, is_done=True, text=text)


def _refuse(path: Path, name: str, text: str) -> Repair:
    return Repair(path=path / name, is_done=False, text=f"cannot be repaired: {text}")
