"""The exact share of each label, against all strings of a length."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from sdssm.automata import Machine
from sdssm.errors import TaskError
from sdssm.tasks import Task, get_task
from sdssm.tasks.label_shares import best_constants, compute_label_shares

TASKS = ("parity", "a5", "cycle", "arithmetic", "regex:(a|b|c)*ac*", "regex:(ab)*", "random:6x3:1")


def all_labels(task: Task, length: int) -> np.ndarray:
    """The label of every valid string of a length."""
    strings = torch.tensor(list(itertools.product(range(task.n_symbols), repeat=length)))
    labels = task.labels(strings)[:, -1].numpy()
    return labels[labels >= 0]


@pytest.mark.parametrize("name", TASKS)
def test_shares_are_those_of_all_strings(name: str) -> None:
    task = get_task(name)
    shares = {sampling: compute_label_shares(task, range(1, 6), sampling) for sampling in ("uniform", "balanced")}
    labels = np.zeros(0)
    for length in range(1, 6):
        labels = found if len(found := all_labels(task, length)) else labels
        counts = np.bincount(labels, minlength=task.n_classes)
        assert shares["uniform"][length - 1] == pytest.approx(counts / counts.sum())
        assert shares["balanced"][length - 1] == pytest.approx((counts > 0) / (counts > 0).sum())


@pytest.mark.parametrize("name", TASKS)
def test_the_last_transition_of_covering_strings_is_uniform(name: str) -> None:
    task = get_task(name)
    table, start, labels = task.minimal
    states = {start}
    for length, shares in enumerate(compute_label_shares(task, range(1, 8), "covering"), start=1):
        ends = [labels[table[state, symbol]] for state in states for symbol in range(task.n_symbols)]
        counts = np.bincount([end for end in ends if end >= 0], minlength=task.n_classes)
        if task.has_length(length):
            assert shares == pytest.approx(counts / counts.sum())
        states = {int(table[state, symbol]) for state in states for symbol in range(task.n_symbols)}


def test_far_lengths_do_not_depend_on_the_others() -> None:
    """The walk stops as soon as nothing changes any more."""
    for name in TASKS:
        task = get_task(name)
        for sampling in ("uniform", "balanced", "covering"):
            every = best_constants(task, range(1, 301), sampling)
            assert best_constants(task, [7, 300], sampling) == pytest.approx([every[6], every[299]])


@pytest.mark.parametrize("name", [*TASKS, "z7", "dyck2", "d4"])
def test_far_shares_are_those_of_a_plain_walk(name: str) -> None:
    task = get_task(name)
    table, start, labels = task.minimal
    shares = np.eye(len(table))[start]
    expected = np.full(task.n_classes, np.nan)
    for length in range(1, 203):
        moved = [np.bincount(table[:, symbol], shares, len(table)) for symbol in range(task.n_symbols)]
        shares = np.sum(moved, axis=0)
        shares = shares / shares.sum()
        if (by_label := np.bincount(labels[labels >= 0], shares[labels >= 0], task.n_classes)).sum() > 1e-300:
            expected = by_label / by_label.sum()
        if length > 200:
            assert compute_label_shares(task, [length])[0] == pytest.approx(expected, abs=1e-9), length


def test_a_random_start_makes_all_states_equally_frequent() -> None:
    assert best_constants(get_task("a5"), [1, 2, 9], random_start=True) == pytest.approx([100 / 60] * 3)


def test_unknown_samplings_are_errors() -> None:
    with pytest.raises(TaskError, match="sampling is 'even'"):
        compute_label_shares(get_task("parity"), [1], "even")
    with pytest.raises(TaskError, match="drawn uniformly, not balanced"):
        compute_label_shares(get_task("a5"), [1], "balanced", random_start=True)


def test_valid_strings_whose_share_is_too_small_for_a_float_are_counted() -> None:
    """Of odd lengths only a, aaa, ... are valid, among 2^L strings that can still become valid."""
    table = [[1, 2, 5], [0, 5, 5], [3, 3, 4], [2, 2, 5], [5, 5, 5], [5, 5, 5]]
    valid = Machine(table=table, outputs=[0, 1, 0, 0, 1, 0])
    task = Task(name="rare", machine=Machine(table=[[1, 0, 0], [0, 1, 1]]), valid=valid)
    assert compute_label_shares(task, [11, 1_001, 2_001]).tolist() == [[0, 1]] * 3
    assert best_constants(task, [2_001]) == [100]
