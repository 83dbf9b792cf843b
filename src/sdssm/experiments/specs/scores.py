"""Scores: means of an accuracy-against-length curve over a range of lengths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdssm.errors import SdssmError, format_value
from sdssm.tasks.sampling import SAMPLINGS

#: The scores with a name, and the field of an evaluation that holds the confidence interval of each.
BANDS = {"all": "mean_band", "within": "within_band", "beyond": "beyond_band"}


class SpecError(SdssmError):
    """An experiment with an invalid key, name or value."""


@dataclass(frozen=True)
class Score:
    """A mean accuracy over a range of lengths, in percent.

    The name says which lengths:

    - "all": 1 to the longest; "within": the training lengths; "beyond": longer than the training lengths
    - "50..500": from 50 to 500
    - "to 5000": every length up to 5,000; "at 5000": length 5,000 alone. Both need 5000 among `EvaluationSpec.lengths`.
    - "balanced", "covering": the balanced or the covering accuracy, over the lengths at which `evaluate` measures it;
      "balanced at 500": at length 500 alone

    >>> curve = {"train_length": 2, "max_length": 4, "accuracy": [100.0, 90.0, 50.0, None]}
    >>> [Score(name).compute(curve) for name in ("all", "within", "beyond", "2..3")]
    [80.0, 95.0, 50.0, 70.0]
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in BANDS and self.range is None and self.listed_length is None and self.measure is None:
            raise SpecError(
                f"there is no score {format_value(self.name)}; use all, within, beyond, balanced, covering, or a form "
                "such as 50..500, to 5000, at 5000 or balanced at 500"
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
        """The measure of a score such as "balanced" or "covering at 500"; None for a score of the accuracy."""
        return None if self._sampled is None else self._sampled[1]

    @property
    def _sampled(self) -> re.Match[str] | None:
        return re.fullmatch(rf"({'|'.join(SAMPLINGS[1:])})(?: at (\d{{1,7}}))?", self.name, re.ASCII)

    def compute_sampled(self, *evaluations: Mapping[str, Any]) -> tuple[float | None, Sequence[float] | None]:
        """Return a balanced or covering score, and its band, from the first of the evaluations that has it.

        >>> sampled = {"lengths": [10, 500], "accuracy": [100.0, 90.0], "low": [99.0, 88.0], "high": [100.0, 92.0]}
        >>> curve = {"balanced": {**sampled, "mean": 95.0, "band": [94.0, 96.0]}}
        >>> Score("balanced").compute_sampled(curve), Score("balanced at 500").compute_sampled({}, curve)
        ((95.0, [94.0, 96.0]), (90.0, (88.0, 92.0)))
        """
        assert self._sampled is not None
        name, length = self._sampled.groups()
        for evaluation in evaluations:
            values = evaluation.get(name)
            if values is None:
                continue
            if length is None:
                return values["mean"], values["band"]
            if int(length) in values["lengths"]:
                place = values["lengths"].index(int(length))
                return values["accuracy"][place], (values["low"][place], values["high"][place])
        return None, None

    def lengths(self, train_length: int, longest: int) -> Sequence[int] | None:
        """Return the lengths of the score; None for a balanced or covering one over those that are measured.

        >>> Score("within").lengths(40, 500), Score("at 600").lengths(40, 500), Score("balanced at 9").lengths(40, 500)
        (range(1, 41), [600], [9])
        """
        if self._sampled is not None:
            return None if self._sampled[2] is None else [int(self._sampled[2])]
        if self.listed_length is None:
            first, last = self._between(train_length, longest)
            return range(first, last + 1)
        return [self.listed_length] if self.name.startswith("at") else range(1, self.listed_length + 1)

    def compute(self, curve: Mapping[str, Any], longest: int | None = None) -> float | None:
        """Return the score of an evaluation of every length, or None if no length of the range was evaluated.

        `longest` limits the curve to the lengths up to this one.
        """
        last = longest or curve["max_length"]
        first, last = self._between(curve["train_length"], last)
        return mean_of_known(curve["accuracy"][first - 1 : last])

    def band(self, curve: Mapping[str, Any], longest: int | None = None) -> Sequence[float] | None:
        """Return the confidence interval of this score, if the evaluation has it for these lengths."""
        if self.name not in BANDS or (self.name != "within" and longest not in (None, curve["max_length"])):
            return None
        band: Sequence[float] | None = curve.get(BANDS[self.name])
        return band

    def compute_listed(self, listed: Mapping[str, Any]) -> float | None:
        """Return the score "to N" or "at N" from an evaluation of listed lengths."""
        return self._listed_value(listed, "accuracy" if self.name.startswith("at") else "mean_to")

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


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
