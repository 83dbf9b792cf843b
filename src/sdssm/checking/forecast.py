"""Forecast the length at which a model fails, from its states at training lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import monotonic
from typing import Literal

import torch

from sdssm.checking.accuracy_by_length import FAILING_ACCURACY
from sdssm.checking.card_section import SectionTimeUpError
from sdssm.checking.forecast_measurement import LONGEST
from sdssm.checking.forecast_strings import SHORTEST
from sdssm.checking.state_distances import Growth, StateDistances
from sdssm.evaluation.sampled_measurement import measure_sampled
from sdssm.formatting import format_estimate
from sdssm.models import TokenModel, WrappedModule
from sdssm.models.reading import reading_mode
from sdssm.tasks import Task
from sdssm.tasks.evaluation_strings import EvaluationStrings
from sdssm.tasks.label_shares import best_constants

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
        forgets: a model that keeps less than this share of the within-class distance of its states, while it reads a
            fifth of the training length, forgets: neither drift nor diffusion adds up, and only the size is continued.
    """

    campaign: str
    growth: Growth
    factor: float
    unseen: float
    lower: float
    upper: float
    forgets: float


CALIBRATION = Calibration(
    campaign="results/forecast/runs.json, role calibration",
    growth=Growth(drift=1.0, deviation=0.5),
    factor=1.3,
    unseen=2.8,
    lower=0.62,
    upper=3.12,
    forgets=0.6,
)


@dataclass(frozen=True)
class Forecast:
    """The length at which a model is expected to fail: where its accuracy falls below 90 %.

    Attributes:
        length: the forecast; None if no failure is expected before length 50,000, or if there is no forecast. A model
            that never fails may have a length, too: it says where the model fails if it does.
        lower, upper: where four in five of the calibration runs failed; None without a length.
        ratio: within-class over between-class distance of the states at training length; NaN without states.
        retention: the share of the within-class distance that is left after a fifth of the training length is read
            again; NaN without states.
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
    retention: float = math.nan

    def __str__(self) -> str:
        if self.reason:
            return f"no forecast: {self.reason}"
        if self.length is None:
            return f"no failure expected before length {LONGEST:,}"
        assert self.lower is not None and self.upper is not None
        length, lower, upper = map(format_estimate, (self.length, self.lower, self.upper))
        where = f"if it fails, near length {length} ({lower} to {upper})"
        if self.cause == "unseen positions":
            return f"{where}, the typical length of models without a state"
        return f"{where}, by {self.cause}"


def forecast_failure(
    model: TokenModel,
    task: Task,
    *,
    seed: int = 0,
    max_seconds: float = math.inf,
    calibration: Calibration = CALIBRATION,
) -> Forecast:
    """Forecast the length at which the accuracy of a model falls below 90 %, without reading longer strings.

    The states after strings of training length are continued to longer strings: their class centres drift on, their
    deviations diffuse and their size grows as between shorter and longer training strings. The model then predicts
    from the continued states.

    Args:
        model: the model.
        task: its task; its `train_length` is the longest string that is read.
        seed: of the strings.
        max_seconds: give up after this time.
        calibration: the constants.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> print(forecast_failure(compile("parity"), get_task("parity")))
    no failure expected before length 50,000
    """
    end = monotonic() + max_seconds
    reason = _why_not_classified(model, task, seed) or _why_not_readable(model, task)
    if reason is not None:
        return Forecast(None, reason=reason)
    if not model.is_recurrent:
        return _typical(task, calibration)
    try:
        return _forecast_from_states(model, task, seed, end, calibration)
    except SectionTimeUpError:
        return Forecast(None, reason=f"it takes more than {max_seconds:.3g} s; allow more with max_seconds")


def _forecast_from_states(model: TokenModel, task: Task, seed: int, end: float, calibration: Calibration) -> Forecast:
    distances = StateDistances(model, task, seed=seed, end=end)
    if not distances.has_fixed_shape:
        if isinstance(model, WrappedModule):
            return Forecast(None, reason="its state has another shape at each length, so its states cannot be compared")
        return _typical(task, calibration)
    if not distances.n_labelled:
        return Forecast(None, reason="no string of training length with a common ending has a label")
    retention = distances.retention()
    # What is forgotten cannot add up. NaN, of states that have overflowed, is not below.
    growth = Growth(drift=None, deviation=None) if retention < calibration.forgets else calibration.growth
    raw = _find_crossing(distances, growth)
    if raw is None or raw * calibration.factor >= LONGEST:
        return Forecast(None, ratio=distances.ratio, cause="none", retention=retention)
    cause = _main_cause(distances, raw, growth)
    return _with_range(raw * calibration.factor, distances.ratio, cause, calibration, retention)


def _why_not_readable(model: TokenModel, task: Task) -> str | None:
    """Return why the states of a model cannot be read, though it may have some; None if they can, or it has none."""
    if not model.is_recurrent:
        is_known = not isinstance(model, WrappedModule)
        return None if is_known else "it has no advance(tokens, state), so its states cannot be read"
    length = task.longest_valid_length(task.train_length)
    return None if length >= SHORTEST else f"training strings have {length} symbols, and {SHORTEST} are needed"


def _typical(task: Task, calibration: Calibration) -> Forecast:
    """Return the typical length of models of the catalogue that carry no state."""
    return _with_range(calibration.unseen * task.train_length, math.nan, "unseen positions", calibration)


def _find_crossing(distances: StateDistances, growth: Growth) -> float | None:
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


def _why_not_classified(model: TokenModel, task: Task, seed: int) -> str | None:
    """Return why a model cannot be said to classify strings of training length; None if it does."""
    generator = torch.Generator().manual_seed(seed + 1)
    length = task.longest_valid_length(task.train_length)
    if model.longest is not None and model.longest < length:
        return f"the model reads at most {model.longest:,} symbols, and training strings have {length:,}"
    batch = task.sample(CLASSIFIED, length, generator=generator)
    with reading_mode(model):
        logits = model.last_logits(batch.tokens.to(model.device)).cpu()
    share = 100 * float(((logits.argmax(-1) == batch.labels[:, -1]) & ~logits.isnan().any(-1)).float().mean())
    if share < FAILING_ACCURACY:
        return f"the accuracy at training length {length} is {share:.1f} % (chance {task.chance_accuracy:.1f} %)"
    [constant] = best_constants(task, [length])
    if constant is None or constant < FAILING_ACCURACY:
        return None
    # A constant answer would pass too: only strings whose labels are equally frequent show what the model has learned.
    strings = EvaluationStrings(task, CLASSIFIED, seed + 1, model.device)
    with reading_mode(model):
        balanced = measure_sampled(model, strings, "balanced", [length])
    if balanced.accuracy[0] < FAILING_ACCURACY:
        chance = balanced.best_constant[0]
        return (
            f"the balanced accuracy at training length {length} is {balanced.accuracy[0]:.1f} % (chance {chance:.1f} %)"
        )
    return None


def _main_cause(distances: StateDistances, length: float, growth: Growth) -> Cause:
    """Return which kind of growth alone has the lowest accuracy at a length."""
    alone: dict[Cause, Growth] = {
        "drift": Growth(growth.drift, None, size=False),
        "diffusion": Growth(None, growth.deviation, size=False),
        "size": Growth(None, None),
    }
    return min(alone, key=lambda cause: distances.accuracy(length, alone[cause]))


def _with_range(
    length: float, ratio: float, cause: Cause, calibration: Calibration, retention: float = math.nan
) -> Forecast:
    lower, upper = length * calibration.lower, length * calibration.upper
    return Forecast(length, lower, upper, ratio, cause, retention=retention)
