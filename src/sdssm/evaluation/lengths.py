"""How many strings of each length a model labels correctly.

By prefixes: one pass over long strings, read after every symbol, with the state carried from piece to piece, or whole
where there is none. A model that emulates 500 lengths is so read in the time of its longest. Fresh: other strings for
each length, as published.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sdssm import ops
from sdssm.evaluation.strings import TestStrings
from sdssm.models import Classifier, State
from sdssm.models.rescaled import Scaled

#: A model, or one whose states are read by their direction.
Reader = Classifier | Scaled
#: Strings on which it is seen whether states grow.
PROBED = 16
#: About the most numbers in memory at a time.
MOST_NUMBERS = {"cpu": 1 << 24, "cuda": 1 << 28}


@dataclass(frozen=True, eq=False)
class Reading:
    """The number of correct strings of each length (K,), -1 where no string is as short, and of how many strings.

    Read by prefixes, `scores` (G, B) says at how many of the lengths in each group every string was correct, and
    `means` (K,) the mean accuracy over every length up to each; fresh strings have neither.
    """

    correct: np.ndarray
    strings: int
    scores: np.ndarray | None = None
    means: np.ndarray | None = None
    overflowed: bool = False  # whether the model gave numbers that are not finite

    @property
    def accuracy(self) -> np.ndarray:
        """(K,) shares of 1; NaN where no string is as short."""
        return np.where(self.correct < 0, np.nan, self.correct / self.strings)


def read_prefixes(model: Reader, strings: TestStrings, lengths: np.ndarray, groups: np.ndarray) -> Reading:
    """Read one set of strings at all of their prefixes. `groups` (G, K) says which lengths belong to each group."""
    assert strings.places is not None
    longest = int(lengths.max())
    floors = strings.places.floor(np.arange(longest + 1))  # the length that is scored for each
    weights = np.zeros((longest + 1, len(groups)), dtype=np.float32)
    for column, group in zip(weights.T, groups, strict=True):
        np.add.at(column, floors[lengths[group]], 1)
    weight = torch.from_numpy(weights[1:]).to(strings.device)  # (L, G)
    counts = torch.zeros(longest, dtype=torch.long, device=strings.device)
    scores = torch.zeros(strings.count, len(groups), dtype=torch.float64, device=strings.device)
    overflowed = torch.zeros((), dtype=torch.bool, device=strings.device)
    with _reading(model):
        for rows, places, logits, wanted in _told(model, strings, longest):
            right, finite = _correct(logits, wanted)  # (B, T)
            overflowed |= ~finite
            counts[places] += right.sum(0)
            scores[rows] += right.float() @ weight[places]  # whole numbers: exact
    every = np.concatenate([[-1], counts.cpu().numpy()])[floors]  # (L + 1,)
    return Reading(
        correct=every[lengths],
        strings=strings.count,
        scores=scores.T.cpu().numpy(),
        means=_running_mean(every[1:] / strings.count, every[1:] >= 0)[lengths - 1],
        overflowed=bool(overflowed),
    )


def _told(model: Reader, strings: TestStrings, longest: int) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """What a model tells of all prefixes, a part at a time: which strings and places, logits and labels there."""
    if model.recurrent:
        state, starts, place = None, strings.starts(), 0
        for tokens, labels in strings.blocks(longest):
            for piece, wanted in _pieces(model, tokens, labels):
                logits, state = model.advance(piece, state, starts=starts)
                yield slice(None), slice(place, place + piece.shape[1]), logits, wanted
                place, starts = place + piece.shape[1], None
        return
    tokens, labels = (torch.cat(blocks, 1) for blocks in zip(*strings.blocks(longest), strict=True))
    count = max(1, _room(tokens) // (longest * model.numbers))
    for first in range(0, strings.count, count):
        rows = slice(first, first + count)
        yield rows, slice(None), model.advance(tokens[rows])[0], labels[rows]


def read_fresh(model: Reader, strings: TestStrings, lengths: np.ndarray) -> Reading:
    """Read other strings for each length, at their end."""
    correct = torch.full((len(lengths),), -1, dtype=torch.long, device=strings.device)
    overflowed = torch.zeros((), dtype=torch.bool, device=strings.device)
    with _reading(model):
        # The longest first: what is free again after it holds all that come later, and a GPU never asks for more.
        for k in np.argsort(-lengths, kind="stable").tolist():
            length = int(lengths[k])
            if strings.shortest > length:
                continue
            correct[k] = 0
            for tokens, labels, starts in strings.fresh(length):
                right, finite = _correct(_last(model, tokens, starts), labels)
                correct[k] += right.sum()
                overflowed |= ~finite
    return Reading(correct=correct.cpu().numpy(), strings=strings.count, overflowed=bool(overflowed))


def outgrows(model: Classifier, strings: TestStrings, longest: int) -> bool:
    """Whether the states on such long strings leave the numbers whose squares there are; looked at on a few."""
    if strings.shortest > longest:
        return False
    state: State = None
    tokens, _, starts = next(replace(strings, count=PROBED).fresh(longest))
    with _reading(model):
        for (piece,) in _pieces(model, tokens):
            state, starts = model.carry(piece, state, starts=starts), None
    assert state is not None
    return not bool(state[0].abs().amax() <= torch.finfo(state[0].dtype).max ** 0.4)  # what is not a number does too


def _last(model: Reader, tokens: Tensor, starts: Tensor | None) -> Tensor:
    """The logits after whole strings: (B, L) -> (B, C)."""
    if not model.recurrent:  # whole strings, as many at a time as memory should hold
        count = max(1, _room(tokens) // (tokens.shape[1] * model.numbers))
        return torch.cat([model.last(some) for some in torch.split(tokens, count)])
    state: State = None
    *before, (end,) = _pieces(model, tokens)
    for (piece,) in before:
        state, starts = model.carry(piece, state, starts=starts), None
    return model.last(end, state, starts=starts)


def _pieces(model: Reader, *rows: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Tensors (B, T), cut alike into pieces whose logits and states fit the memory meant for them."""
    count = max(1, _room(rows[0]) // (len(rows[0]) * model.numbers))
    return zip(*(torch.split(row, count, dim=1) for row in rows), strict=True)


def _room(tokens: Tensor) -> int:
    return MOST_NUMBERS[tokens.device.type]


def _correct(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the label has the greatest logit, where a model that overflowed has none; and whether none did."""
    best, told = logits.max(-1)
    finite = best.isfinite()
    return (told == labels) & finite, finite.all()


def _running_mean(accuracy: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The mean over the known entries up to each, NaN before the first."""
    total, number = np.where(known, accuracy, 0.0).cumsum(), known.cumsum()
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


@contextmanager
def _reading(reader: Reader) -> Iterator[None]:
    """No gradients, no dropout; and no look at tokens that are valid by construction, for which a GPU would wait."""
    model = reader.model if isinstance(reader, Scaled) else reader
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(), ops.unchecked():
            yield
    finally:
        model.train(training)
