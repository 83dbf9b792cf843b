"""The label rank of a machine: how many dimensions an exact linear emulation of its labels needs.

Let f_c(q) be 1 if state q has label c, and (T_v f)(q) = f(the state after q and symbol v). The label rank is the
dimension of the smallest space of functions on states that contains every f_c and that every T_v maps into itself. It
is the rank of the Hankel matrix of the labels: the matrix with a row for each string u, a column for each string w and
label c, and the entry 1 where u w has label c. A linear recurrence x_t = A[v_t] x_{t-1} whose linear readout equals the
indicators of the labels exists in this dimension and in no smaller one (Carlyle and Paz 1971, Fliess 1974). It is at
most the number of states of the minimal machine.
"""

from __future__ import annotations

import numpy as np

from sdssm.automata.refinement import Floats, Ints

#: Ranks are computed modulo this prime, in float64: sums of up to 32,768 products of two residues are below 2^53.
PRIME = 524_287
#: The most random functions that are tried at once, and the most symbols in each of them but the last.
LARGEST_BLOCK, SYMBOLS = 64, 8
#: More random projections than the rank that is looked for, so that functions stay independent.
MORE_PROJECTIONS = 8


def label_rank(table: Ints, labels: Ints, *, most: int | None = None) -> int:
    """Return the label rank of a transition table, or `most` if that is smaller.

    Args:
        table: (Q, V), the next state; every state must be reachable.
        labels: (Q,), the label of each state; a state with the label -1 has none.
        most: stop when the rank is known to be at least this large.

    The space grows by random elements: T f for a random combination T of the T_v and a random f of the space. If the
    space is not complete, such an element is outside of it with a probability of at least 1 - 2 / PRIME. The result is
    never too large, and too small with a probability below 1e-4. 5,040 states and 256 symbols take seconds.

    >>> label_rank(np.array([[1], [2], [3], [0]]), np.array([0, 1, 0, 1]))  # parity, with two states too many
    2
    >>> label_rank(np.array([[1], [2], [3], [0]]), np.array([0, 1, 2, 3]))
    4
    """
    states = len(table)
    limit = states if most is None else min(most, states)
    known = np.unique(labels[labels >= 0])
    if len(known) >= limit:  # indicators of different labels are independent
        return limit
    space = _FunctionSpace(states, limit)
    space.add((labels == known[:, None]).astype(np.float64))
    maps = np.unique(table, axis=1).T  # symbols that act alike count once
    count = 2
    while space.rank < limit:
        # Most symbols add something, so that a few of them will do, until they add nothing.
        added = space.add(space.random_images(maps, count, SYMBOLS)) or space.add(space.random_images(maps, 2))
        if not added:
            break
        count = min(LARGEST_BLOCK, max(2, 2 * added))  # a space that grows by one dimension at a time needs few
    return min(space.rank, limit)


class _FunctionSpace:
    """A space of functions on states, spanned by independent functions.

    Independence is decided by random projections in reduced row echelon form: there may be far more states than
    dimensions.
    """

    def __init__(self, states: int, limit: int) -> None:
        self._generator = np.random.default_rng(0)
        size = limit + MORE_PROJECTIONS
        self._projections = None if states <= size else self._random(states, size)
        self._functions = np.empty((limit + LARGEST_BLOCK, states))
        self._echelon = np.empty((limit + LARGEST_BLOCK, min(states, size)))
        self._pivots = list[int]()

    @property
    def rank(self) -> int:
        return len(self._pivots)

    def add(self, functions: Floats) -> int:
        """Add functions (k, states) and return by how much the dimension grew."""
        before = self.rank
        rest = functions if self._projections is None else _residues(functions @ self._projections)
        echelon = self._echelon[:before]
        rest = _residues(rest - _residues(rest[:, self._pivots] @ echelon))
        kept, columns = list[int](), list[int]()
        for k in range(len(rest)):
            nonzero = np.flatnonzero(rest[k])
            if len(nonzero):
                column = int(nonzero[0])
                row = _residues(rest[k] * pow(int(rest[k, column]), -1, PRIME))
                rest = _residues(rest - rest[:, column, None] * row)
                rest[k] = row
                kept.append(k)
                columns.append(column)
        after = before + len(kept)
        echelon[:] = _residues(echelon - _residues(echelon[:, columns] @ rest[kept]))
        self._echelon[before:after] = rest[kept]
        self._functions[before:after] = functions[kept]
        self._pivots += columns
        return len(kept)

    def random_images(self, maps: Ints, count: int, most: int | None = None) -> Floats:
        """Return `count` functions T f, for random f of the space and random combinations T of at most `most` maps."""
        functions = _residues(self._random(count, self.rank) @ self._functions[: self.rank])
        if most is not None and most < len(maps):
            maps = maps[self._generator.choice(len(maps), most, replace=False)]
        total = np.zeros_like(functions)
        for symbol in maps:
            total = _residues(total + self._random(count, 1) * functions[:, symbol])
        return total

    def _random(self, *shape: int) -> Floats:
        return self._generator.integers(PRIME, size=shape).astype(np.float64)


def _residues(values: Floats) -> Floats:
    """Return whole numbers modulo the prime, from 0 to PRIME - 1; exact below 2^53."""
    rest: Floats = values - PRIME * np.floor(values * (1 / PRIME))
    # The quotient may be rounded to the next whole number, in either direction.
    rest += PRIME * (rest < 0)
    rest -= PRIME * (rest >= PRIME)
    return rest
