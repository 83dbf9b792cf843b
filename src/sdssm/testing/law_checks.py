"""Check a model against the laws."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from sdssm.errors import ModelError, first_line, format_value
from sdssm.models import TokenModel
from sdssm.models.building import untrained_model
from sdssm.models.modes import evaluation_mode
from sdssm.tasks import Task
from sdssm.testing.catalogue import find_laws
from sdssm.testing.law import DoesNotApply, Law, LawBroken, LawResult
from sdssm.testing.law_case import LawCase
from sdssm.testing.readable_length import find_readable_length
from sdssm.testing.reading_laws import FAR
from sdssm.testing.saving_law import has_known_code

#: A model that reads this many symbols, but not many more, is checked with shorter strings than others.
LEAST_LENGTH = 12


def check_laws(
    model: TokenModel, *, task: Task | None = None, seed: int = 0, laws: Iterable[str | Law] | None = None
) -> tuple[LawResult, ...]:
    """Check a model, trained or not, against the laws; return one result for each.

    Args:
        model: any model; it is not changed. A module of your own is made one by `sdssm.models.wrap_module`.
        task: the task whose valid strings it reads; None: random strings.
        seed: the seed of the strings.
        laws: the laws or their names; None: all that say something about a single model.

    A broken law is a result, not an error, and so is a law in which the model raises one.

    >>> from sdssm.models import wrap_module
    >>> model = wrap_module(torch.nn.Embedding(2, 3), n_symbols=2, n_classes=3)
    >>> for result in check_laws(model, laws=["causal", "chunks"]):
    ...     print(result.name, result.passed, result.detail, sep="; ")
    causal; True; no change
    chunks; None; it has no state (no advance(tokens, state)), so it reads whole strings only
    """
    if not isinstance(model, TokenModel):
        raise ModelError(
            f"the model is {format_value(model)}; wrap it with sdssm.models.wrap_module(module, n_symbols, n_classes), "
            "or use sdssm.testing.check_model"
        )
    if task is not None and task.n_symbols != model.n_symbols:
        raise ModelError(
            f"the model reads {model.n_symbols} symbols but the task {task.name} has {task.n_symbols}; pass the task "
            "that it was built for"
        )
    chosen = [law for law in find_laws(laws) if laws is not None or not law.needs_factory]
    return tuple(check_law(law, model, task=task, seed=seed) for law in chosen)


def check_law(
    law: Law,
    model: TokenModel,
    *,
    task: Task | None = None,
    seed: int = 0,
    build_another: Callable[[int], TokenModel] | None = None,
) -> LawResult:
    """Check a model against one law. `build_another` builds the same model from another seed.

    A model that raises an error for long strings is checked with the longest that it reads, and the detail says so.
    """
    another = build_another or _find_factory(model)
    try:
        return _check_case(law, LawCase(_copy_model(model), task, seed, another))
    except Exception as error:  # someone else's code may raise anything
        line = _describe_error(error)
    longest = find_readable_length(model, FAR)
    if LEAST_LENGTH <= longest < FAR and longest != model.longest:
        try:
            result = _check_case(law, LawCase(_copy_model(model), task, seed, another, longest))
            return replace(result, detail=f"{result.detail}; with at most {longest} symbols, because {line}")
        except Exception as error:
            line = _describe_error(error)
    return LawResult(law.name, law.title, False, line)


def _check_case(law: Law, case: LawCase) -> LawResult:
    """Check a law; an error of the model is raised."""
    # A law may change the state of a model, and random numbers; neither the caller nor the next law must see that.
    cuda = [case.model.device] if case.model.device.type == "cuda" else []
    with evaluation_mode(case.model), torch.random.fork_rng(devices=cuda), torch.no_grad():
        torch.manual_seed(case.seed)
        try:
            return LawResult(law.name, law.title, True, law.check(case))
        except LawBroken as broken:
            return LawResult(law.name, law.title, False, str(broken))
        except DoesNotApply as reason:
            return LawResult(law.name, law.title, None, str(reason))


def _copy_model(model: TokenModel) -> TokenModel:
    try:
        return copy.deepcopy(model)
    except Exception:  # such as tensors that autograd has computed, which cannot be copied
        return model


def _find_factory(model: TokenModel) -> Callable[[int], TokenModel] | None:
    """Return a function that builds the same model from another seed, if its code is known."""
    if not has_known_code(model):
        return None
    settings = model.settings
    return lambda seed: untrained_model(settings, model.n_symbols, model.n_classes, seed)


def _describe_error(error: Exception) -> str:
    line = first_line(error)
    return line if isinstance(error, ModelError) else f"it raises {type(error).__name__}: {line}"
