"""The accuracy on strings that are not drawn uniformly: balanced over labels, or covering the transitions.

On uniformly drawn strings a constant answer is nearly always right for many regular languages: one of the two labels is
rare. On balanced strings all labels are equally frequent, so a constant answer scores 100 % over the number of labels,
whatever the language. Covering strings end in each transition of the minimal machine equally often.

Prefixes of such strings are not drawn in the same way, so each length needs fresh strings. They are measured at a few
lengths only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdssm.evaluation.statistics import mean
from sdssm.runs.events import to_json_value

#: The measures besides the accuracy: how their strings are drawn.
MEASURES = ("balanced", "covering")
#: The lengths of these measures, besides the greatest length of an evaluation.
USUAL_LENGTHS = (10, 20, 40, 100, 500)
#: Listed lengths are all measured if there are no more than this many.
MOST_LENGTHS = 12
#: The longest strings of these measures: they are drawn symbol by symbol on the CPU.
LONGEST_SAMPLED = 50_000


@dataclass(frozen=True, kw_only=True)
class SampledAccuracy:
    """The accuracy at each of a few lengths, in percent, on strings that are drawn in one way.

    Attributes:
        sampling: "balanced" or "covering".
        lengths: the lengths, in ascending order.
        accuracy: at each length; NaN if the task has no string that short. On balanced strings every label counts the
            same: it is the mean over the labels of the share of their strings that are classified correctly.
        low, high: the ends of its 95 % confidence interval.
        best_constant: what the best constant answer scores on such strings. On balanced ones it is 100 over the number
            of labels among them, else it is computed from the machine.
        mean: the mean of `accuracy`; NaN if no length has strings.
        band: the 95 % confidence interval of `mean`; None if no length has strings.
        strings: the number of strings at each length.
    """

    sampling: str
    lengths: tuple[int, ...]
    accuracy: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    best_constant: tuple[float, ...]
    mean: float
    band: tuple[float, float] | None
    strings: int

    @property
    def best_constant_mean(self) -> float:
        """What the best constant answer scores on average over the lengths: on balanced strings, chance."""
        share = mean(np.array(self.best_constant))
        return math.nan if share is None else share

    def at(self, length: int) -> float | None:
        """Return the accuracy at a length; None if it was not measured there."""
        return dict(zip(self.lengths, self.accuracy, strict=True)).get(length)

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values, with null for NaN."""
        data: dict[str, Any] = to_json_value({**vars(self), "best_constant_mean": self.best_constant_mean})
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SampledAccuracy:
        """Return the accuracy that `to_json` has written."""
        columns = ("accuracy", "low", "high", "best_constant")
        values = {name: tuple(math.nan if item is None else item for item in data[name]) for name in columns}
        return cls(
            sampling=data["sampling"],
            lengths=tuple(data["lengths"]),
            mean=math.nan if data["mean"] is None else data["mean"],
            band=None if data["band"] is None else tuple(data["band"]),
            strings=data["strings"],
            **values,
        )


def choose_lengths(lengths: Sequence[int]) -> list[int]:
    """Return the lengths of an evaluation at which further measures are taken, none above 50,000.

    They are all of up to 12 lengths. Of more, those next to 10, 20, 40, 100 and 500, and the greatest.

    >>> choose_lengths(range(1, 601)), choose_lengths([50, 5_000]), choose_lengths([50, 1_000_000])
    ([10, 20, 40, 100, 500, 600], [50, 5000], [50])
    """
    affordable = [int(length) for length in lengths if length <= LONGEST_SAMPLED]
    if len(affordable) <= MOST_LENGTHS:
        return affordable
    usual = [max((known for known in affordable if known <= length), default=affordable[0]) for length in USUAL_LENGTHS]
    return sorted({*usual, affordable[-1]})


def join_sampled(parts: Sequence[SampledAccuracy]) -> SampledAccuracy:
    """Join accuracies at different lengths that were measured in the same way; the mean has no band then."""
    rows = sorted(
        row
        for part in parts
        for row in zip(part.lengths, part.accuracy, part.low, part.high, part.best_constant, strict=True)
    )
    lengths, accuracy, low, high, best_constant = zip(*rows, strict=True)
    share = mean(np.array(accuracy))
    return SampledAccuracy(
        sampling=parts[0].sampling,
        lengths=lengths,
        accuracy=accuracy,
        low=low,
        high=high,
        best_constant=best_constant,
        mean=math.nan if share is None else share,
        band=None,
        strings=min(part.strings for part in parts),
    )
