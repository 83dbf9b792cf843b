"""The share of each label among the strings of a length, and the best constant answer, from the machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sdssm.errors import TaskError
from sdssm.tasks.sampling import MIXTURE, validate_sampling
from sdssm.tasks.task import Task
from sdssm.tasks.validity import LabelledTable, live_states

#: Shares that change by less than this part of themselves do not change any more.
STATIONARY = 1e-13


def compute_label_shares(
    task: Task, lengths: Sequence[int], sampling: str = "uniform", *, random_start: bool = False
) -> np.ndarray:
    """Return the probability of each label at each length, (K, C), exact up to rounding.

    Args:
        task: the task.
        lengths: the lengths. One without valid strings counts as the greatest length below it that has some, as in
            `evaluate`; its row is NaN if there is none.
        sampling: how strings are drawn: "uniform", "balanced" or "covering".
        random_start: whether strings start in a state that is drawn uniformly.

    >>> from sdssm.tasks import get_task
    >>> sparse = get_task("regex:(a|b|c)*ac*")
    >>> compute_label_shares(sparse, [1, 100]).round(3).tolist()
    [[0.667, 0.333], [0.5, 0.5]]
    >>> compute_label_shares(sparse, [100], "balanced").tolist()
    [[0.5, 0.5]]
    """
    validate_sampling(sampling)
    if random_start and sampling != "uniform":
        raise TaskError(f"strings that start in a random state are drawn uniformly, not {sampling}")
    labelled = _labelled(task) if random_start else task.minimal
    walk = _CountWalk(labelled, random_start=random_start)
    wanted = set(lengths)
    rows: dict[int, np.ndarray] = {}
    row = np.full(task.n_classes, np.nan)
    for length in range(1, max(wanted, default=0) + 1):
        walk.advance()
        if (length in wanted or task.valid is not None or walk.is_stationary) and walk.has_valid:
            row = SHARES_BY_SAMPLING[sampling](walk, task.n_classes)
        if length in wanted:
            rows[length] = row
        if walk.is_stationary:  # the shares of all greater lengths are the same
            break
    return np.stack([rows.get(length, row) for length in lengths]) if len(lengths) else np.zeros((0, task.n_classes))


def best_constants(
    task: Task, lengths: Sequence[int], sampling: str = "uniform", *, random_start: bool = False
) -> list[float | None]:
    """Return the accuracy of the best constant answer at each length, in percent; None if no string is that short.

    The arguments are those of `compute_label_shares`. On balanced strings it is 100 over the number of labels that are
    possible at the length.

    >>> from sdssm.tasks import get_task
    >>> best_constants(get_task("parity"), [1, 10]), best_constants(get_task("a5"), [1, 2])
    ([50.0, 50.0], [50.0, 25.0])
    """
    best = 100 * compute_label_shares(task, lengths, sampling, random_start=random_start).max(1)
    return [None if np.isnan(value) else float(value) for value in best]


def best_constant_in_training(task: Task, train_length: int, sampling: str = "uniform") -> float | None:
    """Return the accuracy of the best constant answer on the strings of a training, in percent.

    It is the mean over the lengths 1 to `train_length`; None if no string is that short. In a training, covering
    strings are mixed with others.

    >>> from sdssm.tasks import get_task
    >>> best_constant_in_training(get_task("parity"), 40), best_constant_in_training(get_task("a5"), 2)
    (50.0, 37.5)
    """
    lengths = range(1, train_length + 1)
    names = MIXTURE if sampling == "covering" else (sampling,)
    by_name = {name: compute_label_shares(task, lengths, name) for name in set(names)}
    shares = np.mean([by_name[name] for name in names], axis=0).max(1)
    known = shares[~np.isnan(shares)]
    return 100 * float(known.mean()) if len(known) else None


class _CountWalk:
    """The number of strings that reach each state, length by length.

    Only the shares of the states matter, so that the numbers are scaled to a sum of 1: they would overflow.
    """

    def __init__(self, labelled: LabelledTable, *, random_start: bool) -> None:
        self.table, start, self.labels = labelled
        n_states, self.n_symbols = self.table.shape
        self.live = live_states(self.table, self.labels >= 0)  # strings that cannot become valid would outnumber others
        self.counts = np.full(n_states, 1 / n_states) if random_start else np.eye(n_states)[start]
        self.reached = self.reached_before = self.counts > 0
        self.is_stationary = False  # whether the last symbol changed neither shares nor reachable states

    def advance(self) -> None:
        """Read one more symbol."""
        before, self.reached_before = self.counts, self.reached
        weights = np.repeat(before, self.n_symbols)
        counts = np.bincount(self.table.ravel(), weights, minlength=len(self.table)) * self.live
        self.counts = counts / (counts.sum() or 1.0)  # 0: no string is that long
        # Small shares may underflow, but a state stays reachable.
        self.reached = np.zeros(len(self.table), dtype=bool)
        self.reached[self.table[self.reached_before]] = True
        self.reached &= self.live
        self.is_stationary = bool(
            np.array_equal(self.reached_before, self.reached)
            and (np.abs(self.counts - before) <= STATIONARY * before).all()
        )

    @property
    def has_valid(self) -> bool:
        return bool((self.labels[self.reached] >= 0).any())

    def uniform(self, n_classes: int) -> np.ndarray:
        is_valid = self.labels >= 0
        return _normalise(np.bincount(self.labels[is_valid], self.counts[is_valid], minlength=n_classes))

    def balanced(self, n_classes: int) -> np.ndarray:
        ends = self.labels[self.reached]
        return _normalise((np.bincount(ends[ends >= 0], minlength=n_classes) > 0).astype(float))

    def covering(self, n_classes: int) -> np.ndarray:
        ends = self.labels[self.table[self.reached_before]].ravel()
        return _normalise(np.bincount(ends[ends >= 0], minlength=n_classes).astype(float))


#: How the share of each label is computed, by the way in which strings are drawn.
SHARES_BY_SAMPLING = {
    "uniform": _CountWalk.uniform,
    "balanced": _CountWalk.balanced,
    "covering": _CountWalk.covering,
}


def _normalise(weights: np.ndarray) -> np.ndarray:
    return np.asarray(weights / weights.sum())


def _labelled(task: Task) -> LabelledTable:
    """Return the table of a task whose strings may start in any state, reachable or not."""
    return LabelledTable(task.machine.table, task.machine.start, task.machine.outputs)
