"""What the source of a model means: a model, a folder, or the one run that a function needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch.nn import Module

from sdssm.errors import RunError, format_value
from sdssm.files import format_path
from sdssm.models import TokenModel
from sdssm.runs.find import find_runs
from sdssm.runs.folder import RunFolder

#: A run, the runs of a training if it is only one, or the folder of either.
RunSource = str | Path | RunFolder | Sequence[RunFolder]


def find_model(source: object) -> TokenModel | None:
    """Return a source that is a model, or the model of what `sdssm.snap` returns; None for anything else."""
    if isinstance(source, TokenModel):
        return source
    model = None if isinstance(source, Module) else getattr(source, "model", None)
    return model if isinstance(model, TokenModel) else None


def folder_path(source: str | Path) -> Path:
    """Return the path of a folder; an empty one, which would mean the current folder, is an error."""
    if not str(source):
        raise RunError("the path is empty; pass the folder of a run or of a saved model, or '.'")
    return Path(source)


def only_run(source: RunSource) -> RunFolder:
    """Return the only run of a source; another number of runs is an error that names one of them."""
    if isinstance(source, RunFolder):
        return source
    if isinstance(source, str | Path):
        runs, name = find_runs(folder_path(source)), format_path(Path(source))
    elif isinstance(source, Sequence) and all(isinstance(run, RunFolder) for run in source):
        runs, name = [run for run in source if isinstance(run, RunFolder)], "the list"
    else:
        raise RunError(f"{format_value(source)} holds no model; pass a run, or the folder of a run or of a saved model")
    if not runs:
        raise RunError("the list is empty; pass a run, or the folder of a run or of a saved model")
    if len(runs) > 1:
        raise RunError(f"{name} holds {len(runs)} runs; choose one of them, such as {format_path(runs[0].path)}")
    return runs[0]
