"""Create the run folders of a training; a plan file lists those that are still missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sdssm.files import format_path
from sdssm.formatting import count_of
from sdssm.models.settings import CONFIG_FILE
from sdssm.runs import RunFolder
from sdssm.runs.plan_file import create_missing, planned_start
from sdssm.tasks import Task
from sdssm.training.planning import RunPlan

#: How many runs a message names.
NAMES_SHOWN = 8


def create_folders(
    path: Path, planned: Sequence[RunPlan], *, overwrite: bool, stop: Callable[[], bool]
) -> list[tuple[RunFolder, Task]]:
    """Create the folders of new runs; the plan of all of them is on disk before the first.

    If a signal stops this, the folders that exist are marked as stopped, and a resume creates the others.
    """
    created: list[tuple[RunFolder, Task]] = []
    with planned_start(path, {folder: config for folder, _, config in planned}, overwrite=overwrite):
        for folder, task, config in planned:
            if stop():
                break
            created.append((RunFolder.create(folder, config, overwrite=overwrite), task))
    if len(created) < len(planned):
        for run, _ in created:
            run.finish("stopped")
    return created


def create_planned(path: Path, message: Callable[[str], None]) -> list[Path]:
    """Create the run folders that a killed training had planned in `path` and did not come to create; name them.

    Signals have their usual effect meanwhile: the plan stays until all folders exist.
    """
    if (path / CONFIG_FILE).exists():  # one run alone
        return []
    created = create_missing(path, below=True)
    if created:
        names = [format_path(folder.relative_to(path.absolute())) for folder in created]
        shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
        were, are = ("was", "is") if len(created) == 1 else ("were", "are")
        message(f"{count_of(len(created), 'run')} that {were} planned and not yet created {are} started now: {shown}")
    return [path / folder.relative_to(path.absolute()) for folder in created]
