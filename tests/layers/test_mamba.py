"""Mamba against a plain implementation of the whole layer, its laws, its sizes and its first values."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from sdssm import ops
from sdssm.errors import ModelError, SettingsError
from sdssm.layers.mamba import Mamba, MambaSettings
from tests.ops.tolerances import RELATIVE

WIDTH = 5
FORMS: dict[str, dict[str, Any]] = {
    "small": {"state": 3},
    "one channel for each entry": {"state": 2, "expand": 1, "rank": 2},
    "wide convolution": {"state": 4, "conv": 6, "expand": 3},
}


def made(*, seed: int = 0, **changes: Any) -> Mamba:
    settings = MambaSettings(**{"state": 3, **changes})
    return Mamba(WIDTH, settings, generator=torch.Generator().manual_seed(seed)).double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=RELATIVE[torch.float64][0], atol=RELATIVE[torch.float64][0])


def plain(layer: Mamba, u: Tensor) -> Tensor:
    """The published layer, with torch's convolution and a loop over steps: u (B, L, D) -> (B, L, D)."""
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
def test_it_is_the_published_layer(form: str, backend: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 11, WIDTH).requires_grad_()
    weights = drawn(2, 11, WIDTH, seed=2)
    leaves = [u, *layer.parameters()]
    wanted = plain(layer, u)
    wanted_grads = torch.autograd.grad((wanted * weights).sum(), leaves)
    with ops.use_backend(backend):
        found, _ = layer(u)
        grads = torch.autograd.grad((found * weights).sum(), leaves)
    same(found, wanted)
    for one, other in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


# -- sizes and first values --------------------------------------------------------------------------------------------


def test_parameters_of_the_published_size() -> None:
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
    assert layer.outputs == 64 and layer.has_output_projection and layer.causal and layer.recurrent
    assert not dict(layer.named_buffers())
    assert all(value.dtype == torch.float32 for value in layer.parameters())


