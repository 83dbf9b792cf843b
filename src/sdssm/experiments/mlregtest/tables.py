"""The tables of the experiment: in the terminal, and as Markdown and CSV in the results folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from sdssm.errors import OutputError
from sdssm.experiments.mlregtest.configuration import PRESET
from sdssm.experiments.mlregtest.languages import HELD_OUT, STUDIED, TUNING, parse_name, part_of, tuning_names
from sdssm.experiments.mlregtest.records import LEARNED, LanguageRecord
from sdssm.experiments.mlregtest.summary import (
    ClassSummary,
    count_reasons,
    describe_targets,
    describe_time,
    describe_unnamed,
    longest_length,
    published_lines,
    summarise_classes,
)
from sdssm.files import describe_file_error, format_path, write_together
from sdssm.formatting import UNKNOWN, format_percent, format_symbols

SUMMARY, LANGUAGES, CLASSES, FAILURES = "summary.md", "languages.csv", "classes.csv", "failures.csv"
#: Measures with a number for each length.
MEASURES = ("uniform", "uniform_constant", "balanced", "balanced_constant", "covering", "covering_constant", "pairs")
#: Symbols of a misclassified string that the Markdown file shows.
SHOWN_SYMBOLS = 24
SOURCE = (
    'van der Poel et al., "MLRegTest: A Benchmark for the Machine Learning of Regular Languages", JMLR 25 (2024), '
    "arXiv 2304.07687"
)
NOT_FOUND = (
    "The paper reports simple RNNs, LSTMs, GRUs and transformers, trained on finite sets of labelled strings, and "
    "tested at lengths up to 50. Its numbers by class could not be looked up when this was written, so none stand here."
)


def split_parts(records: Sequence[LanguageRecord]) -> dict[str, list[LanguageRecord]]:
    """Return the held-out languages, those that were looked at, and those on which settings were chosen, apart."""
    parts: dict[str, list[LanguageRecord]] = {HELD_OUT: [], STUDIED: [], TUNING: []}
    for record in records:
        parts[part_of(record.name)].append(record)
    return parts


def table_rows(records: Sequence[LanguageRecord]) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows of the table by class and alphabet."""
    length = longest_length(records) if records else 0
    headers = [
        "class",
        "symbols",
        "languages",
        "states",
        f"accuracy {length}",
        "constant",
        f"balanced {length}",
        "chance",
        f"covering {length}",
        "constant ",
        f"pairs {length}",
        f"trained >={LEARNED:g}",
        f"balanced >={LEARNED:g}",
        f"covering >={LEARNED:g}",
        "proved equal",
        "and no error",
        "snapped",
    ]
    return headers, [_cells(row) for row in summarise_classes(records)]


def _cells(row: ClassSummary) -> list[str]:
    scores = [row.uniform, row.uniform_constant, row.balanced, row.balanced_constant]
    scores += [row.covering, row.covering_constant]
    shares = [row.trained_share, row.balanced_share, row.covering_share, row.equal_share]
    shares += [row.followed_share, row.snapped_share]
    return [
        row.kind,
        row.symbols,
        str(row.languages),
        f"{row.states:g}",
        *map(format_percent, scores),
        format_percent(row.pairs),
        *(f"{value:.1f}" for value in shares),
    ]


TABLE_NOTE = (
    "States: the median. "
    "Means over languages in percent, at the longest length: accuracy on uniform strings beside the best constant "
    "answer; balanced (both labels equally often) beside chance; covering (last transition uniform over states and "
    "symbols) beside the best constant answer; pairs of strings at edit distance 1 with different labels, both "
    "classified correctly (a constant answer: 0). Then shares of languages in percent: balanced accuracy of at least "
    "99.9 at training lengths, at the longest length, covering accuracy there, the automaton read from the weights "
    "proved equal to that of the language; also not one error of the model on the test strings of all lengths; equal, "
    "and the trained matrices proved exact at every length if the state is moved to the nearest prototype after every "
    "symbol (snapped)."
)


