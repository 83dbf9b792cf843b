"""What a command says to the author of a model when a training stops, diverges or is resumed with the wrong model."""

from __future__ import annotations

import warnings
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from sdssm.cli import main
from sdssm.cli.training_results import report_stopped_runs
from sdssm.layers import MIXERS
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


def test_other_settings_for_a_run_that_has_ended_are_named(models: str, capsys: Capture) -> None:
    model = f"{models}:Good"
    train = ("train", "parity", "--model", model, "--quiet", *TINY)
    assert main((*train, "--steps", "2", "--out", "runs")) == 0
    code, _, err = run_command(capsys, "train", "--resume", "runs", "--model", model, "--steps", "4")
    assert code == 2 and "leave it out, or train again in another folder: sdssm train TASK --out DIR" in err
    code, _, err = run_command(capsys, *train, "--resume", "runs", "--steps", "4")
    assert code == 2 and "(steps 2, asked 4), which has ended and cannot be extended; train again with another" in err


def test_the_report_hints_only_at_commands_that_work(models: str, capsys: Capture) -> None:
    model = f"{models}:Good"
    assert main(("train", "parity", "--model", model, "--steps", "2", "--out", "runs", "--quiet", *TINY)) == 0
    _, out, _ = run_command(capsys, "report", "runs", "-o", "page.html")
    assert "1 run was not evaluated: sdssm evaluate runs/seed-0 --trust" in out
    assert "sdssm extract" not in out and "sdssm horizon" not in out and "sdssm certify" not in out
    tiny = ("--steps", "1", "--quiet", "--set", "batch=2", "state=2", "--out")
    assert main(("train", "parity", *tiny, "more/sd-ssm")) == 0
    assert (
        main(("train", "parity", "--model", "transformer", *tiny[:-3], "width=16", "heads=2", "--out", "more/t")) == 0
    )
    _, out, _ = run_command(capsys, "report", "more", "-o", "page.html")
    hints = [line for line in out.splitlines() if "sdssm " in line]
    assert [line.rpartition("sdssm ")[2].split()[0] for line in hints] == ["evaluate", "extract", "certify", "horizon"]
    assert "2 runs were not evaluated" in hints[0] and "1 run has no extraction: sdssm extract more/sd-ssm" in hints[1]


def test_the_models_without_a_state_are_known_without_torch() -> None:
    from sdssm.cli.report import STATELESS

    assert set(STATELESS) == {name for name, mixer in MIXERS.items() if not mixer.is_recurrent}


def test_a_model_that_has_not_learned_its_task_is_not_to_be_snapped(models: str, capsys: Capture) -> None:
    model = f"{models}:Good"
    assert main(("train", "parity", "--model", model, "--steps", "2", "--out", "runs", "--quiet", *TINY)) == 0
    for command in (("certify", "runs"), ("snap", "runs", "--out", "snapped")):
        code, _, err = run_command(capsys, *command, "--model", model)
        assert code == 2 and "it misclassifies strings of parity, such as '" in err, err
        assert "to snap" in err and "lstar" not in err and "snap it first" not in err


def test_without_any_runs_the_error_says_how_to_make_one(models: str, capsys: Capture) -> None:
    for command in (("runs",), ("evaluate", "runs"), ("report", "runs")):
        _, out, err = run_command(capsys, *command)
        advice = "there is no folder runs yet; sdssm train parity --steps 400 makes one"
        assert advice in err or command[0] == "report", (command, out, err)
    code, _, err = run_command(capsys, "runs", "--verify")
    assert code == 2 and "sdssm train TASK --out DIR makes one" in err
