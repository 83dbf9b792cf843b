"""The inequality of `transformed_system`: from errors at one length to errors m symbols later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.automata.refinement import Floats, Ints
from sdssm.exact.certification.ball_arithmetic import round_up


@dataclass(frozen=True, eq=False)
class ErrorRecurrence:
    """Coefficients of the error bound for words of `m` symbols; calling it advances a bound by m symbols.

    There is one row for each pair of machine states (`source`, `target`) that some word connects, with the largest
    coefficient over these words. All coefficients are divided by lambda.
    """

    m: int
    n_states: int
    source: Ints
    target: Ints
    r1: Floats
    r2: Floats
    n11: Floats
    n12: Floats
    n21: Floats
    n22: Floats
    eta1: Floats
    eta2: Floats

    def __call__(self, errors: Floats) -> Floats:
        """Bound the errors (Q, 2) m symbols later. A negative error marks a state that no string leads to."""
        e1, e2 = errors[self.source].T
        occupied = e1 >= 0
        with np.errstate(all="ignore"):
            denominator = 1 - round_up(self.eta1 * e1 + self.eta2 * e2)
            first = round_up(self.r1 + self.n11 * e1 + self.n12 * e2)
            second = round_up(self.r2 + self.n21 * e1 + self.n22 * e2)
            bounds = np.stack([first, second]) / np.where(denominator > 0, denominator, 1)
        bounds = np.where((denominator > 0) & ~np.isnan(bounds), round_up(bounds), np.inf)
        result = np.full((2, self.n_states), -1.0)
        for row, values in zip(result, bounds, strict=True):
            np.maximum.at(row, self.target[occupied], values[occupied])
        return result.T

    def worst_case(self) -> ErrorRecurrence:
        """Return one recurrence that bounds all states: a single row with the largest of each coefficient."""
        names = ("r1", "r2", "n11", "n12", "n21", "n22", "eta1", "eta2")
        zero = np.zeros(1, dtype=np.int64)
        largest = {name: getattr(self, name).max(keepdims=True) for name in names}
        return ErrorRecurrence(self.m, 1, zero, zero, **largest)
