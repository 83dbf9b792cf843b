"""The inequality of `bounds` as numbers: from errors at one length to errors a word later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.exact.certification.ball_arithmetic import Floats, round_up
from sdssm.exact.certification.linear_system import Ints


@dataclass(frozen=True, eq=False)
class ErrorRecurrence:
    """One row for each pair of states that a word of m symbols leads from and to; numbers are relative to lambda."""

    m: int
    n_states: int
    here: Ints
    there: Ints
    r1: Floats
    r2: Floats
    n11: Floats
    n12: Floats
    n21: Floats
    n22: Floats
    eta1: Floats
    eta2: Floats

    def __call__(self, errors: Floats) -> Floats:
        """The errors (Q, 2) m symbols later; below 0 stands for a state that no string is in."""
        e1, e2 = errors[self.here].T
        alive = e1 >= 0
        with np.errstate(all="ignore"):
            left = 1 - round_up(self.eta1 * e1 + self.eta2 * e2)
            first = round_up(self.r1 + self.n11 * e1 + self.n12 * e2)
            second = round_up(self.r2 + self.n21 * e1 + self.n22 * e2)
            new = np.stack([first, second]) / np.where(left > 0, left, 1)
        new = np.where((left > 0) & ~np.isnan(new), round_up(new), np.inf)
        found = np.full((2, self.n_states), -1.0)
        for row, value in zip(found, new, strict=True):
            np.maximum.at(row, self.there[alive], value[alive])
        return found.T

    def worst(self) -> ErrorRecurrence:
        """The same for all states alike: one row."""
        names = ("r1", "r2", "n11", "n12", "n21", "n22", "eta1", "eta2")
        zero = np.zeros(1, dtype=np.int64)
        return ErrorRecurrence(
            self.m, 1, zero, zero, **{name: getattr(self, name).max(keepdims=True) for name in names}
        )
