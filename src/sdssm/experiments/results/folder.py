"""The results folder of an experiment: results.json, and spec.json with the commands that filled it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sdssm.checksums import FILE_CHECKSUM
from sdssm.errors import OutputError, RunWarning
from sdssm.experiments.json_files import read_json
from sdssm.experiments.planning.plan import Plan
from sdssm.experiments.results.cells import make_cells, shown_runs
from sdssm.experiments.results.ranking import PrunedCandidate, make_ranking, previously_pruned, split_pruned
from sdssm.experiments.results.records import REQUIRED_KEYS, Record, make_records, merge_records, record_key
from sdssm.experiments.specs.spec import Spec
from sdssm.files import describe_file_error, format_path, write_atomic
from sdssm.runs.events import to_json_value
from sdssm.runs.provenance import versions

SPEC, RESULTS = "spec.json", "results.json"


def check_results(spec: Spec, folder: Path) -> None:
    """Raise `OutputError` if a folder holds the results of another experiment, or other files."""
    existing_path = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing_path.is_dir():
        raise OutputError(
            f"{format_path(existing_path)} is a file, and results need a folder; choose another --results"
        )
    if existing_path != folder:
        return
    existing = read_json(folder / SPEC)
    if existing is None:
        if any(folder.iterdir()):
            raise OutputError(f"{format_path(folder)} holds files of no experiment; choose another --results")
        return
    for name, value in _identity(spec).items():
        if existing.get(name) != value:
            raise OutputError(
                f"{format_path(folder)} belongs to another experiment ({name} {existing.get(name)!r}, not {value!r}); "
                "choose another --results or remove it"
            )


def _identity(spec: Spec) -> dict[str, str]:
    return {"name": spec.name, "source": spec.source, "kind": spec.kind}


def write_results(
    plan: Plan, folder: Path, *, command: str, device: str, pruned: Sequence[PrunedCandidate] = ()
) -> dict[str, Any]:
    """Aggregate the runs of a plan, merge them with the results in the folder, and write them.

    It returns the results as a dictionary.

    Args:
        plan: the runs to aggregate.
        folder: the results folder.
        command: the command line, for the record.
        device: the name of the device, for the record.
        pruned: candidates of a search that were stopped early. They fill no cell and are ranked last, as are those
            that an earlier search left in cells that the plan does not select.
    """
    previous, new = _read_previous(folder / RESULTS), make_records(plan)
    old = [record for record in previous.get("runs", []) if set(record) >= REQUIRED_KEYS]
    records = merge_records(plan, old, new)
    pruned = [*pruned, *previously_pruned(plan, previous.get("ranking", []), pruned)]
    results = _make_results(plan.spec, plan, records, pruned)
    save_results(plan.spec, folder, results, command=command, device=device)
    return results


def _read_previous(path: Path) -> dict[str, Any]:
    """Return the results of earlier commands; a damaged file is kept under another name, with a warning."""
    results = read_json(path)
    if results is None and path.exists():
        kept = path.with_name(f"damaged-{path.name}")
        path.replace(kept)
        text = f"{format_path(path)} is damaged; it is kept as {kept.name}, and written again without the runs that"
        warnings.warn(f"{text} only earlier commands had", RunWarning, stacklevel=4)
    return results or {}


def selected_results(plan: Plan, pruned: Sequence[PrunedCandidate] = ()) -> dict[str, Any]:
    """Return the results of the selected runs of a plan alone, with only their rows and columns.

    Nothing is written. The results folder has these runs too, together with those of earlier commands.
    """
    selected = {(run.row, run.column) for run in plan.runs if run.selected}
    records = [record for record in make_records(plan) if (record["row"], record["column"]) in selected]
    rows = (
        replace(row, tasks=tuple(task for task in row.tasks if (row.label, row.column_of(task)) in selected))
        for row in plan.spec.rows
    )
    spec = replace(plan.spec, rows=tuple(row for row in rows if row.tasks))
    return _make_results(spec, plan, records, pruned)


def _make_results(
    spec: Spec, plan: Plan, records: Sequence[Record], pruned: Sequence[PrunedCandidate]
) -> dict[str, Any]:
    """Return the cells and the ranking of records, for the rows and columns of `spec`."""
    counted, stopped = split_pruned(plan, records, pruned)
    shown = [record_key(record) for record in shown_runs(spec, counted)]
    for record in records:
        if record_key(record) not in shown:
            record["accuracy"] = None  # curves are stored only for the runs that cells show
    results = {
        **results_header(spec),
        "scores": [score.name for score in spec.evaluate.scores],
        "cells": make_cells(spec, counted),
        "shown": list(map(list, shown)),
        "runs": records,
    }
    if ranking := make_ranking(spec, counted, stopped):
        results["ranking"] = ranking
        for cell in results["cells"]:
            count = sum((entry["row"], entry["column"]) == (cell["row"], cell["column"]) for entry in stopped)
            if count and cell["choice"]:
                cell["choice"] += f"; {count} more stopped early"
    return results


def results_header(spec: Spec) -> dict[str, Any]:
    """Return the entries that results of every kind have."""
    cells = spec.cells()
    return {
        **_identity(spec),
        "title": spec.title,
        "corner": spec.corner,
        "rows": list(dict.fromkeys(row for row, _ in cells)),
        "columns": list(dict.fromkeys(column for _, column in cells)),
    }


def save_results(spec: Spec, folder: Path, results: Mapping[str, Any], *, command: str, device: str) -> None:
    """Write results into a folder, after spec.json, which says to which experiment the folder belongs."""
    open_results(spec, folder, command=command, device=device)
    text = json.dumps(to_json_value(results)).encode()
    _write(folder, RESULTS, FILE_CHECKSUM.add(text).decode())


def open_results(spec: Spec, folder: Path, *, command: str, device: str) -> None:
    """Create a results folder for an experiment, or add a command to the list in its spec.json."""
    check_results(spec, folder)
    existing = read_json(folder / SPEC) or {}
    # The first versions recorded only the last command.
    previous = existing.get("made", [existing] if "command" in existing else [])
    entry = {"command": command, "device": device, "versions": versions()}
    entries = ({name: old.get(name) for name in entry} for old in previous)
    commands = [*(old for old in entries if (old["command"], old["device"]) != (command, device)), entry]
    _write(folder, SPEC, json.dumps({**_identity(spec), "made": commands}, indent=1))


def _write(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / name, f"{text}\n".encode())
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {format_path(folder)}: {describe_file_error(error)}; choose another --results"
        ) from None
