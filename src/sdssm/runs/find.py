"""Run folders below a folder."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from sdssm.errors import CheckpointWarning, RunError, RunWarning
from sdssm.files import format_path
from sdssm.models import DEFAULT_MODEL
from sdssm.models.classifier import CONFIG
from sdssm.runs.folder import RunFolder


def find_runs(path: Path | str) -> list[RunFolder]:
    """The run in `path`, or else every run below it, sorted by name with seed-2 before seed-10."""
    path = Path(path)
    if not path.is_dir() or (path / CONFIG).exists():
        return [RunFolder.open(path)]
    runs, errors = [], list[RunError]()
    for folder, below, files in os.walk(path):
        if CONFIG in files:
            below.clear()  # no runs within a run
            try:
                runs.append(RunFolder.open(folder))
            except RunError as error:
                errors.append(error)
    if not runs and len(errors) == 1:
        raise errors[0]
    for one in errors:
        warnings.warn(f"{one}; left out", RunWarning, stacklevel=2)
    if not runs:
        raise RunError(f"there is no run folder in {format_path(path)} or below; sdssm train TASK --out DIR makes one")
    return sorted(runs, key=lambda run: natural(str(run.path)))


def natural(text: str) -> list[tuple[str, int]]:
    """A key that sorts numbers within names by their value.

    >>> sorted(["seed-10", "seed-2"], key=natural)
    ['seed-2', 'seed-10']
    """
    return [(words, int(number or -1)) for words, number in re.findall(r"(\D*)(\d*)", text)]


def group_by_resume_step(runs: Sequence[RunFolder]) -> list[tuple[int, list[RunFolder]]]:
    """Where runs of one shape go on: steps, each with the runs that do so from there.

    Runs that train side by side are saved one after the other: one that was killed on the way leaves some a checkpoint
    ahead of the rest, and all go on from the one before, which is the newest of some. Where there is none such, they
    never trained together, and each goes on from its own newest; one without any from the beginning.
    """
    whole = [_whole(run) for run in runs]
    shared = max(set.intersection(*whole), default=None)
    if shared is not None and any(shared == max(steps) for steps in whole):
        return [(shared, list(runs))]
    found: dict[int, list[RunFolder]] = {}
    for run, steps in zip(runs, whole, strict=True):
        found.setdefault(max(steps, default=0), []).append(run)
    return sorted(found.items())


def _whole(run: RunFolder) -> set[int]:
    """The steps whose checkpoints are whole."""
    found, steps = set[int](), run.checkpoints()
    for step in steps:
        try:
            found.add(run.load_checkpoint(step).step)
        except RunError as error:
            warnings.warn(f"{error}; using an older one", CheckpointWarning, stacklevel=3)
    if steps and not found:
        raise RunError(f"every checkpoint of {format_path(run.path)} is damaged; start anew with --overwrite")
    return found


def folder_name(task: str) -> str:
    """A task's name as that of a folder, where some letters would mean something else.

    >>> folder_name("a5"), folder_name("regex:(ab)*"), folder_name("automata/my.json")
    ('a5', 'regex_(ab)_', 'automata_my.json')
    """
    return re.sub(r"[^\w.,()+=-]", "_", task).lstrip(".")[:100] or "_"


def default_folder(tasks: Sequence[str], model: str) -> Path:
    """Where the runs of these tasks go when nobody says: a folder for each model but the default one.

    >>> default_folder(["a5"], "sd-ssm").name, default_folder(["a5", "d4"], "lstm").name
    ('a5', 'a5+d4-lstm')
    """
    name = "+".join(folder_name(task) for task in tasks)
    return Path("runs") / (name if model == DEFAULT_MODEL else f"{name}-{folder_name(model)}")
