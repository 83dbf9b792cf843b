"""Snapping: a trained model replaced by an exact one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch

from sdssm.automata import Machine, get_machine
from sdssm.cli import main
from sdssm.cli import snap as command
from sdssm.errors import OutputError
from sdssm.evaluation import evaluate
from sdssm.exact import snap
from sdssm.exact.errors import WrongMachineWarning
from sdssm.models import Classifier, ModelSettings, TokenModel
from sdssm.runs import load
from tests.evaluation.machines import exact, tiring_parity
from tests.evaluation.test_evaluate import create_run
from tests.exact.test_extract import noisy


def accuracy(model: TokenModel, name: str, length: int) -> float:
    return evaluate(model, task=name, lengths=length, strings=64).runs[0].accuracy[0]


@pytest.mark.parametrize("query", [False, True])
def test_drifting_model_becomes_exact_at_every_length(query: bool) -> None:
    model = noisy(exact(get_machine("a5"), query=query), 0.02)
    assert accuracy(model, "a5", 5) == 100 and accuracy(model, "a5", 200) < 50
    snapped = snap(model, max_states=200)
    assert accuracy(snapped.model, "a5", 10_000) == 100
    assert not snapped.extraction.faithful  # this is about the trained model
    assert snapped.model.query is None
    assert snapped.certificate.horizon is None and snapped.certificate.float_horizon is None


def test_snapped_model_has_the_same_classes() -> None:
    """The model has seven classes, but predicts at most two of them."""
    settings = ModelSettings(norm="none", readout="linear")
    model = Classifier(settings, 3, 7, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        model.readout.weight.mul_(1e-3)
        assert model.readout.bias is not None
        model.readout.bias.copy_(torch.eye(7)[4])
    snapped = snap(model)
    assert (snapped.model.n_symbols, snapped.model.n_classes) == (3, 7)
    tokens = torch.randint(3, (4, 10), generator=torch.Generator().manual_seed(1))
    assert torch.equal(snapped.model(tokens).argmax(-1), model(tokens).argmax(-1))
    assert snapped.model(tokens).dtype == torch.float64
    assert snapped.certificate.float_horizon is None  # rows of zeros, of the other classes, are not rounded


def test_wrong_model_is_snapped_to_a_wrong_machine() -> None:
    """The snapped model is exact for the machine that was learned, even if that is wrong."""
    snapped = snap(exact(tiring_parity(5)))
    assert snapped.extraction.machine.distinguish(get_machine("parity")) == (1,) * 5
    assert accuracy(snapped.model, "parity", 100) < 90
    as_task = Machine(table=tiring_parity(5).table, outputs=tiring_parity(5).outputs)
    assert evaluate(snapped.model, task=as_task, lengths=1000, strings=64).runs[0].accuracy == (100.0,)


def test_snap_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = create_run(tmp_path / "run", get_machine("d4"), task="d4")
    parser = argparse.ArgumentParser()
    command.add_command(parser.add_subparsers())
    options = parser.parse_args(["snap", str(run.path), "--out", str(tmp_path / "out")])
    options.run(options)
    out = capsys.readouterr().out
    assert "the same as that of d4" in out and "proved to emulate the extracted machine for every length" in out
    assert accuracy(load(tmp_path / "out"), "d4", 1000) == 100
    written = json.loads((tmp_path / "out" / "extraction.json").read_text())
    assert written["extraction"]["equals_task"] is True
    assert written["certificate"]["horizon"] is None
    options = parser.parse_args(["snap", str(run.path), "--out", str(run.path)])
    with pytest.raises(OutputError, match="holds a run"):
        options.run(options)


def test_snap_command_says_if_the_machine_is_not_that_of_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(tmp_path / "run", tiring_parity(5), task="parity")
    parser = argparse.ArgumentParser()
    command.add_command(parser.add_subparsers())
    options = parser.parse_args(["snap", str(run.path), "--out", str(tmp_path / "out")])
    with pytest.warns(WrongMachineWarning, match="not the machine of parity: they first differ on the string '11111'"):
        options.run(options)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("WARNING: the extracted machine is not the machine of parity")
    assert "has the output 0 and the task 1" in first
    # The exact model keeps the task, so its accuracy and its certificate are about the task.
    assert main(["certify", str(tmp_path / "out")]) == 0
    assert "misclassifies a string of length 5" in capsys.readouterr().out


def test_compiled_model_is_certified_and_measured_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "d4", "--out", str(tmp_path / "d4")]) == 0
    capsys.readouterr()
    assert main(["certify", str(tmp_path / "d4"), "--task", "d4"]) == 0
    assert "every length" in capsys.readouterr().out
    assert main(["horizon", str(tmp_path / "d4"), "--task", "d4", "--max-length", "100"]) == 0
    assert "as at all shorter ones: 100" in capsys.readouterr().out
    for command_words in (["certify"], ["horizon", "--max-length", "20"], ["extract", "--strings", "16"]):
        assert main([*command_words, str(tmp_path / "d4")]) == 0  # the folder knows its task
        assert "d4" in capsys.readouterr().out
    (tmp_path / "d4" / "task.json").unlink()
    for name in ("certify", "horizon"):
        assert main([name, str(tmp_path / "d4")]) == 2
        assert capsys.readouterr().err.endswith("does not say which task it is for; name the task, as in --task a5\n")
