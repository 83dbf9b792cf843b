"""The accuracy of the best constant answer: the label that is most frequent at a length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sdssm.tasks import Task
from sdssm.tasks.validity import label_states, live_states


def best_constant_accuracy(task: Task, lengths: Sequence[int], *, random_start: bool = False) -> list[float | None]:
    """Return the share of the most frequent label among all valid strings of each length, in percent.

    It is computed from the machine and not from a sample. A length without valid strings counts as the greatest length
    below it that has some, as in `evaluate`, and is None if there is none. With `random_start` strings start in a state
    that is drawn uniformly.

    >>> from sdssm.tasks import get_task
    >>> best_constant_accuracy(get_task("parity"), [1, 10]), best_constant_accuracy(get_task("a5"), [1, 2])
    ([50.0, 50.0], [50.0, 25.0])
    """
    table, start, labels = label_states(task.machine, task.valid)
    n_states = len(table)
    # Column q of `moves` has the states that one symbol leads to from q: the number of strings that end in each state
    # after one more symbol is `moves @ counts`.
    moves = np.zeros((n_states, n_states))
    for column in table.T:
        np.add.at(moves, (column, np.arange(n_states)), 1.0)
    counts = np.full(n_states, 1.0) if random_start else np.eye(n_states)[start]
    is_valid = labels >= 0
    moves[~live_states(table, is_valid)] = 0.0  # strings that cannot become valid would outnumber the others
    wanted, shares, share = set(lengths), dict[int, float | None](), None
    for length in range(1, max(wanted, default=0) + 1):
        counts = moves @ counts
        counts /= counts.sum() or 1.0  # only shares matter, and the numbers would overflow; 0: no string is that long
        total = float(counts[is_valid].sum())
        if total > 0:
            share = 100 * float(np.bincount(labels[is_valid], counts[is_valid]).max()) / total
        if length in wanted:
            shares[length] = share
    return [shares[length] for length in lengths]
