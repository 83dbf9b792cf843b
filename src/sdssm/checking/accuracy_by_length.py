"""The accuracy of a model by length: the first section of a report card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sdssm.evaluation.sampled_accuracy import MEASURES, SampledAccuracy
from sdssm.formatting import format_chance, format_percent
from sdssm.runs.events import to_json_value

#: The accuracies, in percent, for which the longest length is reported.
LEVELS = (99.0, 90.0)
#: A model fails at the first length at which its accuracy is below this many percent.
FAILING_ACCURACY = 90.0
#: The lengths of the lines of a card, or the next shorter measured ones, besides the training length.
SHOWN_LENGTHS = (1, 2, 5, 10, 20, 40, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)


@dataclass(frozen=True, kw_only=True)
class AccuracyByLength:
    """The accuracy of a model at each measured length, in percent.

    Attributes:
        lengths: the measured lengths, in ascending order; lengths without valid strings are left out.
        accuracy: the accuracy at each of them.
        low, high: the ends of its 95 % confidence interval with respect to the choice of the strings.
        strings: the number of strings at each length.
        best_constant: the accuracy of always answering the label that is most frequent at that length.
        balanced, covering: the accuracy on balanced and on covering strings, at some of the lengths; None if they were
            not measured. The levels, the failing length and what passes are judged by the balanced accuracy too: on
            uniform strings a constant answer may be nearly always right.
        chance: the accuracy of answering uniformly at random.
        train_length: the longest strings of the training.
        note: remarks on how it was measured.
        stopped: why no longer strings were read.
    """

    lengths: tuple[int, ...]
    accuracy: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    strings: tuple[int, ...]
    best_constant: tuple[float | None, ...]
    chance: float
    train_length: int
    note: str | None = None
    stopped: str = ""
    balanced: SampledAccuracy | None = None
    covering: SampledAccuracy | None = None

    def longest_at_least(self, level: float) -> int | None:
        """Return the longest length such that all measured ones up to it reach a level.

        Both the accuracy and, where it was measured, the balanced accuracy have to. If the balanced accuracy alone
        fails, it is the last length before at which that was measured: nothing is known about the lengths in between.
        """
        shortest = min(
            (length for length, share in self._accuracies if not share >= level), default=self.lengths[-1] + 1
        )
        balanced = [] if self.balanced is None else _known(self.balanced)
        failed = min((length for length, share in balanced if not share >= level), default=shortest)
        if failed < shortest:
            return max((length for length, _ in balanced if length < failed), default=None)
        return max((length for length in self.lengths if length < shortest), default=None)

    @property
    def _accuracies(self) -> list[tuple[int, float]]:
        return [*zip(self.lengths, self.accuracy, strict=True)]

    @property
    def _judged(self) -> list[tuple[int, float]]:
        """The lengths with their accuracy, and those with their balanced accuracy."""
        return self._accuracies if self.balanced is None else [*self._accuracies, *_known(self.balanced)]

    @property
    def failing_length(self) -> float | None:
        """Where the accuracy or the balanced accuracy first falls below 90 %; None if neither does.

        Between two lengths that are not neighbours it is interpolated on a logarithmic axis. The balanced accuracy is
        measured at few lengths: it counts where the accuracy alone does not show the failure.
        """
        failing = _first_failure(self._accuracies)
        balanced = [] if self.balanced is None else _known(self.balanced)
        seen = min((length for length, share in balanced if share < FAILING_ACCURACY), default=None)
        if seen is None or (failing is not None and failing <= seen):
            return failing
        return _first_failure(balanced)

    @property
    def worst_at_training_lengths(self) -> float | None:
        """The lowest accuracy or balanced accuracy at a training length, in percent; None if none was measured."""
        return min((share for length, share in self._judged if length <= self.train_length), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values, with null for NaN."""
        levels = {f"longest_{level:.0f}": self.longest_at_least(level) for level in LEVELS}
        data: dict[str, Any] = to_json_value({**vars(self), **levels})
        for name in MEASURES:
            sampled = getattr(self, name)
            data[name] = None if sampled is None else sampled.to_json()
        data["failing_length"] = self.failing_length
        return {**data, "worst_at_training_lengths": to_json_value(self.worst_at_training_lengths)}

    def facts(self) -> dict[str, str]:
        """Return the lines of the card."""
        constant = [share for share in self.best_constant if share is not None]
        facts = {"chance": f"{format_chance(self.chance)} %"}
        if constant:
            last, best = format_chance(constant[-1]), format_chance(max(constant))
            elsewhere = "" if best == last else f", {best} % at the length where it is best"
            facts["best constant answer"] = f"{last} % at length {self.lengths[-1]:,}{elsewhere}"
        for k, length in enumerate(self.lengths):
            if length in self._shown_lengths:
                facts[f"length {length:,}"] = self._describe(k)
        for level in LEVELS:
            facts[f"at least {level:.0f} %"] = self._describe_level(level)
        facts["longest measured"] = f"length {self.lengths[-1]:,}: {self.stopped}"
        if self.note:
            facts["note"] = self.note
        return facts

    def summary(self) -> str:
        """Return up to which lengths the model is accurate, in one line."""
        longest = [self.longest_at_least(level) for level in LEVELS]
        if longest[1] is None:
            return f"below {LEVELS[1]:.0f} % at length {self.lengths[0]:,}"
        if longest[0] == self.lengths[-1]:
            return f"at least 99 % to length {longest[0]:,}, the longest measured"
        limits = ["nowhere" if length is None else f"to length {length:,}" for length in longest]
        return f"at least 99 % {limits[0]}, 90 % {limits[1]}"

    @property
    def _shown_lengths(self) -> set[int]:
        wanted = [length for length in SHOWN_LENGTHS if length <= self.lengths[-1]] + [self.train_length]
        return {self._next_shorter(length) for length in wanted} | {self.lengths[-1]}

    def _next_shorter(self, length: int) -> int:
        """Return the greatest measured length up to this one, or the shortest of all."""
        return max((known for known in self.lengths if known <= length), default=self.lengths[0])

    def _describe(self, k: int) -> str:
        band = f"{format_percent(self.low[k])} to {format_percent(self.high[k])}"
        is_longest = self.lengths[k] == self._next_shorter(self.train_length) <= self.train_length <= self.lengths[-1]
        trained = ", the longest of training" if is_longest else ""
        constant = self.best_constant[k]
        beside = "" if constant is None else f", best constant {format_chance(constant)} %"
        accuracy = f"{format_percent(self.accuracy[k])} % ({band}){beside}{trained}"
        sampled = [self._describe_sampled(name, self.lengths[k]) for name in MEASURES]
        known = [text for text in sampled if text]
        has_several = any(getattr(self, name) is not None for name in MEASURES)
        return "; ".join([*known, f"accuracy {accuracy}" if has_several else accuracy])

    def _describe_sampled(self, name: str, length: int) -> str:
        """Return the balanced or the covering accuracy at a length beside what a constant answer scores there."""
        sampled: SampledAccuracy | None = getattr(self, name)
        if sampled is None or length not in sampled.lengths:
            return ""
        place = sampled.lengths.index(length)
        word = "chance" if name == "balanced" else "best constant"
        constant = format_chance(sampled.best_constant[place])
        return f"{name} {format_percent(sampled.accuracy[place])} % ({word} {constant} %)"

    def _describe_level(self, level: float) -> str:
        longest = self.longest_at_least(level)
        if longest is None:
            shortest = min(length for length, share in self._judged if not share >= level)
            worst = min(share for length, share in self._judged if length == shortest)
            return f"at no length: {format_percent(worst)} % at length {shortest:,}"
        if longest == self.lengths[-1]:
            return f"up to length {longest:,}, the longest measured"
        return f"up to length {longest:,}"


def _known(sampled: SampledAccuracy) -> list[tuple[int, float]]:
    """Return the lengths and accuracies of a measure, without lengths that have no strings."""
    pairs = zip(sampled.lengths, sampled.accuracy, strict=True)
    return [(length, share) for length, share in pairs if not math.isnan(share)]


def _first_failure(pairs: Sequence[tuple[int, float]]) -> float | None:
    """Return where the accuracy first falls below 90 %, for lengths in ascending order; None if it does not."""
    for k, (length, share) in enumerate(pairs):
        if share < FAILING_ACCURACY:
            if k == 0 or length == pairs[k - 1][0] + 1:
                return float(length)
            return interpolate_failure(pairs[k - 1], pairs[k])
    return None


def interpolate_failure(before: tuple[int, float], after: tuple[int, float]) -> float:
    """Return the length between two at which the accuracy falls below 90 %, on a logarithmic axis.

    >>> interpolate_failure((20, 95.0), (40, 85.0))
    28.284271247461902
    """
    (shorter, higher), (longer, lower) = before, after
    return float(shorter * (longer / shorter) ** ((higher - FAILING_ACCURACY) / (higher - lower)))
