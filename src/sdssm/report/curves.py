"""Accuracy-against-length curves, from the JSON of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    names: dict[tuple[Any, ...], str] = {}
    for number, (run, difference) in enumerate(zip(runs, describe_differences(runs), strict=True)):
        # A mean exists only for runs that were evaluated at the same lengths.
        key = (training_key(run), _is_diverged(run), tuple(_lengths(run)), number if each else None)
        groups.setdefault(key, []).append(run)
        names[key] = _curve_name(run, difference, each)
    return [_make_curve(names[key], group) for key, group in groups.items()]


def has_log_axis(lengths: np.ndarray) -> bool:
    """Return whether these lengths are shown on a logarithmic axis."""
    return int(lengths.max()) > LOGARITHMIC_FROM


def _is_diverged(run: Mapping[str, Any]) -> bool:
    return run.get("status") == "diverged"


def _curve_name(run: Mapping[str, Any], difference: str, each: bool) -> str:
    seed = f"seed {run['seed']}" if each and run.get("seed") is not None else ""
    status = "diverged" if _is_diverged(run) else ""
    words = [run["label"]] if run.get("label") else [run["task"], run["model"], difference]
    return ", ".join(word for word in (*words, seed, status) if word)


def _make_curve(name: str, runs: Sequence[Mapping[str, Any]]) -> Curve:
    first = runs[0]
    values = np.array([run["accuracy"] for run in runs], dtype=float)  # (R, K); None becomes NaN
    known = ~np.isnan(values)
    count = known.sum(0)
    total = np.where(known, values, 0.0).sum(0)
    nan_where_unknown = np.where(count > 0, 0.0, np.nan)
    return Curve(
        name=name,
        seeds=len(runs),
        train_length=first["train_length"],
        lengths=np.array(_lengths(first)),
        mean=total / np.maximum(count, 1) + nan_where_unknown,
        low=np.where(known, values, np.inf).min(0) + nan_where_unknown,
        high=np.where(known, values, -np.inf).max(0) + nan_where_unknown,
        chance=first.get("chance"),
    )


def _lengths(run: Mapping[str, Any]) -> Sequence[int]:
    listed = run.get("lengths")
    return range(1, run["max_length"] + 1) if listed is None else listed
