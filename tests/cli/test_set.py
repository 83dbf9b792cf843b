"""`--set NAME=VALUE`: every setting can be set on the command line, and a wrong value is an error in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sdssm.runs import RunFolder
from sdssm.runs.schema import Settings, setting_names
from sdssm.settings import settings_to_dict
from tests.programs import run_command
from tests.test_settings import OTHERS

#: Settings of the smallest training.
TINY: dict[str, Any] = {"steps": 1, "batch": 2, "state": 4, "dictionary": 2, "train_length": 6}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train_with(capsys: pytest.CaptureFixture[str], *items: str) -> tuple[int, str]:
    """Train with --set and these items; return the exit code and standard error."""
    code, _, err = run_command(capsys, "train", "parity", "--device", "cpu", "--quiet", "--out", "r", "--set", *items)
    return code, err


def read_config() -> dict[str, Any]:
    """The settings in the run's config.json: those of mixer, model and training."""
    config = json.loads(Path("r/seed-0/config.json").read_text())
    model = config["model"]
    return {"mixer": model.pop("mixer"), "model": model, "train": config["train"]}


def default_config() -> dict[str, Any]:
    settings = json.loads(json.dumps(settings_to_dict(Settings())))
    settings["train"]["sampling"] = "uniform"  # what "auto" stands for: uniform strings cover parity
    return {"mixer": settings["model"].pop("mixer"), **settings}


@pytest.mark.parametrize("name", setting_names(Settings()))
def test_every_setting_can_be_set_by_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, value, needed = OTHERS[name]
    others = {key: tiny for key, tiny in {**TINY, **needed}.items() if key != name}
    code, err = train_with(capsys, f"{name}={text}", *(f"{key}={json.dumps(tiny)}" for key, tiny in others.items()))
    assert (code, err) == (0, "")
    expected = default_config()
    for key, setting in {**others, name: value}.items():
        expected[setting_names(Settings())[key][0]][key] = list(setting) if isinstance(setting, tuple) else setting
    assert read_config() == expected  # no other setting has changed
    folder = RunFolder.open("r/seed-0")
    assert json.loads(json.dumps(settings_to_dict(folder.config.train))) == expected["train"]
    assert folder.status == "finished"


@pytest.mark.parametrize(
    ("item", "part", "value"),
    [
        ("column_norm=NONE", "mixer", None),
        ("column_norm=null", "mixer", None),
        ("column-norm=1.5", "mixer", 1.5),
        (" column_norm = 2 ", "mixer", 2.0),
        ("norm=None", "model", "none"),
        ("skip=TRUE", "mixer", True),
        ("log_every=1e1", "train", 10),
        ("log_every=1_000", "train", 1000),
        ("betas=[0,0.5]", "train", [0.0, 0.5]),
        ('schedule="constant"', "train", "constant"),
    ],
)
def test_ways_to_write_a_value(item: str, part: str, value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_with(capsys, item, *(f"{key}={tiny}" for key, tiny in TINY.items())) == (0, "")
    assert read_config()[part][item.partition("=")[0].strip().replace("-", "_")] == value


def test_set_may_be_repeated_and_mixed_with_options(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "state=4", "--steps", "1", "--batch", "2", "--set", "dictionary=2", "lr=1", "--out", "r"]
    code, _, err = run_command(capsys, "train", "parity", "--train-length", "6", "--device", "cpu", *arguments)
    assert (code, err) == (0, "")
    config = read_config()
    assert (config["mixer"]["state"], config["mixer"]["dictionary"]) == (4, 2)
    assert [config["train"][name] for name in ("steps", "batch", "train_length", "lr")] == [1, 2, 6, 1.0]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (['state="4"'], "state is '4'; it must be a whole number"),
        (["state=true"], "state is True; it must be a whole number"),
        (["state=none"], "state is None; it must be a whole number"),
        (["state="], "state is ''; it must be a whole number"),
        (["state=inf"], "state is inf; it must be a whole number"),
        (["lr=nan"], "lr is nan; it must be a finite number"),
        ([f"lr={'9' * 400}"], "it must be a finite number"),
        ([f"state={'9' * 5000}"], "it must be a whole number"),
        (["skip=1"], "skip is 1; it must be true or false"),
        (["skip=yes"], "skip is 'yes'; it must be true or false"),
        (["norm=3"], "norm is 3; it must be a word"),
        (["norm=plane"], "norm is 'plane'; did you mean 'plain'?"),
        (["readout=none"], "readout is 'none'; "),
        (["betas=0.9"], "betas is 0.9; it must be a list of numbers"),
        (["betas=0.9,0.99"], "betas is '0.9,0.99'; it must be a list of numbers"),
        (["betas=[0.9]"], "betas is [0.9]; it must be a list of numbers"),
        (["mixer={}"], "there is no setting 'mixer'"),
        (["name=x"], "there is no setting 'name'"),
        (["state=4", "state=5"], "state is set twice; keep one of them"),
        (["train_length=6", "train-length=7"], "train_length is set twice; keep one of them"),
        (["width=1"], "width is 1, but 2 symbols need 2"),
        (["initial_state=given"], "set initial_state=learned, or state_embedding too"),
        (["steps=none"], "steps is None; it must be a whole number"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_value_is_one_line_and_creates_no_folder(
    items: list[str], message: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    code, err = train_with(capsys, *items)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err and len(err) < 500
    assert list(folder.iterdir()) == []
