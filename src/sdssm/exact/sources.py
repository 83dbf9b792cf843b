"""What an exact question is asked of: a model, a run, or the folder of either."""

from __future__ import annotations

from pathlib import Path

from sdssm.errors import format_value
from sdssm.exact.errors import ExactError
from sdssm.files import format_path
from sdssm.models import Classifier
from sdssm.models.saved import holds_a_model
from sdssm.runs import RunFolder, find_runs, load

ModelSource = Classifier | RunFolder | str | Path


def load_source(what: ModelSource) -> tuple[Classifier, RunFolder | None]:
    """The model, and its run where it has one. A folder may hold a model, a run, or a single run below it."""
    if isinstance(what, Classifier):
        return what, None
    if isinstance(what, RunFolder):
        return load(what.path), what
    if not isinstance(what, str | Path):
        raise ExactError(f"{format_value(what)} is no token model; give a Classifier, a run, or the folder of either")
    path = Path(what)
    if holds_a_model(path):
        return load(path), None
    runs = find_runs(path)
    if len(runs) > 1:
        first = format_path(runs[0].path)
        raise ExactError(f"{format_path(path)} holds {len(runs)} runs; name one of them, such as {first}")
    return load(runs[0].path), runs[0]
