"""Which strings of a task are valid, and which label each of them has, as one transition table."""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import numpy as np

from sdssm.automata import Machine
from sdssm.automata.comparison import product_table
from sdssm.automata.refinement import Ints, coarsest_congruence, reachable_states


class LabelledTable(NamedTuple):
    """A transition table with the label of the strings that end in each state.

    `table` is (Q, V), `start` the number of the start state, and `labels` (Q,) is -1 at states where no valid string
    ends. Every state is reachable, except in `of_machine`.
    """

    table: Ints
    start: int
    labels: Ints

    @classmethod
    def of_machine(cls, machine: Machine) -> LabelledTable:
        """Return the table of a machine as it is, for strings that are all valid."""
        return cls(machine.table, machine.start, machine.outputs)

    def labels_of_strings(self) -> frozenset[int]:
        """Return the labels of the valid strings with at least one symbol."""
        ends = np.unique(self.table)  # every state is reachable, so a state with a transition to it ends a string
        return frozenset(self.labels[ends].tolist()) - {-1}

    @property
    def n_states(self) -> int:
        """The number of states."""
        return len(self.table)

    @property
    def n_symbols(self) -> int:
        """The number of symbols."""
        return int(self.table.shape[1])

    def minimise(self) -> LabelledTable:
        """Return the smallest table with the same label for every non-empty string; its states keep their order.

        All states from which no valid string can be completed become one. The empty string has no label: a start state
        to which no string returns is merged with the first state that has the same next states, if there is one.

        >>> LabelledTable(np.array([[1], [0]]), 0, np.array([3, 3])).minimise()
        LabelledTable(table=array([[0]]), start=0, labels=array([3]))
        >>> LabelledTable(np.array([[1], [2], [1]]), 0, np.array([7, 1, 0])).minimise()  # state 0 continues as 2 does
        LabelledTable(table=array([[1],
               [0]]), start=1, labels=array([1, 0]))
        """
        classes = coarsest_congruence(self.table, self.labels)
        _, first = np.unique(classes, return_index=True)
        table, start, labels = classes[self.table[first]], int(classes[self.start]), self.labels[first]
        if not (table == start).any():
            twins = np.flatnonzero((table == table[start]).all(1))
            twin = int(next((q for q in twins if q != start), start))
            if twin != start:
                kept = np.delete(np.arange(len(table)), start)
                return LabelledTable(np.searchsorted(kept, table[kept]), int(np.searchsorted(kept, twin)), labels[kept])
        return LabelledTable(table, start, labels)


def label_states(machine: Machine, valid: Machine | None) -> LabelledTable:
    """Combine a machine with the machine of its valid strings (None: every string is valid).

    A state of the result is a reachable pair of a state of `machine` and a state of `valid`.

    >>> from sdssm.automata import get_machine
    >>> ends_in_1 = Machine(table=[[0, 1], [0, 1]], outputs=[0, 1])
    >>> label_states(get_machine("parity"), ends_in_1).labels.tolist()
    [-1, 0, -1, 1]
    """
    table, start, labels = machine.table, machine.start, machine.outputs
    if valid is not None:
        table = product_table(machine.table, valid.table)
        start = machine.start * valid.n_states + valid.start
        labels = np.where(valid.outputs != 0, machine.outputs[:, None], -1).ravel()
    kept = np.flatnonzero(reachable_states(table, start))
    return LabelledTable(
        table=np.searchsorted(kept, table[kept]),
        start=int(np.searchsorted(kept, start)),
        labels=labels[kept],
    )


class ReachedStates:
    """The states that strings of each length reach: their sets repeat in the end, and each is computed once.

    >>> third = ReachedStates(np.array([[1], [2], [0]]), 0)
    >>> third.at(50_000).tolist(), third.numbers(5).tolist()
    ([2], [0, 1, 2, 0, 1, 2])
    """

    def __init__(self, table: Ints, start: int) -> None:
        self._table = table
        self._sets = [np.array([start])]
        self._number_of = {self._sets[0].tobytes(): 0}
        self._first: int | None = None  # the set that follows the last one, if it was there before
        self._lock = Lock()

    def at(self, length: int) -> Ints:
        """Return the states that strings of a length reach, in ascending order."""
        self._compute(length)
        return self._sets[self._number(length)]

    def numbers(self, longest: int) -> Ints:
        """Return for each of the lengths 0..longest the least length whose strings reach the same states."""
        self._compute(longest)
        numbers = np.arange(longest + 1)
        if self._first is not None:
            period = len(self._sets) - self._first
            numbers = np.where(numbers < self._first, numbers, self._first + (numbers - self._first) % period)
        return numbers

    def _number(self, length: int) -> int:
        if self._first is None or length < len(self._sets):
            return length
        return self._first + (length - self._first) % (len(self._sets) - self._first)

    def _compute(self, length: int) -> None:
        with self._lock:
            while self._first is None and len(self._sets) <= length:
                states = np.unique(self._table[self._sets[-1]])
                number = self._number_of.setdefault(states.tobytes(), len(self._sets))
                if number < len(self._sets):
                    self._first = number
                else:
                    self._sets.append(states)
