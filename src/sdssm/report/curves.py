"""Accuracy against length, from the JSON of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: From this length on the axis of lengths is logarithmic.
LOGARITHMIC_FROM = 2000


@dataclass(frozen=True, eq=False)
class Curve:
    """The mean over seeds at each length (percent), and the least and greatest of them; NaN where there is none."""

    name: str
    seeds: int
    train_length: int
    lengths: np.ndarray  # (K,)
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def curves(evaluation: Mapping[str, Any], *, each: bool = False) -> list[Curve]:
    """One curve for each task and model, over its seeds; with `each`, one for each run.

    >>> run = {"task": "a5", "model": "sd-ssm", "train_length": 1, "max_length": 2}
    >>> both = [{**run, "seed": 0, "accuracy": [100.0, 90.0]}, {**run, "seed": 1, "accuracy": [100.0, None]}]
    >>> [one] = curves({"runs": both})
    >>> one.name, one.seeds, one.mean.tolist()
    ('a5, sd-ssm', 2, [100.0, 90.0])
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for number, run in enumerate(evaluation["runs"]):
        # Only runs that were read at the same lengths have a mean.
        key = (run["task"], run["model"], run["train_length"], tuple(_lengths(run)), number if each else None)
        groups.setdefault(key, []).append(run)
    return [_curve(runs, each) for runs in groups.values()]


def logarithmic(lengths: np.ndarray) -> bool:
    """Whether the axis of these lengths is better logarithmic."""
    return int(lengths.max()) > LOGARITHMIC_FROM


def _curve(runs: Sequence[Mapping[str, Any]], each: bool) -> Curve:
    first = runs[0]
    seed = f", seed {first['seed']}" if each and first.get("seed") is not None else ""
    values = np.array([run["accuracy"] for run in runs], dtype=float)  # (R, K); None becomes NaN
    known = ~np.isnan(values)
    counted = known.sum(0)
    total = np.where(known, values, 0.0).sum(0)
    nothing = np.where(counted > 0, 0.0, np.nan)
    return Curve(
        name=f"{first['task']}, {first['model']}{seed}",
        seeds=len(runs),
        train_length=first["train_length"],
        lengths=np.array(_lengths(first)),
        mean=total / np.maximum(counted, 1) + nothing,
        low=np.where(known, values, np.inf).min(0) + nothing,
        high=np.where(known, values, -np.inf).max(0) + nothing,
    )


def _lengths(run: Mapping[str, Any]) -> Sequence[int]:
    listed = run.get("lengths")
    return range(1, run["max_length"] + 1) if listed is None else listed
