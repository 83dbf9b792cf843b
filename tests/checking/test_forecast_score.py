"""The scores of the forecast follow from the stored runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.forecast.planning import plan
from benchmarks.forecast.scoring import (
    calibrate,
    fails,
    forecast_length,
    load_runs,
    report,
    report_rule,
    share_within,
    write_results,
)
from sdssm.checking.forecast import CALIBRATION
from sdssm.models import MODELS

RESULTS = Path(__file__).parent.parent.parent / "results" / "forecast"


def run(measured: float | None, crossing: float | None, **other: Any) -> dict[str, Any]:
    forecast = {"crossing": crossing, "ratio": 0.1, "cause": "drift", "reason": "", "seconds": 1.0}
    described = {"model": "rnn", "task": "parity", "seed": 0, "steps": 10, "role": "scored", "train_length": 40}
    return {**described, "failing_length": measured, "longest": 50_000, "forecast": forecast, **other}


def test_scoring_again_writes_the_same_files(tmp_path: Path) -> None:
    write_results([RESULTS / "runs.json"], tmp_path)
    for name in ("README.md", "forecast.csv", "runs.json"):
        assert (tmp_path / name).read_text() == (RESULTS / name).read_text(), name


def test_the_constants_follow_from_the_calibration_runs() -> None:
    runs, _ = load_runs([RESULTS / "runs.json"])
    for name, value in calibrate(runs).items():
        assert getattr(CALIBRATION, name) == pytest.approx(value, rel=0.05), name


def test_calibration_and_scored_runs_have_no_task_and_no_seed_in_common() -> None:
    runs, _ = load_runs([RESULTS / "runs.json"])
    for name in ("task", "seed"):
        calibration, scored = ({row[name] for row in runs if row["role"] == role} for role in ("calibration", "scored"))
        assert calibration and scored and not calibration & scored
    assert sum(fails(row) for row in runs if row["role"] == "scored") >= 50


def test_a_forecast_counts_within_a_factor_two() -> None:
    runs = [run(100.0, None) for _ in range(4)]
    assert share_within(runs, [51.0, 199.0, 49.0, 201.0]) == 50.0


def test_runs_that_do_not_fail_are_counted_apart() -> None:
    rows = [
        run(100.0, 100.0, role="calibration"),
        run(120.0, 100.0, role="calibration", model="lstm"),
        run(100.0, 100.0),
        run(None, 100.0, model="lstm"),
        run(None, None, model="lstm"),
        run(20.0, 30.0),
    ]
    lines = report(rows, []).splitlines()
    assert f"| rnn | 1 | 1 | 1 | {CALIBRATION.factor:.2f} | 0 | 0 |" in lines
    assert "| lstm | 0 | 0 | 0 | - | 2 | 1 |" in lines
    assert "1 scored runs are left out: they misclassify strings within the training length." in lines


def test_the_rule_about_models_that_forget_is_compared_with_the_law_without_it() -> None:
    forgets = {"ratio": 0.1, "cause": "none", "reason": "", "retention": 0.3}
    rows = [
        run(None, None, role="fresh", forecast={**forgets, "crossing": None, "without_rule": 200.0}),
        run(None, 300.0, role="fresh"),
        run(100.0, None, role="fresh", forecast={**forgets, "crossing": None, "without_rule": 90.0}),
        run(None, 300.0, role="fresh", longest=2_000),  # not measured far enough
    ]
    text = "\n".join(report_rule(rows))
    assert "| fresh | 1 | 100 % | 0 % | 2 | 2 | 1 |" in text
    assert "no failure is forecast: 1." in text and "not measured far enough: rnn on `parity`." in text


def test_a_forecast_beyond_the_longest_strings_is_none() -> None:
    assert forecast_length(run(None, 49_000.0)) == float("inf")
    assert forecast_length(run(None, 1_000.0)) == 1_000 * CALIBRATION.factor


def test_several_files_are_scored_together(tmp_path: Path) -> None:
    data = json.loads((RESULTS / "runs.json").read_text())
    for name, part in (("a", data["runs"][::2]), ("b", data["runs"][1::2])):
        (tmp_path / name).write_text(json.dumps({"device": name, "seconds": 1, "command": name, "runs": part}))
    runs, campaigns = load_runs([tmp_path / "a", tmp_path / "b"])
    assert runs == load_runs([RESULTS / "runs.json"])[0]
    assert [campaign["device"] for campaign in campaigns] == ["a", "b"]


def test_the_plan_has_every_model_of_the_catalogue(tmp_path: Path) -> None:
    runs = plan(tmp_path, list(MODELS), None, None)
    assert {planned.model for planned in runs} == set(MODELS)
    assert len({planned.folder for planned in runs}) == len(runs)
