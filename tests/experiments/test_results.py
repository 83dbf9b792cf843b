"""Results: cells, records, claims and timings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sdssm.experiments.execution.evaluation_files import missing_files, read_evaluations
from sdssm.experiments.execution.executors import LocalExecutor
from sdssm.experiments.planning.plan import make_plan
from sdssm.experiments.results.cells import make_cells, shown_runs, t_band
from sdssm.experiments.results.claims import compare_claims
from sdssm.experiments.results.folder import write_results
from sdssm.experiments.results.ranking import make_ranking
from sdssm.experiments.results.records import make_records, merge_records
from sdssm.experiments.results.timing import RATIO, measure_runtime
from sdssm.experiments.specs.catalogue import get_spec
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.experiments.specs.spec import Spec
from sdssm.report.rendering import to_markdown
from sdssm.report.tables import make_table

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


def test_candidate_is_not_best_if_all_seeds_diverged() -> None:
    spec = parse_spec(GRID.format("within"), source="search.toml")
    diverged = [record(0.3, seed, 0, 99.9, status="diverged", scores={}) for seed in (0, 1)]
    single = record(0.1, 2, 0, 98, status="diverged", scores={})
    [cell] = make_cells(spec, [*RECORDS, *diverged, single])
    assert cell["choice"].endswith("best of 3 by accuracy at training lengths: lr 0.1") and cell["diverged"] == 1
    ranking = make_ranking(spec, [*RECORDS, *diverged, single])
    assert [entry["variant"]["lr"] for entry in ranking] == [0.1, 0.2, 0.3]


MEASURED = """
name = "measured"
seeds = 1
[evaluate]
max_length = 60
lengths = [80]
strings = 64
scores = ["all", "balanced", "balanced at 40", "covering at 80", "at 80", "passes 99", "passes 10"]
[[rows]]
model = "sd-ssm"
label = "SD-SSM"
tasks = ["tomita4"]
settings = { steps = 1, batch = 4, state = 4 }
"""


def test_scores_of_other_measures_and_the_best_constant_answer(tmp_path: Path) -> None:
    """Almost every long string is rejected by tomita4, so a model that learned nothing may look good."""
    spec = parse_spec(MEASURED, source="measured.toml")
    plan = make_plan(spec, tmp_path / "runs")
    with LocalExecutor("cpu") as executor:
        executor.run_plan(plan)
        executor.evaluate_plan(plan)
    [entry] = make_records(plan)
    curve, listed = read_evaluations(plan.runs[0].folder, plan.runs[0].task, spec.evaluate)
    assert curve is not None
    cells = {cell["score"]: cell for cell in make_cells(spec, [entry])}
    assert cells["balanced at 40"]["max"] == curve["balanced"]["accuracy"][curve["balanced"]["lengths"].index(40)]
    assert cells["covering at 80"]["max"] == listed["covering"]["accuracy"][0]
    assert cells["balanced"]["max"] == pytest.approx(curve["balanced"]["mean"])
    assert cells["balanced"]["best_constant"] == 50
    assert cells["at 80"]["best_constant"] == listed["best_constant"][0] > 90
    assert cells["all"]["best_constant"] == pytest.approx(curve["best_constant_mean"])
    below = [k for k, value in enumerate(curve["accuracy"], 1) if value < 99]
    assert cells["passes 99"]["max"] == (below[0] - 1 if below else 60)
    text = to_markdown(make_table({**vars_of(spec), "cells": list(cells.values())}))
    assert "best constant" in text and "chance" in text and "on balanced strings at 40" in text
    assert "the longest length up to which the accuracy is at least 99 %" in text
    assert missing_files(plan) == []
    path = plan.runs[0].folder / "evaluation.json"
    path.write_text(json.dumps({name: curve[name] for name in curve if name != "balanced"}))  # of an older version
    assert missing_files(plan) == [(plan.runs[0].folder, "evaluation.json")]


def vars_of(spec: Spec) -> dict[str, Any]:
    """Return what results.json has besides cells and runs."""
    names = {"scores": [score.name for score in spec.evaluate.scores], "rows": ["SD-SSM"], "columns": ["tomita4"]}
    return {"kind": "accuracy", "title": spec.title, "corner": spec.corner, **names}


@pytest.mark.parametrize(("choose", "best"), [("within", (62, 61)), ("score", (90, 70))])
def test_cell_shows_the_best_candidate(choose: str, best: tuple[float, float]) -> None:
    spec = parse_spec(GRID.format(choose), source="search.toml")
    [cell] = make_cells(spec, RECORDS)
    assert (cell["max"], cell["average"], cell["seeds"]) == (*best, 2)
    assert cell["choice"].startswith("best of 2 by ")
    assert len(shown_runs(spec, RECORDS)) == 2


def test_cells_and_records_have_the_chance_level() -> None:
    spec = parse_spec(GRID.format("within").replace('"parity"', '"parity", "a5"'), source="search.toml")
    chance = {cell["column"]: cell["chance"] for cell in make_cells(spec, [])}
    assert chance == {"parity": 50.0, "a5": pytest.approx(100 / 60)}
    plan = make_plan(spec, Path("runs"))
    old = {**RECORDS[0], "training": plan.runs[0].training}  # as version 0.1.0 wrote it
    assert [record["chance"] for record in merge_records(plan, [old], [])] == [50.0]


def test_diverged_runs_are_counted_but_not_averaged() -> None:
    spec = parse_spec(GRID.format("within"), source="search.toml")
    records = [{**RECORDS[0], "status": "diverged"}, RECORDS[1]]
    [cell] = make_cells(spec, records)
    assert (cell["max"], cell["seeds"], cell["diverged"]) == (62, 1, 1)
    [cell] = make_cells(spec, [])
    assert (cell["max"], cell["steps"], cell["choice"]) == (None, None, None)


def test_records_that_do_not_match_the_spec_are_dropped() -> None:
    spec = parse_spec(GRID.format("within"), source="search.toml")
    plan = make_plan(spec, Path("runs"))
    known = {**RECORDS[0], "training": plan.runs[0].training, "chance": 50.0}
    assert merge_records(plan, [RECORDS[0], known], []) == [known]
    assert merge_records(plan, [{**known, "max_length": 256}], []) == []
    newer = {**known, "within": 1}
    assert merge_records(plan, [known], [newer]) == [newer]


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Write results as if the runs of the grid had these records."""
    plan = make_plan(parse_spec(GRID.format("within"), source="search.toml"), folder / "runs")
    training = {run.variant["lr"]: run.training for run in plan.runs}
    complete = [
        {**entry, "training": training[entry["variant"]["lr"]], "accuracy": [entry["within"]]} for entry in records
    ]
    monkeypatch.setattr("sdssm.experiments.results.folder.make_records", lambda _: complete)
    return write_results(plan, folder / "search", command="", device="CPU", **more)


