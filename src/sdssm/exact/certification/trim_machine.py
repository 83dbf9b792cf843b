"""A machine restricted to the states and transitions that valid strings use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints, live_states, reachable_states
from sdssm.exact.errors import ExactError
from sdssm.tasks.validity import label_states

#: Stands for a transition that no valid string takes, and for the label of a state where no valid string ends.
DEAD = -1


@dataclass(frozen=True, eq=False)
class TrimMachine:
    """A machine in which every state is reachable and on the path of some valid string.

    A state is a pair of a state of the given machine and a state of the machine of valid strings. `table` (Q, V) is
    DEAD where no valid string continues, and `labels` (Q,) is -1 where no valid string ends. The empty string is not
    classified, so the label of the start state counts only if a string leads back to it.
    """

    table: Ints
    start: int
    labels: Ints

    @classmethod
    def build(cls, machine: Machine, valid: Machine | None) -> TrimMachine:
        """Combine a machine with the machine of its valid strings (None: every string is valid).

        >>> from sdssm.tasks import get_task
        >>> TrimMachine.build(get_task("arithmetic").machine, get_task("arithmetic").valid).table.shape[1]
        8
        """
        if valid is not None and valid.n_symbols != machine.n_symbols:
            raise ExactError(
                f"the machine reads {machine.n_symbols} symbols but the machine of valid strings reads "
                f"{valid.n_symbols}; both need the same alphabet"
            )
        table, start, labels = label_states(machine, valid)
        live = live_states(table, labels >= 0)
        if not live[start] or not live[table[start]].any():
            raise ExactError("no string is valid, so there is nothing to certify; pass another machine as valid")
        # Transitions that no valid string takes become loops, so that they reach nothing.
        closed = np.where(live[table], table, np.arange(len(table))[:, None])
        kept = np.flatnonzero(reachable_states(closed, start))
        number = np.full(len(table), DEAD)
        number[kept] = np.arange(len(kept))
        trimmed = np.where(live[table[kept]], number[table[kept]], DEAD)
        return cls(trimmed.astype(np.int64), int(number[start]), labels[kept].astype(np.int64))

    @property
    def edges(self) -> tuple[Ints, Ints, Ints]:
        """Source state, symbol and target state of every transition that a valid string may take: (E,) each."""
        source, symbol = np.nonzero(self.table != DEAD)
        return source, symbol, self.table[source, symbol]
