"""Mamba against a plain implementation of the layer; its sizes, initial values and properties."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sdssm import ops
from sdssm.errors import ModelError, SettingsError
from sdssm.layers.mamba import Mamba
from sdssm.layers.settings import MambaSettings
from tests.ops.tolerances import RELATIVE

WIDTH = 5
FORMS: dict[str, dict[str, Any]] = {
    "small": {"state": 3},
    "one channel for each entry": {"state": 2, "expand": 1, "rank": 2},
    "wide convolution": {"state": 4, "conv": 6, "expand": 3},
}


def make_layer(*, seed: int = 0, **changes: Any) -> Mamba:
    settings = MambaSettings(**{"state": 3, **changes})
    return Mamba(WIDTH, settings, generator=torch.Generator().manual_seed(seed)).double()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def plain(layer: Mamba, u: Tensor) -> Tensor:
    """Compute the published layer with torch's convolution and a loop over steps: u (B, L, D) -> (B, L, D)."""
    weights = dict(layer.named_parameters())
    N, width = layer.settings.state, layer.settings.conv
    inner = layer.settings.expand * u.shape[-1]
    both = u @ weights["input_projection.weight"].T
    x, z = both[..., :inner], both[..., inner:]
    left = functional.pad(x.mT, (width - 1, 0))
    kernel = weights["convolution"][:, None]
    x = functional.silu(functional.conv1d(left, kernel, weights["convolution_bias"], groups=inner)).mT
    selected = x @ weights["x_projection.weight"].T
    rank = selected.shape[-1] - 2 * N
    A = -torch.exp(weights["A_log"])
    h = torch.zeros(len(u), inner, N, dtype=u.dtype)
    outputs = []
    for t in range(u.shape[1]):
        r, B, C = selected[:, t, :rank], selected[:, t, rank : rank + N], selected[:, t, rank + N :]
        dt = torch.log(1 + torch.exp(r @ weights["dt_projection.weight"].T + weights["dt_bias"]))
        h = torch.exp(torch.einsum("bd,dn->bdn", dt, A)) * h + torch.einsum("bd,bn,bd->bdn", dt, B, x[:, t])
        y = torch.einsum("bdn,bn->bd", h, C) + weights["D"] * x[:, t]
        outputs.append((y * z[:, t] * torch.sigmoid(z[:, t])) @ weights["output_projection.weight"].T)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_outputs_and_gradients_agree_with_the_published_layer(form: str, backend: str) -> None:
    layer, u = make_layer(**FORMS[form]), random_tensor(2, 11, WIDTH).requires_grad_()
    weights = random_tensor(2, 11, WIDTH, seed=2)
    leaves = [u, *layer.parameters()]
    expected = plain(layer, u)
    expected_grads = torch.autograd.grad((expected * weights).sum(), leaves)
    with ops.use_backend(backend):
        actual, _ = layer(u)
        grads = torch.autograd.grad((actual * weights).sum(), leaves)
    assert_same(actual, expected)
    for actual_grad, expected_grad in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(actual_grad, expected_grad, rtol=1e-9, atol=1e-11)


# -- sizes and initial values ------------------------------------------------------------------------------------------


def test_number_of_parameters_as_published() -> None:
    layer = Mamba(64, generator=torch.Generator().manual_seed(0))
    by_hand = {
        "input_projection.weight": 64 * 256,
        "convolution": 128 * 4,
        "convolution_bias": 128,
        "x_projection.weight": 128 * (4 + 2 * 128),
        "dt_projection.weight": 4 * 128,
        "dt_bias": 128,
        "A_log": 128 * 128,
        "D": 128,
        "output_projection.weight": 128 * 64,
    }
    assert {name: value.numel() for name, value in layer.named_parameters()} == by_hand
    assert sum(by_hand.values()) == 75_648
    assert layer.transition_parameters() == 128 * 128 + 128 * 4 + (4 * 128 + 128)
    assert layer.outputs == 64 and layer.has_output_projection and layer.is_causal and layer.is_recurrent
    assert not dict(layer.named_buffers())
    assert all(value.dtype == torch.float32 for value in layer.parameters())


