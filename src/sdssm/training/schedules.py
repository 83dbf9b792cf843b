"""What depends on the step: learning rate, readout scale, temperature, string lengths, and when a run logs and ends.

The values are functions of the step alone, computed on the host for many steps at once and then copied to the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sdssm.models.train_settings import TrainSettings
from sdssm.runs.schema import RunConfig
from sdssm.tasks.stream import StringStream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The share of the steps after which the growing curriculum reaches its full length.
GROWTH = 0.5
#: What is left of the learning rate at the end of an exponential schedule.
FLOOR = 1e-3
#: Events that a run logs if the settings do not say how often.
EVENTS_PER_RUN = 200


def log_every(train: TrainSettings) -> int:
    """Return the number of steps between events.

    The default is a multiple of ten, the number of steps in a CUDA graph.
    """
    return train.log_every or max(10, train.steps // EVENTS_PER_RUN // 10 * 10)


def last_step(train: TrainSettings, share: float = 1.0) -> int:
    """Return the step at which a training stops after a share of its steps.

    It is a step with an event, so that the accuracy is known.

    >>> last_step(TrainSettings(steps=1000), 0.25), last_step(TrainSettings(steps=1000))
    (250, 1000)
    """
    every = log_every(train)
    return min(train.steps, max(1, math.ceil(train.steps * share / every)) * every)


def learning_rate(run: RunConfig, step: Ints) -> Floats:
    """Return the learning rate at each step, counted from 0.

    After a linear warm-up it is constant, or falls to 0 as half a cosine, or exponentially to a thousandth.
    """
    train = run.train
    warmup_steps = train.warmup * train.steps
    warmup_factor = np.minimum(1.0, (step + 1) / max(warmup_steps, 1))
    if train.schedule == "constant":
        return train.lr * warmup_factor
    done = np.clip((step - warmup_steps) / max(train.steps - warmup_steps, 1), 0.0, 1.0)
    if train.schedule == "exponential":
        return np.asarray(train.lr * warmup_factor * FLOOR**done)
    return np.asarray(train.lr * warmup_factor * 0.5 * (1 + np.cos(np.pi * done)))


def ramp(start: float, end: float | None, steps: int, step: Ints) -> Floats:
    """Interpolate linearly from `start` at the first of `steps` to `end` at the last; None: constant."""
    last = start if end is None else end
    return np.asarray(start + (last - start) * np.minimum(1.0, step / max(steps - 1, 1)))


def auxiliary_weight(train: TrainSettings, attraction: float, step: Ints) -> Floats:
    """Return the weight of the centre loss at each step, or that of the next states if states are the targets."""
    if train.targets == "state":
        return ramp(train.next_state, None, train.steps, step)
    return ramp(0.0, attraction, train.steps, step)


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
