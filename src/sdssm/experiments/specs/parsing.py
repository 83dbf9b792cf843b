"""Experiments from TOML files: valid, or one line on what is wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdssm.errors import SdssmError, did_you_mean, format_value
from sdssm.experiments.specs.scores import Score, SpecError
from sdssm.experiments.specs.spec import CHOICES, FIGURES, KINDS, Asked, Claim, Row, Spec, Timing
from sdssm.files import describe_file_error, format_path
from sdssm.models import MODELS, PRESETS, default_preset
from sdssm.runs import folder_name
from sdssm.settings import build_settings
from sdssm.tasks import get_task as named_task
from sdssm.training.planning import checked_seeds

_TOP = (
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
_ROW = ("model", "label", "column", "preset", "settings", "grid", "tasks", "seeds", "score")
_ASKED = ("max_length", "fresh", "strings", "lengths", "scores")
_TABLE = ("corner", "choose")
_TIMING = ("lengths", "batch", "state", "dictionary", "seconds")
_CLAIM = ("id", "spec", "rows", "columns", "figure", "note")


def read_spec(path: Path) -> Spec:
    """The experiment of a user's own TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SpecError(
            f"cannot read {format_path(path)}: {describe_file_error(error)}; give the path of a TOML file"
        ) from None
    return parse_spec(text, source=path.name, folder=path.parent)


def parse_spec(text: str, *, source: str, folder: Path | None = None) -> Spec:
    """The experiment that a TOML text describes.

    >>> text = 'name = "mine"\\n[[rows]]\\nmodel = "lstm"\\ntasks = ["parity"]\\nseeds = 2'
    >>> spec = parse_spec(text, source="mine.toml")
    >>> spec.cells(), spec.rows[0].preset, spec.rows[0].seeds
    ([('lstm', 'parity')], 'default', (0, 1))
    """
    try:
        return _spec(tomllib.loads(text), source, folder)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{source} is not TOML: {' '.join(str(error).split())}") from None
    except SdssmError as error:
        raise SpecError(f"{source}: {error}") from None


def _spec(data: Mapping[str, Any], source: str, folder: Path | None) -> Spec:
    _known("the spec", data, _TOP)
    name = _typed("name", data.get("name"), str)
    if folder_name(name) != name:
        raise SpecError(f"name is {format_value(name)}; it names a folder: use letters, digits, - and _")
    kind = _one_of("kind", data.get("kind", "accuracy"), KINDS)
    table = _part("table", data.get("table", {}), _TABLE)
    part = {"accuracy": "rows", "claims": "claims"}.get(kind)
    for other in ("rows", "claims", "timing"):
        if other in data and other != (part or kind):
            raise SpecError(f"a spec of kind {kind} has no {other}; leave them out or change the kind")
    if part is not None and not data.get(part):
        raise SpecError(f"a spec of kind {kind} needs at least one [[{part}]]; there is none")
    rows = tuple(_row(one, data) for one in _tables("rows", data))
    asked = _asked(_part("evaluate", data.get("evaluate", {}), _ASKED))
    for row in rows:
        if row.score is not None and row.score not in [score.name for score in asked.scores]:
            raise SpecError(f"row {row.label!r} has score {row.score!r}, which [evaluate] does not list in scores")
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
        evaluate=asked,
        timing=_timing(_part("timing", data.get("timing", {}), _TIMING)),
        claims=tuple(_claim(one) for one in _tables("claims", data)),
    )


def _row(one: Mapping[str, Any], data: Mapping[str, Any]) -> Row:
    _known("a row", one, _ROW)
    model = _named("model", one.get("model"), MODELS)
    label = _typed("label", one.get("label", model), str)
    preset = _named("preset", one.get("preset", data.get("preset", default_preset(model))), PRESETS)
    names = _strings(f"tasks of row {label!r}", one.get("tasks", data.get("tasks")))
    column = one.get("column")
    if column is not None and len(names) > 1:
        raise SpecError(f"row {label!r} has one column and {len(names)} tasks; give it one task, or no column")
    grid = _typed("grid", one.get("grid", {}), dict)
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise SpecError(
                f"grid {name} of row {label!r} is {format_value(values)}; give a list of values, as [1e-4, 1e-3]"
            )
    settings = _typed("settings", one.get("settings", {}), dict)
    twice = [name for name in settings if name in grid]
    if twice:
        raise SpecError(f"row {label!r} has {twice[0]} in settings and in its grid; keep one of them")
    score = one.get("score")
    return Row(
        model=model,
        label=label,
        tasks=tuple(named_task(name).name for name in names),
        preset=preset,
        seeds=tuple(checked_seeds(one.get("seeds", data.get("seeds", 3)))),
        column=None if column is None else _typed("column", column, str),
        score=None if score is None else Score(_typed("score", score, str)).name,
        settings=_none(settings),
        grid={name: [None if value == "none" else value for value in values] for name, values in grid.items()},
    )


