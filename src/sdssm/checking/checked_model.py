"""What a report card is about: a registered model, an import path, a module, a run or a saved model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from sdssm.devices import resolve_device
from sdssm.errors import ModelError, SettingsError, UnknownNameError, did_you_mean, format_value
from sdssm.evaluation.sources import as_token_model, check_symbol_names
from sdssm.files import format_path
from sdssm.models import TokenModel, list_models
from sdssm.models.building import untrained_model
from sdssm.models.import_paths import is_import_path
from sdssm.models.model_entry import ModelEntry
from sdssm.models.registry import find_entry
from sdssm.models.saved import is_model_folder
from sdssm.runs import RunFolder, load
from sdssm.runs.schema import choose_preset, resolve_settings
from sdssm.runs.single import find_model, folder_path, only_run
from sdssm.tasks import Task, get_task
from sdssm.training import train
from sdssm.training.progress import Progress

#: Where the weights come from: drawn at random, trained for the card, those of a run, of a saved model, or as given.
WeightsSource = Literal["initial", "trained", "run", "saved", "given"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckedModel:
    """The model of a report card, its task, and where its weights come from.

    Attributes:
        model: the model.
        task: the task on which it is checked.
        train_length: the longest strings of its training; for weights that are not ours, those of the task.
        weights: where they come from.
        seed, steps, status: of the training, if known.
        folder: of the run or the saved model, if it still exists.
    """

    model: TokenModel
    task: Task
    train_length: int
    weights: WeightsSource
    seed: int | None = None
    steps: int | None = None
    status: str | None = None
    folder: str | None = None

    def __post_init__(self) -> None:
        model, task = self.model, self.task
        if (model.n_symbols, model.n_classes) != (task.n_symbols, task.n_classes):
            raise ModelError(
                f"{model.name} has {model.n_symbols} symbols and {model.n_classes} classes, but {task.name} has "
                f"{task.n_symbols} and {task.n_classes}; check it on the task that it was built for"
            )
        check_symbol_names(model, task)

    @property
    def description(self) -> str:
        """The first line of the card: model, task, and whether it was trained."""
        name = f"{self.model.name} on {self.task.name}"
        steps = f" for {self.steps:,} steps" if self.steps is not None else ""
        seed = f", seed {self.seed}" if self.seed is not None else ""
        where = "" if self.folder is None else f" ({self.folder})"
        ended = "" if self.status in (None, "finished") else f", {self.status}"
        if self.weights == "initial":
            return f"{name}: NOT TRAINED, with the initial weights of seed {self.seed}"
        # The model was given more than strings and labels.
        targets = ", on the states of the automaton as targets" if _has_centres(self.model) else ""
        if self.weights in ("run", "trained"):
            return f"{name}: trained{steps}{seed}{targets}{ended}{where}"
        return f"{name}: with the weights of the saved model{where}" if self.weights == "saved" else f"{name}: as given"


def _has_centres(model: TokenModel) -> bool:
    """Return whether a model has centres for the states of the automaton, which it is then trained on."""
    return getattr(model.settings, "centres", None) is not None


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """How the model of a report card is built, trained or loaded; the fields are the arguments of `check`."""

    train: bool = False
    steps: int | None = None
    preset: str | None = None
    settings: Mapping[str, Any] | None = None
    out: str | Path | None = None
    overwrite: bool = False
    seed: int = 0
    device: str | torch.device = "auto"
    trust: bool = False
    training_progress: Progress | bool | None = None

    def refuse_training_options(self) -> None:
        """Raise an error if an option was passed that is of use only for a model that is built or trained here."""
        given = {"steps": self.steps, "preset": self.preset, "settings": self.settings or None}
        name = next((name for name, value in given.items() if value is not None), None)
        if name is not None:
            raise SettingsError(
                f"{name} is {format_value(given[name])}, but this model is not trained or built here; leave it out"
            )


def find_checked_model(source: Any, task: Any, request: ModelRequest) -> CheckedModel:
    """Return the model of a source, trained before if the request says so; source and task are those of `check`."""
    model = find_model(source)
    module = model if model is not None else source if isinstance(source, nn.Module) else None
    target = module if module is not None else _find_target(source)
    if isinstance(target, Path):
        if request.train:
            raise SettingsError(
                f"{format_path(target)} holds a model that is trained; leave train out, or name a model",
                shell=f"{format_path(target)} holds a model that is trained; leave --train out, or name a model",
            )
        request.refuse_training_options()
        return _in_folder(target, task, request)
    if isinstance(target, nn.Module) and not request.train:
        request.refuse_training_options()
        return _given(target, task, request.device)
    if task is None:
        raise _missing_task(source)
    if request.train:
        return _trained(target, get_task(task), request)
    assert isinstance(target, ModelEntry)
    return _untrained(target, get_task(task), request)


def _find_target(source: Any) -> ModelEntry | Path:
    """Return the entry of a name, an import path, a class or a function; or the folder of a run or a saved model."""
    if isinstance(source, str) and (source in list_models() or is_import_path(source)):
        return find_entry(source)
    if isinstance(source, str | Path):
        path = folder_path(source)
        if path.is_dir():
            return path if is_model_folder(path) else only_run(path).path
        names = list_models()
        listed = f"known models: {', '.join(names)}; or pass an import path, package.module:Name"
        raise UnknownNameError(
            f"there is no model and no folder {source!r}; {did_you_mean(str(source), names, listed)}"
        )
    if isinstance(source, RunFolder) or (isinstance(source, Sequence) and not callable(source)):
        return only_run(source).path
    return find_entry(source)


def _given(module: nn.Module, task: Any, device: str | torch.device) -> CheckedModel:
    own = module.task if isinstance(module, TokenModel) else None
    if task is None and own is None:
        raise _missing_task(module)
    chosen = get_task(own if task is None else task)
    model = as_token_model(module, chosen)
    if not (isinstance(device, str) and device == "auto"):  # a model has a device of its own
        model = model.to(resolve_device(device))
    return CheckedModel(model=model, task=chosen, train_length=chosen.train_length, weights="given")


def _in_folder(path: Path, task: Any, request: ModelRequest) -> CheckedModel:
    model = load(path, device=resolve_device(request.device), trust=request.trust)
    if task is None and model.task is None:
        raise _missing_task(path)
    chosen = model.task if task is None else get_task(task)
    assert chosen is not None
    if is_model_folder(path):
        return CheckedModel(
            model=model, task=chosen, train_length=chosen.train_length, weights="saved", folder=format_path(path)
        )
    return _of_run(RunFolder.open(path), model, chosen, "run")


def _of_run(run: RunFolder, model: TokenModel, task: Task, weights: WeightsSource) -> CheckedModel:
    return CheckedModel(
        model=model,
        task=task,
        train_length=run.config.train_length,
        weights=weights,
        seed=run.config.seed,
        steps=run.step,
        status=run.status,
        folder=format_path(run.path),
    )


def _untrained(entry: ModelEntry, task: Task, request: ModelRequest) -> CheckedModel:
    """Build a model with its initial weights."""
    steps, settings, preset = request.steps, request.settings or {}, request.preset
    if steps is not None:
        raise SettingsError(
            f"steps is {steps}, but nothing is trained; pass train=True, or leave steps out",
            shell=f"--steps is {steps}, but nothing is trained; add --train, or leave --steps out",
        )
    preset = preset or choose_preset(entry.name, task, settings.get("train_length"))
    resolved = resolve_settings(entry.name, preset, task, settings)
    model = untrained_model(resolved.model, task.n_symbols, task.n_classes, request.seed)
    return CheckedModel(
        model=model.to(resolve_device(request.device)).eval(),
        task=task,
        train_length=resolved.train.train_length or task.train_length,
        weights="initial",
        seed=request.seed,
    )


def _trained(target: ModelEntry | nn.Module, task: Task, request: ModelRequest) -> CheckedModel:
    """Train a model and return it; without `out` the run is not kept."""
    with ExitStack() as stack:
        folder = request.out
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sdssm-check-"))
        [run] = train(
            task,
            model=target.name if isinstance(target, ModelEntry) else target,
            preset=request.preset,
            seeds=[request.seed],
            steps=request.steps,
            device=request.device,
            out=folder,
            overwrite=request.overwrite,
            settings=request.settings,
            progress=request.training_progress,
        )
        model = load(run.path, device=resolve_device(request.device))
        checked = _of_run(run, model, task, "trained")
    return checked if request.out is not None else replace(checked, folder=None)


def _missing_task(source: Any) -> ModelError:
    name = format_path(source) if isinstance(source, Path) else source if isinstance(source, str) else "a model alone"
    return ModelError(
        f"{name} does not know its task; pass task=, as in sdssm.check(model, 'a5')",
        shell=f"{name} does not know its task; add it, as in --task a5",
    )
