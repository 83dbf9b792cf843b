"""The kernels that models run on a GPU, in Triton's interpreter: loss and gradients of replicas as in plain torch.

Here are the models whose fused operations are chosen outside of `sdssm.ops`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from sdssm import ops
from sdssm.models import Classifier
from sdssm.runs.schema import resolve_settings
from sdssm.training.replicas import _Loss
from tests.interpreted import interpreted
from tests.ops.cases import assert_same

SMALL: dict[str, Any] = {"state": 4, "hidden": 5}
#: Model and settings; all have a preset of the paper for A5.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp readout": ("sd-ssm", {**SMALL, "readout": "mlp", "dictionary": 2}),
    "dropout": ("sd-ssm", {**SMALL, "readout": "mlp", "dictionary": 2, "dropout": 0.5}),
    "exact gradient": ("sd-ssm", {**SMALL, "readout": "mlp", "dictionary": 2, "exact_gradient": True}),
    "complex-diagonal": ("complex-diagonal", SMALL),
    "two layers": ("complex-diagonal", {**SMALL, "layers": 2, "generator": "separate", "radius": 0.9}),
    "regular-lrnn": ("regular-lrnn", {**SMALL, "block_size": 2, "embedding": 3}),
    "columns": ("regular-lrnn", {**SMALL, "block_size": 2, "embedding": 3, "normalisation": "columns"}),
    "rnn": ("rnn", {"state": 4}),
    "lstm": ("lstm", {"state": 4}),
}
REPLICAS, BATCH, LENGTH, SYMBOLS, CLASSES = 2, 3, 5, 2, 4


def loss_and_gradients(name: str, values: dict[str, Any]) -> dict[str, Tensor]:
    """Return losses, numbers of correct predictions and gradients of replicas with strings of several lengths."""
    settings = resolve_settings(name, "paper", "a5", values)
    models = [
        Classifier(settings.model, SYMBOLS, CLASSES, generator=torch.Generator().manual_seed(seed))
        for seed in range(REPLICAS)
    ]
    templates = [_Loss(model.double()) for model in models]
    parameters, buffers = stack_module_state(templates)
    draw = torch.Generator().manual_seed(7)
    inputs = {
        "tokens": torch.randint(SYMBOLS, (REPLICAS, BATCH, LENGTH), generator=draw),
        "labels": torch.randint(CLASSES, (REPLICAS, BATCH), generator=draw),
        "lengths": torch.tensor([[5, 1, 3], [2, 4, 5]]),
    }
    for kind, shape in models[0].noise_shapes(BATCH, LENGTH).items():
        inputs[f"noise.{kind}"] = torch.rand(REPLICAS, *shape, generator=draw)

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: dict[str, Tensor]) -> Any:
        return functional_call(templates[0], {**parameters, **buffers}, (inputs, settings.train.exact_gradient))

    losses, correct = vmap(loss)(parameters, buffers, inputs)
    grads = torch.autograd.grad(losses.sum(), list(parameters.values()))
    results = {f"grad {name}": grad for name, grad in zip(parameters, grads, strict=True)}
    return {"output losses": losses.detach(), "output correct": correct.double(), **results}


@interpreted
@pytest.mark.parametrize("case", CASES)
def test_replicas_as_in_plain_torch(case: str) -> None:
    with ops.use_backend("reference"):
        expected = loss_and_gradients(*CASES[case])
    with ops.use_backend("triton"):
        actual = loss_and_gradients(*CASES[case])
    assert_same(actual, expected, torch.float64, case)


@pytest.mark.parametrize("case", CASES)
def test_replicas_on_a_cpu_as_in_plain_torch(case: str) -> None:
    with ops.use_backend("reference"):
        expected = loss_and_gradients(*CASES[case])
    assert_same(loss_and_gradients(*CASES[case]), expected, torch.float64, case)
