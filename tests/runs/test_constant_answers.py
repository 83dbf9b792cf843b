"""What the best constant answer scores on the training strings of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdssm.models.evidence import read_evidence
from sdssm.runs import RunFolder
from sdssm.runs.constant_answers import training_constants
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.runs.summary import summarise_run
from sdssm.tasks import get_task
from sdssm.training.engine import new_model


def config(task: str, preset: str, **values: object) -> RunConfig:
    return create_config(get_task(task), 0, resolve_settings("sd-ssm", preset, task, values), preset)


def test_strings_that_start_in_random_states_have_no_frequent_label() -> None:
    """From the start state of A5 one of two labels follows the first symbol; from random states, each of 60."""
    from_random, from_start = config("a5", "length-efficiency-5"), config("a5", "paper", train_length=5)
    assert from_random.train_length == from_start.train_length == 5
    constants = training_constants([from_start, from_random, from_start])
    assert constants[1] == pytest.approx(100 / 60)
    assert constants[0] == constants[2] > 20


def test_a_task_that_no_longer_exists_has_the_chance_level() -> None:
    known = config("parity", "scale-free")
    lost = RunConfig.from_json({**known.to_json(), "digest": "0" * 16})
    assert training_constants([lost]) == [50.0]


def test_older_evaluations_of_strings_that_start_in_random_states(tmp_path: Path) -> None:
    """They lack the best constant answer, which is computed when it is shown."""
    run = RunFolder.create(tmp_path, config("a5", "length-efficiency-5"))
    run.write_json("evaluation.json", {"task": "a5", "mean": 2.0, "max_length": 5})
    assert summarise_run(run)["mean_constant"] == pytest.approx(100 / 60)
    model = new_model(run.config)
    model.task = run.config.load_task()
    evidence = read_evidence(tmp_path, model)
    assert evidence is not None and evidence.evaluation is not None
    assert evidence.evaluation["best_constant_mean"] == pytest.approx(100 / 60)
