"""The benchmark of the models: a row for each, a baseline that is a loop, and no time where losses differ."""

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
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "BATCH", 4)
    monkeypatch.setattr(models, "LENGTH", 6)


def test_examples() -> None:
    found = doctest.testmod(models)
    assert found.attempted and not found.failed


def test_every_model_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(["--device", "cpu", "--quick", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [row["model"] for row in found["rows"]] == list(MODELS)
    assert set(found["versions"]) == {"python", "torch", "sdssm"}
    for row in found["rows"]:
        assert row["us"] > 0 and row["baseline_us"] > 0 and row["parameters"] > row["transition"] >= 0, row
        assert row["ratio"] == pytest.approx(row["baseline_us"] / row["us"])
        assert row["us_a_model"] is None and row["mebibytes"] is None  # of a GPU alone
        assert ("no loop" in row["baseline"]) == (not models.has_loop(new_model(models.config(row["model"]))))
    assert printed.err.count("done") == len(MODELS)


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(["--device", "cpu", "--quick", "--models", "complex-diagonal"]) == 0
    *_, heads, line = capsys.readouterr().out.splitlines()
    assert " ".join(heads.split()) == "parameters transition one model baseline ratio each of 16 MiB"
    assert re.fullmatch(r"complex-diagonal +50,694 +33,664( +[\d,.]+){3} +- +-  loop (in the scans|of steps)", line)


def test_different_losses_are_refused_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: models.Baseline, way: models.Way) -> float:
        return right(self, way) * (1 + 3e-4 * (self.run.model.name == "sd-ssm"))

    right = models.Baseline.loss
    monkeypatch.setattr(models.Baseline, "loss", wrong)
    first, second = models.measure_all(["sd-ssm", "complex-diagonal"], CPU, (1, 0.0))
    assert "nothing is timed" in str(first["error"]) and "us" not in first
    assert "error" not in second


def test_a_kernel_of_torch_is_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = models.new_engine(models.config("complex-diagonal"), 1, CPU)
    baseline, fused = models.Baseline(engine), nn.GRU(1, 2, batch_first=True)

    def by_kernel(tokens: Tensor) -> Tensor:
        found: Tensor = fused(tokens[..., None].float())[0][:, -1].sum()
        return found

    assert list(baseline.ways()) == ["loop in the scans", "loop of steps"]
    monkeypatch.setattr(baseline, "by_scans", by_kernel)
    assert list(baseline.ways()) == ["loop of steps"]
    monkeypatch.setattr(baseline, "by_steps", by_kernel)
    with pytest.raises(RuntimeError, match="neither way is a loop"):
        baseline.ways()
