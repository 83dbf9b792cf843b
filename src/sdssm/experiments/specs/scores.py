"""Scores: means of an accuracy-against-length curve over a range of lengths, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdssm.errors import SdssmError, format_value

#: Scores with a name of their own, each with the field of an evaluation that holds its band.
BANDS = {"all": "mean_band", "within": "within_band", "beyond": "beyond_band"}


class SpecError(SdssmError):
    """An experiment that cannot be: a key, a name or a value that a spec cannot have."""


@dataclass(frozen=True)
class Score:
    """A mean over lengths.

    "all": 1 to the longest; "within": those trained on; "beyond": longer ones; "50..500": from 50 to 500;
    "to 5000": every length to 5,000, and "at 5000": 5,000 alone, where evaluations read lengths one by one.

    >>> curve = {"train_length": 2, "max_length": 4, "accuracy": [100.0, 90.0, 50.0, None]}
    >>> [Score(name).of(curve) for name in ("all", "within", "beyond", "2..3")]
    [80.0, 95.0, 50.0, 70.0]
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in BANDS and self.range is None and self.named is None:
            raise SpecError(
                f"a score is {format_value(self.name)}; scores are all, within, beyond, 50..500, to 5000 or at 5000"
            )
        if self.range is not None and not 1 <= self.range[0] <= self.range[1]:
            raise SpecError(f"a score is {self.name}; the first length is at least 1 and not above the last")

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last length of a score such as 50..500."""
        found = re.fullmatch(r"(\d{1,7})\.\.(\d{1,7})", self.name, re.ASCII)
        return None if found is None else (int(found[1]), int(found[2]))

    @property
    def named(self) -> int | None:
        """The length of a score such as "to 5000" or "at 5000", which must be read by its name."""
        found = re.fullmatch(r"(?:to|at) (\d{1,7})", self.name, re.ASCII)
        return None if found is None else int(found[1])

    def of(self, curve: Mapping[str, Any], longest: int | None = None) -> float | None:
        """The score of an evaluation of every length; None where no length of the range was read."""
        last = longest or curve["max_length"]
        first, last = self._between(curve["train_length"], last)
        return mean(curve["accuracy"][first - 1 : last])

    def band(self, curve: Mapping[str, Any], longest: int | None = None) -> Sequence[float] | None:
        """The band of an evaluation for this score, as far as it was computed for these lengths."""
        if self.name not in BANDS or (self.name != "within" and longest not in (None, curve["max_length"])):
            return None
        found: Sequence[float] | None = curve.get(BANDS[self.name])
        return found

    def far(self, listed: Mapping[str, Any]) -> float | None:
        """The score "to N" or "at N" of an evaluation of lengths named one by one."""
        return self._of_named(listed, "accuracy" if self.name.startswith("at") else "mean_to")

    def far_band(self, listed: Mapping[str, Any]) -> Sequence[float] | None:
        """The band of "at N": of its strings. For "to N" there is none."""
        if self.name.startswith("to"):
            return None
        low, high = (self._of_named(listed, name) for name in ("accuracy_low", "accuracy_high"))
        return None if low is None or high is None else (low, high)

    def _of_named(self, listed: Mapping[str, Any], what: str) -> float | None:
        for length, value in zip(listed.get("lengths") or (), listed.get(what) or (), strict=False):
            if length == self.named:
                return None if value is None else float(value)
        return None

    def _between(self, trained: int, last: int) -> tuple[int, int]:
        if self.range is not None:
            return self.range[0], min(self.range[1], last)
        return {"all": (1, last), "within": (1, min(trained, last)), "beyond": (trained + 1, last)}[self.name]


def mean(values: Sequence[float | None]) -> float | None:
    """Of what is known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
