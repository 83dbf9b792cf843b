"""What can be evaluated: models, runs, and folders that hold either."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sdssm.errors import format_value
from sdssm.evaluation.request import EvaluationError
from sdssm.files import format_path
from sdssm.models import Classifier
from sdssm.models.saved import is_model_folder
from sdssm.runs import RunFolder, find_runs

#: What can be evaluated: a model, a run, or the path of a saved model, of a run or of a folder of runs.
Subject = Classifier | RunFolder | str | Path


class MissingTaskError(EvaluationError):
    """The task of a model is neither stored with it nor passed; `folder` is that of the model, if it has one."""

    def __init__(self, folder: Path | None = None) -> None:
        subject, argument = "a model alone does not know its task", "model"
        if folder is not None:
            subject = f"{format_path(folder)} holds a model without its task"
            argument = format_value(str(folder), 200)
        super().__init__(f"{subject}; pass task=, as in sdssm.evaluate({argument}, task='a5')")
        self.folder = folder


class OwnTaskError(EvaluationError):
    """A task was passed for the run in `folder`, which has its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{format_path(folder)} is a run and knows its own task; leave task= out, or pass sdssm.load(folder) to "
            "use another"
        )
        self.folder = folder


@dataclass(frozen=True)
class SavedModel:
    """A folder that `model.save` wrote: a model without a run."""

    path: Path


def expand_source(source: Subject | Iterable[Subject]) -> list[Classifier | RunFolder | SavedModel]:
    """Return the models and runs of a source, each run and each folder once."""
    is_single = isinstance(source, str) or not isinstance(source, Iterable)
    subjects: dict[object, Classifier | RunFolder | SavedModel] = {}
    for item in [source] if is_single else source:  # type: ignore[union-attr]  # is_single: it is iterable
        if isinstance(item, Classifier):
            subjects[id(item)] = item
        elif isinstance(item, RunFolder):
            subjects.setdefault(item.path.resolve(), item)
        elif isinstance(item, str | Path):
            path = Path(item)
            for subject in [SavedModel(path)] if is_model_folder(path) else find_runs(path):
                subjects.setdefault(subject.path.resolve(), subject)
        else:
            raise EvaluationError(f"{format_value(item)} cannot be evaluated; pass a model, a run, or the path of one")
    return list(subjects.values())
