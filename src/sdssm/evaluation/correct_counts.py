"""Count how many strings of each length a model classifies correctly.

There are two methods. On prefixes: the model reads one set of long strings once, and its prediction after every symbol
counts for the length of that prefix. Evaluating 500 lengths then costs as much as the longest alone. On fresh strings:
the model reads new strings for each length, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sdssm.evaluation.group_reading import EvaluatedModel, GroupReading, ModelLogits
from sdssm.models import Classifier
from sdssm.models.reading import reading_mode
from sdssm.models.rescaled import RescaledModel
from sdssm.tasks.evaluation_strings import EvaluationStrings

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


def count_models_on_prefixes(
    models: Sequence[EvaluatedModel],
    strings: EvaluationStrings,
    lengths: np.ndarray,
    groups: np.ndarray,
    on_read: SymbolCallback = ignore_symbols,
) -> list[CorrectCounts]:
    """Evaluate several models on one set of strings at all of their prefixes.

    Args:
        models: the models.
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
    counts = torch.zeros(len(models), longest, dtype=torch.long, device=strings.device)
    scores = torch.zeros(len(models), strings.count, len(groups), dtype=torch.float64, device=strings.device)
    overflowed = torch.zeros(len(models), dtype=torch.bool, device=strings.device)
    with _inference(models):
        for rows, positions, labels, outputs in _prefix_logits(models, strings, longest):
            for some_models, logits in outputs:
                correct, finite = _is_correct(logits, labels)  # (r, B, T), (r,)
                overflowed[some_models] |= ~finite
                counts[some_models, positions] += correct.sum(1)
                scores[some_models, rows] += correct.float() @ weight[positions]  # sums of integers: exact
                on_read(correct.numel())
    # Only now: every copy to the host waits for the device.
    host_counts, host_scores, host_overflowed = counts.cpu().numpy(), scores.mT.cpu().numpy(), overflowed.tolist()
    results = []
    for own_counts, own_scores, has_overflowed in zip(host_counts, host_scores, host_overflowed, strict=True):
        all_counts = np.concatenate([[-1], own_counts])[scored_lengths]  # (L + 1,)
        results.append(
            CorrectCounts(
                correct=all_counts[lengths],
                strings=strings.count,
                scores=own_scores,
                means=_running_mean(all_counts[1:] / strings.count, all_counts[1:] >= 0)[lengths - 1],
                overflowed=has_overflowed,
            )
        )
    return results


