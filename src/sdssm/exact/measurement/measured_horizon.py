"""`horizon`: measure how long strings may be before a model fails, at doubling lengths."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from time import perf_counter
from typing import Any

from sdssm.display import Displayed, ResultTable
from sdssm.evaluation.sampled_accuracy import LONGEST_SAMPLED
from sdssm.evaluation.sampled_measurement import measure_sampled
from sdssm.exact.defaults import LONGEST_MEASURED, MEASURED_SEED, MEASURED_STRINGS
from sdssm.exact.errors import ExactError
from sdssm.exact.measurement.length_readings import HorizonReading, read_fresh_strings, read_prefixes
from sdssm.exact.measurement.measured_gains import MeasuredGains, measure_gains
from sdssm.exact.measurement.word_matrices import WordMatrices
from sdssm.exact.sources import MachineSource, ModelSource, check_task_fits, load_source
from sdssm.exact.watch import Watch, open_watch
from sdssm.formatting import BEST_CONSTANT, format_chance, format_estimate, format_percent
from sdssm.limits import LONGEST_STRING, MOST_STRINGS
from sdssm.models import TokenModel
from sdssm.models.reading import reading_mode
from sdssm.printable import make_printable
from sdssm.progress import ProgressOption
from sdssm.settings import check_between
from sdssm.tasks import Task
from sdssm.tasks.evaluation_strings import EvaluationStrings
from sdssm.tasks.label_shares import best_constants
from sdssm.tasks.task import chance_accuracy

#: The accuracy, in percent, that counts as correct.
ENOUGH = 99.9
#: One label is frequent if its share is more than this many times that of a label of balanced strings.
FREQUENT = 1.5
#: Lengths between which the growth of the spread is measured, to predict where it becomes too large.
MEASURED = 512, 4_096
#: The spread at which about one label in a thousand is wrong.
TOO_WIDE = 1 / 3


@dataclass(frozen=True, repr=False)
class Horizon(Displayed):
    """The longest length up to which a model was measured to be correct.

    At `longest` and at all shorter lengths read, the accuracy is at least 99.9 %, and so is the balanced accuracy where
    it was measured: on uniform strings a constant answer may be nearly always right. 0 if there is no such length.
    `predicted` is the length at which the spread reaches a third if its square keeps growing as it did up to length
    4,096, as that of a random walk does. It is a rule of thumb, and None if the spread does not grow or was not
    measured, and if the model fails by length 4,096 already.
    """

    task: str
    longest: int
    max_length: int
    readings: tuple[HorizonReading, ...]
    strings: int
    seed: int
    method: str  #: "words of m symbols", "pieces" (with the state carried) or "fresh strings"
    predicted: int | None
    seconds: float
    n_classes: int = 0
    gains: MeasuredGains | None = None  #: of an SD-SSM at training lengths, and how fast its errors can grow
    stopped: bool = False  #: whether the time limit ended the measurement before `max_length`
    digest: str | None = None  #: fingerprint of the task, independent of its name

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that were read."""
        return tuple(reading.length for reading in self.readings)

    @property
    def reached(self) -> bool:
        """Whether the model is correct up to the last length read."""
        return self.longest == self.readings[-1].length

    @property
    def first_failure(self) -> HorizonReading | None:
        """The shortest length read at which the accuracy or the balanced accuracy is below 99.9 %."""
        return next((reading for reading in self.readings if not reading.is_at_least(ENOUGH)), None)

    def __repr__(self) -> str:
        return f"Horizon({self.task!r}, longest={self.longest}, max_length={self.max_length})"

    def to_json(self) -> dict[str, Any]:
        """Return the measurement as plain values."""
        gains = None if self.gains is None else self.gains.to_json()
        values = asdict(replace(self, gains=None))
        return {**values, "gains": gains, "lengths": list(self.lengths), "reached": self.reached}

    def to_records(self) -> list[dict[str, Any]]:
        """Return one record for each length that was read."""
        return [{"task": self.task, **asdict(reading)} for reading in self.readings]

    def to_table(self) -> ResultTable:
        """Return the accuracy at each length, and sentences that say where the model fails."""
        is_balanced = any(reading.balanced is not None for reading in self.readings)
        rows = [
            [
                f"{reading.length:,}",
                f"{reading.first:,}-{reading.length:,}",
                f"{reading.labels:,}",
                format_percent(reading.accuracy),
                format_chance(reading.best_constant),
                *((format_percent(reading.balanced), format_chance(reading.chance)) if is_balanced else ()),
                "-" if reading.spread is None else f"{reading.spread:.4f}",
            ]
            for reading in self.readings
        ]
        balanced = ["balanced %", "balanced chance %"] if is_balanced else []
        headers = ["length", "positions", "labels", "accuracy %", "best constant %", *balanced, "distance"]
        title = f"{make_printable(self.task)}: {self.strings} strings, {self.method}, {self.seconds:.0f} s"
        right = [header for header in headers if header != "positions"]
        return ResultTable(headers, rows, title=title, notes=self._explain(), right=right)

    def _explain(self) -> list[str]:
        failure = self.first_failure
        measured = [reading for reading in self.readings if reading.balanced is not None]
        measures = "an accuracy and a balanced accuracy" if measured else "an accuracy"
        notes = [f"Longest length with {measures} of at least 99.9 %, as at all shorter ones: {self.longest:,}"]
        if failure is not None:
            accuracy = format_percent(failure.accuracy)
            notes.append(f"The model fails at length {failure.length:,}: {accuracy} % of the labels are correct.")
            if failure.balanced is not None:
                shown = f"{format_percent(failure.balanced)} % (balanced chance {format_chance(failure.chance)} %)"
                notes[-1] = f"{notes[-1][:-1]}; balanced accuracy {shown}."
        if measured:
            notes.append(
                f"Balanced: fresh strings of the length, whose labels are equally frequent, to length "
                f"{measured[-1].length:,}; balanced chance: what any constant answer scores on them."
            )
        if self.stopped:
            notes.append(f"Stopped by the time limit after length {self.readings[-1].length:,}.")
        if self.predicted is not None:
            notes.append(
                f"Predicted from the growth of the distance up to length 4,096: about {format_estimate(self.predicted)}"
            )
        if self.gains is not None:
            notes.append(f"Gains at training lengths: {self.gains.describe()}.")
        if self.n_classes:
            chance = format_chance(chance_accuracy(self.n_classes))
            notes.append(f"Chance of a random guess: {chance} %. {BEST_CONSTANT.capitalize()}.")
        if any(reading.spread is not None for reading in self.readings):
            notes.append(
                "Distance: between states of the same class, relative to the distance of the two closest classes."
            )
        return notes


