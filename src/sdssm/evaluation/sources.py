"""What can be evaluated: models, runs, and folders that hold either."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from shlex import quote

from torch import nn

from sdssm.automata import Machine
from sdssm.errors import format_value
from sdssm.evaluation.request import EvaluationError
from sdssm.files import format_path
from sdssm.models import TokenModel, wrap_module
from sdssm.models.building import import_recorded_model
from sdssm.models.model_folder import is_model_folder, read_model_config
from sdssm.runs import RunFolder, find_runs
from sdssm.runs.single import find_model, folder_path
from sdssm.tasks import Task, get_task

#: What can be evaluated: a model or any other module, a run, or the path of a saved model, of a run or of runs.
Subject = nn.Module | RunFolder | str | Path


class MissingTaskError(EvaluationError):
    """The task of a model is neither stored with it nor passed."""


def missing_task(folder: Path | None) -> MissingTaskError:
    """Return the error for the model in `folder`, or for a model without a folder."""
    if folder is None:
        return MissingTaskError(
            "a model alone does not know its task; pass task=, as in sdssm.evaluate(model, task='a5')"
        )
    problem, path = f"{format_path(folder)} holds a model without its task", format_value(str(folder), 200)
    return MissingTaskError(
        f"{problem}; pass task=, as in sdssm.evaluate({path}, task='a5')",
        shell=f"{problem}; add it, as in sdssm evaluate {quote(format_path(folder))} --task a5",
    )


def own_task(folder: Path) -> EvaluationError:
    """Return the error for a task that was passed for the run in `folder`, which has its own."""
    problem = f"{format_path(folder)} is a run and knows its own task"
    return EvaluationError(
        f"{problem}; leave task= out, or pass sdssm.load(folder) to use another", shell=f"{problem}; leave --task out"
    )


@dataclass(frozen=True)
class SavedModel:
    """A folder that `model.save` wrote: a model without a run."""

    path: Path


def expand_source(source: Subject | Iterable[Subject]) -> list[nn.Module | RunFolder | SavedModel]:
    """Return the models and runs of a source, each run and each folder once."""
    is_single = isinstance(source, str | nn.Module) or not isinstance(source, Iterable)  # some modules are iterable
    subjects: dict[object, nn.Module | RunFolder | SavedModel] = {}
    for item in [source] if is_single else source:  # type: ignore[union-attr]  # is_single: it is iterable
        model = item if isinstance(item, nn.Module) else find_model(item)
        if model is not None:
            subjects[id(model)] = model
        elif isinstance(item, RunFolder):
            subjects.setdefault(item.path.resolve(), item)
        elif isinstance(item, str | Path):
            path = folder_path(item)
            for subject in [SavedModel(path)] if is_model_folder(path) else find_runs(path):
                subjects.setdefault(subject.path.resolve(), subject)
        else:
            raise EvaluationError(f"{format_value(item)} cannot be evaluated; pass a model, a run, or the path of one")
    return list(subjects.values())


def import_code(subjects: Iterable[nn.Module | RunFolder | SavedModel], *, trust: bool) -> None:
    """Import the code of the models of others, before anything is measured; without `trust` it is an error."""
    for subject in subjects:
        if not isinstance(subject, nn.Module):
            import_recorded_model(read_model_config(subject.path), format_path(subject.path), trust=trust)


def as_token_model(module: nn.Module, task: str | Task | Machine) -> TokenModel:
    """Return a model as it is, and any other module as a model with the symbols and classes of the task."""
    if isinstance(module, TokenModel):
        return module
    sizes = get_task(task)
    return wrap_module(module, sizes.n_symbols, sizes.n_classes)


def check_symbol_names(model: TokenModel, task: Task) -> None:
    """Raise an error if a model that knows the names of its symbols is used for a task with other names."""
    known = None if model.task is None else model.task.machine.symbols
    names = task.machine.symbols
    if known is not None and names is not None and known != names:
        first, second = next((a, b) for a, b in zip_longest(known, names) if a != b)
        raise EvaluationError(
            f"the model calls a symbol {format_value(first)} that {task.name} calls {format_value(second)}; "
            "pass a task with the same symbols in the same order"
        )