def test_the_first_values() -> None:
    layer = Mamba(64, MambaSettings(state=7), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(-layer.A_log.exp(), -torch.arange(1, 8.0).expand(128, 7))
    assert (layer.D == 1).all()
    sizes = functional.softplus(layer.dt_bias)
    assert sizes.min() * 1.001 >= 1e-3 and sizes.max() <= 0.1001
    assert abs(sizes.log().mean() - torch.tensor([1e-3, 0.1]).log().mean()) < 0.4  # even in the logarithm
    for weight, bound in ((layer.dt_projection.weight, 0.5), (layer.convolution, 0.5), (layer.convolution_bias, 0.5)):
        assert 0.9 * bound < weight.abs().max() <= bound
    assert layer.x_projection.weight.abs().max() <= 128**-0.5


def test_the_generator_decides_the_parameters_and_nothing_else_does() -> None:
    def weights(seed: int) -> Tensor:
        return torch.cat([value.flatten() for value in made(seed=seed).parameters()])

    before = torch.get_rng_state()
    assert torch.equal(weights(0), weights(0)) and not torch.equal(weights(1), weights(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_rank_is_a_sixteenth_of_the_width() -> None:
    for width, rank in ((1, 1), (16, 1), (17, 2), (64, 4)):
        layer = Mamba(width, MambaSettings(state=2), generator=torch.Generator().manual_seed(0))
        assert layer.rank == rank == layer.dt_projection.in_features


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_later_inputs_change_nothing(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 9, WIDTH)
    other = torch.cat([u[:, :6], drawn(2, 3, WIDTH, seed=5)], 1)
    same(layer(other)[0][:, :6], layer(u)[0][:, :6])
    assert not torch.allclose(layer(other)[0][:, 6], layer(u)[0][:, 6])


@pytest.mark.parametrize("form", FORMS)
def test_steps_are_the_whole(form: str) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 3, 9, WIDTH)
    whole, final = layer(u)
    state, outputs = None, []
    for t in range(9):
        out, state = layer.step(u[:, :, t], state)
        outputs.append(out)
    same(torch.stack(outputs, 2), whole)
    same(state, final)
    inner, settings = layer.channels, layer.settings
    assert [tuple(part.shape) for part in final] == [(2, 3, inner, settings.conv - 1), (2, 3, inner, settings.state)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [1, 2, 8])
def test_pieces_are_the_whole(form: str, cut: int) -> None:
    layer, u = made(**FORMS[form]), drawn(2, 9, WIDTH)
    whole, final = layer(u)
    first, state = layer(u[:, :cut])
    rest, end = layer(u[:, cut:], state)
    same(torch.cat([first, rest], 1), whole)
    same(end, final)


def test_gradients_pass_through_a_carried_state() -> None:
    layer, u = made(), drawn(2, 9, WIDTH).requires_grad_()
    leaves = [u, *layer.parameters()]
    wanted = torch.autograd.grad(layer(u)[0].square().sum(), leaves)
    first, state = layer(u[:, :4])
    rest, _ = layer(u[:, 4:], state)
    found = torch.autograd.grad(first.square().sum() + rest.square().sum(), leaves)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_lengths_end_rows() -> None:
    layer, u = made(), drawn(3, 9, WIDTH)
    lengths = torch.tensor([9, 4, 1])
    found, state = layer(u, lengths=lengths)
    assert state is None
    for row, length in enumerate(lengths.tolist()):
        same(found[row, :length], layer(u[row, :length])[0])


def test_rows_do_not_influence_each_other() -> None:
    layer, u = made(), drawn(4, 6, WIDTH)
    order = torch.tensor([2, 0, 3, 1])
    same(layer(u[order])[0], layer(u)[0][order])


def test_mapped_over_replicas_as_one_by_one() -> None:
    layers = [made(seed=seed) for seed in range(3)]
    parameters, buffers = stack_module_state(layers)
    base = copy.deepcopy(layers[0]).to("meta")
    u, lengths = drawn(3, 2, 7, WIDTH), torch.tensor([[7, 2], [5, 5], [1, 7]])

    def loss(given: dict[str, Tensor], rows: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        out, _ = functional_call(base, (given, buffers), (rows,), {"lengths": ends})
        inside = torch.arange(7) < ends[:, None]
        return torch.where(inside[..., None], out, 0).square().sum(), out

    grads, outputs = vmap(grad(loss, has_aux=True))(parameters, u, lengths)
    for i, layer in enumerate(layers):
        alone, _ = layer(u[i], lengths=lengths[i])
        inside = torch.arange(7) < lengths[i][:, None]
        same(outputs[i][inside], alone[inside])
        wanted = torch.autograd.grad(alone[inside].square().sum(), list(layer.parameters()))
        for name, one in zip(dict(layer.named_parameters()), wanted, strict=True):
            torch.testing.assert_close(grads[name][i], one, rtol=1e-9, atol=1e-11)


def test_gradients_are_finite_at_length_500() -> None:
    layer = Mamba(8, MambaSettings(state=128), generator=torch.Generator().manual_seed(0))
    u = torch.randn(1, 500, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    out, _ = layer(u)
    grads = torch.autograd.grad(out[:, -1].square().sum(), [u, *layer.parameters()])
    assert out.isfinite().all() and all(one.isfinite().all() and one.any() for one in grads)


def test_the_halves_are_the_whole() -> None:
    """A table of symbols through `parts`, then picked, is what classifiers do."""
    layer, table = made(), drawn(4, WIDTH)
    tokens = torch.tensor([[0, 1, 2, 3, 1], [3, 3, 0, 2, 1]])
    parts = tuple(part[tokens] for part in layer.parts(table))
    out, state = layer.mix(parts, carry=False)
    assert state is None
    same(out, layer(table[tokens])[0])


# -- what is refused ---------------------------------------------------------------------------------------------------


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
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        MambaSettings(**values)


def test_inputs_of_another_width_or_type() -> None:
    layer = made()
    with pytest.raises(ModelError, match=r"shape \(2, 3, 4\); this layer reads torch.float64 vectors of 5"):
        layer(drawn(2, 3, 4))
    with pytest.raises(ModelError, match="torch.float32"):
        layer.step(drawn(2, 5).float())
