"""What the training strings of a task cover: states, transitions and labels, with exact probabilities.

Nothing is sampled: the number of strings that reach each state of the task's minimal machine is counted length by
length. This module needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sdssm.tasks.ragged import validate_length
from sdssm.tasks.task import Task
from sdssm.tasks.validity import LabelledTable, live_states

Floats = NDArray[np.float64]

#: Uniform strings cover a machine if every transition ends at least this share as many of them as of covering strings,
#: and likewise every label, compared with balanced strings. In a training on covering strings half of the strings are
#: drawn that way, so with this share a transition is at most two times rarer in uniform strings than there.
LEAST_SHARE = 0.25


def end_shares(machine: LabelledTable, longest: int) -> Iterator[Floats]:
    """Yield for each length 0..longest the share of the strings that end in each state, (Q,).

    Only strings that can still become valid are counted; if there is none of a length, all shares are 0.
    """
    n_states, n_symbols = machine.table.shape
    targets = machine.table.ravel()
    live = live_states(machine.table, machine.labels >= 0)
    shares = np.eye(n_states)[machine.start]
    yield shares
    for _ in range(longest):
        counts = np.bincount(targets, np.repeat(shares, n_symbols), n_states) * live
        shares = counts / (counts.sum() or 1.0)  # only shares matter, and counts would overflow
        yield shares


def end_states(machine: LabelledTable, longest: int) -> Iterator[NDArray[np.bool_]]:
    """Yield for each length 0..longest in which states a string of that length ends, (Q,)."""
    reached = np.arange(len(machine.table)) == machine.start
    yield reached
    for _ in range(longest):
        following = np.zeros_like(reached)
        following[machine.table[reached]] = True
        reached = following
        yield reached


@dataclass(frozen=True, eq=False)
class Coverage:
    """How often training strings end with each transition of a task's minimal machine, and with each label.

    The length of a training string is uniform among the lengths shortest..`train_length` that have a valid string.

    transitions: the share of the strings whose last symbol is a and whose state before it is q, (Q, V).
    labels: the share of the strings with each label, (n_classes,).
    """

    task: Task
    train_length: int
    sampling: str
    transitions: Floats
    labels: Floats

    @classmethod
    def measure(cls, task: Task, train_length: int, sampling: str = "uniform", *, shortest: int = 1) -> Coverage:
        """Compute the coverage of strings that are "uniform", "balanced" or "covering" at each length.

        >>> from sdssm.tasks import get_task
        >>> Coverage.measure(get_task("parity"), 40).transitions.tolist()  # the start state is 0
        [[0.25625, 0.25625], [0.24375, 0.24375]]
        """
        machine = task.minimal
        targets = machine.labels[machine.table]  # (Q, V): the label after each transition
        is_valid = targets >= 0
        transitions, lengths = np.zeros(machine.table.shape), 0
        ends = end_states if sampling == "covering" else end_shares
        for length, weights in enumerate(ends(machine, validate_length(train_length) - 1), 1):
            shares = np.where(is_valid, weights[:, None], 0.0)
            if length < shortest or not shares.any():
                continue
            if sampling == "balanced":
                of_label = np.bincount(targets[is_valid], shares[is_valid], task.n_classes)
                shares = shares / np.where(of_label > 0, of_label, 1.0)[targets]
            transitions, lengths = transitions + shares / shares.sum(), lengths + 1
        transitions /= max(lengths, 1)
        labels = np.bincount(targets[is_valid], transitions[is_valid], task.n_classes).astype(np.float64)
        return cls(task, train_length, sampling, transitions, labels)


class Choice(NamedTuple):
    """How the strings of a training are drawn, and the reason in one line."""

    sampling: str
    reason: str


def choose_sampling(task: Task, train_length: int) -> Choice:
    """Choose "uniform" where uniform strings up to a length cover the task's minimal machine, else "covering".

    Every transition must end at least `LEAST_SHARE` times as many uniform strings as covering strings, and every label
    must have at least `LEAST_SHARE` times as many uniform strings as balanced ones. Both must hold for all lengths
    together, and for the longer half of them: it is the long strings that resemble the strings of an evaluation.

    >>> from sdssm.tasks import get_task
    >>> choose_sampling(get_task("a5"), 40).reason
    'every transition is at least 0.68 times as frequent in uniform strings as in covering ones'
    >>> choose_sampling(get_task("tomita4"), 40).reason
    'a transition is 5 times rarer in uniform strings of 1 to 40 symbols than in covering ones'
    """
    least = 1.0
    for shortest in (1, train_length // 2 + 1):
        uniform, balanced, covering = (
            Coverage.measure(task, train_length, sampling, shortest=shortest)
            for sampling in ("uniform", "balanced", "covering")
        )
        where = f"rarer in uniform strings of {shortest} to {train_length} symbols than in"
        ratio = _least_ratio(uniform.transitions, covering.transitions)
        if ratio < LEAST_SHARE:
            return Choice("covering", f"a transition is {_times(ratio)} {where} covering ones")
        label_ratio = _least_ratio(uniform.labels, balanced.labels)
        if label_ratio < LEAST_SHARE:
            return Choice("covering", f"a label is {_times(label_ratio)} {where} balanced ones")
        least = min(least, ratio)
    reason = f"every transition is at least {least:.2g} times as frequent in uniform strings as in covering ones"
    return Choice("uniform", reason)


def _least_ratio(shares: Floats, others: Floats) -> float:
    """Return the least ratio of two shares, among those where the second is not 0; 1 if there is none."""
    return float((shares[others > 0] / others[others > 0]).min(initial=1.0))


def _times(ratio: float) -> str:
    """Format how many times rarer something is; shares below the smallest number are 0."""
    return f"{1 / ratio:.2g} times" if ratio > 0 else "more than 1e300 times"
