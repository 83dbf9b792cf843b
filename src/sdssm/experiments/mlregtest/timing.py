"""The time of a campaign: when it has to be over, and how long batches and proofs take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any

from sdssm.experiments.mlregtest.batches import LanguageBatch


class Deadline:
    """A time at which a campaign has to be over; None for no limit.

    >>> Deadline(None).remaining, Deadline(0.0).remaining <= 0
    (inf, True)
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._end = inf if seconds is None else clock() + seconds

    @property
    def remaining(self) -> float:
        """The seconds that are left."""
        return self._end - self.clock()


@dataclass
class Timing:
    """How long batches and proofs took so far."""

    step_seconds: dict[Any, float] = field(default_factory=dict)  # by the shape of the batch
    measure_seconds: float = 0.0
    proof_seconds: list[float] = field(default_factory=list)

    def expected(self, batch: LanguageBatch, workers: int) -> float:
        """Return how long a batch takes, as far as is known: 0 before the first."""
        slowest = max(self.step_seconds.values(), default=0.0)
        training = batch.steps * self.step_seconds.get(batch.key, slowest)
        proof = sum(self.proof_seconds) / max(1, len(self.proof_seconds))
        proving = proof * (1 + len(batch) / max(workers, 1))
        return training + self.measure_seconds + proving
