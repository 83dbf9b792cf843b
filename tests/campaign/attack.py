"""What an attack is: a function that tries to break a promise of the package, and says whether the promise held."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One thing that was tried. `problem` says what did not hold; a trial that could not be checked is `skipped`."""

    kind: str  #: what was tried, a row of the table, such as "model.safetensors, bit flip"
    problem: str | None = None  #: in one line; None if the promise held
    skipped: str | None = None  #: why nothing was checked; such a trial counts neither as held nor as failed

    def __post_init__(self) -> None:
        if self.problem is not None and self.skipped is not None:
            raise ValueError("a trial that was skipped has no problem; pass one of both")

    @property
    def is_held(self) -> bool:
        """Whether something was checked, and held."""
        return self.problem is None and self.skipped is None


#: Tries one thing, or several that belong together, in an empty folder. All choices come from the random numbers, so
#: that the same numbers repeat the attempt.
Attempt = Callable[[Random, Path], Iterable[Trial]]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A kind of attack.

    Args:
        name: for `--only`, in lower case with dashes.
        subject: what is attacked, in a few words.
        attempt: the function that tries.
        share: of the time of a campaign, relative to the other attacks.
        patience: seconds after which an attempt counts as a hang, and is killed.
        isolated: whether every attempt gets a process of its own. Otherwise a process makes several attempts in turn,
            which is faster, and fine for an attempt that leaves nothing behind or forks by itself.
        in_slice: whether the short campaign of the test suite includes it.
        prepare: called once before processes are forked, so that they share what takes long.
    """

    name: str
    subject: str
    attempt: Attempt
    share: float = 1.0
    patience: float = 60.0
    isolated: bool = False
    in_slice: bool = True
    prepare: Callable[[], object] = tuple  # the constructor of an empty tuple does nothing

    def random_numbers(self, seed: int, trial: int) -> Random:
        """Return the random numbers of an attempt; they depend on nothing else."""
        return Random(f"{self.name} {seed} {trial}")