def horizon(
    model: ModelSource,
    task: MachineSource | None = None,
    *,
    max_length: int = LONGEST_MEASURED,
    strings: int = MEASURED_STRINGS,
    seed: int = MEASURED_SEED,
    words: bool = True,
    trust: bool = False,
    max_seconds: float | None = None,
    progress: ProgressOption = False,
) -> Horizon:
    """Measure the accuracy of a model at lengths 1, 2, 4, ... and `max_length`, on the same strings.

    Args:
        model: a recurrent model, a run, or the folder of either; or any `nn.Module` with a method `advance`.
        task: the task to measure on: a name, a task or a machine. By default the task of the run, or the one that the
            model was saved with.
        max_length: the last length.
        strings: number of strings.
        seed: of the strings.
        words: whether a single SD-SSM without an input matrix reads several symbols at a time between lengths.
        trust: import the code of a model that is not part of this package, as its folder names it.
        max_seconds: stop about then, and return the lengths read so far.
        progress: True shows how far the measurement is; a function receives every `ProgressEvent`.

    The state is carried from one length to the next. The last 16 prefixes up to each length are classified. If one
    label is much more frequent than the others at some length, the balanced accuracy is measured too, on fresh strings,
    up to the first length at which the model fails.

    >>> from sdssm.exact import compile
    >>> result = horizon(compile("parity"), task="parity", max_length=1_000, strings=16)
    >>> result.longest, result.lengths[-3:], result.reached
    (1000, (256, 512, 1000), True)
    """
    check_between("max_length", max_length, 1, LONGEST_STRING)
    check_between("strings", strings, 1, MOST_STRINGS)
    source = load_source(model, task, function="horizon", trust=trust)
    token_model, chosen_task = source.model, source.find_task(task, "horizon")
    _check_measurable(token_model, chosen_task, max_length)
    started = perf_counter()
    test = EvaluationStrings(chosen_task, strings, seed, token_model.device)
    lengths = _lengths_to_read(test, max_length)
    with open_watch(f"horizon {source.name}", progress, max_seconds) as watch, reading_mode(token_model):
        method, readings = _read_lengths(token_model, test, lengths, words, watch)
        is_stopped = len(readings) < len(lengths)
        readings = _compare_with_constants(token_model, test, readings, watch)
    longest = _longest_correct(readings)
    return Horizon(
        task=chosen_task.name,
        longest=longest,
        max_length=max_length,
        readings=tuple(readings),
        strings=strings,
        seed=seed,
        method=method,
        predicted=_predict(readings, longest),
        seconds=perf_counter() - started,
        n_classes=token_model.n_classes,
        gains=measure_gains(token_model, chosen_task, seed=seed),
        stopped=is_stopped or watch.is_over,
        digest=chosen_task.digest,
    )


