"""Parsing and validation of experiments in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sdssm.errors import SdssmError, did_you_mean, format_value
from sdssm.experiments.specs.scores import Score, SpecError, default_scores
from sdssm.experiments.specs.spec import (
    AUTO_PRESET,
    CHOICES,
    DEFAULT_SEEDS,
    FIGURES,
    KINDS,
    Claim,
    EvaluationSpec,
    Row,
    Spec,
    TimingSpec,
)
from sdssm.files import describe_file_error, format_path
from sdssm.models import PRESETS
from sdssm.models.registry import find_entry
from sdssm.runs import folder_name
from sdssm.settings import build_settings
from sdssm.tasks.library import spell_task
from sdssm.training.planning import expand_seeds

_SPEC_KEYS = (
    "name",
    "title",
    "kind",
    "published",
    "tasks",
    "seeds",
    "preset",
    "rows",
    "evaluate",
    "table",
    "timing",
    "claims",
)
_ROW_KEYS = ("model", "label", "column", "preset", "settings", "grid", "tasks", "seeds", "score")
_EVALUATE_KEYS = ("max_length", "fresh", "strings", "lengths", "scores")
_TABLE_KEYS = ("corner", "choose")
_TIMING_KEYS = ("lengths", "batch", "state", "dictionary", "seconds")
_CLAIM_KEYS = ("id", "spec", "rows", "columns", "figure", "note")


def read_spec(path: Path) -> Spec:
    """Read an experiment from a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = describe_file_error(error)
        advice = "" if reason.endswith("?") else "; give the path of a TOML file"
        raise SpecError(f"cannot read {format_path(path)}: {reason}{advice}") from None
    return parse_spec(text, source=path.name, folder=path.parent)


def parse_spec(text: str, *, source: str, folder: Path | None = None) -> Spec:
    """Parse an experiment from TOML text.

    `source` names the file in error messages, and `folder` is where a published CSV file is looked for.

    >>> text = 'name = "mine"\\n[[rows]]\\nmodel = "lstm"\\ntasks = ["parity"]\\nseeds = 2'
    >>> spec = parse_spec(text, source="mine.toml")
    >>> spec.cells(), spec.rows[0].preset, spec.rows[0].seeds
    ([('lstm', 'parity')], 'auto', (0, 1))
    """
    try:
        return _parse_spec(tomllib.loads(text), source, folder)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{source} is not TOML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise SpecError(f"{source} is nested too deeply; an experiment has tables in lists, and no more") from None
    except SdssmError as error:
        raise SpecError(f"{source}: {error}") from None
    except ValueError:  # Python refuses to read integers of thousands of digits
        raise SpecError(f"{source} has a number that is too long; write it with fewer digits") from None


def _parse_spec(data: Mapping[str, Any], source: str, folder: Path | None) -> Spec:
    _check_keys("the spec", data, _SPEC_KEYS)
    name = _typed("name", data.get("name"), str)
    if folder_name(name) != name:
        raise SpecError(f"name is {format_value(name)}; it names a folder: use letters, digits, - and _")
    kind = _one_of("kind", data.get("kind", "accuracy"), KINDS)
    table = _section("table", data.get("table", {}), _TABLE_KEYS)
    required = {"accuracy": "rows", "claims": "claims"}.get(kind)
    for other in ("rows", "claims", "timing"):
        if other in data and other != (required or kind):
            raise SpecError(f"a spec of kind {kind} has no {other}; remove {other}, or change the kind")
    if required is not None and not data.get(required):
        raise SpecError(f"a spec of kind {kind} needs at least one [[{required}]], got none")
    rows = tuple(_parse_row(row, data) for row in _tables("rows", data))
    tasks = [task for row in rows for task in row.tasks]
    evaluation = _parse_evaluation(_section("evaluate", data.get("evaluate", {}), _EVALUATE_KEYS), tasks)
    for row in rows:
        if row.score is not None and row.score not in [score.name for score in evaluation.scores]:
            raise SpecError(
                f"row {row.label!r} has score {row.score!r}, which [evaluate] does not list; add it to scores"
            )
    _check_cells(rows)
    published = data.get("published")
    return Spec(
        name=name,
        title=_typed("title", data.get("title", name), str),
        source=source,
        kind=kind,
        corner=_typed("corner", table.get("corner", "model"), str),
        choose=_one_of("choose", table.get("choose", "within"), CHOICES),
        published=None if published is None else _typed("published", published, str),
        folder=folder,
        rows=rows,
        evaluate=evaluation,
        timing=_parse_timing(_section("timing", data.get("timing", {}), _TIMING_KEYS)),
        claims=tuple(_parse_claim(claim) for claim in _tables("claims", data)),
    )


def _parse_row(table: Mapping[str, Any], data: Mapping[str, Any]) -> Row:
    """Parse one [[rows]] table. Tasks, seeds and preset default to the values of the whole spec `data`."""
    _check_keys("a row", table, _ROW_KEYS)
    model = _find_model(table.get("model"))
    label = _typed("label", table.get("label", model), str)
    preset = _known_name("preset", table.get("preset", data.get("preset", AUTO_PRESET)), [AUTO_PRESET, *PRESETS])
    names = _strings(f"tasks of row {label!r}", table.get("tasks", data.get("tasks")))
    column = table.get("column")
    if column is not None and len(names) > 1:
        raise SpecError(f"row {label!r} has one column and {len(names)} tasks; give it one task, or no column")
    grid = _typed("grid", table.get("grid", {}), dict)
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise SpecError(
                f"grid {name} of row {label!r} is {format_value(values)}; give a list of values, such as [1e-4, 1e-3]"
            )
    settings = _typed("settings", table.get("settings", {}), dict)
    duplicates = [name for name in settings if name in grid]
    if duplicates:
        raise SpecError(f"row {label!r} has {duplicates[0]} in settings and in its grid; keep one of them")
    score = table.get("score")
    return Row(
        model=model,
        label=label,
        tasks=tuple(map(spell_task, names)),
        preset=preset,
        seeds=tuple(expand_seeds(table.get("seeds", data.get("seeds", DEFAULT_SEEDS)))),
        column=None if column is None else _typed("column", column, str),
        score=None if score is None else Score(_typed("score", score, str)).name,
        settings={name: _decode_none(value) for name, value in settings.items()},
        grid={name: [_decode_none(value) for value in values] for name, values in grid.items()},
    )


