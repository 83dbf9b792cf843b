"""What changes from step to step: the rate, the readout's scale, the temperature, the lengths.

Everything here is a plain function of the step, computed for many steps at once on the host; the device looks it up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sdssm.runs.schema import RunConfig
from sdssm.tasks.stream import StringStream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The part of a run in which the growing curriculum reaches its full length.
GROWTH = 0.5


def learning_rate(run: RunConfig, step: Ints) -> Floats:
    """The rate of each step (counted from 0): a linear warm-up, then constant or along a half cosine to 0."""
    train = run.train
    rising = train.warmup * train.steps
    warm = np.minimum(1.0, (step + 1) / max(rising, 1))
    if train.schedule == "constant":
        return train.lr * warm
    done = np.clip((step - rising) / max(train.steps - rising, 1), 0.0, 1.0)
    return np.asarray(train.lr * warm * 0.5 * (1 + np.cos(np.pi * done)))


def ramp(start: float, end: float | None, steps: int, step: Ints) -> Floats:
    """From start at the first step to end at the last, in a straight line; end None: start throughout."""
    last = start if end is None else end
    return np.asarray(start + (last - start) * np.minimum(1.0, step / max(steps - 1, 1)))


def longest(run: RunConfig, step: Ints) -> Ints:
    """The greatest length that may be drawn at each step."""
    if run.train.curriculum != "growing":
        return np.full_like(step, run.train_length)
    grown = np.ceil(run.train_length * (step + 1) / max(run.train.steps * GROWTH, 1))
    return np.clip(grown, run.train.shortest, run.train_length).astype(np.int64)


def lengths(runs: Sequence[RunConfig], stream: StringStream, first: int, count: int) -> Ints:
    """The length of every step's strings, (count, R)."""
    step = np.arange(first, first + count)
    most = np.stack([longest(run, step) for run in runs], axis=1)
    drawn = stream.lengths_uniform(first, count, most, [run.train.shortest for run in runs])
    fixed = np.array([run.train.curriculum == "fixed" for run in runs])
    return np.where(fixed, stream.floors[most], drawn)
