"""Measure the accuracy of a model at growing lengths, within a limit of time."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from time import monotonic
from typing import Any

from sdssm.checking.accuracy_by_length import FAILING_ACCURACY, SHOWN_LENGTHS, AccuracyByLength
from sdssm.checking.card_section import SectionTimeUpError
from sdssm.checking.forecast_measurement import AVERAGED, geometric_lengths
from sdssm.errors import ModelError, TaskError, first_line
from sdssm.evaluation import RunEvaluation, evaluate
from sdssm.evaluation.measurement import choose_reader
from sdssm.evaluation.records import READ_FRESH
from sdssm.evaluation.sampled_accuracy import LONGEST_SAMPLED, MEASURES, SampledAccuracy, join_sampled
from sdssm.evaluation.sampled_measurement import measure_sampled
from sdssm.models import TokenModel
from sdssm.progress import ProgressEvent, ProgressReporter
from sdssm.tasks import Task
from sdssm.tasks.evaluation_strings import EvaluationStrings
from sdssm.tasks.label_shares import best_constants
from sdssm.testing.readable_length import find_readable_length

#: Strings at each length, and beyond the training lengths if they would take more than this share of the time left.
STRINGS, LONG_STRINGS, AFFORDABLE = 512, 128, 0.25
#: The longest strings of a model that can be read in pieces, and of one that cannot.
LONGEST, LONGEST_WHOLE = 50_000, 2_000
#: The length and the number of the strings of the first call, whose time is not counted: it may compile code.
WARM_UP = 8
#: The strings of the second call, whose time is; also the fewest at each of the training lengths.
FEW_STRINGS = 32
#: The share of the time that the training lengths may take.
TRAINING_SHARE = 0.5
#: Without a state, the time for each symbol grows about with the length to the power of this.
GROWTH = 0.25
#: Every stage reads strings this many times as long as the one before.
STAGE = 4


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
        max_seconds: stop after about this time. The training lengths are always measured; if time is short, with fewer
            strings, and at fewer lengths if the model reads each length by itself.
        reporter: shows how far it is.

    A model that raises an error for long strings is measured up to the longest that it reads.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> result = measure_accuracy(compile("parity"), get_task("parity"), max_length=100, strings=16)
    >>> result.longest_at_least(99.0), result.chance, result.failing_length
    (100, 50.0, None)
    """
    trained = train_length or task.train_length
    measurement = AccuracyMeasurement(model, task, trained, strings, seed, max_seconds, reporter)
    longest, stopped = _longest(model, max_length)
    stopped = measurement.run(longest) or stopped
    by_length = measurement.by_length
    if not by_length:
        raise TaskError(f"{task.name} has no valid string of up to {longest:,} symbols; pass a greater max_length")
    kept = sorted(by_length)
    shares, lows, highs, counts = zip(*(by_length[length] for length in kept), strict=True)
    random_start = model.settings.state_embedding is not None
    return AccuracyByLength(
        lengths=tuple(kept),
        accuracy=shares,
        low=lows,
        high=highs,
        strings=counts,
        best_constant=tuple(best_constants(task, kept, random_start=random_start)),
        chance=task.chance_accuracy,
        train_length=trained,
        note="; ".join(measurement.notes) or None,
        stopped=stopped,
        **{name: join_sampled(parts) for name, parts in measurement.sampled.items() if parts},
    )


