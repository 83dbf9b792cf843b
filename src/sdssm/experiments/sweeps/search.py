"""Search strategies (grid, random, Optuna), and which candidates are stopped early."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdssm.errors import SettingsError
from sdssm.experiments.specs.search_space import SearchSpace, take
from sdssm.experiments.sweeps.optuna_search import propose
from sdssm.experiments.sweeps.study import SweepTrial
from sdssm.extras import import_extra
from sdssm.settings import check_at_least, check_between, check_one_of

SEARCHES = ("grid", "random", "optuna")
#: Defaults of an Optuna search: candidates proposed at a time, and the share of candidates kept at each rung.
OPTUNA_PARALLEL, OPTUNA_KEEP = 8, 0.5
#: Default shares of the steps at which candidates are compared.
RUNGS = (0.25, 0.5)


@dataclass(frozen=True, kw_only=True)
class Search:
    """How candidates are chosen, and how many of them continue at each rung.

    >>> Search(kind="optuna", trials=40).at_once, Search(kind="random", trials=40).at_once
    (8, 40)
    """

    kind: str = "grid"
    trials: int | None = None  #: candidates per cell; None for a grid, which has its own number
    seed: int = 0  #: of the random choice of candidates
    parallel: int | None = None  #: candidates that train at a time; None: all, with Optuna 8
    keep: float | None = None  #: share of candidates kept at each rung; None: all, with Optuna the better half
    rungs: tuple[float, ...] | None = None  #: shares of the steps; None: a quarter and a half

    def __post_init__(self) -> None:
        check_one_of("search", self.kind, SEARCHES)
        if (self.trials is None) != (self.kind == "grid"):
            raise SettingsError(
                f"trials is {self.trials}, but a grid is searched completely; omit it, or use --search random or optuna"
                if self.kind == "grid"
                else f"a search of kind {self.kind} needs a number of candidates; give one, as in --trials 20"
            )
        for name in ("trials", "parallel"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 1)
        check_between("the seed of a search", self.seed, 0, (1 << 32) - 1)
        if self.keep is not None and not 0 < self.keep <= 1:
            raise SettingsError(f"keep is {self.keep:g}; it is the share of candidates kept: above 0 and at most 1")
        rungs = self.compared_at
        if not all(0 < rung < 1 for rung in rungs) or list(rungs) != sorted(set(rungs)):
            raise SettingsError(f"rungs are {_list(rungs)}; give increasing shares of the steps, above 0 and below 1")
        if self.rungs is not None and self.keep is None and self.kind != "optuna":
            raise SettingsError(
                f"rungs are {_list(rungs)}, but no candidate is stopped there; give --keep 0.5 too, or omit --rungs"
            )
        if self.kind == "optuna":
            import_extra("optuna", "--search optuna")

    @property
    def at_once(self) -> int | None:
        """The number of candidates of a cell that train at a time; None: all of them."""
        return self.parallel or (OPTUNA_PARALLEL if self.kind == "optuna" else self.trials)

    @property
    def compared_at(self) -> tuple[float, ...]:
        """The shares of the steps at which candidates are compared, if some are stopped early."""
        return RUNGS if self.rungs is None else self.rungs

    @property
    def kept_share(self) -> float:
        """The share of candidates that continue at each rung; 1 if none is stopped early."""
        return self.keep if self.keep is not None else OPTUNA_KEEP if self.kind == "optuna" else 1.0

    def next_candidates(self, space: SearchSpace, history: Sequence[SweepTrial]) -> list[dict[str, Any]]:
        """Return the candidates to try after those in `history`; an empty list at the end of the search."""
        if not space.choices and not space.ranges:  # a row without a grid has a single candidate
            return [] if history else [{}]
        first = len(history)
        size = space.size() if self.kind == "grid" else self.trials
        assert size is not None  # a grid is finite
        last = min(size, first + (self.at_once or size))
        if self.kind == "optuna":
            return propose(space, history, last - first, self.seed) if last > first else []
        return take(space.grid() if self.kind == "grid" else space.samples(self.seed), first, last)


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def weak_candidates(accuracy: Mapping[int, float], earlier: Collection[float], keep: float) -> set[int]:
    """Return the numbers of the candidates to stop at a rung.

    A candidate continues if its accuracy is among the best share `keep` of all candidates that reached the rung.

    Args:
        accuracy: by number, of the candidates that are compared now.
        earlier: the accuracy of candidates compared before.
        keep: the share that continues.

    >>> weak_candidates({0: 90.0, 1: 60.0, 2: 50.0}, earlier=[20.0], keep=0.5)
    {2}
    """
    ranked = sorted([*accuracy.values(), *earlier], reverse=True)
    if not ranked:
        return set()
    threshold = ranked[max(1, math.ceil(len(ranked) * keep)) - 1]
    return {number for number, value in accuracy.items() if value < threshold}
