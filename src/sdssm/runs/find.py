"""Run folders below a folder."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from sdssm.errors import CheckpointWarning, RunError, RunWarning
from sdssm.files import shown_path
from sdssm.runs.folder import CONFIG, RunFolder


def find_runs(path: Path | str) -> list[RunFolder]:
    """The run in `path`, or else every run below it, sorted by name with seed-2 before seed-10."""
    path = Path(path)
    if not path.is_dir() or (path / CONFIG).exists():
        return [RunFolder.open(path)]
    runs = []
    for folder, below, files in os.walk(path):
        if CONFIG in files:
            below.clear()  # no runs within a run
            try:
                runs.append(RunFolder.open(folder))
            except RunError as error:
                warnings.warn(f"{error}; left out", RunWarning, stacklevel=2)
    if not runs:
        raise RunError(f"there is no run folder in {shown_path(path)} or below; sdssm train TASK --out DIR makes one")
    return sorted(runs, key=lambda run: natural(str(run.path)))


def natural(text: str) -> list[tuple[str, int]]:
    """A key that sorts numbers within names by their value.

    >>> sorted(["seed-10", "seed-2"], key=natural)
    ['seed-2', 'seed-10']
    """
    return [(words, int(number or -1)) for words, number in re.findall(r"(\D*)(\d*)", text)]


def shared_step(runs: Sequence[RunFolder]) -> int:
    """The newest step of which every one of these runs has a checkpoint that is whole; 0 if one has none at all.

    Runs that train side by side are saved one after the other: one that was killed on the way leaves some a checkpoint
    ahead of the rest, and all go on from the one before.
    """
    if not all(run.checkpoints() for run in runs):
        return 0
    shared = set.intersection(*(_whole(run) for run in runs))
    if not shared:
        raise RunError(
            f"{shown_path(runs[0].path)} and the runs beside it have no whole checkpoint of one step; "
            "resume them one by one, each with --resume and its own folder"
        )
    return max(shared)


def _whole(run: RunFolder) -> set[int]:
    """The steps whose checkpoints are whole."""
    found = set()
    for step in run.checkpoints():
        try:
            found.add(run.load_checkpoint(step).step)
        except RunError as error:
            warnings.warn(f"{error}; using an older one", CheckpointWarning, stacklevel=3)
    if not found:
        raise RunError(f"every checkpoint of {shown_path(run.path)} is damaged; start anew with --overwrite")
    return found


def folder_name(task: str) -> str:
    """A task's name as that of a folder, where some letters would mean something else.

    >>> folder_name("a5"), folder_name("regex:(ab)*"), folder_name("automata/my.json")
    ('a5', 'regex_(ab)_', 'automata_my.json')
    """
    return re.sub(r"[^\w.,()+=-]", "_", task).lstrip(".")[:100] or "_"