def test_initial_values() -> None:
    layer = Mamba(64, MambaSettings(state=7), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(-layer.A_log.exp(), -torch.arange(1, 8.0).expand(128, 7))
    assert (layer.D == 1).all()
    sizes = functional.softplus(layer.dt_bias)
    assert sizes.min() * 1.001 >= 1e-3 and sizes.max() <= 0.1001
    assert abs(sizes.log().mean() - torch.tensor([1e-3, 0.1]).log().mean()) < 0.4  # log-uniform
    for weight, bound in ((layer.dt_projection.weight, 0.5), (layer.convolution, 0.5), (layer.convolution_bias, 0.5)):
        assert 0.9 * bound < weight.abs().max() <= bound
    assert layer.x_projection.weight.abs().max() <= 128**-0.5


def test_parameters_depend_only_on_the_generator() -> None:
    def weights(seed: int) -> Tensor:
        return torch.cat([value.flatten() for value in make_layer(seed=seed).parameters()])

    before = torch.get_rng_state()
    assert torch.equal(weights(0), weights(0)) and not torch.equal(weights(1), weights(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_default_rank_is_a_sixteenth_of_the_width() -> None:
    for width, rank in ((1, 1), (16, 1), (17, 2), (64, 4)):
        layer = Mamba(width, MambaSettings(state=2), generator=torch.Generator().manual_seed(0))
        assert layer.rank == rank == layer.dt_projection.in_features


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_shapes_of_the_state(form: str) -> None:
    layer = make_layer(**FORMS[form])
    channels, settings = layer.channels, layer.settings
    _, state = layer(random_tensor(2, 3, 9, WIDTH))
    assert [tuple(part.shape) for part in state] == [
        (2, 3, channels, settings.conv - 1),
        (2, 3, channels, settings.state),
    ]


def test_gradients_flow_through_a_carried_state() -> None:
    layer, u = make_layer(), random_tensor(2, 9, WIDTH).requires_grad_()
    leaves = [u, *layer.parameters()]
    expected = torch.autograd.grad(layer(u)[0].square().sum(), leaves)
    first, state = layer(u[:, :4])
    rest, _ = layer(u[:, 4:], state)
    actual = torch.autograd.grad(first.square().sum() + rest.square().sum(), leaves)
    for actual_grad, expected_grad in zip(actual, expected, strict=True):
        torch.testing.assert_close(actual_grad, expected_grad, rtol=1e-9, atol=1e-11)


def test_gradients_are_finite_at_length_500() -> None:
    layer = Mamba(8, MambaSettings(state=128), generator=torch.Generator().manual_seed(0))
    u = torch.randn(1, 500, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    out, _ = layer(u)
    grads = torch.autograd.grad(out[:, -1].square().sum(), [u, *layer.parameters()])
    assert out.isfinite().all() and all(gradient.isfinite().all() and gradient.any() for gradient in grads)


# -- invalid input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"state": 0}, "state is 0; it must be from 1 to 256"),
        ({"state": 257}, "state is 257; it must be from 1 to 256"),
        ({"expand": 0}, "expand is 0"),
        ({"conv": 1}, "conv is 1; it must be from 2 to"),
        ({"rank": 0}, "rank is 0"),
        ({"state": "many"}, "state is 'many'; it must be a whole number"),
    ],
)
def test_invalid_settings(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        MambaSettings(**values)


def test_inputs_of_the_wrong_width_or_dtype() -> None:
    layer = make_layer()
    with pytest.raises(ModelError, match=r"shape \(2, 3, 4\); this layer reads torch.float64 vectors of 5"):
        layer(random_tensor(2, 3, 4))
    with pytest.raises(ModelError, match="torch.float32"):
        layer.step(random_tensor(2, 5).float())
