"""`sdssm settings`: every setting with its meaning."""

from __future__ import annotations

import json

import pytest

from sdssm.layers import MIXERS
from sdssm.layers.settings import MIXER_SETTINGS
from sdssm.models import MODELS
from sdssm.runs.schema import NOT_SETTINGS, resolve_settings, setting_names
from sdssm.settings import describe_settings
from tests.programs import run_command


def test_settings_of_all_models(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "settings")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    for name in MODELS:
        assert any(line.startswith("Layer of ") and name in line for line in lines)
    (row,) = (line for line in lines if line.startswith("clip "))
    assert row.split(maxsplit=1)[0] == "clip"
    assert "1.0  " in row and "above 0, or none" in row and "the greatest norm of a gradient" in row


def test_settings_of_one_model_have_its_own_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "settings", "transformer", "--json")
    assert (code, err) == (0, "")
    listed = json.loads(out)
    assert set(listed) == {"training", "model", "layers"} and list(listed["layers"]) == ["transformer"]
    rows = {row["name"]: row for row in (*listed["training"], *listed["model"], *listed["layers"]["transformer"])}
    assert set(rows) == set(setting_names(resolve_settings("transformer", "default", "a5")))
    assert (rows["lr"]["default"], rows["block"]["default"], rows["heads"]["default"]) == (1e-4, "post-norm", 8)
    assert rows["heads"]["values"] == "1 to 4,096"
    code, out, _ = run_command(capsys, "settings", "--json")
    assert list(json.loads(out)["layers"]) == list(MODELS)


def test_an_unknown_model_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "settings", "mambo")
    assert (code, out, err) == (2, "", "sdssm: there is no model and no setting 'mambo'; did you mean 'mamba'?\n")


def test_every_mixer_has_the_settings_of_its_name() -> None:
    assert {name: mixer.Settings for name, mixer in MIXERS.items()} == MIXER_SETTINGS
    assert list(MIXERS) == list(MIXER_SETTINGS)


@pytest.mark.parametrize("name", MODELS)
def test_every_setting_has_a_meaning_and_values(name: str) -> None:
    settings = resolve_settings(name, "default" if name != "sd-ssm" else "scale-free", "a5")
    for part in (settings.model.mixer, settings.model, settings.train):
        for setting in describe_settings(type(part)):
            if setting.name not in NOT_SETTINGS:
                assert len(setting.meaning) > 5 and setting.values, setting


def test_one_setting_with_the_default_of_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "settings", "lr")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["name", "default", "values", "meaning", "models"]
    assert any(line.startswith("lr ") and line.endswith("transformer") for line in out.splitlines())
    code, out, _ = run_command(capsys, "settings", "train-length", "--json")
    assert code == 0 and [entry["name"] for entry in json.loads(out)] == ["train_length"]
    code, out, err = run_command(capsys, "settings", "lrr")
    assert (code, out) == (2, "") and err.count("\n") == 1
