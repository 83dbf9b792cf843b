"""The strings on which the model of a language is measured: a function of the language and a seed alone.

They are drawn on a CPU, in worker processes, while the models train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sdssm.experiments.mlregtest.configuration import STRING_SEED, Configuration
from sdssm.experiments.mlregtest.edit_pairs import EditPairs, find_edit_pairs
from sdssm.tasks.label_shares import best_constants
from sdssm.tasks.sampling import SAMPLINGS
from sdssm.tasks.task import Task

#: Strings that are tried for a pair: many have no edit that changes their label.
TRIED_FOR_A_PAIR = 4
#: The label of strings that fill a batch up.
FILLER = -2


@dataclass(frozen=True, eq=False)
class LengthStrings:
    """The test strings of one length.

    Attributes:
        length: L.
        tokens: (3, S, L), one block for each of SAMPLINGS.
        labels: (3, S).
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
    scores = [best_constants(task, configuration.lengths, sampling) for sampling in SAMPLINGS]
    by_length = zip(configuration.lengths, zip(*scores, strict=True), strict=True)
    return [_draw_length(task, length, configuration, constants) for length, constants in by_length]


def _draw_length(
    task: Task, length: int, configuration: Configuration, constants: tuple[float | None, ...]
) -> LengthStrings:
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
    known = tuple(score for score in constants if score is not None)  # every string is valid, so all are
    dtype = np.uint8 if task.n_symbols <= 256 else np.int32
    return LengthStrings(length, tokens.astype(dtype), labels.astype(np.int16), pairs, known)


def stack_strings(strings: Sequence[LengthStrings]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the strings of R languages at one length as tokens (R, B, L + 1), lengths (R, B) and labels (R, B).

    The blocks of each language follow each other; then come its pairs, before and after the edit. Languages with fewer
    pairs than others are filled up with strings of the label FILLER, which no prediction equals.
    """
    most = max(len(entry.pairs) for entry in strings)
    blocks, count, length = strings[0].tokens.shape
    rows = blocks * count
    tokens = np.zeros((len(strings), rows + 2 * most, length + 1), dtype=strings[0].tokens.dtype)
    lengths = np.full(tokens.shape[:2], length)
    labels = np.full(tokens.shape[:2], FILLER, dtype=np.int16)
    for k, entry in enumerate(strings):
        tokens[k, :rows, :length] = entry.tokens.reshape(rows, length)
        labels[k, :rows] = entry.labels.reshape(rows)
        before, after = slice(rows, rows + len(entry.pairs)), slice(rows + most, rows + most + len(entry.pairs))
        tokens[k, before, :length], labels[k, before] = entry.pairs.tokens, entry.pairs.labels
        tokens[k, after], labels[k, after] = entry.pairs.edited, entry.pairs.edited_labels
        lengths[k, after] = entry.pairs.lengths
    return tokens, lengths, labels
