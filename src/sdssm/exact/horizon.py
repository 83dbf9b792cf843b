"""`horizon`: how long strings may be before a model fails, measured by doubling lengths up to a million."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdssm import ops
from sdssm.automata import Machine
from sdssm.evaluation.correct_counts import read_fresh
from sdssm.evaluation.request import MOST_LENGTH, MOST_STRINGS
from sdssm.exact.errors import ExactError
from sdssm.exact.subject import What, subject
from sdssm.exact.words import Words
from sdssm.models import Classifier
from sdssm.models.stack import State
from sdssm.settings import check_between
from sdssm.tasks import Task
from sdssm.tasks import get_task as named_task
from sdssm.tasks.evaluation_strings import BLOCK, TestStrings

#: The share of labels, in percent, that must be right.
ENOUGH = 99.9
#: Places read up to each length, itself included: more labels than there are strings.
PLACES = 16
#: Symbols read at a time, where something is read.
PIECE = 64
#: Pieces of strings carried in one go, where nothing is read.
TOGETHER = 128
#: Lengths between which the growth of the spread is measured, to predict where it becomes too wide.
MEASURED = 512, 4_096
#: The spread at which about one label in a thousand goes wrong.
TOO_WIDE = 1 / 3


@dataclass(frozen=True)
class Reading:
    """What was found up to one length: at the places of its prefixes that were read, first and last included."""

    length: int
    first: int
    labels: int  #: how many were compared
    accuracy: float  #: percent of them that were right
    within: float | None  #: root mean square distance of states from the mean of their class, at length 1
    check_between: float | None  #: the least distance between two such means
    spread: float | None  #: within over between


@dataclass(frozen=True)
class Horizon:
    """The longest length read at which, and at all shorter ones read, accuracy is at least 99.9 %; 0 for none.

    `predicted` is where the spread comes to a third if its square grows on as it did up to length 4,096, as that of a
    random walk does: a rule of thumb. None where it does not grow, or was not measured.
    """

    task: str
    longest: int
    max_length: int
    readings: tuple[Reading, ...]
    strings: int
    seed: int
    method: str  #: words of several symbols, pieces with carried state, or fresh strings
    predicted: int | None
    seconds: float

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that were read."""
        return tuple(reading.length for reading in self.readings)

    @property
    def reached(self) -> bool:
        """Whether it held to the last length."""
        return self.longest == self.readings[-1].length

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "lengths": list(self.lengths), "reached": self.reached}


def horizon(
    what: What,
    *,
    task: str | Task | Machine | None = None,
    max_length: int = 1_000_000,
    strings: int = 64,
    seed: int = 1,
    words: bool = True,
) -> Horizon:
    """Read the same strings at lengths 1, 2, 4, .. and `max_length`, the state carried on from one to the next.

    `what` is a run, the path of one, or a model with its `get_task`. Around each length the last 16 prefixes are read.
    Between lengths a single SD-SSM without an input matrix takes several symbols at a time (`words=False`: one).

    >>> from sdssm.exact.compile import compile
    >>> found = horizon(compile("parity"), task="parity", max_length=1_000, strings=16)
    >>> found.longest, found.lengths[-3:], found.reached
    (1000, (256, 512, 1000), True)
    """
    check_between("max_length", max_length, 1, MOST_LENGTH)
    check_between("strings", strings, 1, MOST_STRINGS)
    model, of = _subject(what, task)
    if (model.n_symbols, model.n_classes) != (of.n_symbols, of.n_classes):
        raise ExactError(
            f"the model reads {model.n_symbols} symbols and tells {model.n_classes} classes, but {of.name} has "
            f"{of.n_symbols} and {of.n_classes}; measure it on the task it was made for"
        )
    if not model.recurrent or model.settings.state_embedding is not None:
        raise ExactError(f"{model.settings.name} carries no state from one piece to the next; use sdssm evaluate")
    begin = perf_counter()
    device = model.readout.weight.device
    test = TestStrings(of, strings, seed, device)
    lengths = doubling(max_length)
    lengths = sorted({of.floor(length) for length in lengths if test.shortest <= length})
    if not lengths:
        raise ExactError(f"{of.name} has no valid string of length {max_length} or less; choose a longer max_length")
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(), ops.unchecked():
            if test.places is None:
                method, readings = "fresh strings", _fresh(model, test, lengths)
            else:
                table = Words.of(model) if words else None
                method = "pieces" if table is None else f"words of {table.m} symbols"
                readings = list(_readings(model, test, lengths, table))
    finally:
        model.train(training)
    longest = 0
    for reading in readings:
        if reading.accuracy < ENOUGH:
            break
        longest = reading.length
    seconds = perf_counter() - begin
    return Horizon(of.name, longest, max_length, tuple(readings), strings, seed, method, _predicted(readings), seconds)


def doubling(most: int) -> list[int]:
    """1, 2, 4, .. and the last.

    >>> doubling(20)
    [1, 2, 4, 8, 16, 20]
    """
    return [*(1 << k for k in range((most - 1).bit_length())), most]


def _subject(what: What, task: str | Task | Machine | None) -> tuple[Classifier, Task]:
    model, run = subject(what)
    if run is None:
        if task is None:
            raise ExactError("a model alone does not know its task; pass task=, as in horizon(model, task='a5')")
        return model, task if isinstance(task, Task) else named_task(task)
    if task is not None:
        raise ExactError("a run knows its own task; leave task= out, or pass sdssm.load(folder) to use another")
    return model, run.config.known_task()


