from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sdssm.experiments.planning.plan import make_plan
from sdssm.experiments.results.cells import cells_of, chosen_runs, merged, t_band
from sdssm.experiments.results.claims import compared
from sdssm.experiments.results.folder import write_results
from sdssm.experiments.results.ranking import ranked
from sdssm.experiments.results.timing import RATIO, timed
from sdssm.experiments.specs.catalogue import spec_named
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.experiments.specs.spec import Spec

GRID = """
name = "search"
[evaluate]
scores = ["all"]
[table]
choose = "{}"
[[rows]]
model = "lstm"
tasks = ["parity"]
seeds = 2
grid = {{ lr = [0.1, 0.2] }}
"""


def record(lr: float, seed: int, score: float, within: float, **more: Any) -> dict[str, Any]:
    return {
        "row": "lstm",
        "column": "parity",
        "seed": seed,
        "variant": {"lr": lr},
        "training": str(lr),
        "steps": 10,
        "status": "finished",
        "scores": {"all": score},
        "bands": {"all": None},
        "within": within,
        "first_below_99": None,
        "max_length": 500,
        **more,
    }


RECORDS = [record(0.1, 0, 60, 99), record(0.1, 1, 62, 99), record(0.2, 0, 90, 80), record(0.2, 1, 50, 80)]


def test_what_diverged_with_every_seed_is_not_the_best() -> None:
    spec = parse_spec(GRID.format("within"), source="search.toml")
    lost = [record(0.3, seed, 0, 99.9, status="diverged", scores={}) for seed in (0, 1)]
    some = record(0.1, 2, 0, 98, status="diverged", scores={})
    [cell] = cells_of(spec, [*RECORDS, *lost, some])
    assert cell["choice"].endswith("best of 3 by accuracy at training lengths: lr 0.1") and cell["diverged"] == 1
    assert [one["variant"]["lr"] for one in ranked(spec, [*RECORDS, *lost, some])] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("choose", "best"), [("within", (62, 61)), ("score", (90, 70))])
def test_the_best_of_a_grid(choose: str, best: tuple[float, float]) -> None:
    spec = parse_spec(GRID.format(choose), source="search.toml")
    [cell] = cells_of(spec, RECORDS)
    assert (cell["max"], cell["average"], cell["seeds"]) == (*best, 2)
    assert cell["choice"].startswith("best of 2 by ")
    assert len(chosen_runs(spec, RECORDS)) == 2


def test_what_diverged_is_counted_apart() -> None:
    spec = parse_spec(GRID.format("within"), source="search.toml")
    gone = [{**RECORDS[0], "status": "diverged"}, RECORDS[1]]
    [cell] = cells_of(spec, gone)
    assert (cell["max"], cell["seeds"], cell["diverged"]) == (62, 1, 1)
    [cell] = cells_of(spec, [])
    assert (cell["max"], cell["steps"], cell["choice"]) == (None, None, None)  # nothing is made up


def test_what_the_spec_no_longer_says_is_dropped() -> None:
    spec = parse_spec(GRID.format("within"), source="search.toml")
    plan = make_plan(spec, Path("runs"))
    known = {**RECORDS[0], "training": plan.runs[0].training}
    assert merged(plan, [RECORDS[0], known], []) == [known]
    assert merged(plan, [{**known, "max_length": 256}], []) == []
    newer = {**known, "within": 1}
    assert merged(plan, [known], [newer]) == [newer]


def written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    """Results as if the runs of the grid had come to these records."""
    plan = make_plan(parse_spec(GRID.format("within"), source="search.toml"), folder / "runs")
    training = {run.variant["lr"]: run.training for run in plan.runs}
    found = [{**one, "training": training[one["variant"]["lr"]], "accuracy": [one["within"]]} for one in records]
    monkeypatch.setattr("sdssm.experiments.results.folder.records_of", lambda _: found)
    return write_results(plan, folder / "search", command="", device="CPU", **more)


def test_a_candidate_that_stopped_early_counts_with_all_seeds_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = {"row": "lstm", "column": "parity", "variant": {"lr": 0.1}, "value": 70.0, "seeds": 2, "steps": 10}
    early |= {"pruned_at": 5}
    gone = {**RECORDS[1], "status": "diverged", "scores": {}}
    for ended in (RECORDS[0], gone):  # trained before by itself, or diverged on the way
        found = written(tmp_path, monkeypatch, [ended, *RECORDS[2:]], pruned=[early])
        assert found["cells"][0]["choice"].endswith(
            "best of 1 by accuracy at training lengths: lr 0.2; 1 more stopped early"
        )
        assert [(one["variant"]["lr"], one["pruned_at"]) for one in found["ranking"]] == [(0.2, None), (0.1, 5)]
        assert len(found["runs"]) == 3 and len(found["shown"]) == 2
        (tmp_path / "search" / "results.json").unlink()
    found = written(tmp_path, monkeypatch, [RECORDS[0], gone, *RECORDS[2:]], pruned=[early])
    assert [(one["variant"]["lr"], one["pruned_at"]) for one in found["ranking"]] == [(0.1, None), (0.2, None)]


def test_of_two_budgets_the_greater_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, monkeypatch, RECORDS)
    longer = [{**one, "steps": 20, "within": one["within"] + 0.5} for one in RECORDS]
    found = written(tmp_path, monkeypatch, longer)
    assert [(run["variant"]["lr"], run["steps"]) for run in found["runs"] if run["accuracy"]] == [(0.1, 20)] * 2


def test_bands_stay_within_0_and_100() -> None:
    assert t_band([100.0, 50.0, 0.0]) == (0.0, 100.0)
    assert t_band([100.0, 100.0]) == (100.0, 100.0)


def test_claims_read_what_is_there(tmp_path: Path) -> None:
    spec: Spec = spec_named("claims")
    found = {cell["id"]: cell for cell in compared(spec, tmp_path)["cells"]}
    assert {cell["least"] for cell in found.values()} == {None}
    cell = {"row": "Mamba", "column": "arithmetic", "first": True, "score": "all", "max": 21.0, "steps": 10}
    runs = [
        {**record(1, seed, score, within), "row": "Mamba", "column": "arithmetic", "first_below_99": below}
        for seed, score, within, below in ((0, 21.0, 91.0, 20), (1, 20.0, 95.0, 30))
    ]
    shown = [["Mamba", "arithmetic", "1", seed, 10] for seed in (0, 1)]
    (tmp_path / "table1").mkdir()
    (tmp_path / "table1" / "results.json").write_text(json.dumps({"cells": [cell], "runs": runs, "shown": shown}))
    found = {cell["id"]: cell for cell in compared(spec, tmp_path)["cells"]}
    assert (found["C1"]["least"], found["C1"]["steps"]) == (91.0, 10)  # of the run with the best score
    assert found["C2"]["greatest"] == 20
    assert found["C5"]["least"] is None  # a cell of it is missing


def test_times_of_both_modes() -> None:
    text = 'name = "x"\nkind = "timing"\npublished = "runtime.csv"\n'
    text += "[timing]\nlengths = [16, 64]\nbatch = 2\nstate = 4\ndictionary = 2\nseconds = 0.001"
    found = timed(parse_spec(text, source="x.toml"), "cpu")
    assert (found["rows"], found["columns"]) == (["recurrent", "parallel", RATIO], ["16", "64"])
    assert all(cell["value"] > 0 for cell in found["cells"])
    assert {cell["column"]: cell["published"] for cell in found["cells"] if cell["row"] == RATIO} == {
        "16": None,
        "64": 0.95,
    }
