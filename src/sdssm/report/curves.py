"""Accuracy-against-length curves, from the JSON of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdssm.report.differences import describe_differences, training_key

#: The axis of lengths is logarithmic if the longest is above this.
LOGARITHMIC_FROM = 2000


@dataclass(frozen=True, eq=False)
class Curve:
    """Accuracy at each length in percent: mean, minimum and maximum over seeds; NaN if unknown."""

    name: str
    seeds: int
    train_length: int
    lengths: np.ndarray  # (K,)
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    chance: float | None = None  #: the accuracy of guessing, in percent; None if the evaluation does not contain it
    task: str = ""
    model: str = ""
    detail: str = ""  #: what distinguishes it from other curves of its task and model
    has_label: bool = False  #: whether `name` is the label of its runs and not made of task and model
    listed: bool = False  #: whether it was measured at lengths that were asked for one by one
    strings: int | None = None  #: per length; None if the evaluation does not contain it
    best_constant: float | None = None  #: the mean accuracy of the best constant answer; None if it is not known
    balanced: tuple[tuple[int, float], ...] = ()  #: lengths with their balanced accuracy, mean over seeds
    neighbours: int = 1  #: lengths that an entry is a mean of; more than 1 after `smooth_curve`


def make_curves(evaluation: Mapping[str, Any], *, each: bool = False) -> list[Curve]:
    """Return a curve for each training, over its seeds; with `each`, a curve for each run.

    A curve is named by the `label` of its runs, or by their task, model and what distinguishes them. Diverged runs have
    separate curves, which come last.

    >>> run = {"task": "a5", "model": "sd-ssm", "train_length": 1, "max_length": 2}
    >>> runs = [{**run, "seed": 0, "accuracy": [100.0, 90.0]}, {**run, "seed": 1, "accuracy": [100.0, None]}]
    >>> [curve] = make_curves({"runs": runs})
    >>> curve.name, curve.seeds, curve.mean.tolist()
    ('a5, sd-ssm', 2, [100.0, 90.0])
    """
    runs = sorted(evaluation["runs"], key=_is_diverged)
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    details: dict[tuple[Any, ...], str] = {}
    for number, (run, difference) in enumerate(zip(runs, describe_differences(runs), strict=True)):
        # A mean exists only for runs that were evaluated at the same lengths.
        key = (training_key(run), _is_diverged(run), tuple(_lengths(run)), number if each else None)
        groups.setdefault(key, []).append(run)
        details[key] = _detail(run, difference, each)
    return [_make_curve(details[key], group) for key, group in groups.items()]


def short_names(curves: Sequence[Curve]) -> list[str]:
    """Return the names of curves without the task or the model that all of them share.

    >>> run = {"seed": 0, "train_length": 1, "max_length": 1, "accuracy": [100.0]}
    >>> runs = [{**run, "task": "a5", "model": name} for name in ("sd-ssm", "lstm")]
    >>> short_names(make_curves({"runs": runs})), short_names(make_curves({"runs": runs[:1]}))
    (['sd-ssm', 'lstm'], ['sd-ssm'])
    """
    several_tasks = len({curve.task for curve in curves}) > 1
    several_models = len({curve.model for curve in curves}) > 1
    needs_model = several_models or not (several_tasks or all(curve.detail for curve in curves))
    return [
        curve.name
        if curve.has_label or not curve.model
        else join_words([curve.task if several_tasks else "", curve.model if needs_model else "", curve.detail])
        for curve in curves
    ]


def join_words(words: Iterable[str]) -> str:
    """Join the words that are not empty by commas."""
    return ", ".join(word for word in words if word)


def has_log_axis(lengths: np.ndarray) -> bool:
    """Return whether these lengths are shown on a logarithmic axis."""
    return int(lengths.max()) > LOGARITHMIC_FROM


def _is_diverged(run: Mapping[str, Any]) -> bool:
    return run.get("status") == "diverged"


def _detail(run: Mapping[str, Any], difference: str, each: bool) -> str:
    seed = f"seed {run['seed']}" if each and run.get("seed") is not None else ""
    status = "diverged" if _is_diverged(run) else ""
    return join_words(["" if run.get("label") else difference, seed, status])


def _make_curve(detail: str, runs: Sequence[Mapping[str, Any]]) -> Curve:
    first = runs[0]
    label = first.get("label")
    values = np.array([run["accuracy"] for run in runs], dtype=float)  # (R, K); None becomes NaN
    known = ~np.isnan(values)
    count = known.sum(0)
    total = np.where(known, values, 0.0).sum(0)
    nan_where_unknown = np.where(count > 0, 0.0, np.nan)
    return Curve(
        name=join_words([*([label] if label else [first["task"], first["model"]]), detail]),
        seeds=len(runs),
        train_length=first["train_length"],
        lengths=np.array(_lengths(first)),
        mean=total / np.maximum(count, 1) + nan_where_unknown,
        low=np.where(known, values, np.inf).min(0) + nan_where_unknown,
        high=np.where(known, values, -np.inf).max(0) + nan_where_unknown,
        chance=first.get("chance"),
        task=first["task"],
        model=first["model"],
        detail=detail,
        has_label=bool(label),
        listed=first.get("has_ticks_at_lengths", first.get("lengths") is not None),
        strings=first.get("strings"),
        best_constant=first.get("best_constant_mean"),
        balanced=_balanced(runs),
    )


def _balanced(runs: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, float], ...]:
    """Return the balanced accuracy at each length that all runs have it at; evaluations of older versions have none."""
    by_run = []
    for run in runs:
        values = run.get("balanced") or {}
        pairs = zip(values.get("lengths", ()), values.get("accuracy", ()), strict=True)
        by_run.append({length: share for length, share in pairs if share is not None})
    shared = set.intersection(*map(set, by_run))
    return tuple((length, float(np.mean([shares[length] for shares in by_run]))) for length in sorted(shared))


def _lengths(run: Mapping[str, Any]) -> Sequence[int]:
    listed = run.get("lengths")
    return range(1, run["max_length"] + 1) if listed is None else listed
