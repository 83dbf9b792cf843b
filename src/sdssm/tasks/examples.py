"""Example strings of a task for people to read, drawn with numpy: describing a task needs no torch.

Training and evaluation draw their strings in `stream.py` and `evaluation_strings.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sdssm.tasks.task import Task


class ExampleString(NamedTuple):
    """A string, and the label after each of its symbols; -1 after a prefix that is not a valid string."""

    tokens: list[int]
    labels: list[int]


def draw_examples(task: Task, count: int, length: int, *, seed: int = 0) -> list[ExampleString]:
    """Draw strings uniformly among the valid strings of this length.

    >>> from sdssm.tasks import get_task
    >>> draw_examples(get_task("parity"), 1, 5)
    [ExampleString(tokens=[1, 1, 1, 0, 0], labels=[1, 0, 1, 1, 1])]
    """
    task.check_has_length(length)
    table, start, labels = task.labelled
    generator = np.random.default_rng(seed)
    examples = []
    for tokens in _draw_tokens(task, count, length, generator):
        state, seen = start, list[int]()
        for token in tokens:
            state = int(table[state, token])
            seen.append(int(labels[state]))
        examples.append(ExampleString(tokens, seen))
    return examples


def _draw_tokens(task: Task, count: int, length: int, generator: np.random.Generator) -> Iterator[list[int]]:
    if task.valid is None:
        yield from generator.integers(task.n_symbols, size=(count, length)).tolist()
        return
    table, start, labels = task.labelled
    # weights[k][q] is the number of valid strings that continue from state q with k symbols, up to a factor.
    weights = [(labels >= 0).astype(float)]
    for _ in range(length):
        ways = weights[-1][table].sum(axis=1)
        weights.append(ways / ways.max())
    for _ in range(count):
        state, tokens = start, list[int]()
        for left in range(length - 1, -1, -1):
            ways = weights[left][table[state]]
            tokens.append(int(generator.choice(len(ways), p=ways / ways.sum())))
            state = int(table[state, tokens[-1]])
        yield tokens
