"""The strings on which the model of a language is measured: a function of the language and a seed alone.

They are drawn on a CPU, in worker processes, while the models train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.experiments.mlregtest.configuration import STRING_SEED, Configuration
from sdssm.experiments.mlregtest.edit_pairs import EditPairs, find_edit_pairs
from sdssm.tasks.task import Task

#: How strings are drawn, in the order of the first axis of `LengthStrings.tokens`.
SAMPLINGS = ("uniform", "balanced", "covering")
#: Strings that are tried for a pair: many have no edit that changes their label.
TRIED_FOR_A_PAIR = 4


@dataclass(frozen=True, eq=False)
class LengthStrings:
    """The test strings of one length.

    Attributes:
        length: L.
        tokens: uint8 (3, S, L), one block for each way of drawing them.
        labels: uint8 (3, S).
        pairs: pairs of strings at edit distance 1 with different labels.
        best_constant: what the best constant answer scores in percent on each block, (3,), exactly.
    """

    length: int
    tokens: np.ndarray
    labels: np.ndarray
    pairs: EditPairs
    best_constant: tuple[float, ...]


def draw_test_strings(task: Task, configuration: Configuration) -> list[LengthStrings]:
    """Return the test strings of a language at all lengths of the configuration."""
    return [_draw_length(task, length, configuration) for length in configuration.lengths]


def _draw_length(task: Task, length: int, configuration: Configuration) -> LengthStrings:
    generator = torch.Generator().manual_seed((STRING_SEED << 32) + length)
    blocks = [
        task.sample(configuration.strings, length, generator=generator, sampling=sampling) for sampling in SAMPLINGS
    ]
    tokens = np.stack([batch.tokens.numpy() for batch in blocks])
    labels = np.stack([batch.labels[:, -1].numpy() for batch in blocks])
    # Balanced strings have a neighbour with the other label on one side of the border at least; covering strings
    # visit more states.
    tried = np.concatenate(
        [
            task.sample(
                TRIED_FOR_A_PAIR * configuration.pairs // 2, length, generator=generator, sampling=sampling
            ).tokens.numpy()
            for sampling in SAMPLINGS[1:]
        ]
    )
    random = np.random.default_rng((STRING_SEED, length))
    pairs = find_edit_pairs(task.machine, random.permutation(tried), configuration.pairs, random)
    return LengthStrings(
        length,
        tokens.astype(np.uint8),
        labels.astype(np.uint8),
        pairs,
        best_constant_scores(task.machine.minimise(), length),
    )


def best_constant_scores(machine: Machine, length: int) -> tuple[float, ...]:
    """Return the greatest share of one label among strings of a length, in percent, for each way of drawing them.

    The machine is minimal, and every string valid.

    >>> best_constant_scores(Machine(table=[[0, 1], [1, 1]]), 2)  # at least one 1: three of four strings
    (75.0, 50.0, 75.0)
    """
    shares = np.eye(machine.n_states)[machine.start]
    steps = np.zeros((machine.n_states, machine.n_states))
    np.add.at(steps, (np.arange(machine.n_states)[:, None], machine.table), 1 / machine.n_symbols)
    reached = np.zeros(machine.n_states, dtype=bool)
    for _ in range(length):
        reached = shares > 0
        shares = shares @ steps
    uniform = np.bincount(machine.outputs, weights=shares)
    possible = len(np.unique(machine.outputs[shares > 0]))
    covering = np.bincount(machine.outputs[machine.table[reached]].ravel())
    return tuple(100 * float(share) for share in (uniform.max(), 1 / possible, covering.max() / covering.sum()))


def stack_strings(strings: Sequence[LengthStrings]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the strings of R languages at one length as tokens (R, B, L + 1), lengths (R, B) and labels (R, B).

    The blocks of each language follow each other; then come its pairs, before and after the edit. Languages with fewer
    pairs than others are filled up with strings of label 255, which no prediction equals.
    """
    most = max(len(entry.pairs) for entry in strings)
    blocks, count, length = strings[0].tokens.shape
    rows = blocks * count
    tokens = np.zeros((len(strings), rows + 2 * most, length + 1), dtype=np.uint8)
    lengths = np.full(tokens.shape[:2], length)
    labels = np.full(tokens.shape[:2], 255, dtype=np.uint8)
    for k, entry in enumerate(strings):
        tokens[k, :rows, :length] = entry.tokens.reshape(rows, length)
        labels[k, :rows] = entry.labels.reshape(rows)
        before, after = slice(rows, rows + len(entry.pairs)), slice(rows + most, rows + most + len(entry.pairs))
        tokens[k, before, :length], labels[k, before] = entry.pairs.tokens, entry.pairs.labels
        tokens[k, after], labels[k, after] = entry.pairs.edited, entry.pairs.edited_labels
        lengths[k, after] = entry.pairs.lengths
    return tokens, lengths, labels