def _readings(model: Classifier, test: TestStrings, lengths: list[int], words: Words | None) -> Iterator[Reading]:
    """Pieces in which something is read go through the model as they are; the others as fast as they can."""
    assert test.places is not None
    windows = [(max(1, length - PLACES + 1), length) for length in lengths]
    read = {place for first, last in windows for place in range(first, last + 1)}
    kept: dict[int, tuple[Tensor, Tensor | None, Tensor]] = {}  # right, states, labels of each place that is read
    state: State = None
    waiting: list[Tensor] = []

    def flush() -> None:
        nonlocal state
        if waiting:
            state = _carried(model, words, torch.cat(waiting, 1), state)
            waiting.clear()

    for number, (tokens, labels) in enumerate(test.blocks(lengths[-1])):
        for k in range(0, tokens.shape[1], PIECE):
            piece, first = tokens[:, k : k + PIECE], number * BLOCK + k + 1
            at = [j for j in range(piece.shape[1]) if first + j in read]
            if not at:
                waiting.append(piece)
                continue
            flush()
            logits, directions, state = _looked(model, piece, state, at)
            right = (logits.argmax(-1) == labels[:, k : k + PIECE][:, at]) & logits.isfinite().all(-1)
            for i, j in enumerate(at):
                x = None if directions is None else directions[:, i]
                kept[first + j] = right[:, i], x, labels[:, k + j]
        if len(waiting) >= TOGETHER:
            flush()
    for length, (first, last) in zip(lengths, windows, strict=True):
        yield _reading(test, length, first, [(place, *kept[place]) for place in range(first, last + 1)])


def _carried(model: Classifier, words: Words | None, tokens: Tensor, state: State) -> State:
    """The state after many symbols of which nothing is asked."""
    if words is None:
        for piece in torch.split(tokens, BLOCK, dim=1):
            state = model.carry(piece, state)
        return state
    x = model.initial_state.expand(len(tokens), -1) if state is None else state[0]
    return (words.carry(tokens, x),)


def _looked(model: Classifier, tokens: Tensor, state: State, at: list[int]) -> tuple[Tensor, Tensor | None, State]:
    """The logits (B, K, C) at some places of a piece, and of an SD-SSM the directions of its states there (B, K, N)."""
    if not model.bare:
        logits, state = model.advance(tokens, state)
        return logits[:, at], None, state
    symbols = model._symbols()
    x = None if state is None else state[0]
    states, final = model.mixers[0].mix_symbols(symbols._replace(skip=None), tokens, x)
    states = states[:, at]
    features = states
    if model.query is not None:
        features = model._query_step(symbols, states)
    elif symbols.skip is not None:
        features = states + symbols.skip[tokens[:, at]]
    return model.logits(features), torch.nn.functional.normalize(states, dim=-1), (final,)


def _reading(
    test: TestStrings, length: int, first: int, found: list[tuple[int, Tensor, Tensor | None, Tensor]]
) -> Reading:
    assert test.places is not None
    valid = np.array(test.places.valid)
    held = [one for one in found if valid[test.places.at(np.array([one[0]]))[0]]]
    right = torch.stack([one[1] for one in held])
    within = between = None
    if held[0][2] is not None:
        states = torch.cat([one[2] for one in held if one[2] is not None]).double().cpu().numpy()
        within, between = spread(states, torch.cat([one[3] for one in held]).cpu().numpy())
    ratio = None if within is None or not between else within / between
    return Reading(length, first, right.numel(), 100 * float(right.double().mean()), within, between, ratio)


def spread(states: np.ndarray, labels: np.ndarray) -> tuple[float | None, float | None]:
    """The root mean square distance of states (M, N) from the mean of their class, and the least between two means.

    >>> spread(np.array([[1.0, 0.1], [1.0, -0.1], [0.0, 1.0]]), np.array([0, 0, 1]))[1]
    1.4142135623730951
    """
    classes, number = np.unique(labels, return_inverse=True)
    if len(classes) < 2 or not np.isfinite(states).all():
        return None, None
    counts = np.bincount(number)
    means = np.stack([np.bincount(number, column) for column in states.T], 1) / counts[:, None]
    several = counts[number] > 1  # one state alone is its own mean
    if not several.any():
        return None, None
    # The mean of k states takes up a share 1 / k of their variance.
    share = (counts / np.maximum(counts - 1, 1))[number]
    within = math.sqrt(float((np.square(states - means[number]).sum(1) * share)[several].mean()))
    apart = np.square(means[:, None] - means[None]).sum(-1)
    apart[np.arange(len(means)), np.arange(len(means))] = np.inf
    return within, math.sqrt(float(apart.min()))


def _predicted(readings: list[Reading]) -> int | None:
    """Where the square of the spread, on the straight line through two lengths, comes to that of `TOO_WIDE`."""
    known = [one for one in readings if one.spread is not None and MEASURED[0] <= one.length <= MEASURED[1]]
    if len(known) < 2:
        return None
    few, many = known[0], known[-1]
    assert few.spread is not None and many.spread is not None
    slope = (many.spread**2 - few.spread**2) / (many.length - few.length)
    left = TOO_WIDE**2 - many.spread**2
    if left <= 0:
        return many.length
    return int(many.length + left / slope) if slope > left * 1e-15 else None


def _fresh(model: Classifier, test: TestStrings, lengths: list[int]) -> list[Reading]:
    """Strings of their own for each length, where prefixes of uniformly drawn ones are not uniformly drawn."""
    found = read_fresh(model, test, np.array(lengths))
    return [
        Reading(length, length, found.strings, 100 * float(share), None, None, None)
        for length, share in zip(lengths, found.accuracy, strict=True)
    ]