def _lengths_to_read(test: EvaluationStrings, max_length: int) -> list[int]:
    """Return 1, 2, 4, ... and the last length, each replaced by the greatest one up to it that has valid strings."""
    task, lengths = test.task, doubling_lengths(max_length)
    valid = sorted({task.longest_valid_length(length) for length in lengths if test.shortest_length <= length})
    if not valid:
        raise ExactError(
            f"{task.name} has no valid string of length {max_length} or less; pass a larger max_length",
            shell=f"{task.name} has no valid string of length {max_length} or less; give a larger --max-length",
        )
    return valid


def _read_lengths(
    model: TokenModel, test: EvaluationStrings, lengths: list[int], words: bool, watch: Watch
) -> tuple[str, list[HorizonReading]]:
    """Read strings of all lengths that the time allows, and say by which method."""
    if test.positions is None:
        return "fresh strings", read_fresh_strings(model, test, lengths, watch)
    matrices = WordMatrices.build(model) if words else None
    method = "pieces" if matrices is None else f"words of {matrices.m} symbols"
    return method, list(read_prefixes(model, test, lengths, matrices, watch))


def _longest_correct(readings: list[HorizonReading]) -> int:
    """Return the last length up to which the model is correct at every length read; 0 if it fails at the first."""
    correct = takewhile(lambda reading: reading.is_at_least(ENOUGH), readings)
    return max((reading.length for reading in correct), default=0)


def _compare_with_constants(
    model: TokenModel, test: EvaluationStrings, readings: list[HorizonReading], watch: Watch
) -> list[HorizonReading]:
    """Add what the best constant answer scores to each reading, and the balanced accuracy if one label is frequent.

    If the time is up, the lengths whose balanced accuracy was measured are returned, and at least the first.
    """
    constants = best_constants(test.task, [reading.length for reading in readings])
    chances = best_constants(test.task, [reading.length for reading in readings], "balanced")
    compared = [replace(reading, best_constant=best) for reading, best in zip(readings, constants, strict=True)]
    pairs = list(zip(constants, chances, strict=True))
    if all(best is None or chance is None or best <= FREQUENT * chance for best, chance in pairs):
        return compared
    needed = [reading for reading in compared if reading.length <= LONGEST_SAMPLED]
    watch.start("read balanced strings", total=sum(reading.length for reading in needed), unit="symbols")
    read, balanced = 0, list[HorizonReading]()
    for reading in needed:
        if balanced and watch.is_over:
            return balanced
        if balanced and not balanced[-1].is_at_least(ENOUGH):  # longer strings do not change the result
            break
        measured = measure_sampled(model, test, "balanced", [reading.length])
        read += reading.length
        watch.update(read)
        balanced.append(replace(reading, balanced=measured.accuracy[0], chance=measured.best_constant[0]))
    return [*balanced, *compared[len(balanced) :]]


def doubling_lengths(most: int) -> list[int]:
    """Return 1, 2, 4, ... and the last length.

    >>> doubling_lengths(20)
    [1, 2, 4, 8, 16, 20]
    """
    return [*(1 << k for k in range((most - 1).bit_length())), most]


def _check_measurable(model: TokenModel, task: Task, max_length: int) -> None:
    check_task_fits(model, task, all_classes=False)
    if not model.is_recurrent or model.settings.state_embedding is not None:
        raise ExactError(f"{model.name} carries no state from one piece to the next; use sdssm evaluate")
    if model.longest is not None and max_length > model.longest:
        problem = f"{model.name} reads at most {model.longest:,} symbols"
        raise ExactError(
            f"{problem}; pass max_length={model.longest}", shell=f"{problem}; add --max-length {model.longest}"
        )


def _predict(readings: list[HorizonReading], longest: int) -> int | None:
    """Extrapolate the square of the spread linearly from two lengths to the square of `TOO_WIDE`.

    There is nothing to predict if the model has failed up to the lengths of the extrapolation.
    """
    known = [
        (reading.length, reading.spread)
        for reading in readings
        if reading.spread is not None and MEASURED[0] <= reading.length <= MEASURED[1]
    ]
    if len(known) < 2 or longest < known[-1][0]:
        return None
    (short, first), (long, last) = known[0], known[-1]
    slope = (last**2 - first**2) / (long - short)
    remaining = TOO_WIDE**2 - last**2
    if remaining <= 0:  # the classes hold several states of the machine, so the rule of thumb does not apply
        return None
    return int(long + remaining / slope) if slope > remaining * 1e-15 else None
