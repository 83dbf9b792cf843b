"""What an experiment is: the rows of a table as trainings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sdssm.experiments.specs.scores import Score
from sdssm.experiments.specs.search_space import Range, Space

#: accuracy: train and evaluate; timing: the scans alone; claims: sentences of the paper beside cells of other specs.
KINDS = ("accuracy", "timing", "claims")
#: How the best of a grid is chosen: by accuracy at training lengths, or by the score itself, as published.
CHOICES = ("within", "score")
#: What a claim can be compared with: of a cell its max or average, of its best run two figures of the curve.
FIGURES = ("max", "average", "within", "first_below_99")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model as it is trained, on each of its tasks; `grid` makes many of it, of which a cell shows the best."""

    model: str
    label: str
    tasks: tuple[str, ...]
    preset: str
    seeds: tuple[int, ...]
    column: str | None = None  #: of its cells; none: the task's name
    score: str | None = None  #: the first one of its cells, where the published number is over other lengths
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, Range] = field(default_factory=dict, hash=False)  #: what only a sweep can draw from
    listed: Sequence[Mapping[str, Any]] | None = field(default=None, hash=False)  #: what a sweep drew of them

    def column_of(self, task: str) -> str:
        return task if self.column is None else self.column

    def variants(self) -> Iterator[dict[str, Any]]:
        """Every choice of the grid, or the empty one; of a sweep those that it made."""
        yield from self.space.grid() if self.listed is None else map(dict, self.listed)

    @property
    def space(self) -> Space:
        """Where a sweep looks."""
        return Space(choices=self.grid, ranges=self.ranges)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is evaluated, and the means that are taken of it."""

    max_length: int | None = None  #: every length up to this; none: the task's
    fresh: bool = False
    strings: int = 512
    lengths: tuple[int, ...] = ()
    scores: tuple[Score, ...] = (Score("all"), Score("beyond"))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper by its number in the published file, and the cells that it is compared with."""

    id: str
    spec: str | None = None  #: none: not measured
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    figure: str = "max"
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Forward and backward of the SD-SSM scan, recurrent and parallel, at each length."""

    lengths: tuple[int, ...] = (64, 128, 256, 512)
    batch: int = 16
    state: int = 64
    dictionary: int = 8
    seconds: float = 0.5  #: spent on each time


@dataclass(frozen=True, kw_only=True)
class Spec:
    """An experiment. `source` says which file it is from; no two rows share a cell."""

    name: str
    title: str
    source: str
    kind: str = "accuracy"
    corner: str = "model"  #: what stands above the names of the rows
    choose: str = "within"
    published: str | None = None  #: a CSV file beside the spec, or of the package
    folder: Path | None = None  #: where the file of a user lies
    rows: tuple[Row, ...] = ()
    evaluate: Asked = field(default_factory=Asked)
    timing: Timing = field(default_factory=Timing)
    claims: tuple[Claim, ...] = ()

    def cells(self) -> list[tuple[str, str]]:
        """Row and column of every cell that is trained for, in order."""
        return list(dict.fromkeys((row.label, row.column_of(task)) for row in self.rows for task in row.tasks))