def write_results(
    records: Sequence[LanguageRecord], folder: Path, *, command: str, settings: Mapping[str, Any]
) -> None:
    """Write the summary and the tables of all records into a results folder."""
    ordered = sorted(records, key=lambda record: record.name)
    texts = {
        SUMMARY: _summary(ordered, command, settings),
        LANGUAGES: _to_csv([_language_line(record) for record in ordered]),
        CLASSES: _to_csv(
            [
                {"languages chosen": part, **asdict(row)}
                for part, group in split_parts(ordered).items()
                for row in summarise_classes(group)
            ]
        ),
        FAILURES: _to_csv([_failure_line(record) for record in ordered if record.reason is not None], FAILURE_COLUMNS),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_together({folder / name: text.encode() for name, text in texts.items()})
    except (OSError, ValueError) as error:
        raise OutputError(f"cannot write into {format_path(folder)}: {describe_file_error(error)}") from None


def _summary(records: Sequence[LanguageRecord], command: str, settings: Mapping[str, Any]) -> str:
    parts = split_parts(records)
    lines = ["# MLRegTest", "", f"    {command}", ""]
    devices = ", ".join(dict.fromkeys(record.device for record in records)) or UNKNOWN
    values = ", ".join([f"preset {PRESET}", *(f"{name}={value}" for name, value in settings.items())])
    seconds = sum(record.device_seconds for record in records)
    steps = ", ".join(f"{count:,}" for count in sorted({record.steps for record in records}))
    proving = fmean(record.proof_seconds for record in records) if records else 0.0
    lines += [
        f"One configuration for every language, one seed. Settings: {values}. {steps} steps, {devices}; "
        f"{seconds:.0f} s of training and measuring in all, {proving:.1f} s of one core for a proof on average.",
        "",
        f"Automata: {SOURCE}. Settings were chosen on {len(tuning_names())} languages at training lengths (`tuning`). "
        "Others were looked at, at test lengths too, while the loss was found (`studied`); the rest is held out.",
        "",
    ]
    for name, group in parts.items():
        lines += [f"- {line}" for line in describe_targets(group, name)]
        lines += [f"- {line}" for line in describe_unnamed(group) if name == HELD_OUT]
    lines.append(f"- {describe_time(records)}")
    for name, group in parts.items():
        if group:
            lines += ["", f"## {name.capitalize()} languages", "", *_markdown(*table_rows(group)), "", TABLE_NOTE]
    lines += ["", "## Published results", "", *_published()]
    failed = [record for record in records if record.reason is not None]
    lines += ["", "## Languages that failed", ""]
    lines += [f"- {count}: {reason}" for reason, count in count_reasons(records)] or ["None."]
    if failed:
        headers = ["language", "states", "balanced", "covering", "reason", "shortest misclassified string (length)"]
        lines += ["", *_markdown(headers, [_failure_cells(record) for record in failed])]
    return "\n".join(lines) + "\n"


def _published() -> list[str]:
    lines = published_lines()
    if not lines:
        return [f"{SOURCE}. {NOT_FOUND}"]
    headers = list(lines[0])
    return _markdown(headers, [[line[name] for name in headers] for line in lines])


def _failure_cells(record: LanguageRecord) -> list[str]:
    word = record.string
    text = UNKNOWN if word is None else f"`{format_symbols(word, SHOWN_SYMBOLS)}` ({_length(record)})"
    scores = [format_percent(record.balanced[-1]), format_percent(record.covering[-1])]
    return [record.name, str(record.states), *scores, (record.reason or "").replace("|", "/"), text.replace("|", "\\|")]


def _length(record: LanguageRecord) -> str:
    """Return the length of the misclassified string, with a mark if shorter ones may exist."""
    return UNKNOWN if record.string is None else f"{'' if record.is_shortest else '<= '}{len(record.string)}"


def _markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (headers, ["---"] * len(headers), *rows)]


FAILURE_COLUMNS = (
    "language",
    "class",
    "symbols",
    "states",
    "reason",
    "train_accuracy",
    "balanced",
    "covering",
    "verdict",
    "string_length",
    "string",
    "is_shortest",
    "note",
)


def _failure_line(record: LanguageRecord) -> dict[str, Any]:
    word = record.string
    values = (
        record.name,
        record.kind,
        record.symbols,
        record.states,
        record.reason,
        record.train_accuracy,
        record.balanced[-1],
        record.covering[-1],
        record.verdict,
        None if word is None else len(word),
        None if word is None else " ".join(word),
        record.is_shortest,
        record.proof_note,
    )
    return dict(zip(FAILURE_COLUMNS, values, strict=True))


def _language_line(record: LanguageRecord) -> dict[str, Any]:
    """Return a record with one column for each measure and length."""
    values = asdict(record)
    name = parse_name(record.name)
    line: dict[str, Any] = {"language": record.name, "class": name.kind, "tier": name.tier, "k": name.k, "t": name.t}
    line["chosen"] = part_of(record.name)
    for key, value in values.items():
        if key in MEASURES or key == "n_pairs":
            line |= {f"{key}_{length}": score for length, score in zip(record.lengths, value, strict=True)}
        elif key not in ("name", "lengths", "fingerprint"):
            line[key] = " ".join(value) if isinstance(value, tuple) else value
    line["reason"] = record.reason
    return line


def _to_csv(lines: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    names = list(dict.fromkeys([*columns, *(name for line in lines for name in line)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
