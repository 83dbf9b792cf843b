"""Prove every length for models whose states are integers and return to finitely many directions.

Compiled one-hot models and snapped models are of this kind. Directions are compared exactly, as integer vectors without
a common factor, so that the search involves no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.exact.certification.ball_arithmetic import U64, Floats, gamma, round_up, vector_norm
from sdssm.exact.certification.linear_system import LinearSystem
from sdssm.exact.certification.trim_machine import DEAD

#: Numbers are scaled by up to 2 to this power to make them integers.
MOST_BITS = 10
#: Limit on the number of pairs of a machine state and a direction.
MOST_PAIRS = 1 << 16
#: Integers up to these are exact in float64 and in float32.
MOST_INTEGER_64, MOST_INTEGER_32 = 2.0**53, 2.0**24


@dataclass(frozen=True)
class Orbit:
    """All pairs of a machine state and a direction that valid strings lead to.

    If the search met a misclassified string, it stopped there and `counterexample` is a shortest one.
    """

    n_pairs: int
    margin: float  #: the smallest lead of the correct logit over another, relative to the norm of the state
    counterexample: tuple[int, ...] | None


def find_orbit(system: LinearSystem, *, rounded: bool) -> Orbit | None:
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
    start_key = (machine.start, x.tobytes())
    seen = {start_key: 0}
    returned: tuple[int, int] | None = None  # the pair and the symbol by which a string first returns to the start
    parents = [(0, 0)]  # the pair before each pair, and the symbol between them
    states, vectors = np.array([machine.start]), x[None]
    first, margin = 0, np.inf
    while len(states):
        if len(A[0]) * np.abs(A).max() * np.abs(vectors).max() >= most:
            return None
        fresh: list[tuple[int, Floats]] = []
        for symbol, matrix in enumerate(A):
            successors = machine.table[states, symbol]
            ends = vectors @ matrix.T
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
                    gap = _label_gaps(system, x[None], machine.labels[[machine.start]], rounded)[0]
                    if np.isnan(gap):
                        return None
                    margin = min(margin, float(gap))
                    if gap < 0:
                        return Orbit(len(seen), margin, (*_string_to(parents, returned[0]), symbol))
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
        gaps = _label_gaps(system, vectors, machine.labels[states], rounded)
        if np.isnan(gaps).any():
            return None
        margin = min(margin, float(gaps.min()))
        if (gaps < 0).any():
            return Orbit(len(seen), margin, _string_to(parents, first + int(np.argmax(gaps < 0))))
    return Orbit(len(seen), margin, None)


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


def _label_gaps(system: LinearSystem, x: Floats, labels: np.ndarray, rounded: bool) -> Floats:
    """Return the smallest lead of the correct class, relative to |x|: (B,).

    Above 0 the label is proved correct, below 0 it is proved wrong, and NaN means neither. The lead is infinite in
    states where no valid string ends.
    """
    logits = x @ system.rows.T
    errors = round_up(system.row_errors + gamma(x.shape[1] + 2) * vector_norm(system.rows)) * vector_norm(x)[:, None]
    if rounded:
        errors = errors + system.readout_rounding * (np.abs(x) @ system.row_magnitudes.T)
    index, valid = np.arange(len(x)), labels >= 0
    correct, correct_error = logits[index, labels], errors[index, labels]
    others = np.arange(logits.shape[1]) != labels[:, None]
    lower = np.where(others, correct[:, None] - correct_error[:, None] - logits - errors, np.inf).min(1)
    upper = np.where(others, correct[:, None] + correct_error[:, None] - logits + errors, np.inf).min(1)
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
