"""Forecast the length at which a model fails, from its states at training lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from sdssm.checking.forecast_measurement import FAILING_ACCURACY, LONGEST
from sdssm.checking.forecast_states import reading
from sdssm.checking.forecast_strings import SHORTEST
from sdssm.checking.state_distances import Growth, StateDistances
from sdssm.models import TokenModel
from sdssm.tasks import Task

#: The number of strings of training length that the model must classify before there is a forecast.
CLASSIFIED = 512
#: The length of a failure is narrowed down from a factor of the root of 2 by this many bisections.
BISECTIONS = 3
#: What makes the states leave their classes.
Cause = Literal["drift", "diffusion", "size", "unseen positions", "none", "unknown"]


@dataclass(frozen=True)
class Calibration:
    """The constants of the forecast, and where they come from.

    Attributes:
        campaign: the runs that the constants were chosen on; none of them is scored.
        growth: how states are continued beyond the training length.
        factor: the measured failing length over the length at which continued states are misclassified.
        unseen: the failing length of models that carry no state, over the training length.
        lower, upper: four in five measured lengths are between these multiples of the forecast.
    """

    campaign: str
    growth: Growth
    factor: float
    unseen: float
    lower: float
    upper: float


CALIBRATION = Calibration(
    campaign="results/forecast/runs.json, role calibration",
    growth=Growth(drift=1.0, deviation=0.5),
    factor=1.3,
    unseen=2.8,
    lower=0.62,
    upper=3.12,
)


@dataclass(frozen=True)
class Forecast:
    """The length at which a model is expected to fail: where its accuracy falls below 90 %.

    Attributes:
        length: the forecast; None if no failure is expected before length 50,000, or if there is no forecast.
        lower, upper: where four in five of the calibration runs failed; None without a length.
        ratio: within-class over between-class distance of the states at training length; NaN without states.
        cause: what grows: "drift" of the class centres, "diffusion" of the states within classes, "size" of the states,
            "unseen positions" of a model that carries no state, or "none".
        reason: why there is no forecast; empty if there is one.
    """

    length: float | None
    lower: float | None = None
    upper: float | None = None
    ratio: float = math.nan
    cause: Cause = "unknown"
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"no forecast: {self.reason}"
        if self.length is None:
            return f"no failure expected before length {LONGEST:,}"
        assert self.lower is not None and self.upper is not None
        return f"fails near length {self.length:,.0f} ({self.lower:,.0f} to {self.upper:,.0f}), by {self.cause}"


def forecast_failure(
    model: TokenModel, task: Task, *, seed: int = 0, calibration: Calibration = CALIBRATION
) -> Forecast:
    """Forecast the length at which the accuracy of a model falls below 90 %, without reading longer strings.

    The states after strings of training length are continued to longer strings: their class centres drift on, their
    deviations diffuse and their size grows as between shorter and longer training strings. The model then predicts
    from the continued states.

    Args:
        model: the model.
        task: its task; its `train_length` is the longest string that is read.
        seed: of the strings.
        calibration: the constants.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> print(forecast_failure(compile("parity"), get_task("parity")))
    no failure expected before length 50,000
    """
    known = classifies_training_lengths(model, task, seed)
    if known is not None:
        return Forecast(None, reason=known)
    is_measurable = model.is_recurrent and task.longest_valid_length(task.train_length) >= SHORTEST
    distances = StateDistances(model, task, seed=seed) if is_measurable else None
    if distances is None or not distances.has_fixed_shape or not distances.n_labelled:
        length = calibration.unseen * task.train_length
        return _with_range(length, math.nan, "unseen positions", calibration)
    raw = crossing(distances, calibration.growth)
    if raw is None or raw * calibration.factor >= LONGEST:
        return Forecast(None, ratio=distances.ratio, cause="none")
    cause = _main_cause(distances, raw, calibration.growth)
    return _with_range(raw * calibration.factor, distances.ratio, cause, calibration)


def crossing(distances: StateDistances, growth: Growth) -> float | None:
    """Return the length at which continued states are misclassified so often that the model fails; None if never."""

    def fails(length: float) -> bool:
        return 100 * distances.accuracy(length, growth) < FAILING_ACCURACY

    low, high = float(distances.lengths[-1]), float(distances.lengths[-1])
    while not fails(high):
        if high >= LONGEST:
            return None
        low, high = high, min(high * math.sqrt(2), LONGEST)
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fails(middle) else (middle, high)
    return high


def classifies_training_lengths(model: TokenModel, task: Task, seed: int) -> str | None:
    """Return why a model cannot be said to classify strings of training length; None if it does."""
    generator = torch.Generator().manual_seed(seed + 1)
    length = task.longest_valid_length(task.train_length)
    if model.longest is not None and model.longest < length:
        return f"the model reads at most {model.longest:,} symbols, and training strings have {length:,}"
    batch = task.sample(CLASSIFIED, length, generator=generator)
    with reading(model):
        logits = model.last_logits(batch.tokens.to(model.device)).cpu()
    share = 100 * float(((logits.argmax(-1) == batch.labels[:, -1]) & ~logits.isnan().any(-1)).float().mean())
    if share < FAILING_ACCURACY:
        return f"the accuracy at training length {length} is {share:.1f} % (chance {task.chance_accuracy:.1f} %)"
    return None


def _main_cause(distances: StateDistances, length: float, growth: Growth) -> Cause:
    """Return which kind of growth alone has the lowest accuracy at a length."""
    alone: dict[Cause, Growth] = {
        "drift": Growth(growth.drift, None, size=False),
        "diffusion": Growth(None, growth.deviation, size=False),
        "size": Growth(None, None),
    }
    return min(alone, key=lambda cause: distances.accuracy(length, alone[cause]))


def _with_range(length: float, ratio: float, cause: Cause, calibration: Calibration) -> Forecast:
    return Forecast(length, length * calibration.lower, length * calibration.upper, ratio, cause)
