"""Training with states of 384 and 512 entries on a GPU, as on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import sdssm

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("state", [96, 384, 512])
def test_a_training_on_a_gpu_follows_that_on_the_cpu(state: int, tmp_path: Path) -> None:
    settings = {"state": state, "batch": 32, "train_length": 12, "log_every": 4}
    losses = {}
    for device in ("cpu", "cuda"):
        (run,) = sdssm.train("a5", steps=12, settings=settings, device=device, out=tmp_path / device)
        losses[device] = [event["loss"] for event in run.events() if "loss" in event]
    assert losses["cuda"] and losses["cuda"] == pytest.approx(losses["cpu"], rel=2e-3)


@pytest.mark.parametrize("state", [384, 512])
def test_a_small_machine_is_learned(state: int, tmp_path: Path) -> None:
    (run,) = sdssm.train("z7", steps=1_500, settings={"state": state}, device="cuda", out=tmp_path)
    assert sdssm.evaluate(run, max_length=100, strings=128, device="cuda").runs[0].accuracy[-1] > 99
