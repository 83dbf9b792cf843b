"""The first section of a report card: accuracy by length, beside chance and the best constant answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from sdssm.checking.card_section import SectionTimeUpError
from sdssm.checking.constant_answers import best_constant_accuracy
from sdssm.checking.forecast_measurement import AVERAGED, FAILING_ACCURACY, first_crossing, geometric_lengths
from sdssm.evaluation import RunEvaluation, evaluate
from sdssm.evaluation.records import READ_FRESH
from sdssm.formatting import format_chance, format_percent
from sdssm.models import TokenModel
from sdssm.progress import ProgressEvent, ProgressReporter
from sdssm.runs.events import to_json_value
from sdssm.tasks import Task

#: The accuracies, in percent, for which the longest length is reported.
LEVELS = (99.0, 90.0)
#: Strings at each length, and beyond the training lengths if they would take more than this share of the time left.
STRINGS, LONG_STRINGS, AFFORDABLE = 512, 128, 0.25
#: The longest strings of a model that can be read in pieces, and of one that cannot.
LONGEST, LONGEST_WHOLE = 50_000, 2_000
#: The length and the number of the strings that are read first, for nothing.
WARM_UP = 8
#: The time of a model that cannot read in pieces grows with the length to the power of one and this, about.
MORE = 0.25
#: Every stage reads strings this many times as long as the one before.
STAGE = 4
#: The lengths of the lines of a card, of which those that were measured are shown, besides the training length.
SHOWN_LENGTHS = (1, 2, 5, 10, 20, 40, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)


@dataclass(frozen=True, kw_only=True)
class AccuracyByLength:
    """The accuracy of a model at each measured length, in percent.

    Attributes:
        lengths: the measured lengths, in ascending order.
        accuracy: the accuracy at each of them.
        low, high: the ends of its 95 % confidence interval with respect to the choice of the strings.
        strings: the number of strings at each length.
        best_constant: the accuracy of always answering the label that is most frequent at that length.
        chance: the accuracy of answering uniformly at random.
        train_length: the longest strings of the training.
        failing_length: where the accuracy, averaged over four lengths, falls below 90 %; None if it does not.
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
    failing_length: float | None
    note: str | None = None
    stopped: str = ""

    def longest_at_least(self, level: float) -> int | None:
        """Return the longest length at which the accuracy, and that at all shorter measured ones, reaches a level."""
        longest = None
        for length, share in zip(self.lengths, self.accuracy, strict=True):
            if share < level:  # NaN, at a length without valid strings, is not below
                break
            longest = length
        return longest

    @property
    def worst_at_training_lengths(self) -> float | None:
        """The lowest accuracy at a training length, in percent; None if no length was that short."""
        shares = [
            share
            for length, share in zip(self.lengths, self.accuracy, strict=True)
            if length <= self.train_length and not math.isnan(share)
        ]
        return min(shares, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values, with null for NaN."""
        levels = {f"longest_{level:.0f}": self.longest_at_least(level) for level in LEVELS}
        data: dict[str, Any] = to_json_value({**vars(self), **levels})
        return {**data, "worst_at_training_lengths": to_json_value(self.worst_at_training_lengths)}

    def facts(self) -> dict[str, str]:
        """Return the lines of the card."""
        constant = [share for share in self.best_constant if share is not None]
        facts = {"chance": f"{format_chance(self.chance)} %"}
        if constant:
            ends = f"{format_chance(constant[-1])} % at length {self.lengths[-1]:,}"
            facts["best constant answer"] = f"{ends}, {format_chance(max(constant))} % at the length where it is best"
        for k, length in enumerate(self.lengths):
            if (length in SHOWN_LENGTHS or length in (self.train_length, self.lengths[-1])) and not math.isnan(
                self.accuracy[k]
            ):
                facts[f"length {length:,}"] = self._describe(k)
        for level in LEVELS:
            facts[f"at least {level:.0f} %"] = self._describe_level(level)
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

    def _describe(self, k: int) -> str:
        band = f"{format_percent(self.low[k])} to {format_percent(self.high[k])}"
        trained = ", the longest of training" if self.lengths[k] == self.train_length else ""
        constant = self.best_constant[k]
        beside = "" if constant is None else f", best constant {format_chance(constant)} %"
        return f"{format_percent(self.accuracy[k])} % ({band}){beside}{trained}"

    def _describe_level(self, level: float) -> str:
        longest = self.longest_at_least(level)
        if longest is None:
            return f"at no length: {format_percent(self.accuracy[0])} % at length {self.lengths[0]:,}"
        if longest == self.lengths[-1]:
            return f"up to length {longest:,}, the longest measured ({self.stopped})"
        return f"up to length {longest:,}"


@dataclass
class _Points:
    """The accuracies that were measured so far, by length."""

    by_length: dict[int, tuple[float, float, float, int]]
    note: str | None = None

    def add(self, run: RunEvaluation, beyond: int) -> None:
        """Keep the accuracies at greater lengths than `beyond`."""
        rows = zip(run.evaluated_lengths, run.accuracy, run.accuracy_low, run.accuracy_high, strict=True)
        for length, share, low, high in rows:
            if length > beyond:
                self.by_length[int(length)] = (share, low, high, run.strings)
        self.note = run.note

    @property
    def failing_length(self) -> float | None:
        """Where the mean of four accuracies falls below 90 %, as a forecast defines it; None if it does not."""
        lengths, means = [], []
        for end in geometric_lengths(max(self.by_length)):
            near = [self.by_length[k][0] for k in range(end - AVERAGED + 1, end + 1) if k in self.by_length]
            known = [share for share in near if not math.isnan(share)]
            if known and end in self.by_length:
                lengths.append(end)
                means.append(math.fsum(known) / len(known))
        return first_crossing(lengths, means)


def measure_accuracy(
    model: TokenModel,
    task: Task,
    *,
    train_length: int | None = None,
    max_length: int | None = None,
    strings: int = STRINGS,
    seed: int = 1,
    max_seconds: float = math.inf,
    reporter: ProgressReporter | None = None,
) -> AccuracyByLength:
    """Measure the accuracy at growing lengths, until it is below 90 %, the time is up, or strings are long enough.

    Args:
        model: the model.
        task: its task.
        train_length: the longest strings of the training; by default that of the task.
        max_length: the longest strings; by default 50,000, or 2,000 for a model that cannot read in pieces.
        strings: the number of strings at each length; at most 128 of long strings that take much time.
        seed: of the strings.
        max_seconds: stop after this time. The training lengths are always measured.
        reporter: shows how far it is.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> result = measure_accuracy(compile("parity"), get_task("parity"), max_length=100, strings=16)
    >>> result.longest_at_least(99.0), result.chance, result.failing_length
    (100, 50.0, None)
    """
    end = monotonic() + max_seconds
    trained = train_length or task.train_length
    tested = max(task.test_length, trained)
    longest, stopped = _longest(model, max_length)
    points, done, fresh, rate = _Points({}), 0, False, 0.0
    # A first call may compile code, which says nothing about how long the others take.
    evaluate(model, task=task, lengths=[min(WARM_UP, longest)], strings=WARM_UP, seed=seed)
    started = monotonic()
    evaluate(model, task=task, lengths=[1], strings=strings, seed=seed)
    fixed = monotonic() - started  # what an evaluation takes however short the strings are
    for limit in _stages(trained, tested, longest):
        lengths = _lengths(done, limit, is_sparse=fresh or limit > tested, neighbours=1 if fresh else AVERAGED)
        # A model that cannot read in pieces may take more than twice the time for twice the length.
        work = (sum(lengths) if fresh else limit) * (1 if model.is_recurrent else limit**MORE)
        started = monotonic()
        is_slow = bool(done) and rate * work * strings > AFFORDABLE * (end - started)
        count = min(strings, LONG_STRINGS) if is_slow else strings
        late = f"longer strings would have taken more than the {max_seconds:.0f} s of this section"
        if done and started + fixed + rate * work * count > end:
            stopped = late
            break
        try:
            evaluation = evaluate(
                model, task=task, lengths=lengths, strings=count, seed=seed, progress=_watch(end, done, reporter)
            )
        except SectionTimeUpError:
            stopped = late
            break
        [run] = evaluation.runs
        rate = max(monotonic() - started - fixed, 0.0) / (work * count)
        points.add(run, done)
        done, fresh = limit, run.read == READ_FRESH
        if limit >= min(tested, longest) and _has_failed(points, lengths):
            stopped = f"below {FAILING_ACCURACY:.0f} % from there on"
            break
    kept = sorted(points.by_length)
    shares, lows, highs, counts = zip(*(points.by_length[length] for length in kept), strict=True)
    random_start = model.settings.state_embedding is not None
    return AccuracyByLength(
        lengths=tuple(kept),
        accuracy=shares,
        low=lows,
        high=highs,
        strings=counts,
        best_constant=tuple(best_constant_accuracy(task, kept, random_start=random_start)),
        chance=task.chance_accuracy,
        train_length=trained,
        failing_length=points.failing_length,
        note=points.note,
        stopped=stopped,
    )


def _longest(model: TokenModel, max_length: int | None) -> tuple[int, str]:
    """Return the longest strings to read, and why they are not longer."""
    longest, why = LONGEST, "as far as a card reads"
    if not model.is_recurrent:
        longest, why = LONGEST_WHOLE, "as far as a card reads with a model that cannot read in pieces"
    if max_length is not None:
        longest, why = max_length, "the given limit"
    if model.longest is not None and model.longest < longest:
        longest, why = model.longest, "the longest that the model can read"
    return longest, why


def _stages(trained: int, tested: int, longest: int) -> list[int]:
    """Return the lengths that the stages end at: training lengths, test lengths, then four times as long each.

    >>> _stages(40, 500, 50_000)
    [40, 500, 2000, 8000, 32000, 50000]
    >>> _stages(40, 500, 100)
    [40, 100]
    """
    ends = [trained, tested]
    while ends[-1] < longest:
        ends.append(ends[-1] * STAGE)
    return sorted({min(end, longest) for end in ends})


def _lengths(done: int, limit: int, *, is_sparse: bool, neighbours: int) -> list[int]:
    """Return the lengths of a stage, which end at `limit`: all of them, or a few groups of neighbours.

    >>> _lengths(500, 1_000, is_sparse=True, neighbours=2)
    [511, 512, 608, 609, 723, 724, 860, 861, 999, 1000]
    """
    if not is_sparse:
        return list(range(done + 1, limit + 1))
    wanted = [*geometric_lengths(limit), *SHOWN_LENGTHS, limit]
    ends = [length for length in wanted if done < length <= limit]
    return sorted({length for end in ends for length in range(max(done + 1, end - neighbours + 1), end + 1)})


def _has_failed(points: _Points, lengths: Sequence[int]) -> bool:
    """Return whether the accuracy is below 90 % and will not rise again: at most of the lengths of a stage's end."""
    last = [points.by_length[length][0] for length in lengths[-AVERAGED:] if length in points.by_length]
    return bool(last) and all(share < FAILING_ACCURACY for share in last) and points.failing_length is not None


def _watch(end: float, done: int, reporter: ProgressReporter | None) -> Any:
    """Return a receiver of progress that shows it, and stops a stage other than the first when the time is up."""

    def receive(event: ProgressEvent) -> None:
        if reporter is not None:
            reporter.update(event.done, total=event.total)
        if done and monotonic() > end:
            raise SectionTimeUpError("the time is up")

    return receive