def test_pruned_candidate_counts_only_if_all_seeds_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pruned = {"row": "lstm", "column": "parity", "variant": {"lr": 0.1}, "value": 70.0, "seeds": 2, "steps": 10}
    pruned |= {"pruned_at": 5}
    diverged = {**RECORDS[1], "status": "diverged", "scores": {}}
    for ended in (RECORDS[0], diverged):  # trained before by another command, or diverged
        results = write(tmp_path, monkeypatch, [ended, *RECORDS[2:]], pruned=[pruned])
        assert results["cells"][0]["choice"].endswith(
            "best of 1 by accuracy at training lengths: lr 0.2; 1 more stopped early"
        )
        assert [(entry["variant"]["lr"], entry["pruned_at"]) for entry in results["ranking"]] == [(0.2, None), (0.1, 5)]
        assert len(results["runs"]) == 3 and len(results["shown"]) == 2
        (tmp_path / "search" / "results.json").unlink()
    results = write(tmp_path, monkeypatch, [RECORDS[0], diverged, *RECORDS[2:]], pruned=[pruned])
    assert [(entry["variant"]["lr"], entry["pruned_at"]) for entry in results["ranking"]] == [(0.1, None), (0.2, None)]


def test_curve_is_of_the_larger_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, RECORDS)
    longer = [{**entry, "steps": 20, "within": entry["within"] + 0.5} for entry in RECORDS]
    results = write(tmp_path, monkeypatch, longer)
    assert [(run["variant"]["lr"], run["steps"]) for run in results["runs"] if run["accuracy"]] == [(0.1, 20)] * 2


def test_bands_are_clipped_to_0_and_100() -> None:
    assert t_band([100.0, 50.0, 0.0]) == (0.0, 100.0)
    assert t_band([100.0, 100.0]) == (100.0, 100.0)


def test_claims_are_read_from_other_results(tmp_path: Path) -> None:
    spec: Spec = get_spec("claims")
    cells = {cell["id"]: cell for cell in compare_claims(spec, tmp_path)["cells"]}
    assert {cell["least"] for cell in cells.values()} == {None}
    cell = {"row": "Mamba", "column": "arithmetic", "first": True, "score": "all", "max": 21.0, "steps": 10}
    runs = [
        {**record(1, seed, score, within), "row": "Mamba", "column": "arithmetic", "first_below_99": below}
        for seed, score, within, below in ((0, 21.0, 91.0, 20), (1, 20.0, 95.0, 30))
    ]
    shown = [["Mamba", "arithmetic", "1", seed, 10] for seed in (0, 1)]
    (tmp_path / "table1").mkdir()
    (tmp_path / "table1" / "results.json").write_text(json.dumps({"cells": [cell], "runs": runs, "shown": shown}))
    cells = {cell["id"]: cell for cell in compare_claims(spec, tmp_path)["cells"]}
    assert (cells["C1"]["least"], cells["C1"]["steps"]) == (91.0, 10)  # the run with the best score
    assert cells["C2"]["greatest"] == 20
    assert (cells["C1"]["chance_least"], cells["C1"]["chance_greatest"]) == (20.0, 20.0)
    assert cells["C2"]["chance_least"] is None  # a length
    assert cells["C5"]["least"] is None  # one of its cells is missing


def test_both_modes_are_timed() -> None:
    text = 'name = "x"\nkind = "timing"\npublished = "runtime.csv"\n'
    text += "[timing]\nlengths = [16, 64]\nbatch = 2\nstate = 4\ndictionary = 2\nseconds = 0.001"
    results = measure_runtime(parse_spec(text, source="x.toml"), "cpu")
    assert (results["rows"], results["columns"]) == (["recurrent", "parallel", RATIO], ["16", "64"])
    assert all(cell["value"] > 0 for cell in results["cells"])
    assert {cell["column"]: cell["published"] for cell in results["cells"] if cell["row"] == RATIO} == {
        "16": None,
        "64": 0.95,
    }
