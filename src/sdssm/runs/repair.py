"""Repair of run folders: the model from the last checkpoint, the status from the other files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from sdssm.errors import ModelError, RunError
from sdssm.files import format_path
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
    check = check_folder(path)
    broken = {file.name: file for file in check.files if file.state in ("damaged", "missing")}
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
        return list(_repair_files(run, broken))
    finally:
        release_folder(path)


def _repair_files(run: RunFolder, broken: dict[str, FileCheck]) -> Iterator[Repair]:
    """Repair file after file; the log comes first, because the status is derived from it."""
    if EVENTS_FILE in broken:
        yield _repair_log(run)
    if STATUS_FILE in broken:
        status = run.derive_status()
        run.write_status(status)
        yield _done(run.path, STATUS_FILE, f"written again: {status.status}, step {status.step:,}")
    if WEIGHTS_FILE in broken:
        try:
            yield _done(run.path, WEIGHTS_FILE, write_model_again(run))
        except RunError as error:
            yield _refuse(run.path, WEIGHTS_FILE, str(error))
    for name in broken:
        if name.startswith(f"{CHECKPOINTS}/"):
            yield _repair_checkpoint(run, name)
        elif any(fnmatch(name, pattern) for pattern in RESULTS):
            run.remove_result(name)
            yield _done(run.path, name, "removed, to be computed again")


def _repair_log(run: RunFolder) -> Repair:
    try:
        count = run.remove_damaged_events()
    except RunError as error:
        return _refuse(run.path, EVENTS_FILE, str(error))
    return _done(run.path, EVENTS_FILE, f"{count} damaged {'line' if count == 1 else 'lines'} removed")


def _repair_checkpoint(run: RunFolder, name: str) -> Repair:
    """Remove a damaged checkpoint if the run does not need it: another one is intact, or the run has ended."""
    others = check_folder(run.path)
    weights = others.find(WEIGHTS_FILE)
    has_other = any(file.name.startswith(CHECKPOINTS) and file.state == "intact" for file in others.files)
    has_ended = run.status == "finished" and weights is not None and weights.state in ("intact", "unverified")
    if not has_other and not has_ended:
        return _refuse(run.path, name, "there is no other checkpoint; train again with --overwrite")
    run.remove_checkpoint_file(Path(name).name)
    return _done(run.path, name, "removed; " + ("another one is intact" if has_other else "the run has ended"))


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
