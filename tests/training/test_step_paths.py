"""Ways to compute a step on a CPU: without autograd, in pieces, on several threads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sdssm import ops
from sdssm.ops import compiled
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.tasks import get_task
from sdssm.training.batch_pieces import LEAST_STRINGS, gradient_of_pieces, split_batch
from sdssm.training.engine import TrainingEngine, new_model
from sdssm.training.replicas import SideBySideReplicas, loss_on_inputs

CPU = torch.device("cpu")


def config(name: str, preset: str, **values: Any) -> RunConfig:
    task = get_task("a5" if name == "sd-ssm" else "parity")
    return create_config(task, 0, resolve_settings(name, preset, task.name, {"batch": 16, **values}), preset)


def trained(run: RunConfig, steps: int = 3) -> TrainingEngine:
    engine = TrainingEngine(get_task(run.task), [run], CPU)
    engine.advance(steps)
    return engine


@pytest.mark.parametrize(
    ("preset", "values"),
    [
        ("paper", {}),
        ("paper", {"state": 6, "dictionary": 3, "norm": "none", "readout_bias": False}),
        ("paper", {"state": 9, "norm": "plain", "input_matrix": False, "rescale": True, "initial_state": "learned"}),
        ("paper", {"state": 12, "exact_gradient": True, "column_norm": None}),
        ("paper", {"readout": "cosine"}),
        ("scale-free", {}),
        ("scale-free", {"state": 12, "attraction_gate": 0.0, "scale": 2.0, "scale_end": 60.0}),
        ("scale-free", {"state": 12, "attraction": 2.0, "attraction_gate": 0.0, "norm": "affine"}),
        ("scale-free", {"state": 12, "projection": False, "attraction_gate": 0.0, "exact_gradient": True}),
        ("scale-free", {"state": 12, "attraction": 0.0, "batch": 1}),
    ],
    ids=str,
)
@pytest.mark.skipif(not compiled.is_available(), reason="needs numba")
def test_the_gradient_without_autograd_is_bit_identical(preset: str, values: dict[str, Any]) -> None:
    run = config("sd-ssm", preset, **values)
    direct = trained(run)
    assert isinstance(direct.replicas, SideBySideReplicas)
    assert direct.replicas._direct is not None
    autograd = TrainingEngine(get_task(run.task), [run], CPU)
    assert isinstance(autograd.replicas, SideBySideReplicas)
    autograd.replicas._direct = None
    autograd.advance(3)
    assert torch.equal(direct.replicas.flat, autograd.replicas.flat)
    assert torch.equal(direct.window().loss, autograd.window().loss)


def test_models_with_other_operations_use_autograd() -> None:
    for values in (
        {"query": True},
        {"readout": "mlp"},
        {"temperature": 2.0},
        {"embedding": 4},
    ):
        replicas = trained(config("sd-ssm", "paper", **values), 0).replicas
        assert isinstance(replicas, SideBySideReplicas)
        assert replicas._direct is None, values


def test_a_backend_that_the_user_chose_is_used() -> None:
    engine = trained(config("sd-ssm", "paper"), 0)
    with ops.use_backend("reference"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sdssm.ops.token.cpu.forward", None)
        engine.advance(1)
    with compiled.without_numba(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sdssm.training.direct_gradient.DirectGradient.gradient_parts", None)
        engine.advance(1)


@pytest.mark.parametrize("name", ["transformer", "sd-ssm"])
def test_weights_do_not_depend_on_the_number_of_threads(name: str) -> None:
    values = {"state": 96, "train_length": 60, "shortest": 60} if name == "sd-ssm" else {}
    run = config(name, "default" if name == "transformer" else "paper", **{"batch": 2 * LEAST_STRINGS, **values})
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(trained(run).replicas.flat.clone())
        assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_the_gradient_of_pieces_is_that_of_the_batch() -> None:
    run, strings = config("transformer", "default"), 2 * LEAST_STRINGS + 7
    model = new_model(run)
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(0)
    inputs = {"tokens": torch.randint(0, 2, (strings, 5), generator=generator)}
    inputs["labels"] = inputs["tokens"].sum(1) % 2
    for noise, shape in model.noise_shapes(strings, 5).items():
        inputs[f"noise.{noise}"] = torch.rand(shape, generator=generator)

    def gradient(piece: Any) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        loss, correct = loss_on_inputs(model, piece, exact_gradient=False)
        return loss.detach(), correct, list(torch.autograd.grad(loss, parameters))

    assert [len(piece["tokens"]) for piece in split_batch(inputs)] == [68, 67]
    whole, pieces = gradient(inputs), gradient_of_pieces(gradient, inputs)
    torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-6)


def test_a_loss_that_is_no_mean_over_strings_is_not_split() -> None:
    inputs = {"tokens": torch.zeros(1000, 3), "gain_penalty": torch.ones(())}
    assert split_batch(inputs) == [inputs]
