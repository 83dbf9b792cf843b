"""What the best constant answer scores on the training strings of a run."""

from __future__ import annotations

import pytest

from sdssm.runs.constant_answers import training_constants
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.tasks import get_task


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
