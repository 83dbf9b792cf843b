"""Scores: one number of an evaluation, such as the mean accuracy over a range of lengths."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdssm.errors import SdssmError, format_value
from sdssm.means import mean_of_known

#: The scores with a name, and the field of an evaluation that holds the confidence interval of each.
BANDS = {"all": "mean_band", "within": "within_band", "beyond": "beyond_band"}
#: The measures on strings that are not drawn uniformly; an evaluation has them at a few lengths.
MEASURES = ("balanced", "covering")


class SpecError(SdssmError):
    """An experiment with an invalid key, name or value."""


@dataclass(frozen=True)
class Score:
    """A mean accuracy over a range of lengths, in percent, or the longest length that passes.

    The name says which lengths:

    - "all": 1 to the longest; "within": the training lengths; "beyond": longer than the training lengths
    - "50..500": from 50 to 500
    - "to 5000": every length up to 5,000; "at 5000": length 5,000 alone. Both need 5000 among `EvaluationSpec.lengths`.
    - "balanced", "covering": the accuracy on strings that are drawn so, over the lengths at which it was measured;
      "balanced at 500", "covering at 500": at one of them, or at a length among `EvaluationSpec.lengths`
    - "passes 99": the longest length up to which the accuracy at every length is at least 99 %; where a constant answer
      has that too, the balanced accuracy counts as well

    >>> curve = {"train_length": 2, "max_length": 4, "accuracy": [100.0, 90.0, 50.0, None]}
    >>> [Score(name).compute(curve) for name in ("all", "within", "beyond", "2..3")]
    [80.0, 95.0, 50.0, 70.0]
    >>> [Score(name).compute(curve) for name in ("passes 99", "passes 90", "passes 50")]
    [1.0, 2.0, 4.0]
    """

    name: str

    def __post_init__(self) -> None:
        is_mean = self.name in BANDS or self.range is not None or self.listed_length is not None
        if not is_mean and self.measure is None and self.threshold is None:
            raise SpecError(
                f"there is no score {format_value(self.name)}; use all, within, beyond, balanced, covering, or a form "
                "such as 50..500, to 5000, at 5000, balanced at 500 or passes 99"
            )
        if self.range is not None and not 1 <= self.range[0] <= self.range[1]:
            raise SpecError(f"the score {self.name} is empty; the first length must be at least 1 and at most the last")

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last length of a score such as "50..500", else None."""
        match = re.fullmatch(r"(\d{1,7})\.\.(\d{1,7})", self.name, re.ASCII)
        return None if match is None else (int(match[1]), int(match[2]))

    @property
    def listed_length(self) -> int | None:
        """The length of a score such as "to 5000" or "at 5000", which is evaluated separately, else None."""
        match = re.fullmatch(r"(?:to|at) (\d{1,7})", self.name, re.ASCII)
        return None if match is None else int(match[1])

    @property
    def measure(self) -> str | None:
        """The measure of a score such as "balanced" or "covering at 500", else None."""
        match = re.fullmatch(rf"({'|'.join(MEASURES)})(?: at \d{{1,7}})?", self.name, re.ASCII)
        return None if match is None else match[1]

    @property
    def threshold(self) -> float | None:
        """The accuracy of a score such as "passes 99", which is a length, else None."""
        match = re.fullmatch(r"passes (\d{1,2}(?:\.\d{1,4})?)", self.name, re.ASCII)
        return None if match is None else float(match[1])

    def compute(self, curve: Mapping[str, Any], longest: int | None = None) -> float | None:
        """Return the score of an evaluation of every length, or None if no length of the range was evaluated.

        `longest` limits the curve to the lengths up to this one.
        """
        last = longest or curve["max_length"]
        if self.threshold is not None:
            return float(min(_longest_passing(curve["accuracy"][:last], self.threshold), _balanced_limit(curve, self)))
        first, last = self._between(curve["train_length"], last)
        return mean_of_known(curve["accuracy"][first - 1 : last])

    def compute_measure(
        self, curve: Mapping[str, Any], listed: Mapping[str, Any], name: str = "accuracy", longest: int | None = None
    ) -> float | None:
        """Return a score of balanced or covering strings; `name` may also be low, high or best_constant."""
        assert self.measure is not None
        values = _measured_values(curve.get(self.measure), name)
        if " at " not in self.name:
            return mean_of_known([values[length] for length in values if longest is None or length <= longest])
        length = int(self.name.rpartition(" ")[2])
        return {**_measured_values(listed.get(self.measure), name), **values}.get(length)

    def compute_within(self, curve: Mapping[str, Any], name: str = "accuracy") -> float | None:
        """Return the score at training lengths: the measure of this score, or the accuracy if it has none."""
        if self.measure is None:
            within = Score("within")
            return within.compute(curve) if name == "accuracy" else within.constant(curve)
        values = _measured_values(curve.get(self.measure), name)
        return mean_of_known([values[length] for length in values if length <= curve["train_length"]])

    def constant(self, curve: Mapping[str, Any], longest: int | None = None) -> float | None:
        """Return what the best constant answer scores over the same lengths; None if it is not known, or a length."""
        constants = curve.get("best_constant")
        if constants is None or self.threshold is not None or curve.get("lengths") is not None:
            return None
        first, last = self._between(curve["train_length"], longest or curve["max_length"])
        return mean_of_known(constants[first - 1 : last])

    def lengths(self, train_length: int, longest: int) -> Sequence[int]:
        """Return the lengths of a score of the accuracy, which are those of its best constant answer.

        >>> Score("within").lengths(40, 500), Score("to 600").lengths(40, 500), Score("at 600").lengths(40, 500)
        (range(1, 41), range(1, 601), [600])
        """
        if self.listed_length is not None:
            return [self.listed_length] if self.name.startswith("at") else range(1, self.listed_length + 1)
        first, last = self._between(train_length, longest)
        return range(first, last + 1)

    def band(self, curve: Mapping[str, Any], longest: int | None = None) -> Sequence[float] | None:
        """Return the confidence interval of this score, if the evaluation has it for these lengths."""
        if self.name not in BANDS or (self.name != "within" and longest not in (None, curve["max_length"])):
            return None
        band: Sequence[float] | None = curve.get(BANDS[self.name])
        return band

    def compute_listed(self, listed: Mapping[str, Any]) -> float | None:
        """Return the score "to N" or "at N" from an evaluation of listed lengths."""
        return self._listed_value(listed, "accuracy" if self.name.startswith("at") else "mean_to")

    def listed_constant(self, listed: Mapping[str, Any]) -> float | None:
        """Return what the best constant answer scores at the length of "at N"; "to N" has none."""
        return None if self.name.startswith("to") else self._listed_value(listed, "best_constant")

    def listed_band(self, listed: Mapping[str, Any]) -> Sequence[float] | None:
        """Return the confidence interval of the score "at N"; "to N" has none."""
        if self.name.startswith("to"):
            return None
        low, high = (self._listed_value(listed, name) for name in ("accuracy_low", "accuracy_high"))
        return None if low is None or high is None else (low, high)

    def _listed_value(self, listed: Mapping[str, Any], name: str) -> float | None:
        for length, value in zip(listed.get("lengths") or (), listed.get(name) or (), strict=False):
            if length == self.listed_length:
                return None if value is None else float(value)
        return None

    def _between(self, train_length: int, last: int) -> tuple[int, int]:
        if self.range is not None:
            return self.range[0], min(self.range[1], last)
        return {"all": (1, last), "within": (1, min(train_length, last)), "beyond": (train_length + 1, last)}[self.name]


