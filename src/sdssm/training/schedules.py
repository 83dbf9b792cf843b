"""Values that change from step to step: learning rate, readout scale, temperature, string lengths.

All are functions of the step alone, computed on the host for many steps at once and then copied to the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sdssm.runs.schema import RunConfig
from sdssm.tasks.stream import StringStream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The share of the steps after which the growing curriculum reaches its full length.
GROWTH = 0.5


def learning_rate(run: RunConfig, step: Ints) -> Floats:
    """Return the learning rate at each step, counted from 0.

    After a linear warm-up it is constant, or falls to 0 as half a cosine.
    """
    train = run.train
    warmup_steps = train.warmup * train.steps
    warmup_factor = np.minimum(1.0, (step + 1) / max(warmup_steps, 1))
    if train.schedule == "constant":
        return train.lr * warmup_factor
    done = np.clip((step - warmup_steps) / max(train.steps - warmup_steps, 1), 0.0, 1.0)
    return np.asarray(train.lr * warmup_factor * 0.5 * (1 + np.cos(np.pi * done)))


def ramp(start: float, end: float | None, steps: int, step: Ints) -> Floats:
    """Interpolate linearly from `start` at the first of `steps` to `end` at the last; None: constant."""
    last = start if end is None else end
    return np.asarray(start + (last - start) * np.minimum(1.0, step / max(steps - 1, 1)))


def max_length(run: RunConfig, step: Ints) -> Ints:
    """Return the greatest length that may be drawn at each step."""
    if run.train.curriculum != "growing":
        return np.full_like(step, run.train_length)
    length = np.ceil(run.train_length * (step + 1) / max(run.train.steps * GROWTH, 1))
    return np.clip(length, run.train.shortest, run.train_length).astype(np.int64)


def lengths(runs: Sequence[RunConfig], stream: StringStream, first: int, count: int) -> Ints:
    """Return the string length of each run at `count` steps from step `first` on, (count, R)."""
    step = np.arange(first, first + count)
    longest = np.stack([max_length(run, step) for run in runs], axis=1)
    drawn = stream.draw_lengths(first, count, longest, [run.train.shortest for run in runs])
    is_fixed = np.array([run.train.curriculum == "fixed" for run in runs])
    return np.where(is_fixed, stream.longest_valid_lengths[longest], drawn)
