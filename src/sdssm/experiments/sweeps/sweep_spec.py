"""The experiment of a sweep: one model, some tasks and a search space."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, get_args

from sdssm.errors import SettingsError, format_value
from sdssm.experiments.specs.scores import SpecError, default_scores
from sdssm.experiments.specs.search_space import Range
from sdssm.experiments.specs.spec import CHOICES, EvaluationSpec, Row, Spec
from sdssm.experiments.sweeps.search import Search
from sdssm.models import DEFAULT_MODEL, default_preset
from sdssm.models.registry import find_entry
from sdssm.runs import folder_name
from sdssm.runs.schema import resolve_settings, setting_names
from sdssm.settings import check_one_of
from sdssm.tasks.library import spell_task
from sdssm.training.planning import expand_seeds

#: Hexadecimal digits of the hash in the name of a results folder.
DIGITS = 6


def make_sweep_spec(
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
    """Return an experiment with one row, to be searched by a `Sweep`.

    Args:
        tasks: the columns of the table.
        model: what is trained, as for `sdssm.train`.
        preset: of the training; by default that of the model, whatever the task.
        settings: of the training, those that are not searched.
        choices: values to try, by setting.
        ranges: ranges to sample from, by setting, such as 1e-5..1e-2; integers for a setting that is an integer.
        search: how candidates are chosen.
        seeds: how many, or which.
        select: choose the best candidate by accuracy at training lengths ("within"; by balanced accuracy if tasks are
            not those of the paper) or by its score ("score").
        max_length: the longest test strings; None: those of the task.
        budget: multiplies the steps.
        name: the results folder. By default sweep-TASK-MODEL-HASH: a different search has a different hash, and the
            same search with more trials the same. For Optuna the hash covers budget and seeds too.

    >>> spec = make_sweep_spec(["a5"], model="mamba", choices={"lr": [1e-4, 1e-3], "weight_decay": [0, 1e-4]}, seeds=3)
    >>> spec.name[:15], [len(list(row.variants())) for row in spec.rows], spec.choose
    ('sweep-a5-mamba-', [4], 'within')
    """
    search = search or Search()
    check_one_of("select", select, CHOICES)
    model = find_entry(model).name  # an import path is registered under its name
    row = Row(
        model=model,
        label=model,
        tasks=_check_tasks(tasks),
        preset=default_preset(model) if preset is None else preset,
        seeds=tuple(expand_seeds(seeds)),
        settings=dict(settings or {}),
        grid={setting: _check_values(setting, values) for setting, values in (choices or {}).items()},
    )
    row = replace(row, ranges=_parse_ranges(row, ranges or {}))
    digest = _digest(row, search, select, max_length, budget)
    task_names = "+".join(map(folder_name, row.tasks))
    methods = {"grid": "a grid", "random": f"{search.trials} at random", "optuna": f"{search.trials} by Optuna"}
    return Spec(
        name=f"sweep-{task_names}-{folder_name(model)}-{digest}" if name is None else check_results_name(name),
        title=f"{model} on {', '.join(row.tasks)}: the best of {methods[search.kind]}",
        source=f"sweep {digest}",
        choose=select,
        rows=(row,),
        evaluate=EvaluationSpec(max_length=max_length, scores=default_scores(row.tasks)),
    )


def _digest(row: Row, search: Search, select: str, max_length: int | None, budget: float) -> str:
    """Return a hash of everything that makes one search different from another."""
    ranges = {setting: asdict(bounds) for setting, bounds in row.ranges.items()}
    identity: list[Any] = [row.tasks, row.model, row.preset, row.settings, row.grid, ranges]
    identity += [search.kind, search.seed, select, max_length]
    identity += [budget, row.seeds, search.kept_share, search.compared_at] if search.kind == "optuna" else []
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:DIGITS]


def check_results_name(name: str) -> str:
    """Return the name of a results folder, or raise `SettingsError` if no folder can have it."""
    if not name or folder_name(name) != name:
        raise SettingsError(f"the name is {format_value(name)}; it names a folder: use letters, digits, - and _")
    return name


def _check_values(setting: str, values: Sequence[Any]) -> list[Any]:
    values = list(values)
    duplicates = [value for k, value in enumerate(values) if value in values[:k]]
    if duplicates:
        raise SpecError(f"the list of {setting} has {format_value(duplicates[0])} twice; remove one of them")
    if not values:
        raise SpecError(f"the list of {setting} is empty; give values, such as 1e-4,1e-3")
    return values


def _check_tasks(tasks: Sequence[str]) -> tuple[str, ...]:
    """Return the names as the task library spells them."""
    names = tuple(map(spell_task, tasks))
    duplicates = [name for k, name in enumerate(names) if name in names[:k]]
    if duplicates:
        raise SpecError(f"the task {duplicates[0]} is given twice; remove one of them")
    if not names:
        raise SpecError("no task is given; name one, such as a5")
    return names


def _parse_ranges(row: Row, ranges: Mapping[str, str | Range]) -> dict[str, Range]:
    """Parse the ranges for a row that has everything else, and check that no setting is given twice."""
    types = {
        name: kind for name, (_, kind) in setting_names(resolve_settings(row.model, row.preset, row.tasks[0])).items()
    }
    parsed = {setting: _parse_range(setting, value, types.get(setting)) for setting, value in ranges.items()}
    for setting in [*row.grid, *parsed]:
        if setting in row.settings or (setting in row.grid and setting in parsed):
            raise SpecError(f"{setting} is set twice; keep one of its value, its list and its range")
    return parsed


def _parse_range(setting: str, value: str | Range, kind: Any) -> Range:
    """Parse a range, of integers if the type of the setting is an integer."""
    if isinstance(value, Range):
        return value
    whole = kind is int or (int in get_args(kind) and float not in get_args(kind))
    return Range.parse(setting, value, whole=whole)
