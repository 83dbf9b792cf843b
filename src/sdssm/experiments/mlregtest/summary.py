"""What the records of many languages say: shares by class and alphabet, targets, and reasons of failures."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean, median

from sdssm.experiments.mlregtest.languages import CLASSES, OTHER, STUDIED_COUNT, studied_names
from sdssm.experiments.mlregtest.records import EQUAL, LEARNED, LanguageRecord
from sdssm.formatting import count_of

#: The shares of held-out languages that the experiment aims at, in percent.
BALANCED_TARGET, EQUAL_TARGET = 95.0, 90.0
#: Seconds on the device for each language.
SECONDS_TARGET = 1_200 / 980
PUBLISHED_FILE = "published.csv"
#: Stands for all alphabets or classes in a row of the table.
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class ClassSummary:
    """The languages of one class and alphabet at one length. Scores are means in percent, shares are of languages."""

    kind: str
    symbols: str
    languages: int
    states: float  #: median
    uniform: float
    uniform_constant: float
    balanced: float
    balanced_constant: float
    covering: float
    covering_constant: float
    pairs: float | None
    trained_share: float  #: balanced accuracy of at least 99.9 at all training lengths
    balanced_share: float  #: balanced accuracy of at least 99.9
    covering_share: float
    equal_share: float
    followed_share: float  #: and the model classifies all test strings correctly
    snapped_share: float  #: and the model is proved exact at every length with its state moved to prototypes


def longest_length(records: Sequence[LanguageRecord]) -> int:
    """Return the greatest length at which all of these languages were measured."""
    return min(max(record.lengths) for record in records)


def summarise_classes(records: Sequence[LanguageRecord]) -> list[ClassSummary]:
    """Return a summary of each class and alphabet, and one of all languages at the end."""
    if not records:
        return []
    length = longest_length(records)
    groups: dict[tuple[int, int], list[LanguageRecord]] = {}
    for record in records:
        kind = CLASSES.index(record.kind) if record.kind in CLASSES else CLASSES.index(OTHER)
        groups.setdefault((kind, record.symbols), []).append(record)
    rows = [_summarise(group, length, group[0].kind, str(key[1])) for key, group in sorted(groups.items())]
    return [*rows, _summarise(records, length, ALL, ALL)]


def _summarise(records: Sequence[LanguageRecord], length: int, kind: str, symbols: str) -> ClassSummary:
    def mean(measure: str) -> float:
        return fmean(_score(record, measure, length) for record in records)

    pairs = [score for record in records if (score := record.score("pairs", length)) is not None]
    return ClassSummary(
        kind=kind,
        symbols=symbols,
        languages=len(records),
        states=median(record.states for record in records),
        uniform=mean("uniform"),
        uniform_constant=mean("uniform_constant"),
        balanced=mean("balanced"),
        balanced_constant=mean("balanced_constant"),
        covering=mean("covering"),
        covering_constant=mean("covering_constant"),
        pairs=fmean(pairs) if pairs else None,
        trained_share=share(records, is_learned_at_training_lengths),
        balanced_share=share(records, lambda record: _score(record, "balanced", length) >= LEARNED),
        covering_share=share(records, lambda record: _score(record, "covering", length) >= LEARNED),
        equal_share=share(records, is_equal),
        followed_share=share(records, lambda record: record.is_followed),
        snapped_share=share(records, lambda record: record.is_snapped),
    )


def _score(record: LanguageRecord, measure: str, length: int) -> float:
    score = record.score(measure, length)
    assert score is not None, "every language was measured at this length"
    return score


def share(records: Sequence[LanguageRecord], has_property: Callable[[LanguageRecord], bool]) -> float:
    """Return the share of languages with a property, in percent."""
    return 100 * sum(map(has_property, records)) / len(records)


def is_equal(record: LanguageRecord) -> bool:
    """Return whether the automaton read from the weights is proved equal to that of the language."""
    return record.verdict == EQUAL


def is_learned_at_training_lengths(record: LanguageRecord) -> bool:
    """Return whether the balanced accuracy is at least 99.9 % at all measured lengths up to the training length."""
    scores = [score for k, score in enumerate(record.balanced) if record.lengths[k] <= record.train_length]
    return min(scores, default=100.0) >= LEARNED


def describe_targets(records: Sequence[LanguageRecord], name: str) -> list[str]:
    """Return a line for each target: how many languages reach it, and how many should.

    `name` says which languages these are, such as "held-out".
    """
    if not records:
        return [f"{name} languages: none has a record"]
    length, count = longest_length(records), len(records)
    balanced = sum(_score(record, "balanced", length) >= LEARNED for record in records)
    equal, followed = sum(map(is_equal, records)), sum(record.is_followed for record in records)
    snapped = sum(record.is_snapped for record in records)
    return [
        f"{name} languages with a balanced accuracy of at least {LEARNED:g} % at length {length}: {balanced} of "
        f"{count}, {100 * balanced / count:.1f} % (target {BALANCED_TARGET:g} %; a constant answer scores 50 %)",
        f"{name} languages whose automaton is proved equal: {equal} of {count}, {100 * equal / count:.1f} % "
        f"(target {EQUAL_TARGET:g} %); {followed} of these models also classify all their test strings correctly, "
        f"{100 * followed / count:.1f} %; {snapped} are proved exact at every length if their state is moved to the "
        f"nearest prototype after every symbol, {100 * snapped / count:.1f} %",
    ]


def describe_unnamed(records: Sequence[LanguageRecord]) -> list[str]:
    """Return a line with what holds for the held-out languages, whichever studied ones without a name are among them.

    In the worst case all of these are among the records and reach the targets; without them the shares are lowest.
    There is no line if all records may be of such languages, or none is of MLRegTest.
    """
    unnamed = STUDIED_COUNT - len(studied_names())
    count = len(records) - unnamed
    if not unnamed or count <= 0 or all(record.kind == OTHER for record in records):
        return []
    length = longest_length(records)
    balanced = sum(_score(record, "balanced", length) >= LEARNED for record in records)
    equal = sum(map(is_equal, records))
    shares = [100 * max(0, reached - unnamed) / count for reached in (balanced, equal)]
    return [
        f"{unnamed} more languages of the 980 in results/mlregtest were looked at while the loss was found, and their "
        f"names were not recorded. If all of them are among these {len(records)}: of the {count} others at least "
        f"{_floor(shares[0])} % reach the first target, and at least {_floor(shares[1])} % the second"
    ]


def _floor(percent: float) -> str:
    """Return a lower bound with one digit, rounded down."""
    return f"{int(10 * percent) / 10:.1f}"


def describe_time(records: Sequence[LanguageRecord]) -> str:
    """Return a line with the time on the device, beside its target."""
    seconds = sum(record.device_seconds for record in records)
    goal = SECONDS_TARGET * len(records)
    return (
        f"training and measuring of {count_of(len(records), 'language')}: {seconds:,.0f} s (target {goal:,.0f} s: "
        "20 minutes for 980 languages on one H200)"
    )


def count_reasons(records: Sequence[LanguageRecord]) -> list[tuple[str, int]]:
    """Return how many languages failed for each reason, without its details, the most frequent first."""
    reasons = [re.split("[:;]", record.reason)[0] for record in records if record.reason is not None]
    return Counter(reasons).most_common()


def published_lines() -> list[dict[str, str]]:
    """Return the published results of other networks by class, with their sources; empty if none are known."""
    text = files("sdssm.experiments.mlregtest").joinpath(PUBLISHED_FILE).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))