def _prefix_logits(
    models: Sequence[EvaluatedModel], strings: EvaluationStrings, longest: int
) -> Iterator[tuple[slice, slice, Tensor, Iterator[ModelLogits]]]:
    """Yield in parts the rows of strings, the positions, the labels there, and the logits of each model there."""
    reading = GroupReading(models, strings.count, strings.start_states())
    if reading.is_recurrent:
        position = 0
        for tokens, labels in strings.blocks(longest):
            for piece, piece_labels in split_to_memory(reading, tokens, labels):
                end = position + piece.shape[1]
                yield slice(None), slice(position, end), piece_labels, reading.advance(piece)
                position = end
        return
    tokens, labels = (torch.cat(blocks, 1) for blocks in zip(*strings.blocks(longest), strict=True))
    count = max(1, _memory_limit(tokens) // (longest * reading.numbers_per_symbol))
    for first in range(0, strings.count, count):
        rows = slice(first, first + count)
        part = GroupReading(models, len(tokens[rows]))
        yield rows, slice(None), labels[rows], part.advance(tokens[rows])


def count_on_fresh_strings(
    model: EvaluatedModel, strings: EvaluationStrings, lengths: np.ndarray, on_read: SymbolCallback = ignore_symbols
) -> CorrectCounts:
    """Evaluate new strings for each length, at their last symbol; call `on_read` after each part."""
    return count_models_on_fresh_strings([model], strings, lengths, on_read)[0]


def count_models_on_fresh_strings(
    models: Sequence[EvaluatedModel],
    strings: EvaluationStrings,
    lengths: np.ndarray,
    on_read: SymbolCallback = ignore_symbols,
) -> list[CorrectCounts]:
    """Evaluate several models on the same new strings for each length, at their last symbol."""
    correct, drawn, overflowed = count_by_label(models, strings, lengths, on_read)
    is_known = drawn.sum(1) > 0
    return [
        CorrectCounts(
            correct=np.where(is_known, own.sum(1), -1), strings=strings.count, overflowed=bool(has_overflowed)
        )
        for own, has_overflowed in zip(correct, overflowed, strict=True)
    ]


def count_by_label(
    models: Sequence[EvaluatedModel],
    strings: EvaluationStrings,
    lengths: np.ndarray,
    on_read: SymbolCallback = ignore_symbols,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Evaluate R models on new strings for each of K lengths, and count those of each of C labels apart.

    Returns:
        correct: the number of strings that each model classifies correctly at each length with each label, (R, K, C).
        drawn: the number of strings, (K, C); 0 at a length if no string that short is valid.
        overflowed: whether any logit of a model was infinite or NaN, (R,).
    """
    n_classes, device = strings.task.n_classes, strings.device
    correct = torch.zeros(len(models), len(lengths), n_classes, dtype=torch.long, device=device)
    drawn = torch.zeros(len(lengths), n_classes, dtype=torch.long, device=device)
    overflowed = torch.zeros(len(models), dtype=torch.bool, device=device)
    with _inference(models):
        # The longest first: shorter strings then reuse its memory, and a GPU allocates no more.
        for k in np.argsort(-lengths, kind="stable").tolist():
            length = int(lengths[k])
            if strings.shortest_length > length:
                continue
            for tokens, labels, starts in strings.draw_fresh(length):
                drawn[k].index_add_(0, labels, torch.ones_like(labels))
                for some_models, logits in _last_logits(models, tokens, starts, on_read):
                    is_correct, finite = _is_correct(logits, labels)  # (r, B), (r,)
                    correct[some_models, k].index_add_(1, labels, is_correct.long())
                    overflowed[some_models] |= ~finite
    return correct.cpu().numpy(), drawn.cpu().numpy(), overflowed.cpu().numpy()


def have_growing_states(
    models: Sequence[Classifier], strings: EvaluationStrings, longest: int, on_read: SymbolCallback = ignore_symbols
) -> list[bool]:
    """Return for each model whether its states after strings of this length are too large to be squared.

    It is measured on a few strings.
    """
    if strings.shortest_length > longest:
        return [False] * len(models)
    tokens, _, starts = next(replace(strings, count=PROBED_STRINGS).draw_fresh(longest))
    with _inference(models):
        reading = GroupReading(models, len(tokens), starts)
        for (piece,) in split_to_memory(reading, tokens):
            reading.skip(piece)
            on_read(piece.numel() * len(models))
        largest = torch.stack([state[0].abs().amax() for state in reading.states() if state is not None])
        limit = torch.finfo(largest.dtype).max ** 0.4
        return (~(largest <= limit)).tolist()  # type: ignore[no-any-return]  # NaN counts as too large


def _last_logits(
    models: Sequence[EvaluatedModel], tokens: Tensor, starts: Tensor | None, on_read: SymbolCallback
) -> Iterator[ModelLogits]:
    """Yield the logits of the models after whole strings in parts: (B, L) -> (r, B, C)."""
    reading = GroupReading(models, len(tokens), starts)
    if not reading.is_recurrent:  # whole strings, as many at a time as fit into memory
        for number, model in enumerate(models):
            count = max(1, _memory_limit(tokens) // (tokens.shape[1] * model.numbers_per_symbol))
            parts = []
            for rows in torch.split(tokens, count):
                parts.append(model.last_logits(rows))
                on_read(rows.numel())
            yield slice(number, number + 1), torch.cat(parts)[None]
        return
    *before, (end,) = split_to_memory(reading, tokens)
    for (piece,) in before:
        reading.skip(piece)
        on_read(piece.numel() * len(models))
    for some_models, logits in reading.finish(end):
        on_read(end.numel() * len(logits))
        yield some_models, logits


class HasSize(Protocol):
    """A model, or a group of models that read the same strings."""

    @property
    def numbers_per_symbol(self) -> int:
        """Estimate of the numbers in memory for each symbol."""


def split_to_memory(reader: HasSize, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors (B, T) along T into pieces whose logits and states fit into memory."""
    count = max(1, _memory_limit(tensors[0]) // (len(tensors[0]) * reader.numbers_per_symbol))
    return zip(*(torch.split(tensor, count, dim=1) for tensor in tensors), strict=True)


def _memory_limit(tokens: Tensor) -> int:
    return MOST_NUMBERS[tokens.device.type]


def _is_correct(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether each prediction is correct (r, B, ...), and whether all of a model are finite (r,).

    A prediction is correct if its label has the largest logit, and that logit is finite.
    """
    largest, prediction = logits.max(-1)
    finite = largest.isfinite()
    return (prediction == labels) & finite, finite.flatten(1).all(1)


def _running_mean(accuracy: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the mean over the known entries up to each entry, NaN before the first."""
    total, count = np.where(known, accuracy, 0.0).cumsum(), known.cumsum()
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


@contextmanager
def _inference(models: Sequence[EvaluatedModel]) -> Iterator[None]:
    """Disable gradients, dropout and the check of tokens, which are valid by construction."""
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(reading_mode(model.model if isinstance(model, RescaledModel) else model))
        yield
