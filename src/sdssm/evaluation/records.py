"""The results of an evaluation, as frozen records. Accuracies are in percent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sdssm.display import Displayed, ResultTable
from sdssm.evaluation.sampled_accuracy import MEASURES, SampledAccuracy
from sdssm.evaluation.tables import describe_headline, tabulate_evaluations
from sdssm.formatting import UNKNOWN, count_of, format_chance, format_percent
from sdssm.runs.events import to_json_value

#: How strings were drawn: all lengths as prefixes of the same strings, or fresh strings for each length.
READ_PREFIXES, READ_FRESH = "prefixes", "fresh"
#: The fields in which two runs of the same training agree; they differ in the seed only. The greatest length is one of
#: them because means over different lengths cannot be compared.
TRAINING_FIELDS = ("task", "model", "digest", "preset", "train_length", "max_length", "settings")
#: The fields of a run that are repeated in each row of a data frame.
RECORD_FIELDS = ("task", "model", "preset", "seed", "folder", "status", "train_length", "chance")
#: A model fails at a length if its accuracy there is below this many percent.
FAILING = 99.0
#: The properties of a run that its JSON has besides its fields.
HEADLINE_FIELDS = ("headline", "headline_name", "headline_chance")


@dataclass(frozen=True, kw_only=True, repr=False)
class RunEvaluation(Displayed):
    """The accuracy of one model at each length, and its means. Accuracies are in percent.

    `mean_within` is over lengths up to the training length, `mean_beyond` over greater ones; None if there are none.
    It prints as a table, and `to_pandas()` has one row for each length. `headline` is the number to quote.

    Bands are 95 % confidence intervals with respect to the choice of the test strings. If all strings have the same
    score, the band of a mean is as wide as at a single length. If only a few strings differ it is too narrow, because
    few strings say little about others.
    """

    task: str
    model: str
    seed: int | None  #: of the training
    train_length: int
    max_length: int
    mean: float  #: NaN if the task has no string that short
    mean_within: float | None
    mean_beyond: float | None
    first_below_99: int | None  #: the first length with an accuracy below 99
    accuracy: tuple[float, ...]  #: at each length; NaN if the task has no string that short
    lengths: tuple[int, ...] | None  #: of the entries of `accuracy`; None: 1, 2, 3, ...
    mean_band: tuple[float, float] | None
    within_band: tuple[float, float] | None
    beyond_band: tuple[float, float] | None
    accuracy_low: tuple[float, ...]
    accuracy_high: tuple[float, ...]
    mean_to: tuple[float, ...] | None  #: with `lengths` and prefixes: the mean over every length up to each
    spectral_radius: tuple[float, ...] | None  #: of each symbol's matrix; None if a symbol is not a single matrix
    strings: int
    string_seed: int
    read: str  #: "prefixes" or "fresh"
    note: str | None = None  #: why fresh strings were used although not requested, or other remarks
    folder: str | None = None
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)  #: those that differ from the preset
    status: str | None = None  #: of the run: finished, stopped, diverged or running
    digest: str | None = None  #: fingerprint of the task, independent of its name
    device: str | None = None  #: where the model was evaluated
    chance: float | None = None  #: the accuracy of predicting labels uniformly at random; None in older files
    #: At each length, the accuracy of always answering the label that is most frequent there, from the machine.
    best_constant: tuple[float, ...] | None = None
    best_constant_mean: float | None = None  #: over all lengths, as `mean`
    balanced: SampledAccuracy | None = None  #: on strings with equally frequent labels; None if not measured
    covering: SampledAccuracy | None = None  #: on strings that end in each transition equally often

    @property
    def headline(self) -> float:
        """The one number for this model: the mean balanced accuracy, or the mean accuracy if that was not measured.

        On balanced strings a constant answer scores exactly chance, for every task. The accuracy has no such guarantee:
        `headline_chance` is then what the best constant answer scores.
        """
        return self.mean if self.balanced is None else self.balanced.mean

    @property
    def headline_name(self) -> str:
        """What the headline is: "balanced accuracy" or "accuracy"."""
        return "accuracy" if self.balanced is None else "balanced accuracy"

    @property
    def headline_chance(self) -> float | None:
        """The headline of a model that has learned nothing: of the best constant answer."""
        if self.balanced is not None:
            return self.balanced.best_constant_mean
        return self.chance if self.best_constant_mean is None else self.best_constant_mean

    @property
    def first_failure(self) -> int | None:
        """The first length with an accuracy below 99 %, or with a balanced accuracy below it; None if there is none."""
        balanced = () if self.balanced is None else zip(self.balanced.lengths, self.balanced.accuracy, strict=True)
        failed = [length for length, share in balanced if share < FAILING]
        return min([*failed, *([] if self.first_below_99 is None else [self.first_below_99])], default=None)

    @property
    def diverged(self) -> bool:
        """Whether the training diverged. The accuracy is that of its last checkpoint."""
        return self.status == "diverged"

    @property
    def evaluated_lengths(self) -> Sequence[int]:
        """The lengths of the entries of `accuracy`."""
        return range(1, self.max_length + 1) if self.lengths is None else self.lengths

    def __repr__(self) -> str:
        return f"<RunEvaluation: {self._describe()}>"

    def _describe(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.model} on {self.task}{seed}: {describe_headline(self)}"

    def to_table(self) -> ResultTable:
        """Return the table that is printed: one row with the means, or the accuracy at the listed lengths."""
        return tabulate_evaluations([self])

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each length: the run, the length, and what was measured there.

        That is the accuracy with its band, the best constant answer, and the balanced and the covering accuracy, which
        are None at the lengths without them.
        """
        run = {name: getattr(self, name) for name in RECORD_FIELDS}
        unknown = [None] * len(self.accuracy)
        columns = {
            "length": self.evaluated_lengths,
            "accuracy": self.accuracy,
            "accuracy_low": self.accuracy_low,
            "accuracy_high": self.accuracy_high,
            "best_constant": unknown if self.best_constant is None else self.best_constant,
        }
        for name in MEASURES:
            sampled = getattr(self, name)
            columns[name] = unknown if sampled is None else [sampled.at(length) for length in self.evaluated_lengths]
        return [{**run, **dict(zip(columns, row, strict=True))} for row in zip(*columns.values(), strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return all fields and the headline as JSON values, with null for None and NaN."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: None if values[name] is None else values[name].to_json() for name in MEASURES}
        values |= {name: getattr(self, name) for name in HEADLINE_FIELDS}
        return {name: to_json_value(value) for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """The best, mean and worst `mean` over the seeds of one training, and the same of the headline.

    Diverged seeds are counted separately.
    """

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
    settings: Mapping[str, Any] = field(hash=False)  #: those that differ from the preset
    digest: str | None
    chance: float | None = None
    best_constant: float | None = None  #: the mean accuracy of the best constant answer
    headline_name: str = "accuracy"  #: "balanced accuracy", if all seeds have it
    headline_max: float | None = None
    headline_mean: float | None = None
    headline_min: float | None = None
    headline_chance: float | None = None  #: the headline of a constant answer

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, with null for None and NaN."""
        return {field.name: to_json_value(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, repr=False)
class Evaluation(Displayed):
    """The evaluations of several runs, in the order in which they were given.

    It prints as a table with one row for each run, as text or as HTML in a notebook. `to_pandas()` is in long form, as
    plotting libraries take it: one row for each run and length.
    """

    runs: tuple[RunEvaluation, ...]

    def __iter__(self) -> Iterator[RunEvaluation]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index: int) -> RunEvaluation:
        return self.runs[index]

    def __repr__(self) -> str:
        if len(self.runs) == 1:
            return f"<Evaluation: {self.runs[0]._describe()}>"
        names = " or ".join(dict.fromkeys(run.headline_name for run in self.runs))
        values = [run.headline for run in self.runs if not math.isnan(run.headline)]
        ends = " to ".join(dict.fromkeys(map(format_percent, (min(values), max(values))))) if values else UNKNOWN
        chance = format_chance(*(run.headline_chance for run in self.runs))
        word = "balanced chance" if names == "balanced accuracy" else "chance"
        return f"<Evaluation: {count_of(len(self.runs), 'run')}, {names} {ends} %, {word} {chance} %>"

    def to_table(self) -> ResultTable:
        """Return the table that is printed: one row for each run."""
        return tabulate_evaluations(self.runs)

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each run and length."""
        return [record for run in self.runs for record in run.to_records()]

    @property
    def aggregate(self) -> tuple[Aggregate, ...]:
        """The aggregate over the seeds of each training."""
        return tuple(_aggregate(runs) for runs in group_by_training(self.runs))

    def to_json(self) -> dict[str, Any]:
        """Return the runs and the aggregates as JSON values."""
        return {
            "runs": [run.to_json() for run in self.runs],
            "aggregate": [summary.to_json() for summary in self.aggregate],
        }


def group_by_training(runs: Sequence[RunEvaluation]) -> list[list[RunEvaluation]]:
    """Group the runs by training: runs of one group differ in their seeds only."""
    by_training: dict[str, list[RunEvaluation]] = {}
    for run in runs:
        key = json.dumps([getattr(run, name) for name in TRAINING_FIELDS], sort_keys=True)
        by_training.setdefault(key, []).append(run)
    return list(by_training.values())


def _aggregate(runs: list[RunEvaluation]) -> Aggregate:
    first, ended = runs[0], [run for run in runs if not run.diverged]
    means = [run.mean for run in ended if not math.isnan(run.mean)]
    headlines = [run.headline for run in ended if not math.isnan(run.headline)]
    names = {run.headline_name for run in ended}
    is_comparable = len(names) == 1  # an older evaluation may lack the balanced accuracy
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
        chance=first.chance,
        best_constant=first.best_constant_mean,
        headline_name=names.pop() if is_comparable else "accuracy",
        headline_max=max(headlines, default=None) if is_comparable else None,
        headline_mean=math.fsum(headlines) / len(headlines) if is_comparable and headlines else None,
        headline_min=min(headlines, default=None) if is_comparable else None,
        headline_chance=first.headline_chance,
    )
