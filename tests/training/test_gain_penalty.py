"""The penalty on unequal gains: its value, its gradients, replicas side by side, and models that have no gains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call

from sdssm.errors import SettingsError
from sdssm.models import Classifier
from sdssm.models.gains import gain_variance, log_gains
from sdssm.runs.schema import RunConfig, create_config, resolve_settings
from sdssm.tasks import get_task
from sdssm.training.engine import TrainingEngine
from sdssm.training.planning import check_config

SMALL = {"state": 6, "dictionary": 3, "batch": 16, "train_length": 6, "steps": 40, "lr": 1e-2, "warmup": 0.0}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def configure(seed: int = 0, model: str = "sd-ssm", **changes: Any) -> RunConfig:
    values = {**SMALL, **changes} if model == "sd-ssm" else changes
    preset = "scale-free" if model == "sd-ssm" else "default"
    return create_config(get_task("parity"), seed, resolve_settings(model, preset, "parity", values), preset)


def test_gain_variance_is_that_of_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    A, states = torch.randn(3, 4, 4, generator=generator), torch.randn(5, 4, generator=generator)
    gains = [[math.log(float((a @ x).norm() / x.norm())) for x in states] for a in A]
    np.testing.assert_allclose(log_gains(A, states).numpy(), gains, rtol=1e-5, atol=1e-6)
    assert float(gain_variance(A, states)) == pytest.approx(float(np.var(gains, axis=1).mean()), rel=1e-5)
    assert float(gain_variance(A, 7 * states)) == pytest.approx(float(gain_variance(A, states)), rel=1e-5)
    rotations = torch.linalg.qr(A)[0] * torch.tensor([1.0, 0.1, 30.0])[:, None, None]
    assert float(gain_variance(rotations, states)) < 1e-10  # equal gains, another one for each symbol


@pytest.mark.parametrize("changes", [{}, {"query": True}, {"skip": True}, {"transition": "nonnegative"}])
def test_gradients_of_the_penalty_agree_with_finite_differences(changes: dict[str, Any]) -> None:
    settings = configure(**{**SMALL, "state": 3, "dictionary": 2, **changes}).model
    model = Classifier(settings, 2, 2, generator=torch.Generator().manual_seed(0)).double()
    tokens, labels = torch.tensor([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), torch.tensor([0, 0, 1])
    lengths, penalty = torch.tensor([2, 3, 1]), torch.tensor(3.0, dtype=torch.float64)
    leaves = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self) -> torch.Tensor:
            return model.loss(tokens, labels, lengths=lengths, gain_penalty=penalty)[0]

    def run(*parameters: torch.Tensor) -> torch.Tensor:
        names = [f"model.{name}" for name in leaves]
        return functional_call(Loss(), dict(zip(names, parameters, strict=True)), ())  # type: ignore[no-any-return]  # result of a module

    assert torch.autograd.gradcheck(run, tuple(leaves.values()))
    with torch.no_grad():
        assert float(run(*leaves.values())) > float(model.loss(tokens, labels, lengths=lengths)[0])


@pytest.mark.parametrize("device", DEVICES)
def test_replicas_with_different_penalties_train_as_they_do_alone(device: str) -> None:
    task, penalties = get_task("parity"), (1.0, 30.0)
    runs = [configure(seed, gain_penalty=penalty) for seed, penalty in enumerate(penalties)]
    together = TrainingEngine(task, runs, torch.device(device))
    together.advance(8)
    for replica, run in enumerate(runs):
        alone = TrainingEngine(task, [run], torch.device(device))
        alone.advance(8)
        for (name, actual), expected in zip(
            together.model(replica).state_dict().items(), alone.model(0).state_dict().values(), strict=True
        ):
            torch.testing.assert_close(actual, expected, rtol=3e-3, atol=3e-3, msg=name)


def test_the_penalty_makes_gains_equal() -> None:
    task = get_task("parity")
    spreads = []
    for penalty in (0.0, 100.0):
        engine = TrainingEngine(task, [configure(gain_penalty=penalty)], torch.device("cpu"))
        engine.advance(40)
        model = engine.model(0)
        assert isinstance(model, Classifier)
        with torch.no_grad():
            tokens = torch.randint(2, (64, 6), generator=torch.Generator().manual_seed(1))
            symbols, states = model._final_states(tokens, None, None)
            spreads.append(float(gain_variance(symbols.A, states)))
    assert spreads[1] < spreads[0] / 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "rnn", "gain_penalty": 1.0}, "only a single SD-SSM without an input matrix has gains"),
        ({"layers": 2, "gain_penalty": 1.0}, "only a single SD-SSM"),
        (
            {"transition": "stochastic", "gain_penalty": 1.0},
            "transition=stochastic all gains are 1; set gain_penalty=0",
        ),
    ],
)
def test_models_without_free_gains(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_config(configure(**changes), get_task("parity"))
