"""The number of strings of each length that reach each state, and choices with these numbers as weights.

A count is mantissa * 2^exponent with an integer exponent of its own: it does not overflow at any length. Weights are
compared as integers relative to the greatest of their list, and computed with exact operations and divisions only, so
choices are the same on every platform.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Floats, Ints
from sdssm.tasks.validity import LabelledTable

#: The exponent of a count of zero: below the exponent of any other count.
ZERO_EXPONENT = -(1 << 40)
#: A weight this many powers of two below the greatest of its list is 0.
SMALLEST_POWER = 64
#: The counts of every BLOCK-th length are kept, and those of BLOCK adjacent lengths computed again from them.
BLOCK = 256
#: The most lengths that are searched for counts with the same ratios.
MOST_RATIOS = 1 << 12
#: The most lengths that are counted from one check whether counts repeat to the next.
STEPS = 64
#: The most cumulative weights that are kept between calls.
MOST_KEPT = 1 << 24


class Counts(NamedTuple):
    """Numbers of strings mantissa * 2^exponent: float64 and int64 (..., Q)."""

    mantissa: Floats
    exponent: Ints

    @property
    def top(self) -> int:
        """The greatest exponent."""
        return int(self.exponent.max())

    def ratios(self) -> bytes:
        """Return the counts (Q,) but for a common power of two; they decide those of the next length, to the bit."""
        return self.mantissa.tobytes() + np.where(self.mantissa > 0, self.exponent - self.top, 0).tobytes()

    def rows(self, rows: slice | Ints | int | None) -> Counts:
        """Return some rows of counts (rows, Q), or one row (Q,); with None, one row (Q,) as (1, Q)."""
        return Counts(self.mantissa[rows], self.exponent[rows])


class CountsByLength(NamedTuple):
    """Counts of the lengths 0..L, each but for a power of two: the counts of most machines repeat in the end.

    counts: the counts that differ, (T, Q).
    row: the row of each length, (L + 1,).
    """

    counts: Counts
    row: Ints


class ChoiceLists:
    """Lists of states, one list for each owner, from which one is chosen with counts as weights.

    Args:
        states: the states of all lists, list by list (E,).
        sizes: the number of entries of each list.
    """

    def __init__(self, states: Ints, sizes: Ints) -> None:
        self.states = states
        self.first: Ints = np.concatenate(([0], np.cumsum(sizes)))
        self.owner: Ints = np.repeat(np.arange(len(sizes)), sizes)
        self._non_empty = np.flatnonzero(sizes)
        # The sum of all weights is below 2^63.
        self._bits = min(53, 62 - len(states).bit_length())
        powers = 2.0 ** np.arange(self._bits - SMALLEST_POWER, self._bits + 1)
        powers[0] = 0
        self._powers = np.roll(powers, 1)  # [k] for k = 0, and from the end for k = -1, -2, ..., -SMALLEST_POWER
        # Of the lists that are not empty.
        self._first: Ints = self.first[self._non_empty]
        self._owner: Ints = np.repeat(np.arange(len(self._first)), np.asarray(sizes)[self._non_empty])

    def cumulative_weights(self, counts: Counts) -> Ints:
        """Return the sums of the weights before each entry, int64 (..., E + 1). The sums run over all lists.

        An entry of a list with exponent e has the weight count * 2^(bits - e).
        """
        exponent = counts.exponent[..., self.states]
        top: Ints = np.full((*exponent.shape[:-1], len(self.first) - 1), ZERO_EXPONENT)
        if len(self._non_empty):
            top[..., self._non_empty] = np.maximum.reduceat(exponent, self._first, axis=-1)
        below = np.maximum(exponent - top[..., self.owner], -SMALLEST_POWER)
        weights = (counts.mantissa[..., self.states] * self._powers[below]).astype(np.int64)
        cumulative: Ints = np.zeros((*weights.shape[:-1], weights.shape[-1] + 1), dtype=np.int64)
        np.cumsum(weights, axis=-1, out=cumulative[..., 1:])
        return cumulative

    def totals(self, counts: Counts, count: int) -> Counts:
        """Return the sum of the counts (Q,) of each list, the sums of these and so on, `count` times: (count, Q).

        The loop over lengths takes most of the time, so it calls as little of numpy as it can.
        """
        mantissa, exponent = counts
        n_lists, is_full = len(self.first) - 1, len(self._non_empty) == len(self.first) - 1
        mantissas, exponents = np.zeros((count, n_lists)), np.full((count, n_lists), ZERO_EXPONENT)
        first, owner, states = self._first, self._owner, self.states
        for row in range(count if len(first) else 0):
            own = exponent[states]
            top = np.maximum.reduceat(own, first)
            weights = (mantissa[states] * self._powers[np.maximum(own - top[owner], -SMALLEST_POWER)]).astype(np.int64)
            total, shift = np.frexp(np.add.reduceat(weights, first).astype(np.float64))
            if is_full:
                mantissas[row], exponents[row] = mantissa, exponent = total, top + (shift - self._bits)
            else:
                mantissas[row, self._non_empty], exponents[row, self._non_empty] = total, top + (shift - self._bits)
                mantissa, exponent = mantissas[row], exponents[row]
        return Counts(mantissas, np.where(mantissas > 0, exponents, ZERO_EXPONENT))

    def choose(self, cumulative: Ints, owners: Ints, u: Floats) -> Ints:
        """Choose an entry from the list of each owner for numbers u in [0, 1): indices into `states`.

        An entry of weight 0 is never chosen, provided that its list has one of another weight.
        """
        before = cumulative[self.first[owners]]
        total = cumulative[self.first[owners + 1]] - before
        drawn = np.minimum((u * total).astype(np.int64), total - 1)  # rounding must not reach the total
        return np.asarray(np.searchsorted(cumulative, before + drawn, side="right") - 1)

    def thresholds(self, cumulative: Ints) -> NDArray[np.uint32]:
        """Return the cumulative probability of each entry within its list in units of 2^-32, at most 2^32 - 1.

        The entry for a random word u below 2^32 - 1 is the first of the list whose threshold is above u.
        """
        before, total = cumulative[..., self.first[:-1]], np.diff(cumulative[..., self.first])
        sums = (cumulative[..., 1:] - before[..., self.owner]).astype(np.float64)
        shares = sums / np.maximum(total, 1).astype(np.float64)[..., self.owner]
        return np.minimum(shares * 2.0**32, 2.0**32 - 1).astype(np.uint32)


class StringCounts:
    """Counts of the strings of a machine by length and last state, and the last transitions of these strings.

    `in_edges` lists for each state the states before it, and `edges` the numbers `state * V + symbol` of these
    transitions.

    >>> divisible_by_3 = LabelledTable(np.array([[0, 1], [2, 0], [1, 2]]), 0, np.array([1, 0, 0]))
    >>> mantissa, exponent = StringCounts(divisible_by_3).at(4)
    >>> np.ldexp(mantissa, exponent).tolist()  # of 16 strings
    [6.0, 5.0, 5.0]
    """

    def __init__(self, machine: LabelledTable) -> None:
        self.machine = machine
        targets = machine.table.ravel()
        self.edges: Ints = np.argsort(targets, kind="stable")
        sizes = np.bincount(targets, minlength=machine.n_states)
        self.in_edges = ChoiceLists(self.edges // machine.n_symbols, sizes)
        start = np.arange(machine.n_states) == machine.start
        first = Counts(np.where(start, 0.5, 0.0), np.where(start, 1, ZERO_EXPONENT))
        # Threads may share this object: every change is a single assignment, of what does not depend on the thread.
        self._kept = {0: first}  # at lengths 0, BLOCK, 2 BLOCK, ..., by their number
        self._block = 0, [first]
        self._weights = dict[int, Ints]()

    def at(self, length: int) -> Counts:
        """Return the number of strings of a length that reach each state."""
        number, offset = divmod(length, BLOCK)
        for k in range(len(self._kept), number + 1):
            self._kept[k] = self.in_edges.totals(self.at(k * BLOCK - 1), 1).rows(0)
        known, block = self._block
        if known != number:
            block = [self._kept[number]]
        if len(block) <= offset:
            more = self.in_edges.totals(block[-1], offset + 1 - len(block))
            block = [*block, *(more.rows(row) for row in range(len(more.mantissa)))]
        self._block = number, block
        return block[offset]

    def up_to(self, longest: int) -> CountsByLength:
        """Return the numbers of strings of the lengths 0..longest that reach each state, but for powers of two."""
        parts, known, length = [self._kept[0].rows(None)], dict[bytes, int](), 0
        lengths = np.arange(longest + 1)
        while length < longest:
            last = parts[-1].rows(-1)
            first = known.setdefault(last.ratios(), length)
            if first < length:  # from here on the counts are those of an earlier length, but for a power of two
                lengths = np.where(lengths < first, lengths, first + (lengths - first) % (length - first))
                break
            if len(known) > MOST_RATIOS:
                known.clear()
            parts.append(self.in_edges.totals(last, min(STEPS, longest - length)))
            length += len(parts[-1].mantissa)
        return CountsByLength(Counts(*map(np.concatenate, zip(*parts, strict=True))), lengths)

    def last_transition_weights(self, length: int) -> Ints:
        """Return the cumulative weights of `in_edges` as last transitions of the strings of a length, (E + 1,)."""
        if length not in self._weights:
            weights = self.in_edges.cumulative_weights(self.at(length - 1))
            if (len(self._weights) + 1) * len(weights) > MOST_KEPT:
                return weights
            self._weights[length] = weights
        return self._weights[length]

    # -- last states and last transitions --------------------------------------------------------------------------

    @cached_property
    def by_label(self) -> ChoiceLists:
        """The states with each label that occurs, in ascending order of the label."""
        labels = self.machine.labels
        order = np.argsort(labels, kind="stable")
        order = order[np.searchsorted(labels[order], 0) :]
        return ChoiceLists(order, np.unique(labels[order], return_counts=True)[1])

    def possible_lists(self, length: int) -> Ints:
        """Return the lists of `by_label` whose labels strings of a length have, in ascending order."""
        return np.flatnonzero(self.has_label(self.at(length)))

    def has_label(self, counts: Counts) -> NDArray[np.bool_]:
        """Return which lists of `by_label` have a state that strings reach: counts (..., Q) -> bool (..., S)."""
        reached = counts.mantissa[..., self.by_label.states] > 0
        return np.logical_or.reduceat(reached, self.by_label.first[:-1], axis=-1)

    @cached_property
    def valid_symbols(self) -> Ints:
        """The symbols after which a string is valid, for each state, before the other symbols: (Q, V)."""
        return np.argsort(self.machine.labels[self.machine.table] < 0, axis=1, kind="stable")

    @cached_property
    def _n_valid_symbols(self) -> Ints:
        return np.asarray((self.machine.labels[self.machine.table] >= 0).sum(1))

    def cumulative_pairs(self, before: Counts) -> Ints:
        """Return the number of last transitions of valid strings from states up to each state.

        `before` (..., Q) are the counts of the length before that of the strings.
        """
        return np.cumsum(np.where(before.mantissa > 0, self._n_valid_symbols, 0), axis=-1)