def _measured_values(measured: Mapping[str, Any] | None, name: str) -> dict[int, float | None]:
    """Return a column of a measure, such as its accuracy, by length."""
    return {} if measured is None else dict(zip(measured["lengths"], measured[name], strict=True))


def default_scores(tasks: Sequence[str]) -> tuple[Score, ...]:
    """Return the scores of an experiment on some tasks that names none; the first is its headline.

    Tables with tasks of the paper have the paper's measure. Otherwise the headline is the balanced accuracy, since a
    constant answer may be nearly always right on uniform strings.

    >>> [score.name for score in default_scores(["a5", "tomita4"])]
    ['balanced', 'all', 'beyond']
    """
    from sdssm.tasks import PAPER_TASKS  # here, so that `sdssm reproduce --list` needs no numpy

    names = ("all", "beyond") if set(tasks) <= set(PAPER_TASKS) else ("balanced", "all", "beyond")
    return tuple(map(Score, names))


def _balanced_limit(curve: Mapping[str, Any], score: Score) -> float:
    """Return the longest length before the balanced accuracy fails, if a constant answer passes at some length."""
    constants = [value for value in curve.get("best_constant") or () if value is not None]
    threshold = score.threshold or 0.0
    if max(constants, default=0.0) < threshold:
        return math.inf
    balanced = _measured_values(curve.get("balanced"), "accuracy")
    failed = [length for length, value in balanced.items() if value is not None and value < threshold]
    return min(failed) - 1 if failed else math.inf


def _longest_passing(accuracy: Sequence[float | None], threshold: float) -> float:
    """Return the longest length up to which no accuracy is below the threshold; lengths without strings pass."""
    failed = (k for k, value in enumerate(accuracy) if value is not None and value < threshold)
    return float(next(failed, len(accuracy)))
