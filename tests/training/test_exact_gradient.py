"""The setting `exact_gradient`: the gradient of the label's logit near a loss of zero."""

from __future__ import annotations

import pytest
import torch

from sdssm.models.presets import PRESETS
from sdssm.runs.schema import create_config, resolve_settings
from sdssm.tasks import get_task
from sdssm.training.engine import TrainingEngine

#: Linear readout in one kernel, and readouts in plain torch: with a hidden layer, and with a centre for each state.
KINDS = [("sd-ssm", "paper"), ("complex-diagonal", "paper"), ("sd-ssm", "states")]


def train(model: str, preset: str, *, exact: bool) -> torch.Tensor:
    """Return the parameters after a few steps on parity."""
    task = get_task("parity")
    values = {"exact_gradient": exact, "steps": 20, "batch": 16, "train_length": 8}
    if preset == "states":
        values["centres"] = 2  # one for each state of parity
    config = create_config(task, 0, resolve_settings(model, preset, "parity", values), preset)
    engine = TrainingEngine(task, [config], torch.device("cpu"))
    engine.advance(5)
    return engine.replicas.flat.detach().clone()


@pytest.mark.parametrize(("model", "preset"), KINDS)
def test_both_forms_train_alike_at_usual_losses(model: str, preset: str) -> None:
    plain, exact = (train(model, preset, exact=exact) for exact in (False, True))
    assert not torch.equal(plain, exact)  # the setting reaches the loss: the rounding differs
    torch.testing.assert_close(plain, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("exact", [False, True])
def test_the_label_keeps_its_gradient_near_a_loss_of_zero(exact: bool) -> None:
    task = get_task("parity")
    values = {"exact_gradient": exact, "batch": 4, "steps": 1}
    config = create_config(task, 0, resolve_settings("sd-ssm", "paper", "parity", values), "paper")
    engine = TrainingEngine(task, [config], torch.device("cpu"))
    replicas = engine.replicas
    weight, bias = replicas.leaf("readout.weight"), replicas.leaf("readout.bias")
    assert weight is not None and bias is not None
    with torch.no_grad():
        weight.zero_()
        bias[0] = torch.tensor([25.0, 0.0])  # every string is predicted to have label 0, with a loss of 1e-11
    inputs = {"tokens": torch.zeros(1, 4, 3, dtype=torch.int64), "labels": torch.zeros(1, 4, dtype=torch.int64)}
    _, correct, gradient = replicas.gradient(inputs, {})
    assert correct.item() == 4
    label, other = replicas.named(gradient[0])["readout.bias"].tolist()
    assert other > 0
    assert label == pytest.approx(-other, rel=1e-5) if exact else label == 0


def test_published_presets_have_the_published_gradient() -> None:
    for name in PRESETS["paper"]:
        for task in PRESETS["paper"][name]:
            assert not resolve_settings(name, "paper", task, {}).train.exact_gradient
