"""The arguments that `extract`, `certify`, `horizon`, `snap` and `compile` have in common: a model, and a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sdssm.automata import Machine
from sdssm.errors import TaskError, format_value
from sdssm.evaluation.sources import as_token_model, check_symbol_names
from sdssm.exact.errors import ExactError
from sdssm.files import format_path
from sdssm.formatting import format_symbols
from sdssm.models import Classifier, TokenModel
from sdssm.models.saved import is_model_folder
from sdssm.runs import RunFolder, load
from sdssm.runs.single import find_model, folder_path, only_run
from sdssm.tasks import Task, get_task

#: A model or any other module, a run, a list of one run as `sdssm.train` returns it, or the path of a folder that holds
#: a model or one run.
ModelSource = nn.Module | RunFolder | Sequence[RunFolder] | str | Path
#: A name, a path, a `Machine`, a `Task`, or whatever else `sdssm.machine` takes.
MachineSource = Any
#: Random strings of each length in which a mistake is searched.
MISTAKE_STRINGS = 64


@dataclass(frozen=True, eq=False)
class LoadedSource:
    """A model, and what is known about it."""

    model: TokenModel
    run: RunFolder | None
    name: str  #: for messages: the path of the folder, or "the model"

    @property
    def classifier(self) -> Classifier:
        """The model, if it is of the catalogue; anything else has no matrices that `certify` could prove things of."""
        if not isinstance(self.model, Classifier):
            problem = f"{self.model.name} has no transition matrices, and a proof needs those of a single-layer sd-ssm"
            if (mistake := None if self.task is None else describe_mistake(self.model, self.task)) is not None:
                raise ExactError(f"{problem}; nor is there anything to snap or to prove: {mistake}")
            raise ExactError(
                f"{problem}; certify snap(model).model, or measure with horizon(model)",
                shell=f"{problem}; snap it first, or measure with sdssm horizon",
            )
        return self.model

    @property
    def task(self) -> Task | None:
        """The task of the run, or the one that the model was compiled, snapped or saved with; None if unknown."""
        return self.model.task if self.run is None else self.run.config.load_task()

    def find_task(self, task: MachineSource | None, function: str) -> Task:
        """Return the task of the caller or else that of the model; `function` is named in the error message."""
        chosen_task = self.task if task is None else get_task(task)
        if chosen_task is None:
            raise ExactError(
                f"{self.name} does not say which task it is for; name the task, as in {function}(model, 'a5')",
                shell=f"{self.name} does not say which task it is for; name the task, as in --task a5",
            )
        if task is not None:
            check_task_fits(self.model, chosen_task, all_classes=isinstance(task, str | Path | Task))
        return chosen_task


def describe_mistake(model: TokenModel, task: Task) -> str | None:
    """Return a sentence about a string that a model misclassifies; None if there is none among a few random ones."""
    generator = torch.Generator().manual_seed(0)
    for bound in (2, 8, task.train_length):
        if model.settings.needs_given_state or (model.longest is not None and bound > model.longest):
            continue
        try:
            batch = task.sample(MISTAKE_STRINGS, task.longest_valid_length(bound), generator=generator)
        except TaskError:  # no valid string is that short
            continue
        with torch.no_grad():
            predicted = model.last_logits(batch.tokens.to(model.device)).argmax(-1).cpu()
        wrong = (predicted != batch.last_labels).nonzero()
        if len(wrong):
            string = [task.machine.symbol_names[token] for token in batch.tokens[int(wrong[0])].tolist()]
            return (
                f"it misclassifies strings of {task.name}, such as {format_symbols(string, 20)!r}; train it until "
                "sdssm evaluate shows no mistake"
            )
    return None


def load_source(
    source: ModelSource, task: MachineSource | None = None, *, function: str = "extract", trust: bool = False
) -> LoadedSource:
    """Return the model of a source, and its run if it has one.

    A folder may hold a saved model, a run, or a single run in one of its subfolders. A module that someone else wrote
    gets the symbols and classes of the `task`. With `trust` the code of a model that is not part of this package is
    imported, as its folder names it. `function` is named in error messages.
    """
    model = find_model(source)
    if model is not None:
        return LoadedSource(model, None, "the model")
    if isinstance(source, nn.Module):
        if task is None:
            raise ExactError(
                f"a module such as {type(source).__name__} is not a token model with a task; name the task, as in "
                f"{function}(model, 'a5')"
            )
        return LoadedSource(as_token_model(source, get_task(task)), None, "the model")
    if isinstance(source, str | Path):
        path = folder_path(source)
        if is_model_folder(path):
            return LoadedSource(load(path, trust=trust), None, format_path(path))
    elif not isinstance(source, RunFolder | Sequence):
        raise ExactError(
            f"{format_value(source)} is not a token model; pass a model, an nn.Module, a run, or the folder of either"
        )
    run = only_run(source)
    return LoadedSource(load(run.path, trust=trust), run, format_path(run.path))


def resolve_machine(source: MachineSource | None) -> Machine | None:
    """Return the machine of any source of a machine; None stays None."""
    return source if source is None or isinstance(source, Machine) else get_task(source).machine


def check_task_fits(model: TokenModel, task: Task, *, all_classes: bool) -> None:
    """Raise an error unless a model has the symbols and, with `all_classes`, exactly the classes of a task."""
    fits = task.n_classes == model.n_classes if all_classes else task.n_classes <= model.n_classes
    if model.n_symbols != task.n_symbols or not fits:
        raise ExactError(
            f"the model has {model.n_symbols} symbols and {model.n_classes} classes, but {task.name} has "
            f"{task.n_symbols} and {task.n_classes}; pass the task that the model was trained or compiled for"
        )
    check_symbol_names(model, task)
