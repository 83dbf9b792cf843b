"""What an evaluation found, as frozen records. Accuracies are percent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

#: How strings were read: one set at every prefix, or other ones for each length.
PREFIXES, FRESH = "prefixes", "fresh"


@dataclass(frozen=True, kw_only=True)
class RunEvaluation:
    """The accuracy of one model at each length, and what it comes to.

    `mean_within` is over lengths that were trained on, `mean_beyond` over longer ones; None where there are none.
    Bands hold the truth with 95 % probability, as far as the choice of test strings goes.
    """

    task: str
    model: str
    seed: int | None  #: of the training
    train_length: int
    max_length: int
    mean: float  #: NaN where the task has no string as short
    mean_within: float | None
    mean_beyond: float | None
    first_below_99: int | None  #: the first length with an accuracy below 99
    accuracy: tuple[float, ...]  #: at each length; NaN where the task has no string as short
    lengths: tuple[int, ...] | None  #: of the entries of `accuracy`; None: 1, 2, 3, ...
    mean_band: tuple[float, float] | None
    within_band: tuple[float, float] | None
    beyond_band: tuple[float, float] | None
    accuracy_low: tuple[float, ...]
    accuracy_high: tuple[float, ...]
    mean_to: tuple[float, ...] | None  #: with `lengths`, read by prefixes: the mean over every length up to each
    spectral_radius: tuple[float, ...] | None  #: of each symbol's matrix; None where a symbol is not one matrix
    strings: int
    string_seed: int
    read: str  #: "prefixes" of one set of strings, or "fresh" strings for each length
    note: str | None = None  #: why the strings were not read as asked, or what else to know
    folder: str | None = None

    @property
    def at(self) -> Sequence[int]:
        """The lengths of the entries of `accuracy`."""
        return range(1, self.max_length + 1) if self.lengths is None else self.lengths

    def to_json(self) -> dict[str, Any]:
        """All of it, with null for what there is not."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """The best, mean and worst `mean` over the training seeds of one task and model."""

    task: str
    model: str
    seeds: int
    max: float | None
    mean: float | None
    min: float | None

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Evaluation:
    """Of each run, in the order given."""

    runs: tuple[RunEvaluation, ...]

    def __iter__(self) -> Iterator[RunEvaluation]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def aggregate(self) -> tuple[Aggregate, ...]:
        """Over the seeds of each task and model."""
        return tuple(_aggregate(task, model, of) for (task, model), of in groups(self.runs).items())

    def to_json(self) -> dict[str, Any]:
        return {"runs": [run.to_json() for run in self.runs], "aggregate": [one.to_json() for one in self.aggregate]}


def groups(runs: Sequence[RunEvaluation]) -> dict[tuple[str, str], list[RunEvaluation]]:
    """The runs of each task and model."""
    found: dict[tuple[str, str], list[RunEvaluation]] = {}
    for run in runs:
        found.setdefault((run.task, run.model), []).append(run)
    return found


def _aggregate(task: str, model: str, runs: list[RunEvaluation]) -> Aggregate:
    means = [run.mean for run in runs if not math.isnan(run.mean)]
    return Aggregate(
        task=task,
        model=model,
        seeds=len(runs),
        max=max(means, default=None),
        mean=math.fsum(means) / len(means) if means else None,
        min=min(means, default=None),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
