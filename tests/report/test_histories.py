"""The history of runs that were evaluated during training: its statistics, tables and picture."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sdssm
from sdssm.cli.tables import show_results
from sdssm.experiments.json_files import read_json
from sdssm.experiments.reproduction import reproduce
from sdssm.report.histories import collect_histories, history_grids
from sdssm.report.history_plot import make_history_figure

SPEC = """
name = "steady"
title = "A small experiment"
seeds = 3
tasks = ["parity"]

[evaluate]
max_length = 12
strings = 32

[[rows]]
model = "sd-ssm"
label = "published"
preset = "paper"
settings = { steps = 6, evaluate_every = 2, batch = 8, state = 4, train_length = 4 }

[[rows]]
model = "sd-ssm"
label = "exact"
preset = "paper"
settings = { steps = 6, evaluate_every = 2, batch = 8, state = 4, train_length = 4, exact_gradient = true }
"""


def run(seed: int, *beyond: float | None, row: str = "published") -> dict[str, Any]:
    """Return a record with an evaluation every 10 steps; all lengths together are at 99 where longer ones are known."""
    history = [
        [10 * k, None if value is None else 99.0 + seed, 100.0, value] for k, value in enumerate(beyond, start=1)
    ]
    return {"row": row, "column": "d4", "seed": seed, "model": "sd-ssm", "chance": 12.5, "history": history}


def results(*runs: dict[str, Any], published: float | None = 99.9) -> dict[str, Any]:
    cells = [{"row": "published", "column": "d4", "published_average": published}]
    return {"rows": ["published", "exact"], "columns": ["d4"], "corner": "form", "cells": cells, "runs": list(runs)}


def test_shares_and_averages_of_three_seeds() -> None:
    shares, averages = history_grids(
        results(run(0, 10, 99.9, 99.9, 50), run(1, 10, 100, 99.89, 100), run(2, 0, 0, 0, 99.95))
    )
    assert "at least 99.9 %" in shares.caption
    # 5 of 12 evaluations, rounded down as all accuracies, and 3 of the 6 in the second half
    assert [name for name, _ in shares.rows] == ["published", "exact"]
    assert shares.rows[0][1] == ["41.66 / 50.00"] and shares.rows[1][1] == ["-"]
    # one set of three seeds: the average over all lengths is 100 at every step
    assert averages.rows[0][1] == ["100.00 / 100.00 / 100.00 (99.9)"]


def test_averages_are_over_every_set_of_three_seeds() -> None:
    histories = collect_histories([run(seed, 0, 50) for seed in range(4)])
    assert histories is not None
    assert sorted(histories.averages()) == pytest.approx([100.0, 100 + 1 / 3, 100 + 2 / 3, 101.0])
    two = collect_histories([run(0, 1), run(1, 1)])
    assert two is not None and len(two.averages()) == 0


def test_runs_without_evaluations_have_no_grids() -> None:
    assert history_grids({**results(), "runs": [{"row": "published", "column": "d4"}]}) == []


def test_unknown_accuracies_do_not_count_as_solved() -> None:
    histories = collect_histories([run(0, 100.0, None)])
    assert histories is not None and np.isnan(histories.beyond[0, 1])
    assert history_grids(results(run(0, 100.0, None)))[0].rows[0][1] == ["50.00 / 0.00"]


def test_figure_has_a_panel_for_each_row_and_a_line_for_each_seed() -> None:
    pytest.importorskip("matplotlib")
    runs = [run(seed, 10, 100, row=row) for row in ("published", "exact") for seed in range(3)]
    figure = make_history_figure(runs)
    assert [axes.get_title() for axes in figure.axes] == ["published", "exact"]
    for axes in figure.axes:
        lines = [line for line in axes.lines if len(line.get_xdata()) == 2 and list(line.get_xdata()) == [10, 20]]
        assert len(lines) == 3
        assert "chance, 12.5 %" in [text.get_text() for text in axes.texts]


def test_an_experiment_with_evaluations_has_them_in_its_results(tmp_path: Path) -> None:
    spec = tmp_path / "steady.toml"
    spec.write_text(SPEC)
    reproduction = reproduce(spec, out=tmp_path / "runs", results=tmp_path / "results", device="cpu")
    for record in reproduction.results["runs"]:
        assert [entry[0] for entry in record["history"]] == [2, 4, 6]
        [run] = [run for run in sdssm.runs.find_runs(tmp_path / "runs") if _is(run, record)]
        events = {event["step"]: event["beyond"] for event in run.events() if "beyond" in event}
        assert {entry[0]: entry[3] for entry in record["history"]} == pytest.approx(events, abs=1e-3)
    show_results(reproduction.folder, read_json(reproduction.folder / "results.json") or {}, progress=False)
    assert "evaluations during training" in (reproduction.folder / "table.md").read_text()
    assert (reproduction.folder / "history.svg").exists() == (find_spec("matplotlib") is not None)


def _is(run: Any, record: dict[str, Any]) -> bool:
    return (run.config.seed, run.config.train.exact_gradient) == (record["seed"], record["row"] == "exact")
