"""What an evaluation found, as frozen records. Accuracies are percent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sdssm.runs.events import finite

#: How strings were read: one set at every prefix, or other ones for each length.
PREFIXES, FRESH = "prefixes", "fresh"
#: What tells trainings apart, but for their seeds. The greatest length read too: means over other lengths differ.
TELLING = ("task", "model", "digest", "preset", "train_length", "max_length", "settings")


@dataclass(frozen=True, kw_only=True)
class RunEvaluation:
    """The accuracy of one model at each length, and what it comes to.

    `mean_within` is over lengths that were trained on, `mean_beyond` over longer ones; None where there are none.
    Bands hold the truth with about 95 % probability, as far as the choice of test strings goes. Where all strings fare
    alike, that of a mean is as wide as for a single length; where only a few differ it is too narrow, as they say
    little of what others do.
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
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)  #: those that are not the preset's
    status: str | None = None  #: of the run: finished, stopped, diverged or running
    digest: str | None = None  #: of the task, whatever it is called
    device: str | None = None  #: where the strings were read

    @property
    def diverged(self) -> bool:
        """Whether its training came to nothing: the accuracy is that of what it was before."""
        return self.status == "diverged"

    @property
    def at(self) -> Sequence[int]:
        """The lengths of the entries of `accuracy`."""
        return range(1, self.max_length + 1) if self.lengths is None else self.lengths

    def to_json(self) -> dict[str, Any]:
        """All of it, with null for what there is not."""
        return {field.name: finite(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """The best, mean and worst `mean` over the seeds of one training. Seeds that diverged are counted apart."""

    task: str
    model: str
    seeds: int
    max: float | None
    mean: float | None
    min: float | None
    diverged: int
    preset: str | None
    train_length: int
    max_length: int
    settings: Mapping[str, Any] = field(hash=False)  #: those that are not the preset's
    digest: str | None

    def to_json(self) -> dict[str, Any]:
        return {field.name: finite(getattr(self, field.name)) for field in fields(self)}


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
        """Over the seeds of each training."""
        return tuple(_aggregate(of) for of in groups(self.runs))

    def to_json(self) -> dict[str, Any]:
        return {"runs": [run.to_json() for run in self.runs], "aggregate": [one.to_json() for one in self.aggregate]}


def groups(runs: Sequence[RunEvaluation]) -> list[list[RunEvaluation]]:
    """The runs of each training: those that nothing but the seed tells apart."""
    found: dict[str, list[RunEvaluation]] = {}
    for run in runs:
        key = json.dumps([getattr(run, name) for name in TELLING], sort_keys=True)
        found.setdefault(key, []).append(run)
    return list(found.values())


def _aggregate(runs: list[RunEvaluation]) -> Aggregate:
    first, ended = runs[0], [run for run in runs if not run.diverged]
    means = [run.mean for run in ended if not math.isnan(run.mean)]
    return Aggregate(
        task=first.task,
        model=first.model,
        seeds=len(ended),
        max=max(means, default=None),
        mean=math.fsum(means) / len(means) if means else None,
        min=min(means, default=None),
        diverged=len(runs) - len(ended),
        preset=first.preset,
        train_length=first.train_length,
        max_length=first.max_length,
        settings=first.settings,
        digest=first.digest,
    )
