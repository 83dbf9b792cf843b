"""Which states of a task's minimal machine its training strings end in, and how often: one row for each state."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sdssm.tasks.coverage import Coverage, drawn_sampling
from sdssm.tasks.reach import Reach
from sdssm.tasks.string_ends import access_strings
from sdssm.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class StateCoverage:
    """How often training strings end in one state of the minimal machine.

    Args:
        state: the number of the state; the start state need not be 0.
        string: the shortest string that leads to it, the first in the order of the symbols; empty for the start state.
        label: the label of strings that end there; None if they are not valid.
        reached: whether a training string visits it.
        uniform: the share of uniform strings that end there, among all lengths of the training.
        training: the same for the strings as the training draws them.
        taken: the number of its transitions that training strings take.
        transitions: the number of its transitions that valid strings of any length take.
    """

    state: int
    string: tuple[int, ...]
    label: int | None
    reached: bool
    uniform: float
    training: float
    taken: int
    transitions: int

    def to_dict(self) -> dict[str, Any]:
        """Return all values by name."""
        return asdict(self)


def cover_states(task: Task, train_length: int | None = None, sampling: str = "uniform") -> list[StateCoverage]:
    """Return how often the training strings end in each state that occurs in valid strings, rarest first.

    `sampling` is that of a training, where covering strings are mixed with others.

    >>> from sdssm.tasks import get_task
    >>> rarest, *_ = cover_states(get_task("tomita4"), 40, "covering")
    >>> rarest.string, rarest.label, rarest.reached, round(1 / rarest.uniform), round(1 / rarest.training)
    ((0, 0), 1, True, 21, 10)
    """
    length = task.train_length if train_length is None else train_length
    machine, reach = task.minimal, Reach(task, length)
    uniform, training = (
        np.bincount(machine.table.ravel(), coverage.transitions.ravel(), machine.n_states)
        for coverage in (Coverage.measure(task, length), Coverage.measure(task, length, drawn_sampling(sampling)))
    )
    strings = access_strings(machine)
    states = [
        StateCoverage(
            state=state,
            string=strings[state],
            label=None if machine.labels[state] < 0 else int(machine.labels[state]),
            reached=bool(reach.states[state]),
            uniform=float(uniform[state]),
            training=float(training[state]),
            taken=int(reach.transitions[state].sum()),
            transitions=int(reach.possible_transitions[state].sum()),
        )
        for state in np.flatnonzero(reach.possible_states).tolist()
    ]
    return sorted(states, key=lambda row: (row.reached, row.uniform, row.state))
