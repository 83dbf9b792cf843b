"""Claims: numbers in the text of the paper, compared with the results of other experiments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdssm.experiments.json_files import read_json
from sdssm.experiments.results.chance import chance_by_cell
from sdssm.experiments.results.folder import RESULTS, results_header
from sdssm.experiments.results.records import record_key
from sdssm.experiments.specs.catalogue import get_spec, published_rows
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import Claim, Spec

#: The columns of the published file of claims.
COLUMNS = ("id", "model", "task", "quantity", "value", "unit", "source")


def compare_claims(spec: Spec, results: Path) -> dict[str, Any]:
    """Return every claim with our value, from the results folders of other experiments below `results`."""
    published = _published_claims(spec)
    cells = []
    for claim in spec.claims:
        line = published[claim.id]
        values = None if claim.spec is None else _values(claim, results)
        chance = _chance(claim)
        cells.append(
            {
                "id": claim.id,
                **{name: line[name] for name in COLUMNS[1:]},
                "figure": claim.figure,
                "spec": claim.spec,
                "note": claim.note,
                "least": None if not values else min(values),
                "greatest": None if not values else max(values),
                "never": values == [],
                "steps": None if claim.spec is None else _fewest_steps(claim, results),
                "chance_least": min(chance, default=None),
                "chance_greatest": max(chance, default=None),
            }
        )
    header = {**results_header(spec), "rows": [claim.id for claim in spec.claims], "columns": []}
    return {**header, "cells": cells, "runs": []}


def check_claims(spec: Spec) -> None:
    """Raise `SpecError` if a claim is not in the published file, or names a cell that does not exist."""
    _published_claims(spec)
    for claim in spec.claims:
        if claim.spec is not None:
            cells = get_spec(claim.spec).cells()
            for row in claim.rows:
                for column in claim.columns:
                    if (row, column) not in cells:
                        raise SpecError(f"claim {claim.id}: {claim.spec} has no cell {row!r}, {column!r}; correct them")


def _published_claims(spec: Spec) -> dict[str, dict[str, Any]]:
    """Return the lines of the published file by id, after checking that each claim has one."""
    lines = {line["id"]: line for line in published_rows(spec, COLUMNS)}
    for claim in spec.claims:
        if claim.id not in lines:
            raise SpecError(f"{spec.published} has no claim {claim.id!r}; it has {', '.join(lines)}")
    return lines


def _chance(claim: Claim) -> list[float]:
    """Return the chance levels of the cells of a claim about accuracy, in percent."""
    if claim.spec is None or claim.figure == "first_below_99":
        return []
    chance = chance_by_cell(get_spec(claim.spec))
    cells = ((row, column) for row in claim.rows for column in claim.columns)
    return [chance[cell] for cell in cells if cell in chance]


def _values(claim: Claim, results: Path) -> list[float] | None:
    """Return the value of each cell of a claim; None if a cell is missing.

    For the figure first_below_99, runs that never fall below 99 % have no value, so the list may be empty.
    """
    data = read_json(results / str(claim.spec) / RESULTS)
    if data is None:
        return None
    values: list[float] = []
    for row in claim.rows:
        for column in claim.columns:
            cell = _find_cell(data, row, column)
            if cell is None:
                return None
            if claim.figure in ("max", "average"):
                values.append(cell[claim.figure])
                continue
            best = _best_run(data, cell)
            if best is None:
                return None
            if best[claim.figure] is not None:
                values.append(best[claim.figure])
    return values


def _find_cell(data: Mapping[str, Any], row: str, column: str) -> Mapping[str, Any] | None:
    """Return a cell with the score that its row shows first; None if it was not measured."""
    for cell in data["cells"]:
        if (cell["row"], cell["column"]) == (row, column) and cell["first"] and cell["max"] is not None:
            match: Mapping[str, Any] = cell
            return match
    return None


def _best_run(data: Mapping[str, Any], cell: Mapping[str, Any]) -> Mapping[str, Any] | None:
    shown = {tuple(key) for key in data["shown"]}
    runs = [
        run
        for run in data["runs"]
        if record_key(run) in shown
        and (run["row"], run["column"]) == (cell["row"], cell["column"])
        and run["status"] == "finished"
        and run["scores"].get(cell["score"]) is not None
    ]
    return max(runs, key=lambda run: run["scores"][cell["score"]], default=None)


def _fewest_steps(claim: Claim, results: Path) -> int | None:
    """Return the fewest steps among the cells of a claim."""
    data = read_json(results / str(claim.spec) / RESULTS)
    cells = [_find_cell(data, row, column) for row in claim.rows for column in claim.columns] if data else []
    steps = [cell["steps"] for cell in cells if cell is not None]
    return min(steps) if steps else None
