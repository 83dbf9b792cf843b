"""Load the model that `extract`, `certify`, `horizon` or `snap` works on."""

from __future__ import annotations

from pathlib import Path

from sdssm.errors import format_value
from sdssm.exact.errors import ExactError
from sdssm.files import format_path
from sdssm.models import Classifier
from sdssm.models.saved import is_model_folder
from sdssm.runs import RunFolder, find_runs, load

#: A model, a run, or the path of a folder that holds either.
ModelSource = Classifier | RunFolder | str | Path


def load_source(source: ModelSource) -> tuple[Classifier, RunFolder | None]:
    """Return the model of a source, and its run if it has one.

    A folder may hold a saved model, a run, or a single run in one of its subfolders.
    """
    if isinstance(source, Classifier):
        return source, None
    if isinstance(source, RunFolder):
        return load(source.path), source
    if not isinstance(source, str | Path):
        raise ExactError(
            f"{format_value(source)} is not a token model; pass a Classifier, a run, or a folder of either"
        )
    path = Path(source)
    if is_model_folder(path):
        return load(path), None
    runs = find_runs(path)
    if len(runs) > 1:
        first = format_path(runs[0].path)
        raise ExactError(f"{format_path(path)} holds {len(runs)} runs; pass the folder of one of them, such as {first}")
    return load(runs[0].path), runs[0]
