"""The experiment of a sweep that is named on a command line: one model, some tasks, and where to look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

from sdssm.errors import SettingsError, shown
from sdssm.experiments.scores import SpecError
from sdssm.experiments.search import Search
from sdssm.experiments.space import Range
from sdssm.experiments.spec import CHOICES, Asked, Row, Spec
from sdssm.models import DEFAULT_MODEL, default_preset
from sdssm.runs import folder_name
from sdssm.runs.schema import resolve, setting_names
from sdssm.settings import at_least, one_of
from sdssm.tasks import task as named_task
from sdssm.train.planning import checked_seeds

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
    known = [named_task(one).name for one in tasks]
    twice = [one for k, one in enumerate(known) if one in known[:k]]
    if not known or twice:
        raise SpecError(f"{twice[0]} is given twice; keep one" if twice else "no task was given; name one, as a5")
    one_of("select", select, CHOICES)
    if max_length is not None:
        at_least("max_length", max_length, 1)
    named = default_preset(model) if preset is None else preset
    numbers = tuple(checked_seeds(seeds))
    wanted = {setting: kind for setting, (_, kind) in setting_names(resolve(model, named, known[0])).items()}
    row = Row(
        model=model,
        label=model,
        tasks=tuple(known),
        preset=named,
        seeds=numbers,
        settings=dict(settings or {}),
        grid={setting: _values(setting, values) for setting, values in (choices or {}).items()},
        ranges={setting: _range(setting, of, wanted.get(setting)) for setting, of in (ranges or {}).items()},
    )
    for setting in [*row.grid, *row.ranges]:
        if setting in row.settings or (setting in row.grid and setting in row.ranges):
            raise SpecError(f"{setting} is set twice; keep one of its values, its list and its range")
    told: list[Any] = [known, model, named, row.settings, row.grid, {k: asdict(v) for k, v in row.ranges.items()}]
    told += [search.kind, search.seed, select, max_length]
    told += [budget, numbers, search.kept, search.rungs] if search.kind == "optuna" else []
    digest = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:DIGITS]
    called = f"sweep-{'+'.join(map(folder_name, known))}-{model}-{digest}" if name is None else checked_name(name)
    how = {"grid": "a grid", "random": f"{search.trials} at random", "optuna": f"{search.trials} by Optuna"}[
        search.kind
    ]
    return Spec(
        name=called,
        title=f"{model} on {', '.join(known)}: the best of {how}",
        source=f"sweep {digest}",
        choose=select,
        rows=(row,),
        evaluate=Asked(max_length=max_length),
    )


def checked_name(name: str) -> str:
    """What a results folder can be called."""
    if not name or folder_name(name) != name:
        raise SettingsError(f"the name is {shown(name)}; it names a folder: use letters, digits, - and _")
    return name


def _values(setting: str, values: Sequence[Any]) -> list[Any]:
    found = list(values)
    twice = [one for k, one in enumerate(found) if one in found[:k]]
    if twice or not found:
        what = f"holds {shown(twice[0])} twice; keep one of them" if twice else "is empty; give values, as 1e-4,1e-3"
        raise SpecError(f"the list of {setting} {what}")
    return found


def _range(setting: str, of: str | Range, kind: Any) -> Range:
    """With whole numbers where the setting is one."""
    if isinstance(of, Range):
        return of
    whole = kind is int or (int in get_args(kind) and float not in get_args(kind))
    return Range.read(setting, of, whole=whole)
