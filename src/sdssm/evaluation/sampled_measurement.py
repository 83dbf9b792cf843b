"""Measure the accuracy on balanced or covering strings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sdssm.evaluation.correct_counts import SymbolCallback, count_by_label, ignore_symbols
from sdssm.evaluation.group_reading import EvaluatedModel
from sdssm.evaluation.sampled_accuracy import SampledAccuracy
from sdssm.evaluation.statistics import bootstrap_over_lengths, mean, percents, wilson_intervals
from sdssm.tasks.evaluation_strings import EvaluationStrings
from sdssm.tasks.label_shares import best_constants


def measure_sampled(
    model: EvaluatedModel,
    strings: EvaluationStrings,
    sampling: str,
    lengths: Sequence[int],
    on_read: SymbolCallback = ignore_symbols,
) -> SampledAccuracy:
    """Measure the accuracy of a model on strings that are drawn in one way, see `measure_models_sampled`."""
    return measure_models_sampled([model], strings, sampling, lengths, on_read)[0]


def measure_models_sampled(
    models: Sequence[EvaluatedModel],
    strings: EvaluationStrings,
    sampling: str,
    lengths: Sequence[int],
    on_read: SymbolCallback = ignore_symbols,
) -> list[SampledAccuracy]:
    """Measure the accuracy of several models on strings that are drawn in one way, fresh for each length.

    Args:
        models: the models.
        strings: what to draw: task, number, seed and device.
        sampling: how to draw them.
        lengths: the lengths, at least one.
        on_read: called after each part, with the number of symbols in it.
    """
    drawn_so = replace(strings, sampling=sampling)
    correct, drawn, _ = count_by_label(models, drawn_so, np.array(lengths), on_read)
    if sampling == "balanced":  # exact for these strings: a label may be missing if there are few strings for each
        constants = 100 / _at_least_1((drawn > 0).sum(1))
    else:
        constants = np.array(best_constants(strings.task, lengths, sampling), dtype=float)  # None becomes NaN
    return [_summarise(own, drawn, constants, strings, sampling, lengths) for own in correct]


def _summarise(
    correct: np.ndarray,
    drawn: np.ndarray,
    constants: np.ndarray,
    strings: EvaluationStrings,
    sampling: str,
    lengths: Sequence[int],
) -> SampledAccuracy:
    """Return the accuracy of one model from its correct strings (K, C) of those that were drawn (K, C)."""
    shares = _mean_over_labels(correct, drawn) if sampling == "balanced" else correct.sum(1) / _at_least_1(drawn.sum(1))
    known = drawn.sum(1) > 0
    shares = np.where(known, shares, np.nan)
    low, high = wilson_intervals(np.where(known, shares, 0.0) * strings.count, strings.count)
    share, band = mean(shares), None
    if known.any():
        generator = np.random.default_rng(strings.seed)
        low_mean, high_mean = bootstrap_over_lengths(shares[known] * strings.count, strings.count, generator)
        band = 100 * low_mean, 100 * high_mean
    return SampledAccuracy(
        sampling=sampling,
        lengths=tuple(int(length) for length in lengths),
        accuracy=percents(shares),
        low=percents(np.where(known, low, np.nan).round(6)),
        high=percents(np.where(known, high, np.nan).round(6)),
        best_constant=tuple(np.where(known, constants, np.nan).tolist()),
        mean=math.nan if share is None else 100 * share,
        band=band,
        strings=strings.count,
    )


def _mean_over_labels(correct: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Return the mean over labels of the share of correct strings: (K, C) -> (K,).

    The labels of a sample are not exactly equally frequent. Counted in this way, a constant answer still scores exactly
    1 over the number of labels.

    >>> _mean_over_labels(np.array([[250, 0]]), np.array([[250, 262]])).tolist()
    [0.5]
    """
    recalls: np.ndarray = correct / _at_least_1(drawn)
    return np.asarray(recalls.sum(1) / _at_least_1((drawn > 0).sum(1)))


def _at_least_1(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(numbers, 1))
