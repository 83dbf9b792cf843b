"""Measure models at the lengths of a request: accuracy, balanced and covering accuracy, with their bands.

Models with the same settings read the same strings side by side, see `group_reading`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sdssm.devices import device_name
from sdssm.evaluation.correct_counts import (
    PROBED_STRINGS,
    CorrectCounts,
    SymbolCallback,
    count_models_on_fresh_strings,
    count_models_on_prefixes,
    have_growing_states,
    ignore_symbols,
)
from sdssm.evaluation.description import canonical_task_name
from sdssm.evaluation.group_reading import EvaluatedModel
from sdssm.evaluation.records import READ_FRESH, READ_PREFIXES, RunEvaluation
from sdssm.evaluation.request import EvaluationError, EvaluationRequest
from sdssm.evaluation.sampled_accuracy import SampledAccuracy, choose_lengths
from sdssm.evaluation.sampled_measurement import measure_models_sampled
from sdssm.evaluation.sources import check_symbol_names
from sdssm.evaluation.spectrum import spectral_radii
from sdssm.evaluation.statistics import (
    Interval,
    bootstrap_over_lengths,
    bootstrap_over_strings,
    first_below,
    mean,
    percents,
    wilson_intervals,
)
from sdssm.evaluation.symbol_meter import SymbolMeter
from sdssm.models import Classifier, TokenModel, WrappedModule
from sdssm.models.module_probe import check_reading
from sdssm.models.rescaled import RescaledModel
from sdssm.tasks import Task
from sdssm.tasks.evaluation_strings import EvaluationStrings
from sdssm.tasks.label_shares import best_constants


@dataclass(frozen=True, eq=False)
class _Setup:
    """What the models of a group share."""

    task: Task
    train_length: int
    request: EvaluationRequest
    lengths: np.ndarray  # (K,)
    groups: np.ndarray  # bool (3, K): all lengths, trained lengths, longer ones
    strings: EvaluationStrings
    fresh: bool
    best_constant: np.ndarray  # (K,), in percent


def measure_models(
    models: Sequence[TokenModel], task: Task, train_length: int, request: EvaluationRequest, meter: SymbolMeter
) -> list[RunEvaluation]:
    """Measure models with the same settings, on one device, on strings that are drawn once for all of them.

    Args:
        models: the models, at least one.
        task: their task.
        train_length: the greatest length that they were trained on.
        request: what to measure.
        meter: is called with the number of symbols that were read.
    """
    lengths = np.arange(1, task.test_length + 1) if request.lengths is None else request.lengths
    for model in models:
        _check_model(model, task, request, int(lengths[-1]))
    first = models[0]
    within = lengths <= train_length
    groups = np.stack([np.ones_like(within), within, ~within])
    random_start = first.settings.state_embedding is not None
    strings = EvaluationStrings(task, request.strings, request.seed, first.device, random_start)
    note = None if request.fresh else _why_prefixes_cannot_be_used(first, strings)
    fresh = request.fresh or note is not None
    probed = PROBED_STRINGS * int(lengths[-1]) if _can_be_rescaled(first) else 0
    # Strings that start in a random state are not drawn in other ways.
    measures = () if random_start else request.measures
    measured_lengths = choose_lengths(lengths.tolist()) if measures else []
    sampled_symbols = len(measures) * request.strings * sum(measured_lengths)
    meter.expect(len(models) * (probed + count_symbols(lengths, request.strings, fresh) + sampled_symbols))

    readers = choose_readers(models, strings, int(lengths[-1]), meter.read)
    all_counts = (
        count_models_on_fresh_strings(readers, strings, lengths, meter.read)
        if fresh
        else count_models_on_prefixes(readers, strings, lengths, groups, meter.read)
    )
    sampled = {
        name: measure_models_sampled(readers, strings, name, measured_lengths, meter.read)
        for name in measures
        if measured_lengths
    }
    constants = best_constants(task, lengths.tolist(), random_start=random_start)
    best_constant = np.array(constants, dtype=float)  # None becomes NaN
    setup = _Setup(task, train_length, request, lengths, groups, strings, fresh, best_constant)
    results = []
    for number, (model, reader, counts) in enumerate(zip(models, readers, all_counts, strict=True)):
        own_note = note
        if reader is not model:
            own_note = join_notes(note, "states exceed the range of its numbers, and are read by their direction only")
        if counts.overflowed:
            own_note = join_notes(own_note, "some logits were not finite, which counts as a wrong prediction")
        own_sampled = {name: measured[number] for name, measured in sampled.items()}
        results.append(_make_result(model, counts, own_sampled, own_note, setup))
    return results


def _check_model(model: TokenModel, task: Task, request: EvaluationRequest, longest: int) -> None:
    """Raise an error unless the model can be evaluated on strings of the task up to this length."""
    if (model.n_symbols, model.n_classes) != (task.n_symbols, task.n_classes):
        raise EvaluationError(
            f"the model has {model.n_symbols} symbols and {model.n_classes} classes, but {task.name} has "
            f"{task.n_symbols} and {task.n_classes}; evaluate it on the task it was built for"
        )
    check_symbol_names(model, task)
    if model.longest is not None and longest > model.longest:
        raise EvaluationError(
            f"{model.name} was built for strings of at most {model.longest:,} symbols, got {longest:,}; "
            f"choose a max_length up to {model.longest:,}"
        )
    if isinstance(model, WrappedModule) and not request.fresh:
        check_reading(model)  # its weights may have changed since it was wrapped


def _make_result(
    model: TokenModel,
    counts: CorrectCounts,
    sampled: Mapping[str, SampledAccuracy],
    note: str | None,
    setup: _Setup,
) -> RunEvaluation:
    """Return the evaluation of one model from its counts."""
    task, request, lengths, groups = setup.task, setup.request, setup.lengths, setup.groups
    accuracy, known = counts.accuracy, counts.correct >= 0
    low, high = wilson_intervals(np.where(known, counts.correct, 0), counts.strings)
    means = [mean(accuracy[group]) for group in groups]
    bands = [_mean_interval(counts, number, group & known, request.seed) for number, group in enumerate(groups)]
    matrices = model.symbol_matrices()
    return RunEvaluation(
        task=canonical_task_name(task),
        model=model.name,
        seed=None,
        train_length=setup.train_length,
        max_length=int(lengths[-1]),
        mean=math.nan if means[0] is None else 100 * means[0],
        mean_within=_percent(means[1]),
        mean_beyond=_percent(means[2]),
        first_below_99=first_below(lengths, accuracy, 0.99),
        accuracy=percents(accuracy),
        lengths=tuple(lengths.tolist()) if request.listed else None,
        mean_band=bands[0],
        within_band=bands[1],
        beyond_band=bands[2],
        accuracy_low=percents(np.where(known, low, np.nan).round(6)),
        accuracy_high=percents(np.where(known, high, np.nan).round(6)),
        mean_to=percents(counts.means) if request.listed and counts.means is not None else None,
        spectral_radius=None if matrices is None else tuple(spectral_radii(matrices.detach())),
        strings=counts.strings,
        string_seed=request.seed,
        read=READ_FRESH if setup.fresh else READ_PREFIXES,
        note=note,
        digest=task.digest,
        device=device_name(setup.strings.device),
        chance=task.chance_accuracy,
        best_constant=tuple(setup.best_constant.tolist()),
        best_constant_mean=mean(setup.best_constant),
        balanced=sampled.get("balanced"),
        covering=sampled.get("covering"),
    )


def choose_readers(
    models: Sequence[TokenModel],
    strings: EvaluationStrings,
    longest: int,
    on_read: SymbolCallback = ignore_symbols,
) -> list[EvaluatedModel]:
    """Return models with the same settings, each in the form in which strings up to a length are read.

    A model whose states would overflow at this length is read in a form that rescales them.
    """
    linear = [model for model in models if isinstance(model, Classifier) and _can_be_rescaled(model)]
    if len(linear) < len(models):
        return list(models)
    grows = have_growing_states(linear, strings, longest, on_read)
    return [RescaledModel(model) if grow else model for model, grow in zip(linear, grows, strict=True)]


def choose_reader(model: TokenModel, strings: EvaluationStrings, longest: int) -> EvaluatedModel:
    """Return how one model is read at a length, see `choose_readers`."""
    return choose_readers([model], strings, longest)[0]


def _can_be_rescaled(model: TokenModel) -> bool:
    return isinstance(model, Classifier) and RescaledModel.supports(model)


def count_symbols(lengths: np.ndarray, strings: int, fresh: bool) -> int:
    """Return how many symbols are read for the accuracy at these lengths."""
    return strings * int(lengths.sum() if fresh else lengths.max())


def join_notes(*notes: str | None) -> str | None:
    """Join the notes that are not empty."""
    return "; ".join(note for note in notes if note) or None


def _why_prefixes_cannot_be_used(model: TokenModel, strings: EvaluationStrings) -> str | None:
    """Return the reason why each length needs fresh strings, or None if prefixes can be used."""
    if isinstance(model, WrappedModule) and model.reads == "strings":
        return "fresh strings for each length: the model reads whole strings only"
    if not model.is_causal:
        return "fresh strings for each length: the prediction for a prefix depends on the symbols after it"
    if not model.can_read_prefixes_at_once:
        return "fresh strings for each length: the model reads a prefix differently from a string of that length"
    if strings.positions is None:
        return "fresh strings for each length: prefixes of uniformly drawn valid strings are not uniformly drawn"
    return None


def _mean_interval(counts: CorrectCounts, number: int, group: np.ndarray, seed: int) -> Interval | None:
    """Return the interval of the mean over a group of lengths, in percent.

    All groups use the same resamples.
    """
    if not group.any():
        return None
    if counts.scores is not None:
        low, high = bootstrap_over_strings(counts.scores[number] / group.sum(), seed)
    else:
        low, high = bootstrap_over_lengths(counts.correct[group], counts.strings, np.random.default_rng(seed))
    return 100 * low, 100 * high


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
