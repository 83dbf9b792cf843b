"""The benchmark of the models: rows, baselines that are loops, and errors if losses differ."""

from __future__ import annotations

import doctest
import json
import re

import pytest
import torch
from torch import Tensor, nn

from benchmarks import models
from sdssm.models import MODELS
from sdssm.training.engine import new_model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "BATCH", 4)
    monkeypatch.setattr(models, "LENGTH", 6)


def test_doctests() -> None:
    result = doctest.testmod(models)
    assert result.attempted and not result.failed


def test_every_model_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(["--device", "cpu", "--quick", "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert [row["model"] for row in result["rows"]] == list(MODELS)
    assert set(result["versions"]) == {"python", "torch", "sdssm"}
    for row in result["rows"]:
        assert row["us"] > 0 and row["baseline_us"] > 0 and row["parameters"] > row["transition"] >= 0, row
        assert row["ratio"] == pytest.approx(row["baseline_us"] / row["us"])
        assert row["us_a_model"] is None and row["mebibytes"] is None  # measured on a GPU only
        assert ("no loop" in row["baseline"]) == (not models.has_loop(new_model(models.run_config(row["model"]))))
    assert printed.err.count("done") == len(MODELS)


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(["--device", "cpu", "--quick", "--models", "complex-diagonal"]) == 0
    *_, header, line = capsys.readouterr().out.splitlines()
    assert " ".join(header.split()) == "parameters transition one model baseline ratio each of 16 MiB"
    assert re.fullmatch(r"complex-diagonal +50,694 +33,664( +[\d,.]+){3} +- +-  loop (in the scans|of steps)", line)


def test_different_losses_are_an_error_and_other_models_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled_loss(self: models.Baseline, loss_function: models.LossFunction) -> float:
        return original_loss(self, loss_function) * (1 + 3e-4 * (self.run.model.name == "sd-ssm"))

    original_loss = models.Baseline.loss
    monkeypatch.setattr(models.Baseline, "loss", scaled_loss)
    first, second = models.measure_all(["sd-ssm", "complex-diagonal"], CPU, (1, 0.0))
    assert "nothing is timed" in str(first["error"]) and "us" not in first
    assert "error" not in second


def test_fused_torch_kernel_does_not_count_as_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = models.new_engine(models.run_config("complex-diagonal"), 1, CPU)
    baseline, fused = models.Baseline(engine), nn.GRU(1, 2, batch_first=True)

    def loss_by_kernel(tokens: Tensor) -> Tensor:
        result: Tensor = fused(tokens[..., None].float())[0][:, -1].sum()
        return result

    assert list(baseline.loss_functions()) == ["loop in the scans", "loop of steps"]
    monkeypatch.setattr(baseline, "loss_by_scan", loss_by_kernel)
    assert list(baseline.loss_functions()) == ["loop of steps"]
    monkeypatch.setattr(baseline, "loss_by_step", loss_by_kernel)
    with pytest.raises(RuntimeError, match="neither loss function loops"):
        baseline.loss_functions()
