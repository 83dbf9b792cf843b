"""The results folder of an experiment: what was found, as JSON, and with which command, versions and device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sdssm.errors import OutputError
from sdssm.experiments.planning.plan import Plan
from sdssm.experiments.results.cells import KEYS, cells_of, chosen_runs, key_of, merged, records_of
from sdssm.experiments.results.ranking import divided, ranked, stopped_before
from sdssm.experiments.specs.spec import Spec
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.runs.events import finite
from sdssm.runs.schema import versions

SPEC, RESULTS = "spec.json", "results.json"


def check_results(spec: Spec, folder: Path) -> None:
    """Refuse a folder that another experiment filled, before anything is begun."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OutputError(f"{format_path(folder)} is a file; results go into a folder, choose another --results")
    made = read_json(folder / SPEC)
    if made is None:
        if any(folder.iterdir()):
            raise OutputError(f"{format_path(folder)} holds files of no experiment; choose another --results")
        return
    for name, value in _identity(spec).items():
        if made.get(name) != value:
            raise OutputError(
                f"{format_path(folder)} was made by another experiment ({name} {made.get(name)!r}, not {value!r}); "
                "choose another --results or remove it"
            )


def _identity(spec: Spec) -> dict[str, str]:
    return {"name": spec.name, "source": spec.source, "kind": spec.kind}


def write_results(
    plan: Plan, folder: Path, *, command: str, device: str, pruned: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Aggregate what a plan's runs came to, with what earlier commands left in the folder, and write it there.

    `device` is what it is called. `pruned` are the candidates of a search that stopped early: they fill no cell and
    are ranked behind the others. So are those that an earlier search left in cells that the plan does not train.
    """
    before, now = read_json(folder / RESULTS) or {}, records_of(plan)
    spec = plan.spec
    records = merged(plan, [record for record in before.get("runs", []) if set(record) >= KEYS], now)
    pruned = [*pruned, *stopped_before(plan, before.get("ranking", []), pruned)]
    counted, early = divided(plan, records, pruned)
    shown = [key_of(record) for record in chosen_runs(spec, counted)]
    for record in records:
        if key_of(record) not in shown:
            record["accuracy"] = None  # of a search the curves of its best are enough
    found = {
        **head(spec),
        "scores": [score.name for score in spec.evaluate.scores],
        "cells": cells_of(spec, counted),
        "shown": list(map(list, shown)),
        "runs": records,
    }
    if ranking := ranked(spec, counted, early):
        found["ranking"] = ranking
        for cell in found["cells"]:
            count = sum((one["row"], one["column"]) == (cell["row"], cell["column"]) for one in early)
            if count and cell["choice"]:
                cell["choice"] += f"; {count} more stopped early"
    save(spec, folder, found, command=command, device=device)
    return found


def head(spec: Spec) -> dict[str, Any]:
    """What every kind of results begins with."""
    cells = spec.cells()
    return {
        **_identity(spec),
        "title": spec.title,
        "corner": spec.corner,
        "rows": list(dict.fromkeys(row for row, _ in cells)),
        "columns": list(dict.fromkeys(column for _, column in cells)),
    }


def save(spec: Spec, folder: Path, found: Mapping[str, Any], *, command: str, device: str) -> None:
    """Both files; the one that says whose folder it is comes first."""
    begin(spec, folder, command=command, device=device)
    _write(folder, RESULTS, json.dumps(finite(found)))


def begin(spec: Spec, folder: Path, *, command: str, device: str) -> None:
    """The file that says whose folder it is, and which commands filled it, before others lie there.

    `device` is what it is called.
    """
    check_results(spec, folder)
    told = read_json(folder / SPEC) or {}
    before = told.get("made", [told] if "command" in told else [])  # an older version told of the last one alone
    now = {"command": command, "device": device, "versions": versions()}
    parts = ({name: one.get(name) for name in now} for one in before)
    made = [*(one for one in parts if (one["command"], one["device"]) != (command, device)), now]
    _write(folder, SPEC, json.dumps({**_identity(spec), "made": made}, indent=1))


def _write(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / name, f"{text}\n".encode())
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(folder)}: {describe_file_error(error)}; choose another --results"
        ) from None


def read_json(path: Path) -> dict[str, Any] | None:
    """What a JSON file holds; None where there is none, or it is not ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