def _find_model(value: Any) -> str:
    """Return the name of a row's model; an import path is imported, as the user of the experiment asks for it."""
    if not isinstance(value, str):
        raise SpecError(f"model of a row is {format_value(value)}; give a name in quotes")
    return find_entry(value).name


def _decode_none(value: Any) -> Any:
    """Replace the text "none" by None: TOML has no null."""
    return None if value == "none" else value


def _parse_evaluation(data: dict[str, Any], tasks: Sequence[str]) -> EvaluationSpec:
    scores = _strings("scores", data.get("scores", [score.name for score in default_scores(tasks)]))
    lengths = _positive_integers("lengths", data.get("lengths", []))
    for score in map(Score, scores):
        if score.listed_length is not None and score.listed_length not in lengths:
            raise SpecError(
                f"the score {score.name!r} needs {score.listed_length} among the lengths of [evaluate]; add it"
            )
    plain = {name: value for name, value in data.items() if name in ("max_length", "fresh", "strings")}
    return replace(build_settings(EvaluationSpec, plain), lengths=lengths, scores=tuple(map(Score, scores)))


def _parse_timing(data: dict[str, Any]) -> TimingSpec:
    lengths = _positive_integers("lengths", data.get("lengths", list(TimingSpec.lengths)))
    sizes = {name: _typed(name, value, int | float) for name, value in data.items() if name != "lengths"}
    if any(not value > 0 for value in sizes.values()) or not lengths:
        raise SpecError("[timing] has no lengths, or a value that is not above 0; give at least one length")
    return TimingSpec(lengths=lengths, **sizes)


def _parse_claim(table: Mapping[str, Any]) -> Claim:
    _check_keys("a claim", table, _CLAIM_KEYS)
    spec = table.get("spec")
    return Claim(
        id=_typed("id", table.get("id"), str),
        spec=None if spec is None else _typed("spec", spec, str),
        rows=_strings("rows", table["rows"]) if "rows" in table else (),
        columns=_strings("columns", table["columns"]) if "columns" in table else (),
        figure=_one_of("figure", table.get("figure", "max"), FIGURES),
        note=_typed("note", table.get("note", ""), str),
    )


def _check_cells(rows: Sequence[Row]) -> None:
    seen: set[tuple[str, str]] = set()
    for row in rows:
        for task in row.tasks:
            cell = (row.label, row.column_of(task))
            if cell in seen:
                raise SpecError(f"two rows {row.label!r} have the column {cell[1]!r}; give one of them another label")
            seen.add(cell)


# -- single values -----------------------------------------------------------------------------------------------------


def _check_keys(subject: str, data: Any, known: Sequence[str]) -> None:
    if not isinstance(data, Mapping):
        raise SpecError(f"{subject} is {format_value(data)}; it must be a table of TOML")
    for key in data:
        if key not in known:
            raise SpecError(f"{subject} has no key {key!r}; {did_you_mean(key, known)}")


def _section(name: str, data: Any, known: Sequence[str]) -> dict[str, Any]:
    _check_keys(f"[{name}]", data, known)
    return dict(data)


def _tables(name: str, data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    tables = data.get(name, [])
    if not isinstance(tables, list):
        raise SpecError(f"{name} is {format_value(tables)}; write [[{name}]] above each")
    return tables


def _typed(name: str, value: Any, expected: Any) -> Any:
    if not isinstance(value, expected) or isinstance(value, bool):
        words = {str: "a text in quotes", dict: "a table, as {lr = 1e-4}"}.get(expected, "a number")
        raise SpecError(
            f"{name} is missing; give {words}" if value is None else f"{name} is {format_value(value)}; give {words}"
        )
    if expected is str and not value.isprintable():
        raise SpecError(f"{name} is {format_value(value)}; tables show it: use printable characters on one line")
    return value


def _strings(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise SpecError(f'{name} are {format_value(value)}; give a list of texts, such as ["a5"]')
    if len(set(value)) != len(value):
        raise SpecError(f"{name} contain a duplicate: {format_value(value)}; remove it")
    return tuple(value)


def _positive_integers(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int and item >= 1 for item in value):
        raise SpecError(f"{name} are {format_value(value)}; give a list of integers of at least 1, such as [500, 5000]")
    return tuple(sorted(set(value)))


def _one_of(name: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise SpecError(f"{name} is {format_value(value)}; {did_you_mean(str(value), known)}")
    return str(value)


def _known_name(name: str, value: Any, known: Sequence[str] | Mapping[str, Any]) -> str:
    if not isinstance(value, str):
        raise SpecError(f"{name} of a row is {format_value(value)}; give a name in quotes")
    if value not in known:
        raise SpecError(f"there is no {name} {value!r}; {did_you_mean(value, list(known))}")
    return value
