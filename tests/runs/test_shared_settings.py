"""Runs that differ in their seeds share one settings object, which makes listing thousands of them fast."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sdssm.errors import SettingsError
from sdssm.runs.schema import RunConfig
from tests.runs.configs import make_config


def read(config: RunConfig) -> RunConfig:
    """The config, written and read again."""
    return RunConfig.from_json(json.loads(json.dumps(config.to_json())))


def test_settings_are_built_once_for_all_seeds() -> None:
    first, second = (read(replace(make_config(), seed=seed)) for seed in (0, 1))
    assert first.settings is second.settings and first.seed != second.seed
    changed = first.settings.replace_values({"lr": 0.5})
    assert read(replace(make_config(), settings=changed)).train.lr == 0.5 != first.train.lr


def test_bad_settings_are_refused_each_time() -> None:
    data = json.loads(json.dumps(make_config().to_json()))
    data["train"]["batch"] = 0
    for _ in range(2):
        with pytest.raises(SettingsError, match="batch is 0"):
            RunConfig.from_json(data)


def test_a_module_of_others_is_built_each_time() -> None:
    data = json.loads(json.dumps(make_config().to_json()))
    data["model"] = {"name": "Net", "import_path": "nowhere:Net", "options": {"width": 3}}
    first, second = RunConfig.from_json(data), RunConfig.from_json(data)
    assert first.settings is not second.settings  # its meaning changes when the module is imported