class AccuracyMeasurement:
    """The accuracies that were measured so far, and how long the next ones will take.

    Attributes:
        by_length: accuracy, the ends of its band and the number of strings, by length.
        sampled: the balanced and the covering accuracy, for each stage.
        notes: remarks on how it was measured.
    """

    def __init__(
        self,
        model: TokenModel,
        task: Task,
        trained: int,
        strings: int,
        seed: int,
        max_seconds: float,
        reporter: ProgressReporter | None,
    ) -> None:
        self.model, self.task, self.trained, self.strings, self.seed = model, task, trained, strings, seed
        self.reporter, self.max_seconds, self.end = reporter, max_seconds, monotonic() + max_seconds
        self.by_length: dict[int, tuple[float, float, float, int]] = {}
        self.sampled: dict[str, list[SampledAccuracy]] = {name: [] for name in MEASURES}
        self.notes: list[str] = []
        self._done, self._reads_fresh, self._has_time_for_samples = 0, False, True
        self._fixed = self._rate = 0.0  # seconds of any evaluation, and for each symbol of each string

    def run(self, longest: int) -> str | None:
        """Measure all stages up to a length; return why it stopped before, if it did."""
        tested = max(self.task.test_length, self.trained)
        try:
            self._estimate(longest)
            for limit in _stages(self.trained, tested, longest):
                stopped = self._measure_stage(limit, is_sparse=limit > tested)
                if stopped is None and limit >= min(tested, longest) and self._has_failed():
                    stopped = f"below {FAILING_ACCURACY:.0f} % from there on"
                if stopped is not None:
                    return stopped
        except ModelError as error:
            readable = find_readable_length(self.model, limit if self._done else min(self.trained, longest))
            if not readable:
                raise
            if readable > self._done:
                self._measure_readable(readable, is_sparse=readable > tested)
            return f"the model raises an error for longer strings ({first_line(error)})"
        return None

    def _measure_readable(self, readable: int, *, is_sparse: bool) -> None:
        """Measure the lengths that a model could read alone; it may still fail with many strings."""
        try:
            self._measure_stage(readable, is_sparse=is_sparse)
        except ModelError:
            if not self.by_length:
                raise

    def _estimate(self, longest: int) -> None:
        """Measure how long an evaluation takes."""
        self._evaluate([min(WARM_UP, longest)], WARM_UP)
        started = monotonic()
        self._evaluate([1], self.strings)
        self._fixed = monotonic() - started
        length = min(self.trained, longest)
        count = min(self.strings, FEW_STRINGS)
        started = monotonic()
        run = self._evaluate([length], count)
        self._reads_fresh = run.read == READ_FRESH
        self._rate = (monotonic() - started) / (count * self._work([length]))

    def _measure_stage(self, limit: int, *, is_sparse: bool) -> str | None:
        """Measure the lengths up to a limit; return why it was not done, if it was not."""
        lengths, count = self._plan(limit, is_sparse=is_sparse)
        if not lengths:
            self._done = limit
            return None
        late = f"longer strings would have taken more than the {self.max_seconds:.3g} s of this section"
        started, work = monotonic(), self._work(lengths)
        if self._done and started + self._fixed + self._rate * work * count > self.end:
            return late
        try:
            run = self._evaluate(lengths, count, is_watched=True)
        except SectionTimeUpError:
            return late
        self._rate = max(monotonic() - started - self._fixed, 0.0) / (work * count)
        rows = zip(run.evaluated_lengths, run.accuracy, run.accuracy_low, run.accuracy_high, strict=True)
        self.by_length |= {int(length): (share, low, high, run.strings) for length, share, low, high in rows}
        self.notes += [run.note] if run.note and run.note not in self.notes else []
        done, self._done = self._done, limit
        self._measure_sampled({*SHOWN_LENGTHS, self.trained, lengths[-1]}, count, done)
        return None

    def _measure_sampled(self, wanted: Set[int], count: int, done: int) -> None:
        """Measure the balanced and the covering accuracy at those of the lengths that this stage has.

        They need fresh strings for each length. Without the time for that, only the training lengths have them.
        """
        lengths = sorted(length for length in wanted & set(self.by_length) if done < length <= LONGEST_SAMPLED)
        if not self._has_time_for_samples or not lengths or self.model.settings.state_embedding is not None:
            return
        seconds = self._rate * sum(lengths) * count * len(MEASURES)
        if done and monotonic() + seconds > self.end:
            self._has_time_for_samples = False  # nor for the longer strings of a later stage
            self.notes.append(f"balanced and covering accuracy up to length {done:,} only, for lack of time")
            return
        strings = EvaluationStrings(self.task, count, self.seed, self.model.device)
        reader = choose_reader(self.model, strings, lengths[-1])
        for name, parts in self.sampled.items():
            parts.append(measure_sampled(reader, strings, name, lengths))

    def _plan(self, limit: int, *, is_sparse: bool) -> tuple[list[int], int]:
        """Return the lengths of a stage, and the number of strings at each."""
        neighbours = 1 if self._reads_fresh else AVERAGED
        is_sparse = is_sparse or (self._reads_fresh and self._done > 0)
        lengths = self._valid(_lengths(self._done, limit, is_sparse=is_sparse, neighbours=neighbours))
        left = self.end - monotonic()
        if not lengths:
            return lengths, self.strings
        if self._done:
            is_slow = self._rate * self._work(lengths) * self.strings > AFFORDABLE * left
            return lengths, min(self.strings, LONG_STRINGS) if is_slow else self.strings
        left = max(left, 0.0) * TRAINING_SHARE
        if self._rate * self._work(lengths) * self.strings <= left:
            return lengths, self.strings
        remarks = []
        if self._reads_fresh:
            every = len(lengths)
            lengths = self._valid(_lengths(0, limit, is_sparse=True, neighbours=1))
            remarks += [f"{len(lengths)} of {every} lengths"] if len(lengths) < every else []
        fewest = min(self.strings, FEW_STRINGS)
        affordable = self.strings
        if self._rate > 0:
            affordable = min(affordable, int(left / (self._rate * self._work(lengths))))
        count = max(affordable, fewest)
        remarks += [f"{count} strings at each"] if count < self.strings else []
        if remarks:
            self.notes.append(f"for lack of time, {' and '.join(remarks)} up to length {limit:,}")
        return lengths, count

    def _valid(self, lengths: Sequence[int]) -> list[int]:
        """Return the lengths that have valid strings, each of the others replaced by the next shorter one that has."""
        wanted, chosen = set(lengths), set()
        for length in lengths:
            while length > self._done and not self.task.has_length(length):
                length = self._done if length - 1 in wanted else length - 1
            chosen |= {length} - {self._done}
        return sorted(chosen)

    def _work(self, lengths: Sequence[int]) -> float:
        """Return the number of symbols of one string for each length, more for models whose time grows faster."""
        symbols = sum(lengths) if self._reads_fresh else max(lengths)
        return float(symbols * (1 if self.model.is_recurrent else max(lengths) ** GROWTH))

    def _has_failed(self) -> bool:
        """Return whether the accuracy is below 90 % at all of the last lengths, or the balanced one at the last."""
        last = sorted(self.by_length)[-AVERAGED:]
        if bool(last) and all(self.by_length[length][0] < FAILING_ACCURACY for length in last):
            return True
        return bool(self.sampled["balanced"]) and self.sampled["balanced"][-1].accuracy[-1] < FAILING_ACCURACY

    def _evaluate(self, lengths: Sequence[int], strings: int, *, is_watched: bool = False) -> RunEvaluation:
        progress = _watch(self.end, self._done, self.reporter) if is_watched else False
        evaluation = evaluate(
            self.model, task=self.task, lengths=lengths, strings=strings, seed=self.seed, measures=(), progress=progress
        )
        return evaluation.runs[0]


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


def _watch(end: float, done: int, reporter: ProgressReporter | None) -> Any:
    """Return a receiver of progress that shows it, and stops a stage other than the first when the time is up."""

    def receive(event: ProgressEvent) -> None:
        if reporter is not None:
            reporter.update(event.done, total=event.total)
        if done and monotonic() > end:
            raise SectionTimeUpError("the time is up")

    return receive
