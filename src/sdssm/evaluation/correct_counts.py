"""Count how many strings of each length a model classifies correctly.

There are two methods. On prefixes: the model reads one set of long strings once, and its prediction after every symbol
counts for the length of that prefix. Evaluating 500 lengths then costs as much as the longest alone. On fresh strings:
the model reads new strings for each length, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sdssm.models import Classifier, State, TokenModel
from sdssm.models.reading import reading_mode
from sdssm.models.rescaled import RescaledModel
from sdssm.tasks.evaluation_strings import EvaluationStrings

#: A model, or a model whose states are rescaled as it reads.
EvaluatedModel = TokenModel | RescaledModel
#: Called with the number of symbols that were just read.
SymbolCallback = Callable[[int], None]
#: The number of strings on which the growth of states is measured.
PROBED_STRINGS = 16
#: The approximate limit on the numbers (logits and states) in memory at a time.
MOST_NUMBERS = {"cpu": 1 << 24, "cuda": 1 << 28}


@dataclass(frozen=True, eq=False)
class CorrectCounts:
    """How many strings of each of K lengths were classified correctly.

    Attributes:
        correct: the number of correct strings at each length (K,); -1 if no string that short is valid.
        strings: the number of strings at each length.
        scores: on prefixes only, (G, B): at how many lengths of each group each string was correct.
        means: on prefixes only, (K,): the mean accuracy over all lengths 1, 2, ... up to each length.
        overflowed: whether any logit was infinite or NaN.
    """

    correct: np.ndarray
    strings: int
    scores: np.ndarray | None = None
    means: np.ndarray | None = None
    overflowed: bool = False

    @property
    def accuracy(self) -> np.ndarray:
        """The accuracy at each length (K,), from 0 to 1; NaN if no string that short is valid."""
        return np.where(self.correct < 0, np.nan, self.correct / self.strings)


def ignore_symbols(count: int) -> None:
    """Do nothing: the default of callbacks."""


def count_on_prefixes(
    model: EvaluatedModel,
    strings: EvaluationStrings,
    lengths: np.ndarray,
    groups: np.ndarray,
    on_read: SymbolCallback = ignore_symbols,
) -> CorrectCounts:
    """Evaluate one set of strings at all of their prefixes.

    Args:
        model: the model.
        strings: the strings; the prefixes of their task must be uniformly drawn.
        lengths: the lengths to count, (K,).
        groups: groups of these lengths over which `scores` are summed, bool (G, K).
        on_read: called after each part, with the number of symbols in it.
    """
    assert strings.positions is not None
    longest = int(lengths.max())
    # A length without valid strings is scored at the greatest length below it that has some.
    scored_lengths = strings.positions.longest_valid_lengths(np.arange(longest + 1))
    weights = np.zeros((longest + 1, len(groups)), dtype=np.float32)
    for column, group in zip(weights.T, groups, strict=True):
        np.add.at(column, scored_lengths[lengths[group]], 1)
    weight = torch.from_numpy(weights[1:]).to(strings.device)  # (L, G)
    counts = torch.zeros(longest, dtype=torch.long, device=strings.device)
    scores = torch.zeros(strings.count, len(groups), dtype=torch.float64, device=strings.device)
    overflowed = torch.zeros((), dtype=torch.bool, device=strings.device)
    with _inference(model):
        for rows, positions, logits, labels in _prefix_logits(model, strings, longest):
            correct, finite = _is_correct(logits, labels)  # (B, T)
            overflowed |= ~finite
            counts[positions] += correct.sum(0)
            scores[rows] += correct.float() @ weight[positions]  # sums of integers: exact
            on_read(correct.numel())
    all_counts = np.concatenate([[-1], counts.cpu().numpy()])[scored_lengths]  # (L + 1,)
    return CorrectCounts(
        correct=all_counts[lengths],
        strings=strings.count,
        scores=scores.T.cpu().numpy(),
        means=_running_mean(all_counts[1:] / strings.count, all_counts[1:] >= 0)[lengths - 1],
        overflowed=bool(overflowed),
    )


def _prefix_logits(
    model: EvaluatedModel, strings: EvaluationStrings, longest: int
) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Yield the logits after every prefix in parts: rows of strings, positions, logits and labels there."""
    if model.is_recurrent:
        state, starts, position = None, strings.start_states(), 0
        for tokens, labels in strings.blocks(longest):
            for piece, piece_labels in split_to_memory(model, tokens, labels):
                logits, state = model.advance(piece, state, starts=starts)
                yield slice(None), slice(position, position + piece.shape[1]), logits, piece_labels
                position, starts = position + piece.shape[1], None
        return
    tokens, labels = (torch.cat(blocks, 1) for blocks in zip(*strings.blocks(longest), strict=True))
    count = max(1, _memory_limit(tokens) // (longest * model.numbers_per_symbol))
    for first in range(0, strings.count, count):
        rows = slice(first, first + count)
        yield rows, slice(None), model.advance(tokens[rows])[0], labels[rows]


def count_on_fresh_strings(
    model: EvaluatedModel, strings: EvaluationStrings, lengths: np.ndarray, on_read: SymbolCallback = ignore_symbols
) -> CorrectCounts:
    """Evaluate new strings for each length, at their last symbol; call `on_read` after each part."""
    correct, drawn, overflowed = count_by_label(model, strings, lengths, on_read)
    counts = np.where(drawn.sum(1) > 0, correct.sum(1), -1)
    return CorrectCounts(correct=counts, strings=strings.count, overflowed=overflowed)


def count_by_label(
    model: EvaluatedModel, strings: EvaluationStrings, lengths: np.ndarray, on_read: SymbolCallback = ignore_symbols
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Evaluate new strings for each of K lengths, and count those of each of C labels apart.

    Returns:
        correct: the number of correct strings at each length with each label, (K, C).
        drawn: the number of strings, (K, C); 0 at a length if no string that short is valid.
        overflowed: whether any logit was infinite or NaN.
    """
    n_classes = strings.task.n_classes
    correct, drawn = (torch.zeros(len(lengths), n_classes, dtype=torch.long, device=strings.device) for _ in range(2))
    overflowed = torch.zeros((), dtype=torch.bool, device=strings.device)
    with _inference(model):
        # The longest first: shorter strings then reuse its memory, and a GPU allocates no more.
        for k in np.argsort(-lengths, kind="stable").tolist():
            length = int(lengths[k])
            if strings.shortest_length > length:
                continue
            for tokens, labels, starts in strings.draw_fresh(length):
                is_correct, finite = _is_correct(_last_logits(model, tokens, starts, on_read), labels)
                correct[k].index_add_(0, labels, is_correct.long())
                drawn[k].index_add_(0, labels, torch.ones_like(labels))
                overflowed |= ~finite
    return correct.cpu().numpy(), drawn.cpu().numpy(), bool(overflowed)


def has_growing_states(
    model: Classifier, strings: EvaluationStrings, longest: int, on_read: SymbolCallback = ignore_symbols
) -> bool:
    """Whether states after strings of this length are too large to be squared, measured on a few strings."""
    if strings.shortest_length > longest:
        return False
    state: State = None
    tokens, _, starts = next(replace(strings, count=PROBED_STRINGS).draw_fresh(longest))
    with _inference(model):
        for (piece,) in split_to_memory(model, tokens):
            state, starts = model.advance_state(piece, state, starts=starts), None
            on_read(piece.numel())
    assert state is not None
    return not bool(state[0].abs().amax() <= torch.finfo(state[0].dtype).max ** 0.4)  # NaN counts as too large


def _last_logits(model: EvaluatedModel, tokens: Tensor, starts: Tensor | None, on_read: SymbolCallback) -> Tensor:
    """Return the logits after whole strings: (B, L) -> (B, C)."""
    if not model.is_recurrent:  # whole strings, as many at a time as fit into memory
        count = max(1, _memory_limit(tokens) // (tokens.shape[1] * model.numbers_per_symbol))
        parts = []
        for rows in torch.split(tokens, count):
            parts.append(model.last_logits(rows))
            on_read(rows.numel())
        return torch.cat(parts)
    state: State = None
    *before, (end,) = split_to_memory(model, tokens)
    for (piece,) in before:
        state, starts = model.advance_state(piece, state, starts=starts), None
        on_read(piece.numel())
    logits = model.last_logits(end, state, starts=starts)
    on_read(end.numel())
    return logits


def split_to_memory(model: EvaluatedModel, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors (B, T) along T into pieces whose logits and states fit into memory."""
    count = max(1, _memory_limit(tensors[0]) // (len(tensors[0]) * model.numbers_per_symbol))
    return zip(*(torch.split(tensor, count, dim=1) for tensor in tensors), strict=True)


def _memory_limit(tokens: Tensor) -> int:
    return MOST_NUMBERS[tokens.device.type]


def _is_correct(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether each prediction is correct, and whether all are finite.

    A prediction is correct if its label has the largest logit, and that logit is finite.
    """
    largest, prediction = logits.max(-1)
    finite = largest.isfinite()
    return (prediction == labels) & finite, finite.all()


def _running_mean(accuracy: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the mean over the known entries up to each entry, NaN before the first."""
    total, count = np.where(known, accuracy, 0.0).cumsum(), known.cumsum()
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _inference(model: EvaluatedModel) -> AbstractContextManager[None]:
    """Disable gradients, dropout and the check of tokens, which are valid by construction."""
    return reading_mode(model.model if isinstance(model, RescaledModel) else model)
