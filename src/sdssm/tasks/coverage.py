"""What the training strings of a task cover: states, transitions and labels, with exact probabilities.

Nothing is sampled: the share of the strings that end in each state of the task's minimal machine is computed length by
length. This module needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sdssm.tasks.ragged import validate_length
from sdssm.tasks.sampling import MIXED, MIXTURE, SAMPLINGS, validate_sampling
from sdssm.tasks.string_ends import StringEnds, access_lengths, completion_lengths, walk_ends
from sdssm.tasks.task import Task

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Uniform strings cover a machine if every transition ends at least this share as many of them as of covering strings,
#: and likewise every label, compared with balanced strings. In a training on covering strings half of the strings are
#: drawn that way, so with this share a transition is at most two times rarer in uniform strings than there.
LEAST_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class Coverage:
    """How often strings of a task end with each transition of its minimal machine, and with each label.

    The length of a string is uniform among the lengths 1..`train_length` that have a valid string.

    Args:
        task: the task.
        train_length: the length of the longest strings.
        sampling: how strings are drawn at each length: "uniform", "balanced", "covering", or "mixed", the mixture of
            a training on covering strings.
        transitions: the share of the strings whose last symbol is a and whose state before it is q, (Q, V).
    """

    task: Task
    train_length: int
    sampling: str
    transitions: Floats

    @classmethod
    def measure(cls, task: Task, train_length: int, sampling: str = "uniform") -> Coverage:
        """Compute the coverage of the strings up to a length.

        >>> from sdssm.tasks import get_task
        >>> Coverage.measure(get_task("parity"), 40).transitions.tolist()  # the start state is 0
        [[0.25625, 0.25625], [0.24375, 0.24375]]
        """
        validate_sampling(sampling, (*SAMPLINGS, MIXED))
        machine = task.minimal
        labels = machine.labels[machine.table]  # (Q, V): the label after each transition
        transitions = np.zeros(machine.table.shape)
        for ends in walk_ends(machine, validate_length(train_length) - 1):
            if (ends.reached[:, None] & (labels >= 0)).any():  # else no string of this length is valid
                for part in MIXTURE if sampling == MIXED else (sampling,):
                    transitions += _last_transitions(ends, labels, task.n_classes, part)
        return cls(task, train_length, sampling, transitions / (transitions.sum() or 1.0))

    @cached_property
    def reached_states(self) -> Flags:
        """Which states a training string visits, (Q,): the start state and all on the way to a valid string."""
        machine = self.task.minimal
        completion = completion_lengths(machine)
        return (completion >= 0) & (access_lengths(machine) + completion <= self.train_length)

    @cached_property
    def reached_transitions(self) -> Flags:
        """Which transitions a training string takes, (Q, V)."""
        return self.possible_transitions & (self._lengths_through <= self.train_length)

    @cached_property
    def possible_transitions(self) -> Flags:
        """Which transitions a valid string of any length takes, (Q, V)."""
        return completion_lengths(self.task.minimal)[self.task.minimal.table] >= 0

    @cached_property
    def _lengths_through(self) -> NDArray[np.int64]:
        """The length of the shortest valid string that takes each transition, if there is one, (Q, V)."""
        machine = self.task.minimal
        lengths: NDArray[np.int64] = access_lengths(machine)[:, None] + 1 + completion_lengths(machine)[machine.table]
        return lengths


def _last_transitions(ends: StringEnds, labels: NDArray[np.int64], n_classes: int, sampling: str) -> Floats:
    """Return the share of the strings that are one symbol longer than `ends` and end with each transition, (Q, V).

    `labels` are those after each transition, (Q, V).
    """
    weights = ends.reached if sampling == "covering" else ends.shares
    shares = np.where(labels >= 0, weights[:, None], 0.0)
    if sampling == "balanced":
        of_label = np.bincount(labels[labels >= 0], shares[labels >= 0], n_classes)
        shares /= np.where(of_label > 0, of_label, 1.0)[labels]
    return np.asarray(shares / (shares.sum() or 1.0))


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
    middle = validate_length(train_length) // 2
    every, longer = _ShareSums(task), _ShareSums(task)
    for length, (before, after) in enumerate(pairwise(walk_ends(task.minimal, train_length)), 1):
        for sums in (every, longer) if length > middle else (every,):
            sums.add(before, after)
    least = 1.0
    for shortest, sums in ((1, every), (middle + 1, longer)):
        where = f"rarer in uniform strings of {shortest} to {train_length} symbols than in"
        ratio = _least_ratio(sums.uniform, sums.covering)
        if ratio < LEAST_SHARE:
            return Choice("covering", f"a transition is {_times(ratio)} {where} covering ones")
        least = min(least, ratio)
        ratio = _least_ratio(sums.uniform_labels, sums.balanced_labels)
        if ratio < LEAST_SHARE:
            return Choice("covering", f"a label is {_times(ratio)} {where} balanced ones")
    reason = f"every transition is at least {least:.2g} times as frequent in uniform strings as in covering ones"
    return Choice("uniform", reason)


class _ShareSums:
    """The sums over lengths of the shares of last transitions and labels, for the samplings that are compared.

    All transitions from a state to valid strings have the same share of uniform and of covering strings, so one number
    per state is enough.
    """

    def __init__(self, task: Task) -> None:
        self.labels, self.n_classes = task.minimal.labels, task.n_classes
        self.symbols = (self.labels[task.minimal.table] >= 0).sum(1)  # (Q,): the symbols that make a string valid
        self.uniform, self.covering = np.zeros(len(self.labels)), np.zeros(len(self.labels))
        self.uniform_labels, self.balanced_labels = np.zeros(self.n_classes), np.zeros(self.n_classes)

    def add(self, before: StringEnds, after: StringEnds) -> None:
        """Add the shares of the strings of one length, given where they end and where those one symbol shorter end."""
        is_valid = self.labels >= 0
        occurring = np.unique(self.labels[after.reached & is_valid])
        if len(occurring):
            has_valid = self.symbols > 0
            self.uniform += has_valid * before.shares / ((before.shares @ self.symbols) or 1.0)  # 0: underflow
            self.covering += has_valid * before.reached / (before.reached @ self.symbols)
            ends = np.bincount(self.labels[is_valid], after.shares[is_valid], self.n_classes)
            self.uniform_labels += ends / (ends.sum() or 1.0)
            self.balanced_labels[occurring] += 1 / len(occurring)


def _least_ratio(shares: Floats, others: Floats) -> float:
    """Return the least ratio of two shares, among those where the second is not 0; 1 if there is none."""
    return float((shares[others > 0] / others[others > 0]).min(initial=1.0))


def _times(ratio: float) -> str:
    """Format how many times rarer something is; shares below the smallest number are 0."""
    return f"{1 / ratio:.2g} times" if ratio > 0 else "more than 1e300 times"
