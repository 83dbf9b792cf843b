"""The experiment of a sweep that is named on a command line: one model, some tasks, and where to look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, get_args

from sdssm.errors import SettingsError, format_value
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.search_space import Range
from sdssm.experiments.specs.spec import CHOICES, Asked, Row, Spec
from sdssm.experiments.sweeps.search import Search
from sdssm.models import DEFAULT_MODEL, default_preset
from sdssm.runs import folder_name
from sdssm.runs.schema import resolve, setting_names
from sdssm.settings import check_at_least, check_one_of
from sdssm.tasks import get_task as named_task
from sdssm.training.planning import checked_seeds

#: Digits of the fingerprint in the name of a results folder.
DIGITS = 6


def sweep_spec(
    tasks: Sequence[str],
    *,
    model: str = DEFAULT_MODEL,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    choices: Mapping[str, Sequence[Any]] | None = None,
    ranges: Mapping[str, str | Range] | None = None,
    search: Search | None = None,
    seeds: int | Sequence[int] = 1,
    select: str = "within",
    max_length: int | None = None,
    budget: float = 1.0,
    name: str | None = None,
) -> Spec:
    """An experiment with one row. A range is written as 1e-5..1e-2, and draws whole numbers for a setting that is one.

    Without a name it is called sweep-TASK-MODEL-FINGERPRINT: another search has another results folder, and the same
    one with more trials, parallel or not, the same. Values of Optuna's trials hang on budget and seeds, and so does
    its name.

    >>> spec = sweep_spec(["a5"], model="mamba", choices={"lr": [1e-4, 1e-3], "weight_decay": [0, 1e-4]}, seeds=3)
    >>> spec.name[:15], [len(list(row.variants())) for row in spec.rows], spec.choose
    ('sweep-a5-mamba-', [4], 'within')
    """
    search = search or Search()
    check_one_of("select", select, CHOICES)
    if max_length is not None:
        check_at_least("max_length", max_length, 1)
    named = default_preset(model) if preset is None else preset
    row = Row(
        model=model,
        label=model,
        tasks=_tasks(tasks),
        preset=named,
        seeds=tuple(checked_seeds(seeds)),
        settings=dict(settings or {}),
        grid={setting: _values(setting, values) for setting, values in (choices or {}).items()},
    )
    row = replace(row, ranges=_ranges(row, ranges or {}))
    digest = _digest(row, search, select, max_length, budget)
    where = "+".join(map(folder_name, row.tasks))
    how = {"grid": "a grid", "random": f"{search.trials} at random", "optuna": f"{search.trials} by Optuna"}
    return Spec(
        name=f"sweep-{where}-{model}-{digest}" if name is None else checked_name(name),
        title=f"{model} on {', '.join(row.tasks)}: the best of {how[search.kind]}",
        source=f"sweep {digest}",
        choose=select,
        rows=(row,),
        evaluate=Asked(max_length=max_length),
    )


def _digest(row: Row, search: Search, select: str, max_length: int | None, budget: float) -> str:
    """The same for the same search."""
    ranges = {setting: asdict(of) for setting, of in row.ranges.items()}
    told: list[Any] = [row.tasks, row.model, row.preset, row.settings, row.grid, ranges]
    told += [search.kind, search.seed, select, max_length]
    told += [budget, row.seeds, search.kept, search.compared_at] if search.kind == "optuna" else []
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:DIGITS]


def checked_name(name: str) -> str:
    """What a results folder can be called."""
    if not name or folder_name(name) != name:
        raise SettingsError(f"the name is {format_value(name)}; it names a folder: use letters, digits, - and _")
    return name


def _values(setting: str, values: Sequence[Any]) -> list[Any]:
    found = list(values)
    twice = [one for k, one in enumerate(found) if one in found[:k]]
    if twice or not found:
        what = (
            f"holds {format_value(twice[0])} twice; keep one of them"
            if twice
            else "is empty; give values, as 1e-4,1e-3"
        )
        raise SpecError(f"the list of {setting} {what}")
    return found


def _tasks(tasks: Sequence[str]) -> tuple[str, ...]:
    """As the library spells them, each once."""
    known = tuple(named_task(one).name for one in tasks)
    twice = [one for k, one in enumerate(known) if one in known[:k]]
    if not known or twice:
        raise SpecError(f"{twice[0]} is given twice; keep one" if twice else "no task was given; name one, as a5")
    return known


def _ranges(row: Row, given: Mapping[str, str | Range]) -> dict[str, Range]:
    """The ranges of a row that has all else; what it searches is set in one way alone."""
    kinds = {
        setting: kind for setting, (_, kind) in setting_names(resolve(row.model, row.preset, row.tasks[0])).items()
    }
    found = {setting: _range(setting, of, kinds.get(setting)) for setting, of in given.items()}
    for setting in [*row.grid, *found]:
        if setting in row.settings or (setting in row.grid and setting in found):
            raise SpecError(f"{setting} is set twice; keep one of its values, its list and its range")
    return found


def _range(setting: str, of: str | Range, kind: Any) -> Range:
    """With whole numbers where the setting is one."""
    if isinstance(of, Range):
        return of
    whole = kind is int or (int in get_args(kind) and float not in get_args(kind))
    return Range.read(setting, of, whole=whole)
