"""The data of an experiment: rows to train, lengths to evaluate, scores, timings and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sdssm.experiments.specs.scores import Score
from sdssm.experiments.specs.search_space import Range, SearchSpace
from sdssm.limits import LONGEST_STRING, MOST_STRINGS
from sdssm.settings import check_between

#: accuracy: train and evaluate models; timing: time the scans; claims: compare numbers of the paper with other results.
KINDS = ("accuracy", "timing", "claims")
#: How the best candidate of a grid is chosen: by accuracy at training lengths, or by the score itself, as published.
CHOICES = ("within", "score")
#: The preset of a row whose preset is chosen for each task, as `sdssm train` chooses it.
AUTO_PRESET = "auto"
#: The number of seeds of an experiment that does not set it.
DEFAULT_SEEDS = 3
#: What a claim is compared with: the max or average of a cell, or two values of the cell's best run.
FIGURES = ("max", "average", "within", "first_below_99")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table: a model, its settings, and the tasks it is trained on.

    With a `grid`, every combination of its values is a candidate, and a cell shows the best candidate.
    """

    model: str
    label: str
    tasks: tuple[str, ...]
    preset: str  #: a name, or "auto"
    seeds: tuple[int, ...]
    column: str | None = None  #: column of its cells; None: the name of the task
    score: str | None = None  #: score shown first, if the published number is over other lengths
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, Range] = field(default_factory=dict, hash=False)  #: ranges that only a sweep samples from
    candidates: Sequence[Mapping[str, Any]] | None = field(default=None, hash=False)  #: chosen by a sweep; None: grid

    def column_of(self, task: str) -> str:
        """Return the column of the table in which this row shows a task."""
        return task if self.column is None else self.column

    def variants(self) -> Iterator[dict[str, Any]]:
        """Yield the settings of every candidate; without a grid, one empty dictionary."""
        yield from self.space.grid() if self.candidates is None else map(dict, self.candidates)

    @property
    def space(self) -> SearchSpace:
        """The search space of a sweep over this row."""
        return SearchSpace(choices=self.grid, ranges=self.ranges)


@dataclass(frozen=True, kw_only=True)
class EvaluationSpec:
    """How the runs of an experiment are evaluated, and the scores that are computed."""

    max_length: int | None = None  #: every length up to this one; None: the task's test length
    fresh: bool = False
    strings: int = 512
    lengths: tuple[int, ...] = ()
    scores: tuple[Score, ...] = (Score("all"), Score("beyond"))

    def __post_init__(self) -> None:  # as the evaluation would, but before anything is trained for it
        check_between("strings", self.strings, 1, MOST_STRINGS)
        if self.max_length is not None:
            check_between("max_length", self.max_length, 1, LONGEST_STRING)
        for length in self.lengths:
            check_between("a length", length, 1, LONGEST_STRING)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A number in the text of the paper, and the cells that it is compared with."""

    id: str
    spec: str | None = None  #: experiment that measures it; None: not measured
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    figure: str = "max"
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class TimingSpec:
    """Sizes for timing the SD-SSM scan, forward and backward, recurrent and parallel."""

    lengths: tuple[int, ...] = (64, 128, 256, 512)
    batch: int = 16
    state: int = 64
    dictionary: int = 8
    seconds: float = 0.5  #: spent on each measurement


@dataclass(frozen=True, kw_only=True)
class Spec:
    """An experiment, validated. No two rows share a cell."""

    name: str
    title: str
    source: str  #: the file it was read from
    kind: str = "accuracy"
    corner: str = "model"  #: heading of the column that holds the row names
    choose: str = "within"
    published: str | None = None  #: CSV file in the folder of the spec, or in the package
    folder: Path | None = None  #: folder of a user's TOML file; None: an experiment of the package
    rows: tuple[Row, ...] = ()
    evaluate: EvaluationSpec = field(default_factory=EvaluationSpec)
    timing: TimingSpec = field(default_factory=TimingSpec)
    claims: tuple[Claim, ...] = ()

    def cells(self) -> list[tuple[str, str]]:
        """Return row and column of every cell, in table order."""
        return list(dict.fromkeys((row.label, row.column_of(task)) for row in self.rows for task in row.tasks))
