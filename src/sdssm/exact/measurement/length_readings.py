"""Read test strings at selected lengths: the accuracy, and the within-class distance of states."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sdssm.evaluation.correct_counts import count_on_fresh_strings
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.measurement.word_matrices import WordMatrices
from sdssm.exact.watch import UNWATCHED, Watch
from sdssm.models import Classifier, TokenModel
from sdssm.models.stack import State
from sdssm.tasks.evaluation_strings import BLOCK, EvaluationStrings

#: Number of positions classified up to each length, including it, so that there are more labels than strings.
POSITIONS = 16
#: Symbols that go through the model at a time if one of their positions is classified.
PIECE = 64
#: Number of pieces that are carried at a time if none of their positions is classified.
TOGETHER = 128


@dataclass(frozen=True)
class HorizonReading:
    """The accuracy up to one length, at positions `first` to `length` of uniform strings.

    The balanced accuracy is that of fresh strings of the length whose labels are equally frequent.
    """

    length: int
    first: int
    labels: int  #: number of labels that were compared
    accuracy: float  #: percent of them that are correct
    within: float | None  #: root mean square distance of normalised states from the mean of their class
    between: float | None  #: the smallest distance between the means of two classes
    spread: float | None  #: within over between
    best_constant: float | None = None  #: percent of the uniform strings of this length with the most frequent label
    balanced: float | None = None  #: percent of balanced strings; None if they are too long, or not needed
    chance: float | None = None  #: percent of balanced strings that a constant answer classifies correctly

    def is_at_least(self, level: float) -> bool:
        """Whether the accuracy, and the balanced accuracy if it was measured, is at least so many percent."""
        return self.accuracy >= level and (self.balanced is None or self.balanced >= level)


class _Position(NamedTuple):
    """What was read at one position of all strings."""

    correct: Tensor  # (B,)
    states: Tensor | None  # (B, N): directions
    labels: Tensor  # (B,)


def read_prefixes(
    model: TokenModel,
    test: EvaluationStrings,
    lengths: list[int],
    words: WordMatrices | None,
    watch: Watch = UNWATCHED,
) -> Iterator[HorizonReading]:
    """Read the same strings at several prefix lengths, or at those that are reached until the time is up.

    Only pieces with classified positions go through the whole model.
    """
    assert test.positions is not None
    windows = [(max(1, length - POSITIONS + 1), length) for length in lengths]
    classified = {position for first, last in windows for position in range(first, last + 1)}
    results: dict[int, _Position] = {}
    state: State = None
    waiting: list[Tensor] = []

    def carry_waiting() -> None:
        nonlocal state
        if waiting:
            state = _carry(model, words, torch.cat(waiting, 1), state)
            waiting.clear()

    watch.start("read strings", total=lengths[-1], unit="symbols")
    for number, (tokens, labels) in enumerate(test.blocks(lengths[-1])):
        watch.update(number * BLOCK)
        if number and watch.is_over:
            break
        for k in range(0, tokens.shape[1], PIECE):
            piece, first = tokens[:, k : k + PIECE], number * BLOCK + k + 1
            offsets = [j for j in range(piece.shape[1]) if first + j in classified]
            if not offsets:
                waiting.append(piece)
                continue
            carry_waiting()
            logits, directions, state = _classify(model, piece, state, offsets)
            correct = (logits.argmax(-1) == labels[:, k : k + PIECE][:, offsets]) & logits.isfinite().all(-1)
            for i, j in enumerate(offsets):
                x = None if directions is None else directions[:, i]
                results[first + j] = _Position(correct[:, i], x, labels[:, k + j])
        if len(waiting) >= TOGETHER:
            carry_waiting()
    for length, (first, last) in zip(lengths, windows, strict=True):
        if last not in results:  # the time was up
            break
        yield _summarise(test, length, first, {position: results[position] for position in range(first, last + 1)})


def read_fresh_strings(
    model: TokenModel, test: EvaluationStrings, lengths: list[int], watch: Watch = UNWATCHED
) -> list[HorizonReading]:
    """Read new strings for each length, for tasks where prefixes of uniform strings are not uniform.

    If the time is up, the lengths read so far are returned, and at least the first.
    """
    readings: list[HorizonReading] = []
    read = end = 0  # symbols of all strings: those read so far, and those up to the end of this length

    def on_read(symbols: int) -> None:
        nonlocal read
        read += symbols
        watch.update(read / test.count)
        if readings and read < end:  # a length that has been read counts
            watch.check()

    watch.start("read strings", total=sum(lengths), unit="symbols")
    for length in lengths:
        end += length * test.count
        try:
            on_read(0)
            result = count_on_fresh_strings(model, test, np.array([length]), on_read)
        except TimeIsUpError:
            break
        share = 100 * float(result.accuracy[0])
        readings.append(HorizonReading(length, length, result.strings, share, None, None, None))
    return readings


def _carry(model: TokenModel, words: WordMatrices | None, tokens: Tensor, state: State) -> State:
    """Return the state after many symbols, without classifying any position."""
    if words is None:
        for piece in torch.split(tokens, BLOCK, dim=1):
            state = model.advance_state(piece, state)
        return state
    x = model.first_state.expand(len(tokens), -1) if state is None else state[0]
    return (words.advance_state(tokens, x),)


def _classify(
    model: TokenModel, tokens: Tensor, state: State, offsets: list[int]
) -> tuple[Tensor, Tensor | None, State]:
    """Return the logits (B, K, C) and directions (B, K, N) at K positions of a piece, and the last state.

    Directions are those of the state of an SD-SSM, and None for other models.
    """
    if not isinstance(model, Classifier) or not model.is_single_sd_ssm:
        logits, state = model.advance(tokens, state)
        return logits[:, offsets], None, state
    symbols = model.symbol_parts()
    x = None if state is None else state[0]
    states, final = model.mixers[0].mix_symbols(symbols._replace(skip=None), tokens, x)
    states = states[:, offsets]
    features = states
    if model.query is not None:
        features = model.query_step(symbols, states)
    elif symbols.skip is not None:
        features = states + symbols.skip[tokens[:, offsets]]
    return model.logits(features), torch.nn.functional.normalize(states, dim=-1), (final,)


def _summarise(test: EvaluationStrings, length: int, first: int, results: dict[int, _Position]) -> HorizonReading:
    """Combine the results of the positions up to one length at which strings are valid."""
    assert test.positions is not None
    valid = np.array(test.positions.can_end)
    kept = [result for position, result in results.items() if valid[test.positions.index_at(np.array([position]))[0]]]
    correct = torch.stack([result.correct for result in kept])
    within = between = None
    if kept[0].states is not None:
        states = torch.cat([result.states for result in kept if result.states is not None]).double().cpu().numpy()
        within, between = class_spread(states, torch.cat([result.labels for result in kept]).cpu().numpy())
    ratio = None if within is None or not between else within / between
    return HorizonReading(length, first, correct.numel(), 100 * float(correct.double().mean()), within, between, ratio)


def class_spread(states: np.ndarray, labels: np.ndarray) -> tuple[float | None, float | None]:
    """Return the within-class distance of states (M, N), and the smallest distance of class means.

    The within-class distance is the root mean square distance of states from the mean of their class.

    >>> class_spread(np.array([[1.0, 0.1], [1.0, -0.1], [0.0, 1.0]]), np.array([0, 0, 1]))[1]
    1.4142135623730951
    """
    classes, number = np.unique(labels, return_inverse=True)
    if len(classes) < 2 or not np.isfinite(states).all():
        return None, None
    counts = np.bincount(number)
    means = np.stack([np.bincount(number, column) for column in states.T], 1) / counts[:, None]
    several = counts[number] > 1  # a single state is its own mean
    if not several.any():
        return None, None
    # Bessel's correction: the mean of k states accounts for a share 1 / k of their variance.
    correction = (counts / np.maximum(counts - 1, 1))[number]
    within = math.sqrt(float((np.square(states - means[number]).sum(1) * correction)[several].mean()))
    squared_distances = np.square(means[:, None] - means[None]).sum(-1)
    squared_distances[np.arange(len(means)), np.arange(len(means))] = np.inf
    return within, math.sqrt(float(squared_distances.min()))
