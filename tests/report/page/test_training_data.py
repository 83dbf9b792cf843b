"""Trainings of a page: which runs belong together, and how trainings are told apart."""

from __future__ import annotations

import json
from pathlib import Path

from sdssm.report.page.collecting import collect_page
from sdssm.report.page.page_types import TrainingData
from tests.edited_files import edit_json
from tests.report.page.sample_runs import TINY, write_run


def read_trainings(folder: Path) -> list[TrainingData]:
    contents = collect_page([folder])
    assert not contents.data["problems"]
    return contents.data["trainings"]


def test_seeds_are_one_training_with_a_band(tmp_path: Path) -> None:
    for seed in range(3):
        run = write_run(tmp_path / f"seed-{seed}", seed=seed)
        edit_json(
            run / "evaluation.json",
            accuracy=[100.0, 50.0 + 10 * seed, None],
            accuracy_low=[],
            accuracy_high=[],
            best_constant=[],
            max_length=3 - seed % 2,
        )
    (tmp_path / "seed-2" / "evaluation.json").unlink()  # not evaluated yet
    [training] = read_trainings(tmp_path)
    assert len(training["runs"]) == 3 and training["label"] == "sd-ssm" and training["differing"] == {}
    assert training["accuracy"] == {
        "lengths": [1, 2, 3],
        "mean": [100, 55, None],
        "low": [100, 50, None],
        "high": [100, 60, None],
    }
    assert training["dashes"] == [] and training["colour"] == "#0072b2"


def test_the_accuracy_beyond_has_the_best_constant_answer_at_the_same_lengths(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    evaluation = json.loads((run / "evaluation.json").read_text())
    trained, longest = evaluation["train_length"], evaluation["max_length"]
    edit_json(run / "evaluation.json", best_constant=[50.0] * trained + [25.0] * (longest - trained), chance=12.5)
    [data] = collect_page([run]).data["runs"]
    assert (data["mean_beyond"], data["constant_within"], data["constant_beyond"]) == (51.0, 50.0, 25.0)


def test_trainings_that_differ_have_labels_and_styles_that_differ(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", settings={**TINY, "lr": 0.01})
    write_run(tmp_path / "c", settings={**TINY, "state": 6}, task="d4")
    first, second, other = read_trainings(tmp_path)
    assert first["label"] != second["label"] and "lr 0.01" in second["label"]
    assert first["task"] == second["task"] != other["task"]
    assert first["colour"] == second["colour"] and first["dashes"] != second["dashes"]
    assert set(first["differing"]) == {"lr", "state"} and second["differing"]["lr"] == "0.01"
    assert other["dashes"] == []  # the first of its task


def test_a_diverged_seed_does_not_count(tmp_path: Path) -> None:
    for seed in range(2):
        run = write_run(tmp_path / f"seed-{seed}", seed=seed)
        edit_json(run / "evaluation.json", accuracy=[100.0 - 90 * seed] * 40)
    for name in ("status", "evaluation"):
        edit_json(tmp_path / "seed-1" / f"{name}.json", status="diverged")
    [training] = read_trainings(tmp_path)
    assert len(training["runs"]) == 2 and training["accuracy"] is not None
    assert training["accuracy"]["low"] == [100] * 40


def test_every_length_of_a_long_evaluation_is_thinned(tmp_path: Path) -> None:
    write_run(tmp_path / "run", max_length=20_000)
    [training] = read_trainings(tmp_path)
    assert training["accuracy"] is not None
    lengths = training["accuracy"]["lengths"]
    assert len(lengths) <= 1_000 and lengths[:100] == list(range(1, 101)) and lengths[-1] == 20_000
