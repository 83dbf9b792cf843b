"""How a sweep looks for settings: all of a grid, at random, or with Optuna; and which candidates stop early."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdssm.errors import SettingsError
from sdssm.experiments.specs.search_space import Space, part
from sdssm.experiments.sweeps.optuna_search import proposed
from sdssm.experiments.sweeps.trials import Trial
from sdssm.extras import import_extra
from sdssm.settings import check_at_least, check_between, check_one_of

SEARCHES = ("grid", "random", "optuna")
#: What Optuna is asked for at once where nobody says, and the share that goes on at each rung.
PARALLEL, KEPT = 8, 0.5
#: Where candidates are compared where nobody says.
RUNGS = (0.25, 0.5)


@dataclass(frozen=True, kw_only=True)
class Search:
    """How candidates are found, and how many go on.

    >>> Search(kind="optuna", trials=40).at_once, Search(kind="random", trials=40).at_once
    (8, 40)
    """

    kind: str = "grid"
    trials: int | None = None  #: candidates for each cell; a grid has its own number
    seed: int = 0  #: of what is drawn
    parallel: int | None = None  #: candidates that train at once; none: all, with Optuna 8
    keep: float | None = None  #: the share that goes on at each rung; none: all, with Optuna the better half
    rungs: tuple[float, ...] | None = None  #: shares of the steps; none: a quarter and a half

    def __post_init__(self) -> None:
        check_one_of("search", self.kind, SEARCHES)
        if (self.trials is None) != (self.kind == "grid"):
            raise SettingsError(
                f"trials is {self.trials}; a grid is tried as a whole, leave it out or choose --search random or optuna"
                if self.kind == "grid"
                else f"a search of kind {self.kind} needs a number of candidates; give one, as in --trials 20"
            )
        for name in ("trials", "parallel"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 1)
        check_between("the seed of a search", self.seed, 0, (1 << 32) - 1)
        if self.keep is not None and not 0 < self.keep <= 1:
            raise SettingsError(f"keep is {self.keep}; it is the share that goes on, above 0 and at most 1")
        if not all(0 < one < 1 for one in self.compared_at) or list(self.compared_at) != sorted(set(self.compared_at)):
            raise SettingsError(f"rungs are {self.rungs}; give shares of the steps, above 0, below 1 and rising")
        if self.rungs is not None and self.keep is None and self.kind != "optuna":
            raise SettingsError(
                f"rungs are {self.rungs}, and all go on there; give --keep too, as 0.5, or leave them out"
            )
        if self.kind == "optuna":
            import_extra("optuna", "--search optuna")

    @property
    def at_once(self) -> int | None:
        """How many candidates of a cell are tried beside each other; None: as many as there are."""
        return self.parallel or (PARALLEL if self.kind == "optuna" else self.trials)

    @property
    def compared_at(self) -> tuple[float, ...]:
        """The shares of the steps at which candidates are compared, if not all go on."""
        return RUNGS if self.rungs is None else self.rungs

    @property
    def kept(self) -> float:
        return self.keep if self.keep is not None else KEPT if self.kind == "optuna" else 1.0

    def next(self, space: Space, history: Sequence[Trial]) -> list[dict[str, Any]]:
        """The candidates to try after those that were tried; none when it is over."""
        if not space.choices and not space.ranges:  # a row that has nothing to search is one candidate
            return [] if history else [{}]
        first = len(history)
        size = space.size() if self.kind == "grid" else self.trials
        assert size is not None  # a grid has an end
        last = min(size, first + (self.at_once or size))
        if self.kind == "optuna":
            return proposed(space, history, last - first, self.seed) if last > first else []
        return part(space.grid() if self.kind == "grid" else space.draws(self.seed), first, last)


def weak(now: Mapping[int, float], before: Collection[float], keep: float) -> set[int]:
    """Which of the candidates at a rung stop there: those that are not among the best share of all that came so far.

    >>> weak({0: 90.0, 1: 60.0, 2: 50.0}, before=[20.0], keep=0.5)
    {2}
    """
    every = sorted([*now.values(), *before], reverse=True)
    if not every:
        return set()
    least = every[max(1, math.ceil(len(every) * keep)) - 1]
    return {number for number, value in now.items() if value < least}
