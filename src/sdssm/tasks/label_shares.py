"""The share of each label among the strings of a length, and the best constant answer, from the machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sdssm.errors import TaskError
from sdssm.tasks.sampling import MIXTURE, validate_sampling
from sdssm.tasks.string_counts import Counts, StringCounts
from sdssm.tasks.string_ends import StringEnds, walk_ends
from sdssm.tasks.task import Task
from sdssm.tasks.validity import LabelledTable


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
    # A string that starts in any state may start in one that no other string reaches.
    machine = LabelledTable.of_machine(task.machine) if random_start else task.minimal
    wanted, longest, stop = set(lengths), max(lengths, default=0), None
    rows: dict[int, np.ndarray] = {}
    row = np.full(task.n_classes, np.nan)
    last: list[tuple[StringEnds, StringEnds]] = []
    counts: StringCounts | None = None
    for length, (before, after) in enumerate(pairwise(walk_ends(machine, longest, random_start=random_start)), 1):
        if stop is None and len(last) == 2 and last[0][0] is before and last[0][1] is after:
            stop = length + 1  # from here on the shares of every other length are the same
            wanted |= {length, stop}
        if (length in wanted or task.valid is not None) and (machine.labels[after.reached] >= 0).any():
            weights = LABEL_WEIGHTS[sampling](machine, before, after, task.n_classes)
            if not weights.any():  # the shares of the valid strings are too small for a float: count them
                counts = counts or StringCounts(machine)
                weights = _count_labels(machine, counts.at(length), task.n_classes)
            row = weights / weights.sum()
        if length in wanted:
            rows[length] = row
        if length == stop:
            break
        last = [*last[-1:], (before, after)]
    known = [length if stop is None or length <= stop else stop - (length - stop) % 2 for length in lengths]
    return np.stack([rows[length] for length in known]) if len(known) else np.zeros((0, task.n_classes))


def best_constants(
    task: Task, lengths: Sequence[int], sampling: str = "uniform", *, random_start: bool = False
) -> list[float | None]:
    """Return the accuracy of the best constant answer at each length, in percent; None if no string is that short.

    The arguments are those of `compute_label_shares`. On balanced strings it is 100 over the number of labels that are
    possible at the length.

    >>> from sdssm.tasks import get_task
    >>> best_constants(get_task("parity"), [1, 10]), best_constants(get_task("a5"), [1, 2])
    ([50.0, 50.0], [50.0, 25.0])
    >>> best_constants(get_task("tomita4"), [500])[0] < 100  # very few strings of this length have another label
    True
    """
    shares = compute_label_shares(task, lengths, sampling, random_start=random_start)
    best = 100 * shares.max(1)
    # A rare label may vanish beside the others by rounding: only an answer that is always right has 100 %.
    best[(shares > 0).sum(1) > 1] = np.minimum(best[(shares > 0).sum(1) > 1], np.nextafter(100.0, 0))
    return [None if np.isnan(value) else float(value) for value in best]


def best_constant_in_training(
    task: Task, train_length: int, sampling: str = "uniform", *, random_start: bool = False
) -> float | None:
    """Return the accuracy of the best constant answer on the strings of a training, in percent.

    It is the mean over the lengths 1 to `train_length`; None if no string is that short. In a training, covering
    strings are mixed with others. With `random_start`, strings start in a state that is drawn uniformly.

    >>> from sdssm.tasks import get_task
    >>> best_constant_in_training(get_task("parity"), 40), best_constant_in_training(get_task("a5"), 2)
    (50.0, 37.5)
    """
    lengths = range(1, train_length + 1)
    names = MIXTURE if sampling == "covering" else (sampling,)
    by_name = {name: compute_label_shares(task, lengths, name, random_start=random_start) for name in set(names)}
    shares = np.mean([by_name[name] for name in names], axis=0).max(1)
    known = shares[~np.isnan(shares)]
    return 100 * float(known.mean()) if len(known) else None


def _uniform(machine: LabelledTable, before: StringEnds, after: StringEnds, n_classes: int) -> np.ndarray:
    is_valid = machine.labels >= 0
    return np.bincount(machine.labels[is_valid], after.shares[is_valid], minlength=n_classes)


def _balanced(machine: LabelledTable, before: StringEnds, after: StringEnds, n_classes: int) -> np.ndarray:
    ends = machine.labels[after.reached]
    return (np.bincount(ends[ends >= 0], minlength=n_classes) > 0).astype(float)


def _covering(machine: LabelledTable, before: StringEnds, after: StringEnds, n_classes: int) -> np.ndarray:
    ends = machine.labels[machine.table[before.reached]].ravel()
    return np.bincount(ends[ends >= 0], minlength=n_classes).astype(float)


#: The weight of each label among the strings of a length, from where those and those one symbol shorter end, by the way
#: in which strings are drawn.
LABEL_WEIGHTS = {"uniform": _uniform, "balanced": _balanced, "covering": _covering}


def _count_labels(machine: LabelledTable, counts: Counts, n_classes: int) -> np.ndarray:
    """Return the number of valid strings with each label, up to a common power of two."""
    is_valid = machine.labels >= 0
    mantissa, exponent = counts.mantissa[is_valid], counts.exponent[is_valid]
    numbers = np.ldexp(mantissa, np.maximum(exponent - exponent.max(), -2000))
    return np.bincount(machine.labels[is_valid], numbers, minlength=n_classes)
