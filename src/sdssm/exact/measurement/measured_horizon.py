"""`horizon`: measure how long strings may be before a model fails, at doubling lengths."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import torch

from sdssm import ops
from sdssm.automata import Machine
from sdssm.evaluation.request import MOST_LENGTH, MOST_STRINGS
from sdssm.exact.errors import ExactError
from sdssm.exact.measurement.length_readings import HorizonReading, read_fresh_strings, read_prefixes
from sdssm.exact.measurement.word_matrices import WordMatrices
from sdssm.exact.sources import ModelSource, load_source
from sdssm.models import Classifier
from sdssm.settings import check_between
from sdssm.tasks import Task, get_task
from sdssm.tasks.evaluation_strings import EvaluationStrings

#: The accuracy, in percent, that counts as correct.
ENOUGH = 99.9
#: Lengths between which the growth of the spread is measured, to predict where it becomes too large.
MEASURED = 512, 4_096
#: The spread at which about one label in a thousand is wrong.
TOO_WIDE = 1 / 3


@dataclass(frozen=True)
class Horizon:
    """The longest length up to which a model was measured to be correct.

    At `longest` and at all shorter lengths read, the accuracy is at least 99.9 %; 0 if there is no such length.
    `predicted` is the length at which the spread reaches a third if its square keeps growing as it did up to length
    4,096, as that of a random walk does. It is a rule of thumb, and None if the spread does not grow or was not
    measured.
    """

    task: str
    longest: int
    max_length: int
    readings: tuple[HorizonReading, ...]
    strings: int
    seed: int
    method: str  #: "words of m symbols", "pieces" (with the state carried) or "fresh strings"
    predicted: int | None
    seconds: float

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that were read."""
        return tuple(reading.length for reading in self.readings)

    @property
    def reached(self) -> bool:
        """Whether the model is correct up to the last length read."""
        return self.longest == self.readings[-1].length

    def to_json(self) -> dict[str, Any]:
        """Return the measurement as plain values."""
        return {**asdict(self), "lengths": list(self.lengths), "reached": self.reached}


def horizon(
    model: ModelSource,
    *,
    task: str | Task | Machine | None = None,
    max_length: int = 1_000_000,
    strings: int = 64,
    seed: int = 1,
    words: bool = True,
) -> Horizon:
    """Measure the accuracy of a model at lengths 1, 2, 4, ... and `max_length`, on the same strings.

    Args:
        model: a run or its folder, or a model together with its `task`.
        task: the task of a model that has no run.
        max_length: the last length.
        strings: number of strings.
        seed: of the strings.
        words: whether a single SD-SSM without an input matrix reads several symbols at a time between lengths.

    The state is carried from one length to the next. The last 16 prefixes up to each length are classified.

    >>> from sdssm.exact import compile
    >>> result = horizon(compile("parity"), task="parity", max_length=1_000, strings=16)
    >>> result.longest, result.lengths[-3:], result.reached
    (1000, (256, 512, 1000), True)
    """
    check_between("max_length", max_length, 1, MOST_LENGTH)
    check_between("strings", strings, 1, MOST_STRINGS)
    classifier, resolved = _load_with_task(model, task)
    _check_measurable(classifier, resolved)
    started = perf_counter()
    test = EvaluationStrings(resolved, strings, seed, classifier.readout.weight.device)
    lengths = doubling_lengths(max_length)
    lengths = sorted({resolved.longest_valid_length(length) for length in lengths if test.shortest_length <= length})
    if not lengths:
        raise ExactError(
            f"{resolved.name} has no valid string of length {max_length} or less; pass a larger max_length"
        )
    training = classifier.training
    classifier.eval()
    try:
        with torch.inference_mode(), ops.unchecked():
            if test.positions is None:
                method, readings = "fresh strings", read_fresh_strings(classifier, test, lengths)
            else:
                matrices = WordMatrices.build(classifier) if words else None
                method = "pieces" if matrices is None else f"words of {matrices.m} symbols"
                readings = list(read_prefixes(classifier, test, lengths, matrices))
    finally:
        classifier.train(training)
    longest = 0
    for reading in readings:
        if reading.accuracy < ENOUGH:
            break
        longest = reading.length
    return Horizon(
        task=resolved.name,
        longest=longest,
        max_length=max_length,
        readings=tuple(readings),
        strings=strings,
        seed=seed,
        method=method,
        predicted=_predict(readings),
        seconds=perf_counter() - started,
    )


def doubling_lengths(most: int) -> list[int]:
    """Return 1, 2, 4, ... and the last length.

    >>> doubling_lengths(20)
    [1, 2, 4, 8, 16, 20]
    """
    return [*(1 << k for k in range((most - 1).bit_length())), most]


def _load_with_task(source: ModelSource, task: str | Task | Machine | None) -> tuple[Classifier, Task]:
    model, run = load_source(source)
    if run is None:
        if task is None:
            raise ExactError("a model alone does not know its task; pass task=, as in horizon(model, task='a5')")
        return model, task if isinstance(task, Task) else get_task(task)
    if task is not None:
        raise ExactError("a run knows its own task; leave task= out, or pass sdssm.load(folder) to use another")
    return model, run.config.load_task()


def _check_measurable(model: Classifier, task: Task) -> None:
    if (model.n_symbols, model.n_classes) != (task.n_symbols, task.n_classes):
        raise ExactError(
            f"the model has {model.n_symbols} symbols and {model.n_classes} classes, but {task.name} has "
            f"{task.n_symbols} and {task.n_classes}; pass the task that the model was trained on"
        )
    if not model.is_recurrent or model.settings.state_embedding is not None:
        raise ExactError(f"{model.settings.name} carries no state from one piece to the next; use sdssm evaluate")


def _predict(readings: list[HorizonReading]) -> int | None:
    """Extrapolate the square of the spread linearly from two lengths to the square of `TOO_WIDE`."""
    known = [
        (reading.length, reading.spread)
        for reading in readings
        if reading.spread is not None and MEASURED[0] <= reading.length <= MEASURED[1]
    ]
    if len(known) < 2:
        return None
    (short, first), (long, last) = known[0], known[-1]
    slope = (last**2 - first**2) / (long - short)
    remaining = TOO_WIDE**2 - last**2
    if remaining <= 0:
        return long
    return int(long + remaining / slope) if slope > remaining * 1e-15 else None
