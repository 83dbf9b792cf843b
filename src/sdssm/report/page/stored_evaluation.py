"""The evaluation of a run as its folder stores it, checked field by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdssm.errors import RunError
from sdssm.evaluation.records import FAILING
from sdssm.means import mean_of_known
from sdssm.report.page.json_fields import JsonFields
from sdssm.report.page.page_types import Numbers


@dataclass(frozen=True)
class MeasuredValues:
    """Accuracies at some lengths, in ascending order."""

    lengths: tuple[int, ...]
    values: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.values):
            raise RunError(f"{len(self.lengths)} lengths have {len(self.values)} values; evaluate the run again")
        if any(before >= after for before, after in zip(self.lengths, self.lengths[1:], strict=False)):
            raise RunError("lengths are not in ascending order; evaluate the run again")

    def followed_by(self, other: MeasuredValues) -> MeasuredValues:
        """Return these values, and those of the other at greater lengths."""
        last = self.lengths[-1] if self.lengths else 0
        later = [pair for pair in zip(other.lengths, other.values, strict=True) if pair[0] > last]
        return MeasuredValues(
            (*self.lengths, *(length for length, _ in later)), (*self.values, *(value for _, value in later))
        )


@dataclass(frozen=True, kw_only=True)
class StoredEvaluation:
    """The accuracy of a run at each length and its means, in percent; empty values were not measured."""

    strings: int
    max_length: int
    accuracy: MeasuredValues
    low: MeasuredValues
    high: MeasuredValues
    best_constant: MeasuredValues
    balanced: MeasuredValues | None
    covering: MeasuredValues | None
    mean: float | None
    mean_within: float | None
    mean_beyond: float | None
    first_below_99: int | None
    chance: float | None
    balanced_mean: float | None
    balanced_constant: float | None
    status: str | None
    digest: str | None

    @classmethod
    def from_fields(cls, fields: JsonFields) -> StoredEvaluation:
        """Return the evaluation of evaluation.json or evaluation-lengths.json; raise a `RunError` if it is damaged."""
        fields.require("max_length", "accuracy")
        max_length = fields.whole("max_length") or 0
        listed = fields.data.get("lengths") is not None
        accuracy = fields.numbers("accuracy")
        lengths = fields.wholes("lengths") if listed else list(range(1, len(accuracy) + 1))
        balanced, constant = fields.fields("balanced"), fields.number("best_constant_mean")
        return cls(
            strings=fields.whole("strings") or 0,
            max_length=max_length,
            accuracy=MeasuredValues(tuple(lengths), tuple(accuracy)),
            low=_column(fields, "accuracy_low", lengths),
            high=_column(fields, "accuracy_high", lengths),
            best_constant=_column(fields, "best_constant", lengths),
            balanced=_measure(balanced),
            covering=_measure(fields.fields("covering")),
            mean=fields.number("mean"),
            mean_within=fields.number("mean_within"),
            mean_beyond=fields.number("mean_beyond"),
            first_below_99=fields.whole("first_below_99"),
            chance=fields.number("chance") if constant is None else constant,
            balanced_mean=None if balanced is None else balanced.number("mean"),
            balanced_constant=None if balanced is None else balanced.number("best_constant_mean"),
            status=fields.name("status"),
            digest=fields.name("digest"),
        )

    @property
    def headline(self) -> tuple[float | None, str, float | None]:
        """The number to quote, its name, and what the best constant answer scores, as `RunEvaluation` has them."""
        if self.balanced is not None:
            return self.balanced_mean, "balanced accuracy", self.balanced_constant
        return self.mean, "accuracy", self.chance

    def mean_constants(self, train_length: int) -> tuple[float | None, float | None]:
        """Return what the best constant answer scores at training lengths, and on average beyond them."""
        pairs = list(zip(self.best_constant.lengths, self.best_constant.values, strict=True))
        return (
            mean_of_known(value for length, value in pairs if length <= train_length),
            mean_of_known(value for length, value in pairs if length > train_length),
        )

    @property
    def headline_lengths(self) -> list[int] | None:
        """The lengths that the number to quote is the mean of; None: every length up to `max_length`."""
        return None if self.balanced is None else list(self.balanced.lengths)

    @property
    def first_failure(self) -> int | None:
        """The first length with an accuracy or a balanced accuracy below 99 %."""
        failed = [] if self.first_below_99 is None else [self.first_below_99]
        if self.balanced is not None:
            pairs = zip(self.balanced.lengths, self.balanced.values, strict=True)
            failed += [length for length, value in pairs if value is not None and value < FAILING]
        return min(failed, default=None)


def _column(fields: JsonFields, name: str, lengths: Sequence[int]) -> MeasuredValues:
    """Return the values of a list beside the accuracy; older files do not have all of them."""
    values: Numbers = fields.numbers(name)
    return MeasuredValues(tuple(lengths) if values else (), tuple(values))


def _measure(fields: JsonFields | None) -> MeasuredValues | None:
    if fields is None:
        return None
    return MeasuredValues(tuple(fields.wholes("lengths")), tuple(fields.numbers("accuracy")))
