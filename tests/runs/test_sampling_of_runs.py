"""Which strings a run trains on: chosen when it is created, recorded in its config, and uniform in older configs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from sdssm.errors import SettingsError
from sdssm.experiments.planning.fingerprints import fingerprint
from sdssm.models.catalogue import DEFAULT_PRESET
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.tasks import PAPER_TASKS, get_task
from sdssm.training.planning import check_config


def config(name: str, preset: str = DEFAULT_PRESET, **values: Any) -> RunConfig:
    return create_config(get_task(name), 0, resolve_settings("sd-ssm", preset, name, values), preset)


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_tasks_of_the_paper_are_trained_on_uniform_strings(name: str) -> None:
    for preset in (DEFAULT_PRESET, "paper"):
        assert config(name, preset).train.sampling == "uniform"


@pytest.mark.parametrize("name", ["tomita4", "regex[01]:1*"])
def test_machines_that_uniform_strings_do_not_cover(name: str) -> None:
    assert config(name).train.sampling == "covering"
    assert config(name, sampling="uniform").train.sampling == "uniform"


def test_random_start_states_need_uniform_strings() -> None:
    preset = "length-efficiency-5"
    assert config("a5", preset).train.sampling == "uniform"
    chosen = config("a5", preset, sampling="covering")
    with pytest.raises(SettingsError, match="set sampling=uniform"):
        check_config(chosen, get_task("a5"), torch.device("cpu"))


def test_a_config_records_its_sampling() -> None:
    run = config("tomita4")
    stored = json.loads(json.dumps(run.to_json()))
    assert stored["train"]["sampling"] == "covering"
    assert RunConfig.from_json(stored).matches(run)
    del stored["train"]["sampling"]  # as written by earlier versions
    old = RunConfig.from_json(stored)
    assert old.train.sampling == "uniform"
    assert fingerprint(old) == fingerprint(config("tomita4", sampling="uniform")) != fingerprint(run)
