"""The measured failing length of a model, against which a forecast is compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sdssm.checking.accuracy_by_length import FAILING_ACCURACY, interpolate_failure
from sdssm.evaluation import evaluate
from sdssm.models import TokenModel
from sdssm.tasks import Task

#: The longest strings of a measurement.
LONGEST = 50_000
#: Lengths per doubling at which the accuracy is measured, and the number of lengths that are averaged up to each.
PER_DOUBLING, AVERAGED = 4, 4
#: A measurement is continued to lengths this many times as long until the model fails.
STAGE = 8


@dataclass(frozen=True)
class FailingLength:
    """The length at which a model fails, measured on test strings.

    Attributes:
        length: where the accuracy falls below 90 %, interpolated on a logarithmic axis; None if it does not.
        longest: the longest strings that were read.
        lengths: the lengths at which the accuracy was measured.
        accuracy: the accuracy there in percent, the mean over the last few lengths up to each.
    """

    length: float | None
    longest: int
    lengths: tuple[int, ...]
    accuracy: tuple[float, ...]


def measure_failing_length(
    model: TokenModel, task: Task, *, longest: int = LONGEST, strings: int = 512, seed: int = 1
) -> FailingLength:
    """Measure the accuracy at growing lengths until it is below 90 %.

    Args:
        model: the model.
        task: its task.
        longest: the longest strings; fewer if the model cannot read them.
        strings: the number of strings at each length.
        seed: of the strings.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> measure_failing_length(compile("parity"), get_task("parity"), longest=500, strings=16).length is None
    True
    """
    longest = longest if model.longest is None else min(longest, model.longest)
    limit = min(longest, STAGE // 2 * task.train_length)
    while True:
        grid = geometric_lengths(limit)
        near = sorted({length for end in grid for length in range(max(1, end - AVERAGED + 1), end + 1)})
        run = evaluate(model, task=task, lengths=near, strings=strings, seed=seed, measures=()).runs[0]
        known = {length: share for length, share in zip(near, run.accuracy, strict=True) if not math.isnan(share)}
        lengths, accuracy = [], []
        for end in grid:
            shares = [known[length] for length in range(end - AVERAGED + 1, end + 1) if length in known]
            if shares:
                lengths.append(end)
                accuracy.append(float(np.mean(shares)))
        length = first_crossing(lengths, accuracy)
        if length is not None or limit == longest:
            return FailingLength(length, limit, tuple(lengths), tuple(accuracy))
        limit = min(longest, limit * STAGE)


def geometric_lengths(longest: int) -> list[int]:
    """Return whole lengths that grow by a constant factor, up to the longest.

    >>> geometric_lengths(20)
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 16, 19, 20]
    """
    count = math.ceil(PER_DOUBLING * math.log2(longest))
    return sorted({min(longest, round(2 ** (k / PER_DOUBLING))) for k in range(count + 1)})


def first_crossing(lengths: Sequence[int], accuracy: Sequence[float]) -> float | None:
    """Return the length at which the accuracy first falls below 90 %; None if it does not.

    >>> first_crossing([10, 20, 40], [100.0, 95.0, 85.0])
    28.284271247461902
    """
    points = list(zip(lengths, accuracy, strict=True))
    for k, (length, share) in enumerate(points):
        if share < FAILING_ACCURACY:
            return float(length) if k == 0 else interpolate_failure(points[k - 1], points[k])
    return None