def _none(settings: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no null: the word stands for it."""
    return {name: None if value == "none" else value for name, value in settings.items()}


def _asked(data: dict[str, Any]) -> Asked:
    scores = _strings("scores", data.get("scores", ["all", "beyond"]))
    values = {name: value for name, value in data.items() if name in ("max_length", "fresh", "strings")}
    lengths = _wholes("lengths", data.get("lengths", []))
    plain = build_settings(_Plain, values)
    far = [score for score in map(Score, scores) if score.named is not None]
    for score in far:
        if score.named not in lengths:
            raise SpecError(f"the score {score.name!r} needs {score.named} among the lengths of [evaluate]")
    return Asked(
        max_length=plain.max_length,
        fresh=plain.fresh,
        strings=plain.strings,
        lengths=lengths,
        scores=tuple(map(Score, scores)),
    )


@dataclass(frozen=True, kw_only=True)
class _Plain:
    max_length: int | None = None
    fresh: bool = False
    strings: int = 512


def _timing(data: dict[str, Any]) -> Timing:
    lengths = _wholes("lengths", data.get("lengths", list(Timing.lengths)))
    rest = {name: _typed(name, value, int | float) for name, value in data.items() if name != "lengths"}
    if any(not value > 0 for value in rest.values()) or not lengths:
        raise SpecError("a value of [timing] is not above 0, or there are no lengths; every one must be")
    return Timing(lengths=lengths, **rest)


def _claim(one: Mapping[str, Any]) -> Claim:
    _known("a claim", one, _CLAIM)
    spec = one.get("spec")
    return Claim(
        id=_typed("id", one.get("id"), str),
        spec=None if spec is None else _typed("spec", spec, str),
        rows=_strings("rows", one["rows"]) if "rows" in one else (),
        columns=_strings("columns", one["columns"]) if "columns" in one else (),
        figure=_one_of("figure", one.get("figure", "max"), FIGURES),
        note=_typed("note", one.get("note", ""), str),
    )


def _check_cells(rows: Sequence[Row]) -> None:
    seen: set[tuple[str, str]] = set()
    for row in rows:
        for task in row.tasks:
            cell = (row.label, row.column_of(task))
            if cell in seen:
                raise SpecError(f"two rows are called {row.label!r} and stand in column {cell[1]!r}; give other labels")
            seen.add(cell)


# -- single values -----------------------------------------------------------------------------------------------------


def _known(what: str, data: Any, known: Sequence[str]) -> None:
    if not isinstance(data, Mapping):
        raise SpecError(f"{what} is {format_value(data)}; it must be a table of TOML")
    for key in data:
        if key not in known:
            raise SpecError(f"{what} has no key {key!r}; {did_you_mean(key, known)}")


def _part(name: str, data: Any, known: Sequence[str]) -> dict[str, Any]:
    _known(f"[{name}]", data, known)
    return dict(data)


def _tables(name: str, data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = data.get(name, [])
    if not isinstance(found, list):
        raise SpecError(f"{name} is {format_value(found)}; write [[{name}]] above each")
    return found


def _typed(name: str, value: Any, wanted: Any) -> Any:
    if not isinstance(value, wanted) or isinstance(value, bool):
        words = {str: "a text in quotes", dict: "a table, as {lr = 1e-4}"}.get(wanted, "a number")
        raise SpecError(
            f"{name} is missing; give {words}" if value is None else f"{name} is {format_value(value)}; give {words}"
        )
    if wanted is str and not value.isprintable():
        raise SpecError(
            f"{name} is {format_value(value)}; it stands in tables: use letters that can be printed, on one line"
        )
    return value


def _strings(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise SpecError(f'{name} are {format_value(value)}; give a list of texts, as ["a5"]')
    if len(set(value)) != len(value):
        raise SpecError(f"{name} hold one of them twice: {format_value(value)}; keep one")
    return tuple(value)


def _wholes(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int and one >= 1 for one in value):
        raise SpecError(f"{name} are {format_value(value)}; give a list of whole numbers from 1 on, as [500, 5000]")
    return tuple(sorted(set(value)))


def _one_of(name: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise SpecError(f"{name} is {format_value(value)}; {did_you_mean(str(value), known)}")
    return str(value)


def _named(name: str, value: Any, known: Sequence[str] | Mapping[str, Any]) -> str:
    if not isinstance(value, str):
        raise SpecError(f"{name} of a row is {format_value(value)}; give a name in quotes")
    if value not in known:
        raise SpecError(f"there is no {name} {value!r}; {did_you_mean(value, list(known))}")
    return value
