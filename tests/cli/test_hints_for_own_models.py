"""What a command says to the author of a model when a training stops, diverges or is resumed with the wrong model."""

from __future__ import annotations

import warnings
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from sdssm.cli import main
from sdssm.cli.training_results import report_stopped_runs
from sdssm.models import registry
from tests.edited_files import edit_text
from tests.programs import run_command
from tests.strangers import SUM, stranger

__all__ = ["stranger"]
Capture = pytest.CaptureFixture[str]
TINY = ("--device", "cpu", "--set", "batch=4", "train_length=4")
MODELS = """
from torch import nn

class Good(nn.Module):
    def __init__(self, n_symbols, n_classes):
        super().__init__()
        self.table = nn.Embedding(n_symbols, n_classes)
    def forward(self, tokens):
        return self.table(tokens)

class Diverging(Good):
    def forward(self, tokens):
        logits = self.table(tokens)
        return logits * float("inf") if self.training else logits
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a file with models, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    file = tmp_path / "own_models.py"
    file.write_text(MODELS)
    return str(file)


def test_the_command_after_ctrl_c_names_the_model(stranger: Path, capsys: Capture) -> None:
    assert main(("train", "parity", "--model", SUM, "--steps", "2", "--out", "runs", "--quiet", *TINY)) == 0
    status = Path("runs/seed-0/status.json")
    edit_text(status, "finished", "stopped")
    with pytest.raises(KeyboardInterrupt), report_stopped_runs(Path("runs")):
        raise KeyboardInterrupt
    assert capsys.readouterr().err.endswith(f"to continue: sdssm train --resume runs --model {SUM}\n")


def test_a_diverged_training_says_so_and_is_not_evaluated(models: str, capsys: Capture) -> None:
    model = f"{models}:Diverging"
    code, out, err = run_command(capsys, "train", "parity", "--model", model, "--steps", "3", "--out", "r", *TINY)
    assert code == 2 and "To measure" not in out
    assert err.startswith("sdssm: 1 run in r diverged: the loss was not finite by step 3; ")
    assert err.endswith("; try a smaller learning rate, as in --lr 0.0001\n")


def test_a_model_is_shown_with_the_task_and_how_it_reads(models: str, capsys: Capture) -> None:
    _, out, _ = run_command(capsys, "models", f"{models}:Good", "--task", "parity")
    assert "4 (on parity: 2 symbols, 2 classes)" in out and "whole strings, all prefixes at once" in out


def test_a_plug_in_whose_name_is_taken_is_reported_once(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    points = EntryPoints([EntryPoint("lstm", SUM, registry.ENTRY_POINTS)])
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    monkeypatch.delattr(registry, "__warningregistry__", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        _, _, err = run_command(capsys, "models", "lstn")  # it asks for the plug-ins more than once
    assert err.count("a name already taken") == 1
