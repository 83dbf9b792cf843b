"""What is said if a model is named wrongly, or if its file trains while it is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

import sdssm
from sdssm.errors import ModelError, UnknownNameError
from sdssm.models import registry
from sdssm.models.registry import find_entry

CODE = """
import torch
from torch import nn

class Gru(nn.Module):
    pass

def build(n_symbols, n_classes):
    return nn.Embedding(n_symbols, n_classes)

number = 3
"""
TRAINING = f"{CODE}\nimport sdssm\nsdssm.train('parity', model=build, steps=1, out='out', device='cpu')\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with two files, and no registered models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    (tmp_path / "nets_of_mine.py").write_text(CODE)
    (tmp_path / "script_of_mine.py").write_text(TRAINING)
    return tmp_path


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nets_of_mine.py", "write nets_of_mine.py:Gru; it also defines build"),
        ("nets_of_mine", "write nets_of_mine:Gru; it also defines build"),
        ("missing.py", "write missing.py:Name"),
        ("nets_of_mine:gru", "nets_of_mine has no 'gru'; did you mean 'Gru'?"),
        ("nets_of_mine.py:xyz", "has no 'xyz'; known: Gru, build"),
        ("nets_of_mine:number", "nets_of_mine:number is 3; it cannot be registered; pass a class or a function"),
        ("x" * 5000, "known: sd-ssm"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(model: str, message: str) -> None:
    with pytest.raises((ModelError, UnknownNameError)) as caught:
        find_entry(model)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["My GRU!", "", "-gru", " gru", "a b", "a/b"])
def test_a_name_that_no_command_line_takes_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="use letters, digits, dashes and dots"):
        sdssm.register(name)(lambda n_symbols, n_classes: None)
    assert registry._registered == {}


def test_a_file_that_trains_while_it_is_imported_is_refused(folder: Path) -> None:
    for model in ("script_of_mine.py:build", "script_of_mine:build"):
        with pytest.raises(
            ModelError, match='starts a training while it is imported; put that under `if __name__ == "__'
        ):
            find_entry(model)
    assert not (folder / "out").exists()
    sdssm.train("parity", model="nets_of_mine:build", steps=1, out="out", settings={"batch": 2}, device="cpu")
