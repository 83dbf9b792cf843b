"""In which states of a machine the strings of each length end: exact shares, computed length by length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Ints, live_states
from sdssm.tasks.validity import LabelledTable

#: Relative differences up to this are taken for rounding.
ROUNDING = 1e-14


class StringEnds(NamedTuple):
    """Where the strings of one length end, among those that are valid or can still become so.

    shares: the share of the strings that end in each state, (Q,); 0 where it is too small for a float.
    reached: whether a string ends in the state, (Q,).
    """

    shares: NDArray[np.float64]
    reached: NDArray[np.bool_]


def walk_ends(machine: LabelledTable, longest: int, *, random_start: bool = False) -> Iterator[StringEnds]:
    """Yield where the strings of each length 0..longest end; with `random_start`, they start in any state.

    >>> parity = LabelledTable(np.array([[0, 1], [1, 0]]), 0, np.array([0, 1]))
    >>> [ends.shares.tolist() for ends in walk_ends(parity, 2)]
    [[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]
    """
    n_states = machine.n_states
    live = live_states(machine.table, machine.labels >= 0)
    starts = live & (random_start | (np.arange(n_states) == machine.start))
    # Symbols that lead from one state to the same state are counted once.
    pairs, ways = np.unique(np.arange(n_states)[:, None] * n_states + machine.table, return_counts=True)
    source, target = pairs // n_states, pairs % n_states

    def step(ends: StringEnds) -> StringEnds:
        counts = np.bincount(target, ends.shares[source] * ways, n_states) * live
        reached = np.zeros_like(live)
        reached[target[ends.reached[source]]] = True
        # Only shares matter, and the counts themselves would overflow.
        return StringEnds(counts / (counts.sum() or 1.0), reached & live)

    last = [StringEnds(starts / max(starts.sum(), 1), starts)]
    yield last[-1]
    period = 0  # shares that repeat after one or two symbols, as those of a group in the end, repeat forever
    for _ in range(longest):
        after = last[-period] if period else step(last[-1])
        period = period or next((p for p in range(1, len(last) + 1) if _are_equal(last[-p], after)), 0)
        last = [last[-1], after]
        yield after


def _are_equal(ends: StringEnds, others: StringEnds) -> bool:
    """Whether strings end in the same states, with shares that are equal but for rounding, each relative to itself."""
    is_close = np.abs(ends.shares - others.shares) <= ROUNDING * others.shares
    return bool(is_close.all()) and np.array_equal(ends.reached, others.reached)


def access_lengths(machine: LabelledTable) -> Ints:
    """Return the length of the shortest string from the start state to each state, (Q,).

    >>> access_lengths(LabelledTable(np.array([[1, 0], [2, 0], [2, 2]]), 0, np.array([0, 0, 1])))
    array([0, 1, 2])
    """
    lengths = np.full(machine.n_states, -1)
    frontier, length = np.array([machine.start]), 0
    while len(frontier):
        lengths[frontier] = length
        targets = np.unique(machine.table[frontier])
        frontier, length = targets[lengths[targets] < 0], length + 1
    return lengths


def access_strings(machine: LabelledTable) -> list[tuple[int, ...]]:
    """Return the shortest string to each state, and of these the first in the order of the symbols.

    >>> access_strings(LabelledTable(np.array([[1, 0], [2, 0], [2, 2]]), 0, np.array([0, 0, 1])))
    [(), (0,), (0, 0)]
    """
    strings: dict[int, tuple[int, ...]] = {machine.start: ()}
    for target, (source, symbol) in _first_transitions(machine).items():
        strings[target] = (*strings[source], symbol)
    return [strings[state] for state in range(machine.n_states)]


def access_string(machine: LabelledTable, state: int) -> tuple[int, ...]:
    """Return the string of `access_strings` to one state; those to all states may be too long to be kept in memory.

    >>> access_string(LabelledTable(np.array([[1, 0], [2, 0], [2, 2]]), 0, np.array([0, 0, 1])), 2)
    (0, 0)
    """
    transitions, symbols = _first_transitions(machine), list[int]()
    while state != machine.start:
        state, symbol = transitions[state]
        symbols.append(symbol)
    return tuple(reversed(symbols))


def _first_transitions(machine: LabelledTable) -> dict[int, tuple[int, int]]:
    """Return the state before each state but the start, and the symbol between them, on the shortest string to it."""
    transitions, waiting, seen = dict[int, tuple[int, int]](), [machine.start], {machine.start}
    for source in waiting:  # the list grows: states in the order of their strings
        for symbol, target in enumerate(machine.table[source].tolist()):
            if target not in seen:
                seen.add(target)
                transitions[target] = source, symbol
                waiting.append(target)
    return transitions


def completion_lengths(machine: LabelledTable) -> Ints:
    """Return how many symbols after each state make a valid string at least, (Q,); -1 if none do.

    >>> completion_lengths(LabelledTable(np.array([[1, 2], [0, 2], [2, 2]]), 0, np.array([-1, 5, -1])))
    array([ 1,  0, -1])
    """
    lengths, length = np.where(machine.labels >= 0, 0, -1), 0
    while True:
        length += 1
        new = (lengths < 0) & (lengths[machine.table] >= 0).any(1)
        if not new.any():
            return lengths
        lengths[new] = length
