"""Sentences of the paper that hold a number, beside what other experiments found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdssm.experiments.results.cells import key_of
from sdssm.experiments.results.folder import RESULTS, head, read_json
from sdssm.experiments.specs.catalogue import published_rows, spec_named
from sdssm.experiments.specs.scores import SpecError
from sdssm.experiments.specs.spec import Claim, Spec

#: What the published file of claims has.
NEEDED = ("id", "model", "task", "quantity", "value", "unit", "source")
NOT_MEASURED = "not measured"


def compared(spec: Spec, results: Path) -> dict[str, Any]:
    """Every claim with our figure, from the results that other experiments left in `results`."""
    listed = _listed(spec)
    found = []
    for claim in spec.claims:
        line = listed[claim.id]
        values = None if claim.spec is None else _values(claim, results)
        found.append(
            {
                "id": claim.id,
                **{name: line[name] for name in NEEDED[1:]},
                "figure": claim.figure,
                "spec": claim.spec,
                "note": claim.note,
                "least": None if not values else min(values),
                "greatest": None if not values else max(values),
                "never": values == [],
                "steps": None if claim.spec is None else _steps(claim, results),
            }
        )
    return {**head(spec), "rows": [claim.id for claim in spec.claims], "columns": [], "cells": found, "runs": []}


def check_claims(spec: Spec) -> None:
    """Every claim is one of the published file, and every cell that it names one of the experiment that it names."""
    _listed(spec)
    for claim in spec.claims:
        if claim.spec is not None:
            cells = spec_named(claim.spec).cells()
            for row in claim.rows:
                for column in claim.columns:
                    if (row, column) not in cells:
                        raise SpecError(f"claim {claim.id}: {claim.spec} has no cell {row!r}, {column!r}")


def _listed(spec: Spec) -> dict[str, dict[str, Any]]:
    """The lines of the published file, with one for each claim."""
    found = {line["id"]: line for line in published_rows(spec, NEEDED)}
    for claim in spec.claims:
        if claim.id not in found:
            raise SpecError(f"{spec.published} has no claim {claim.id!r}; it has {', '.join(found)}")
    return found


def _values(claim: Claim, results: Path) -> list[float] | None:
    """The figure of each cell; None where one of them is not there; empty where none ever fell below 99."""
    data = read_json(results / str(claim.spec) / RESULTS)
    if data is None:
        return None
    values: list[float] = []
    for row in claim.rows:
        for column in claim.columns:
            cell = _cell(data, row, column)
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


def _cell(data: Mapping[str, Any], row: str, column: str) -> Mapping[str, Any] | None:
    """The cell's own score, where it was measured."""
    for cell in data["cells"]:
        if (cell["row"], cell["column"]) == (row, column) and cell["first"] and cell["max"] is not None:
            found: Mapping[str, Any] = cell
            return found
    return None


def _best_run(data: Mapping[str, Any], cell: Mapping[str, Any]) -> Mapping[str, Any] | None:
    shown = {tuple(key) for key in data["shown"]}
    runs = [
        run
        for run in data["runs"]
        if key_of(run) in shown
        and (run["row"], run["column"]) == (cell["row"], cell["column"])
        and run["status"] == "finished"
        and run["scores"].get(cell["score"]) is not None
    ]
    return max(runs, key=lambda run: run["scores"][cell["score"]], default=None)


def _steps(claim: Claim, results: Path) -> int | None:
    """The fewest steps among the cells."""
    data = read_json(results / str(claim.spec) / RESULTS)
    cells = [_cell(data, row, column) for row in claim.rows for column in claim.columns] if data else []
    steps = [cell["steps"] for cell in cells if cell is not None]
    return min(steps) if steps else None
