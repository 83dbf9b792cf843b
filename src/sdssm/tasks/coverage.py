"""What the training strings of a task cover: states, transitions and labels, with exact probabilities.

Nothing is sampled: the share of the strings that end in each state of the task's minimal machine is computed length by
length. This module needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Floats, Ints
from sdssm.tasks.ragged import validate_length
from sdssm.tasks.reach import Reach
from sdssm.tasks.sampling import MIXED, MIXTURE, SAMPLINGS, validate_sampling
from sdssm.tasks.string_ends import access_string, walk_ends
from sdssm.tasks.task import Task

#: Uniform strings cover a machine if every transition ends at least this share as many of them as of covering strings,
#: and likewise every label, compared with balanced strings. In a training on covering strings half of the strings are
#: drawn that way, so with this share a transition is at most two times rarer in uniform strings than there.
LEAST_SHARE = 0.25
#: Shares of labels below this are taken as this: the smallest normal number.
SMALLEST = float(np.finfo(np.float64).tiny)


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
        parts = MIXTURE if sampling == MIXED else (sampling,)
        machine = task.minimal
        labels = machine.labels[machine.table]  # (Q, V): the label after each transition
        by_state, balanced, lengths = np.zeros(machine.n_states), np.zeros(labels.shape), 0
        for strings in _walk_lengths(task, validate_length(train_length)):
            lengths += 1
            by_state += parts.count("uniform") * strings.uniform
            by_state += parts.count("covering") * strings.covering
            if "balanced" in parts:
                shares, occurring = strings.uniform_labels, strings.occurring
                factors = np.zeros(task.n_classes)
                factors[occurring] = 1 / (len(occurring) * np.maximum(shares[occurring], SMALLEST))
                balanced += strings.uniform[:, None] * factors[labels]
        transitions = np.where(labels >= 0, by_state[:, None] + parts.count("balanced") * balanced, 0.0)
        return cls(task, train_length, sampling, transitions / max(len(parts) * lengths, 1))

    @property
    def rarest(self) -> float:
        """The share of the strings that end with the rarest transition to a valid string that they take."""
        return float(self.transitions[self._ends].min(initial=1.0))

    @property
    def rarest_string(self) -> tuple[int, ...]:
        """A shortest string that ends with the rarest transition; empty if there is no training string."""
        if not self._ends.any():
            return ()
        state, symbol = np.unravel_index(np.where(self._ends, self.transitions, np.inf).argmin(), self._ends.shape)
        return (*access_string(self.task.minimal, int(state)), int(symbol))

    @cached_property
    def _ends(self) -> NDArray[np.bool_]:
        """The transitions with which training strings end, (Q, V)."""
        machine = self.task.minimal
        return Reach(self.task, self.train_length).transitions & (machine.labels[machine.table] >= 0)


def drawn_sampling(sampling: str) -> str:
    """Return how a training with this setting draws its strings: covering strings are mixed with others."""
    return MIXED if sampling == "covering" else sampling


class _LengthShares(NamedTuple):
    """How often the valid strings of one length end with each transition and each label.

    All transitions from a state to valid strings have the same share of uniform strings, and of covering ones, so one
    number for each state is enough: 0 for a state without such transitions.
    """

    length: int
    uniform: Floats  #: (Q,): of uniform strings
    covering: Floats  #: (Q,): of covering strings
    uniform_labels: Floats  #: (C,): the share of each label of uniform strings
    occurring: Ints  #: the labels of the strings, which balanced strings have equally often


def _walk_lengths(task: Task, longest: int) -> Iterator[_LengthShares]:
    """Yield the shares of each length up to the longest that has valid strings."""
    machine = task.minimal
    is_valid = machine.labels >= 0
    symbols = is_valid[machine.table].sum(1)  # (Q,): the number of symbols that make a string valid
    for length, (before, after) in enumerate(pairwise(walk_ends(machine, longest)), 1):
        occurring = np.unique(machine.labels[after.reached & is_valid])
        if len(occurring):
            shares = np.bincount(machine.labels[is_valid], after.shares[is_valid], task.n_classes)
            yield _LengthShares(
                length=length,
                uniform=(symbols > 0) * before.shares / ((before.shares @ symbols) or 1.0),  # 0: underflow
                covering=(symbols > 0) * before.reached / (before.reached @ symbols),
                uniform_labels=shares / (shares.sum() or 1.0),
                occurring=occurring,
            )


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
    'every transition ends at least 0.68 times as many uniform strings as covering ones'
    >>> choose_sampling(get_task("tomita4"), 40).reason
    'the rarest transition ends 5 times fewer uniform strings than covering ones, which end with each equally often'
    """
    middle = validate_length(train_length) // 2
    every, longer = _ShareSums(task), _ShareSums(task)
    for strings in _walk_lengths(task, train_length):
        for sums in (every, longer) if strings.length > middle else (every,):
            sums.add(strings)
    least = 1.0
    for shortest, sums in ((1, every), (middle + 1, longer)):
        kind = "uniform strings" + (f" of {shortest} to {train_length} symbols" if shortest > 1 else "")
        ratio = _least_ratio(sums.uniform, sums.covering)
        if ratio < LEAST_SHARE:
            reason = f"the rarest transition ends {_times(ratio)} fewer {kind} than covering ones"
            return Choice("covering", f"{reason}, which end with each equally often")
        least = min(least, ratio)
        ratio = _least_ratio(sums.uniform_labels, sums.balanced_labels)
        if ratio < LEAST_SHARE:
            reason = f"the rarest label has {_times(ratio)} fewer {kind} than balanced ones"
            return Choice("covering", f"{reason}, which have each equally often")
    share = "as many" if least > 0.995 else f"at least {least:.2g} times as many"
    return Choice("uniform", f"every transition ends {share} uniform strings as covering ones")


class _ShareSums:
    """The sums over lengths of the shares of last transitions and labels, for the samplings that are compared."""

    def __init__(self, task: Task) -> None:
        self.uniform, self.covering = np.zeros(task.minimal.n_states), np.zeros(task.minimal.n_states)
        self.uniform_labels, self.balanced_labels = np.zeros(task.n_classes), np.zeros(task.n_classes)

    def add(self, strings: _LengthShares) -> None:
        """Add the shares of the strings of one length."""
        self.uniform += strings.uniform
        self.covering += strings.covering
        self.uniform_labels += strings.uniform_labels
        self.balanced_labels[strings.occurring] += 1 / len(strings.occurring)


def _least_ratio(shares: Floats, others: Floats) -> float:
    """Return the least ratio of two shares, among those where the second is not 0; 1 if there is none."""
    return float((shares[others > 0] / others[others > 0]).min(initial=1.0))


def _times(ratio: float) -> str:
    """Format how many times rarer something is; shares below the smallest number are 0.

    >>> _times(0.2), _times(1 / 112), _times(3e-12), _times(0.0)
    ('5 times', '112 times', '3.3e+11 times', 'more than 1e300 times')
    """
    if ratio <= 0:
        return "more than 1e300 times"
    return f"{1 / ratio:,.0f} times" if 1e-6 < ratio < 0.1 else f"{1 / ratio:.2g} times"
