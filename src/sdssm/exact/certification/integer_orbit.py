"""Prove every length for models whose states are integers and return to finitely many directions.

Compiled one-hot models and snapped models are of this kind. Directions are compared exactly, as integer vectors without
a common factor, so that the search involves no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.automata.refinement import Floats
from sdssm.exact.certification.ball_arithmetic import U64, gamma, round_up, vector_norm
from sdssm.exact.certification.linear_system import LinearSystem
from sdssm.exact.certification.trim_machine import DEAD
from sdssm.exact.watch import UNWATCHED, Watch

#: Numbers are scaled by up to 2 to this power to make them integers.
MOST_BITS = 10
#: Limit on the number of pairs of a machine state and a direction.
MOST_PAIRS = 1 << 16
#: Integers up to these are exact in float64 and in float32.
MOST_INTEGER_64, MOST_INTEGER_32 = 2.0**53, 2.0**24


@dataclass(frozen=True)
class Orbit:
    """All pairs of a machine state and a direction that valid strings lead to.

    If the search met a misclassified string, it stopped there and `counterexample` is a shortest one. All valid strings
    up to `length` are classified correctly: those of each length lead to pairs that the search has checked by then.
    """

    n_pairs: int
    margin: float  #: the smallest lead of the correct logit over another, relative to the norm of the state
    length: int
    counterexample: tuple[int, ...] | None = None
    is_complete: bool = True  #: whether the search has ended; the time limit may have stopped it


def find_orbit(system: LinearSystem, *, rounded: bool, watch: Watch = UNWATCHED) -> Orbit | None:
    """Search all pairs of a machine state and a direction that valid strings lead to.

    None is returned if the model's numbers are not integers up to scale, if there are too many directions, or if a
    label is too close to call. With `rounded`, float32 must compute every state without any rounding, and the label in
    spite of the rounding of the readout.
    """
    A, x = _as_integers(system.A), _as_integers(system.x0)
    if A is None or x is None:
        return None
    if rounded and not system.rescale and (np.rint(system.A) != system.A).any():
        return None  # fractions make a state smaller with every step, until it underflows in float32
    if rounded and system.rescale and np.count_nonzero(x) != 1:
        return None
    x = x if rounded and not system.rescale else _without_common_factor(x[None])[0]
    machine, most = system.machine, (MOST_INTEGER_32 if rounded else MOST_INTEGER_64)
    largest_sum = len(A[0]) * np.abs(A).max()  # of products with a vector of entries up to 1
    transposed = np.ascontiguousarray(np.swapaxes(A, 1, 2))  # (V, N, N): row j is column j of the matrix
    readout = _Readout.build(system, rounded)
    arithmetic = "float32" if rounded else "exact"
    watch.start(f"check states that are whole numbers ({arithmetic} arithmetic)", unit="states")
    start_key = (machine.start, x.tobytes())
    seen = {start_key: 0}
    returned: tuple[int, int] | None = None  # the pair and the symbol by which a string first returns to the start
    parents = [(0, 0)]  # the pair before each pair, and the symbol between them
    states, vectors = np.array([machine.start]), x[None]
    first, margin, length = 0, np.inf, 0
    while len(states):
        watch.update(len(seen))
        if watch.is_over:
            return Orbit(len(seen), margin, length, is_complete=False)
        if largest_sum * np.abs(vectors).max() >= most:
            return None
        fresh: list[tuple[int, Floats]] = []
        for symbol in range(len(A)):
            successors = machine.table[states, symbol]
            ends = _multiply_sparse(vectors, transposed[symbol])
            if not ends[successors != DEAD].any(1).all():
                return None  # the state vanishes
            if not rounded or system.rescale:
                if rounded and (np.count_nonzero(ends[successors != DEAD], axis=1) != 1).any():
                    return None  # the norm, which the state is divided by, may not be an integer
                ends = _without_common_factor(ends)
            for k in np.flatnonzero(successors != DEAD):
                key = (int(successors[k]), ends[k].tobytes())
                if key == start_key and returned is None:
                    returned = first + int(k), symbol
                    gap = readout.label_gaps(x[None], machine.labels[[machine.start]])[0]
                    if np.isnan(gap):
                        return None
                    margin = min(margin, float(gap))
                    if gap < 0:
                        return Orbit(len(seen), margin, length, (*_string_to(parents, returned[0]), symbol))
                if key not in seen:
                    seen[key] = len(seen)
                    parents.append((first + int(k), symbol))
                    fresh.append((int(successors[k]), ends[k]))
        first += len(states)
        if not fresh:
            break
        if len(seen) > MOST_PAIRS:
            return None
        states, vectors = np.array([q for q, _ in fresh]), np.stack([end for _, end in fresh])
        gaps = readout.label_gaps(vectors, machine.labels[states])
        if np.isnan(gaps).any():
            return None
        margin = min(margin, float(gaps.min()))
        if (gaps < 0).any():
            return Orbit(len(seen), margin, length, _string_to(parents, first + int(np.argmax(gaps < 0))))
        length += 1
    return Orbit(len(seen), margin, length)


def _multiply_sparse(x: Floats, matrix: Floats) -> Floats:
    """Return the product of vectors (B, N) and a matrix (N, M) without the products with entries that are zero.

    Leaving out zeros changes no sum and adds no rounding. One-hot vectors only select rows of the matrix.
    """
    if (np.count_nonzero(x, axis=1) == 1).all():
        position = (x != 0).argmax(1)
        return np.asarray(x[np.arange(len(x)), position][:, None] * matrix[position])
    used = np.flatnonzero(x.any(0))
    return np.asarray(x[:, used] @ matrix[used])


def _as_integers(values: Floats) -> Floats | None:
    """Scale numbers by a power of two such that all are integers, or return None if that is not possible."""
    for bits in range(MOST_BITS + 1):
        scaled = values * 2.0**bits
        if (scaled == np.rint(scaled)).all():
            return scaled if np.abs(scaled).max() < MOST_INTEGER_32 else None
    return None


def _without_common_factor(vectors: Floats) -> Floats:
    """Divide each integer vector by the greatest common divisor of its entries: (B, N). Zero stays zero."""
    factor = np.gcd.reduce(vectors.astype(np.int64), axis=1)
    return np.asarray(vectors / np.maximum(factor, 1)[:, None])


@dataclass(frozen=True, eq=False)
class _Readout:
    """The readout of a system, prepared for vectors of which few entries are not zero."""

    rows: Floats  # (N, R)
    row_labels: np.ndarray  # (R,)
    row_errors: Floats  # (R,): upper bound on the error of a logit for a vector of norm 1
    magnitudes: Floats | None  # (N, R): times |x| upper bounds on the rounding of the logits in float32

    @classmethod
    def build(cls, system: LinearSystem, rounded: bool) -> _Readout:
        errors = round_up(system.row_errors + gamma(system.rows.shape[1] + 2) * vector_norm(system.rows))
        magnitudes = system.readout_rounding * system.row_magnitudes.T if rounded else None
        return cls(np.ascontiguousarray(system.rows.T), system.row_labels, errors, magnitudes)

    def label_gaps(self, x: Floats, labels: np.ndarray) -> Floats:
        """Return the smallest lead of the correct class, relative to |x|: (B,).

        Above 0 the label is proved correct, below 0 it is proved wrong, and NaN means neither. The lead is infinite in
        states where no valid string ends.
        """
        norms = vector_norm(x)
        logits = _multiply_sparse(x, self.rows)
        errors = self.row_errors * norms[:, None]
        if self.magnitudes is not None:
            errors = errors + _multiply_sparse(np.abs(x), self.magnitudes)
        valid, own = labels >= 0, labels[:, None] == self.row_labels  # (B,), (B, R)
        own = own | ~valid[:, None]  # no row is wrong where no valid string ends
        lower = np.where(own, logits - errors, -np.inf).max(1) - np.where(own, -np.inf, logits + errors).max(1)
        upper = np.where(own, logits + errors, -np.inf).max(1) - np.where(own, -np.inf, logits - errors).max(1)
        safety = 4 * U64 * np.abs(logits).max(1)
        norm = np.sqrt(np.square(x).sum(1))
        gaps = np.where(lower > safety, lower, np.where(upper < -safety, upper, np.nan)) / norm
        return np.where(valid, gaps, np.inf)


def _string_to(parents: list[tuple[int, int]], pair: int) -> tuple[int, ...]:
    """Return the symbols that led to a pair."""
    symbols = []
    while pair:
        pair, symbol = parents[pair]
        symbols.append(symbol)
    return tuple(symbols[::-1])
