"""`--set NAME=VALUE`: every setting can be reached from the command line, and a wrong value is one line."""

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

#: The smallest training there is, by the names that it sets.
TINY: dict[str, Any] = {"steps": 1, "batch": 2, "state": 4, "dictionary": 2, "train_length": 6}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(capsys: pytest.CaptureFixture[str], *items: str) -> tuple[int, str]:
    """Train with --set and these items; the exit code and what was said on standard error."""
    code, _, err = run_command(capsys, "train", "parity", "--device", "cpu", "--quiet", "--out", "r", "--set", *items)
    return code, err


def config() -> dict[str, Any]:
    """What stands in the run's config.json, by the part of the settings."""
    found = json.loads(Path("r/seed-0/config.json").read_text())
    model = found["model"]
    return {"mixer": model.pop("mixer"), "model": model, "train": found["train"]}


def defaults() -> dict[str, Any]:
    found = json.loads(json.dumps(settings_to_dict(Settings())))
    return {"mixer": found["model"].pop("mixer"), **found}


@pytest.mark.parametrize("name", setting_names(Settings()))
def test_every_setting_by_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, value, beside = OTHERS[name]
    others = {key: tiny for key, tiny in {**TINY, **beside}.items() if key != name}
    code, err = trained(capsys, f"{name}={text}", *(f"{key}={json.dumps(tiny)}" for key, tiny in others.items()))
    assert (code, err) == (0, "")
    wanted = defaults()
    for key, given in {**others, name: value}.items():
        wanted[setting_names(Settings())[key][0]][key] = list(given) if isinstance(given, tuple) else given
    assert config() == wanted  # this one, the ones beside it, and no other
    opened = RunFolder.open("r/seed-0")
    assert json.loads(json.dumps(settings_to_dict(opened.config.train))) == wanted["train"]
    assert opened.status == "finished"


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
def test_ways_to_write_it(item: str, part: str, value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained(capsys, item, *(f"{key}={tiny}" for key, tiny in TINY.items())) == (0, "")
    assert config()[part][item.partition("=")[0].strip().replace("-", "_")] == value


def test_several_times_and_together_with_its_shortcuts(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "state=4", "--steps", "1", "--batch", "2", "--set", "dictionary=2", "lr=1", "--out", "r"]
    code, _, err = run_command(capsys, "train", "parity", "--train-length", "6", "--device", "cpu", *arguments)
    assert (code, err) == (0, "")
    found = config()
    assert (found["mixer"]["state"], found["mixer"]["dictionary"]) == (4, 2)
    assert [found["train"][name] for name in ("steps", "batch", "train_length", "lr")] == [1, 2, 6, 1.0]


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
def test_one_line_and_no_folder(
    items: list[str], message: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    code, err = trained(capsys, *items)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err and len(err) < 500
    assert list(folder.iterdir()) == []
