"""Prove every length for models whose states are integers and return to finitely many directions.

Compiled one-hot models and snapped models are of this kind. Directions are compared exactly, as integer vectors without
a common factor, so that the search involves no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.automata.refinement import Floats, Ints
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


class _UndecidedError(Exception):
    """The search says nothing about a model; it is caught by `find_orbit`."""


def find_orbit(system: LinearSystem, *, rounded: bool, watch: Watch = UNWATCHED) -> Orbit | None:
    """Search all pairs of a machine state and a direction that valid strings lead to.

    None is returned if the model's numbers are not integers up to scale, if there are too many directions, or if a
    label is too close to call. With `rounded`, float32 must compute every state without any rounding, and the label in
    spite of the rounding of the readout.
    """
    try:
        return _OrbitSearch(system, rounded, watch).run()
    except _UndecidedError:
        return None


class _OrbitSearch:
    """A breadth-first search over pairs of a machine state and a direction; it reads one symbol more in each round."""

    def __init__(self, system: LinearSystem, rounded: bool, watch: Watch) -> None:
        A, x = _as_integers(system.A), _as_integers(system.x0)
        if A is None or x is None:
            raise _UndecidedError
        if rounded and not system.rescale and (np.rint(system.A) != system.A).any():
            raise _UndecidedError  # fractions make a state smaller with every step, until it underflows in float32
        if rounded and system.rescale and np.count_nonzero(x) != 1:
            raise _UndecidedError
        self._machine, self._watch = system.machine, watch
        self._is_norm_rounded = rounded and system.rescale
        self._keeps_scale = rounded and not system.rescale
        self._most = MOST_INTEGER_32 if rounded else MOST_INTEGER_64
        self._largest_sum = len(A[0]) * np.abs(A).max()  # of products with a vector of entries up to 1
        self._transposed = np.ascontiguousarray(np.swapaxes(A, 1, 2))  # (V, N, N): row j is column j of the matrix
        self._readout = _Readout.build(system, rounded)
        self._start = x if self._keeps_scale else _without_common_factor(x[None])[0]
        self._start_key = system.machine.start, self._start.tobytes()
        self._is_start_judged = False  # its label counts only if a string leads back to it
        self._seen = {self._start_key}
        self._parents = [(0, 0)]  # the pair before each pair, and the symbol between them
        self._margin = np.inf
        self._counterexample: tuple[int, ...] | None = None
        arithmetic = "float32" if rounded else "exact"
        watch.start(f"check states that are whole numbers ({arithmetic} arithmetic)", unit="states")

    def run(self) -> Orbit:
        """Search until there are no new pairs, a label is wrong, or the time is up."""
        states, vectors = np.array([self._machine.start]), self._start[None]
        length = first = 0  # of the strings that lead to these pairs, and the number of the first pair
        while True:
            self._watch.update(len(self._seen))
            if self._watch.is_over:
                return self._result(length, is_complete=False)
            fresh = self._extend(states, vectors, first)
            if not fresh or self._counterexample is not None:
                return self._result(length)
            if len(self._seen) > MOST_PAIRS:
                raise _UndecidedError
            first += len(states)
            states, vectors = np.array([q for q, _ in fresh]), np.stack([end for _, end in fresh])
            wrong = self._find_wrong(states, vectors)
            if wrong is not None:
                self._counterexample = self._string_to(first + wrong)
                return self._result(length)
            length += 1

    def _extend(self, states: Ints, vectors: Floats, first: int) -> list[tuple[int, Floats]]:
        """Return the new pairs after one more symbol; stop at once if the label of the start state is wrong."""
        if self._largest_sum * np.abs(vectors).max() >= self._most:
            raise _UndecidedError
        fresh: list[tuple[int, Floats]] = []
        for symbol, matrix in enumerate(self._transposed):
            successors = self._machine.table[states, symbol]
            rows = np.flatnonzero(successors != DEAD)
            ends = self._multiply(vectors, matrix, rows)
            for k in rows.tolist():
                key = int(successors[k]), ends[k].tobytes()
                if key not in self._seen:
                    self._seen.add(key)
                    self._parents.append((first + k, symbol))
                    fresh.append((int(successors[k]), ends[k]))
                elif key == self._start_key and not self._is_start_judged:
                    self._is_start_judged = True
                    if self._find_wrong(np.array([self._machine.start]), self._start[None]) is not None:
                        self._counterexample = (*self._string_to(first + k), symbol)
                        return fresh
        return fresh

    def _multiply(self, vectors: Floats, matrix: Floats, rows: Ints) -> Floats:
        """Return the directions after a symbol; those of `rows` are of use."""
        ends = _multiply_sparse(vectors, matrix)
        if not ends[rows].any(1).all():
            raise _UndecidedError  # the state vanishes
        if self._is_norm_rounded and (np.count_nonzero(ends[rows], axis=1) != 1).any():
            raise _UndecidedError  # the norm, which the state is divided by, may not be an integer
        return ends if self._keeps_scale else _without_common_factor(ends)

    def _find_wrong(self, states: Ints, vectors: Floats) -> int | None:
        """Return the first pair whose label is wrong, None if all are correct; keep the smallest lead."""
        gaps = self._readout.label_gaps(vectors, self._machine.labels[states])
        if np.isnan(gaps).any():
            raise _UndecidedError
        self._margin = min(self._margin, float(gaps.min()))
        return int(np.argmax(gaps < 0)) if (gaps < 0).any() else None

    def _string_to(self, pair: int) -> tuple[int, ...]:
        """Return the symbols that led to a pair."""
        symbols = []
        while pair:
            pair, symbol = self._parents[pair]
            symbols.append(symbol)
        return tuple(symbols[::-1])

    def _result(self, length: int, *, is_complete: bool = True) -> Orbit:
        return Orbit(len(self._seen), self._margin, length, self._counterexample, is_complete)


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
