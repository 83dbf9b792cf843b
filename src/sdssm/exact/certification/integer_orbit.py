"""Models whose states are whole numbers and come back: then a finite search proves every length.

A compiled or snapped model is such a one. Directions are compared exactly, as vectors of whole numbers without a
common factor, so that no rounding enters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.exact.certification.ball_arithmetic import U64, Floats, gamma, round_up, vector_norm
from sdssm.exact.certification.linear_system import DEAD, LinearSystem

#: Fractions with up to this power of two below them count as whole numbers of that fraction.
MOST_BITS = 10
#: The most pairs of a machine's state and a direction.
MOST_PAIRS = 1 << 16
#: Whole numbers up to which float64 and float32 compute without rounding.
WHOLE_64, WHOLE_32 = 2.0**53, 2.0**24


@dataclass(frozen=True)
class Orbit:
    """Every pair of a machine's state and a direction was met; `wrong` is a shortest string told wrong, if any."""

    pairs: int
    margin: float  #: the least difference between the right logit and another, over the size of the state
    wrong: tuple[int, ...] | None


def find_orbit(system: LinearSystem, *, rounded: bool) -> Orbit | None:
    """All that valid strings lead to, or None where it is not finite, not of whole numbers, or a label is too close.

    With `rounded`, float32 must compute every state without any rounding, and the label despite that of the readout.
    """
    A, x = _whole(system.A), _whole(system.x0)
    if A is None or x is None:
        return None
    if rounded and not system.rescale and (np.rint(system.A) != system.A).any():
        return None  # fractions shrink a state, until float32 has no such numbers
    if rounded and system.rescale and np.count_nonzero(x) != 1:
        return None
    x = x if rounded and not system.rescale else _primitive(x[None])[0]
    asked, most = system.asked, (WHOLE_32 if rounded else WHOLE_64)
    begin = (asked.start, x.tobytes())
    seen = {begin: 0}
    returned: tuple[int, int] | None = None  # how a string first comes back to where the empty one is
    before = [(0, 0)]  # the pair before each, and the symbol between them
    states, vectors = np.array([asked.start]), x[None]
    first, margin = 0, np.inf
    while len(states):
        if len(A[0]) * np.abs(A).max() * np.abs(vectors).max() >= most:
            return None
        pairs: list[tuple[int, Floats]] = []
        for symbol, matrix in enumerate(A):
            ahead = asked.table[states, symbol]
            ends = vectors @ matrix.T
            if not ends[ahead != DEAD].any(1).all():
                return None  # the state vanishes
            if not rounded or system.rescale:
                if rounded and (np.count_nonzero(ends[ahead != DEAD], axis=1) != 1).any():
                    return None  # a length that is no whole number
                ends = _primitive(ends)
            for k in np.flatnonzero(ahead != DEAD):
                key = (int(ahead[k]), ends[k].tobytes())
                if key == begin and returned is None:
                    returned = first + int(k), symbol
                    gap = _gaps(system, x[None], asked.labels[[asked.start]], rounded)[0]
                    if np.isnan(gap):
                        return None
                    margin = min(margin, float(gap))
                    if gap < 0:
                        return Orbit(len(seen), margin, (*_string(before, returned[0]), symbol))
                if key not in seen:
                    seen[key] = len(seen)
                    before.append((first + int(k), symbol))
                    pairs.append((int(ahead[k]), ends[k]))
        first += len(states)
        if not pairs:
            break
        if len(seen) > MOST_PAIRS:
            return None
        states, vectors = np.array([q for q, _ in pairs]), np.stack([end for _, end in pairs])
        gaps = _gaps(system, vectors, asked.labels[states], rounded)
        if np.isnan(gaps).any():
            return None
        margin = min(margin, float(gaps.min()))
        if (gaps < 0).any():
            return Orbit(len(seen), margin, _string(before, first + int(np.argmax(gaps < 0))))
    return Orbit(len(seen), margin, None)


def _whole(values: Floats) -> Floats | None:
    """The numbers times a power of two, as whole numbers, or None."""
    for bits in range(MOST_BITS + 1):
        scaled = values * 2.0**bits
        if (scaled == np.rint(scaled)).all():
            return scaled if np.abs(scaled).max() < WHOLE_32 else None
    return None


def _primitive(vectors: Floats) -> Floats:
    """Without a common factor: (B, N). Zero stays zero."""
    factor = np.gcd.reduce(vectors.astype(np.int64), axis=1)
    return np.asarray(vectors / np.maximum(factor, 1)[:, None])


def _gaps(system: LinearSystem, x: Floats, labels: np.ndarray, rounded: bool) -> Floats:
    """The least lead of the right class, relative to |x|: above 0 proved right, below 0 proved wrong, NaN neither.

    States after which nothing is asked have an infinite one.
    """
    logits = x @ system.rows.T
    off = round_up(system.off + gamma(x.shape[1] + 2) * vector_norm(system.rows)) * vector_norm(x)[:, None]
    if rounded:
        off = off + system.rounding * (np.abs(x) @ system.coarse.T)
    rows, asked = np.arange(len(x)), labels >= 0
    own, spare = logits[rows, labels], off[rows, labels]
    others = np.arange(logits.shape[1]) != labels[:, None]
    surely = np.where(others, own[:, None] - spare[:, None] - logits - off, np.inf).min(1)
    hardly = np.where(others, own[:, None] + spare[:, None] - logits + off, np.inf).min(1)
    safe = 4 * U64 * np.abs(logits).max(1)
    size = np.sqrt(np.square(x).sum(1))
    gaps = np.where(surely > safe, surely, np.where(hardly < -safe, hardly, np.nan)) / size
    return np.where(asked, gaps, np.inf)


def _string(before: list[tuple[int, int]], at: int) -> tuple[int, ...]:
    """The symbols that led to a pair."""
    found = []
    while at:
        at, symbol = before[at]
        found.append(symbol)
    return tuple(found[::-1])
