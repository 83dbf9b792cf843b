"""Accuracy against length, from the JSON of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdssm.report.differences import told_apart, training

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
    """One curve for each training, over its seeds; with `each`, one for each run. What diverged comes apart, and last.

    It is called by the `label` of its runs, or by what tells them apart.

    >>> run = {"task": "a5", "model": "sd-ssm", "train_length": 1, "max_length": 2}
    >>> both = [{**run, "seed": 0, "accuracy": [100.0, 90.0]}, {**run, "seed": 1, "accuracy": [100.0, None]}]
    >>> [one] = curves({"runs": both})
    >>> one.name, one.seeds, one.mean.tolist()
    ('a5, sd-ssm', 2, [100.0, 90.0])
    """
    runs = sorted(evaluation["runs"], key=_diverged)
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    names: dict[tuple[Any, ...], str] = {}
    for number, (run, apart) in enumerate(zip(runs, told_apart(runs), strict=True)):
        # Only runs that were read at the same lengths have a mean.
        key = (training(run), _diverged(run), tuple(_lengths(run)), number if each else None)
        groups.setdefault(key, []).append(run)
        names[key] = _name(run, apart, each)
    return [_curve(names[key], of) for key, of in groups.items()]


def logarithmic(lengths: np.ndarray) -> bool:
    """Whether the axis of these lengths is better logarithmic."""
    return int(lengths.max()) > LOGARITHMIC_FROM


def _diverged(run: Mapping[str, Any]) -> bool:
    return run.get("status") == "diverged"


def _name(run: Mapping[str, Any], apart: str, each: bool) -> str:
    seed = f"seed {run['seed']}" if each and run.get("seed") is not None else ""
    ended = "diverged" if _diverged(run) else ""
    called = [run["label"]] if run.get("label") else [run["task"], run["model"], apart]
    return ", ".join(word for word in (*called, seed, ended) if word)


def _curve(name: str, runs: Sequence[Mapping[str, Any]]) -> Curve:
    first = runs[0]
    values = np.array([run["accuracy"] for run in runs], dtype=float)  # (R, K); None becomes NaN
    known = ~np.isnan(values)
    counted = known.sum(0)
    total = np.where(known, values, 0.0).sum(0)
    nothing = np.where(counted > 0, 0.0, np.nan)
    return Curve(
        name=name,
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
