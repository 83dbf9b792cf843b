"""DeltaNet and Gated DeltaProduct: their papers' equations written out, and the laws of every mixer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sdssm.errors import SettingsError
from sdssm.layers.delta import DeltaNet, DeltaNetSettings, DeltaRule, GatedDeltaProduct, GatedDeltaProductSettings

SMALL: dict[str, Any] = {"heads": 2, "head_size": 3}
CASES: list[tuple[type[DeltaRule], DeltaNetSettings]] = [
    (DeltaNet, DeltaNetSettings(**SMALL)),
    (DeltaNet, DeltaNetSettings(**SMALL, conv=None, negative_eigenvalues=False)),
    (GatedDeltaProduct, GatedDeltaProductSettings(**SMALL)),
    (GatedDeltaProduct, GatedDeltaProductSettings(**SMALL, householders=3, forget_gate=False, conv=2)),
]
every = pytest.mark.parametrize(("kind", "settings"), CASES, ids=[f"{k.name}-{i}" for i, (k, _) in enumerate(CASES)])


def made(kind: type[DeltaRule], settings: DeltaNetSettings, width: int = 5, seed: int = 0) -> DeltaRule:
    layer: DeltaRule = kind(width, settings, generator=torch.Generator().manual_seed(seed))  # type: ignore[call-arg]
    return layer.double()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def written_out(layer: DeltaRule, u: Tensor) -> Tensor:
    """The equations of the docstrings for one sequence (L, D), with whole matrices, a head and a step at a time."""
    settings, n = layer.settings, layer.steps
    H, D, inner = settings.heads, settings.head_size, layer.inner
    x = u @ layer.projection.weight.mT
    if layer.filters is not None:
        taps = len(layer.filters)
        x = functional.conv1d(x.mT[None], layer.filters.mT[:, None], padding=taps - 1, groups=x.shape[1])
        x = x[0, :, : len(u)].mT
    x = functional.silu(x)
    S = torch.zeros(H, D, D, dtype=u.dtype)
    rows = []
    for t in range(len(u)):
        heads = []
        for h in range(H):
            if isinstance(layer, GatedDeltaProduct) and layer.settings.forget_gate:
                assert layer.decay is not None and layer.rate is not None
                S[h] *= math.exp(-math.exp(layer.rate[h]) * functional.softplus(layer.decay(u[t]))[h])
            for i in range(n):
                at = inner + i * inner + h * D
                k, v = x[t, at : at + D], x[t, at + inner * n : at + inner * n + D]
                k = k / (k @ k + 1e-6).sqrt()
                beta = torch.sigmoid(u[t] @ layer.strength.weight[i * H + h])
                beta = 2 * beta if settings.negative_eigenvalues else beta
                S[h] = S[h] @ (torch.eye(D, dtype=u.dtype) - beta * torch.outer(k, k)) + beta * torch.outer(v, k)
            q = x[t, h * D : h * D + D]
            o = S[h] @ (q / (q @ q + 1e-6).sqrt())
            heads.append(o / (o.square().mean() + 1e-5).sqrt() * layer.gain)
        joined = torch.cat(heads)
        if isinstance(layer, GatedDeltaProduct):
            assert layer.gate is not None
            joined = joined * functional.silu(u[t] @ layer.gate.weight.mT)
        rows.append(joined @ layer.output.weight.mT)
    return torch.stack(rows)


@every
def test_is_its_equations(kind: type[DeltaRule], settings: DeltaNetSettings) -> None:
    layer, u = made(kind, settings), drawn(7, 5)
    with torch.no_grad():
        torch.testing.assert_close(layer(u[None])[0][0], written_out(layer, u))


@every
def test_steps_pieces_and_the_future(kind: type[DeltaRule], settings: DeltaNetSettings) -> None:
    layer, u = made(kind, settings), drawn(3, 9, 5)
    with torch.no_grad():
        whole, final = layer(u)
        state = None
        for t in range(9):
            y, state = layer.step(u[:, t], state)
            torch.testing.assert_close(y, whole[:, t])
        torch.testing.assert_close(state, final)
        first, state = layer(u[:, :2])
        rest, state = layer(u[:, 2:], state)
        torch.testing.assert_close(torch.cat([first, rest], 1), whole)
        torch.testing.assert_close(state, final)
        changed = u.clone()
        changed[:, 5:] += 1
        torch.testing.assert_close(layer(changed)[0][:, :5], whole[:, :5])
        torch.testing.assert_close(layer(u[1:2])[0], whole[1:2])
        torch.testing.assert_close(layer(u.reshape(3, 1, 9, 5))[0][:, 0], whole)


@every
def test_lengths(kind: type[DeltaRule], settings: DeltaNetSettings) -> None:
    layer, u = made(kind, settings), drawn(3, 6, 5)
    whole, _ = layer(u)
    short, state = layer(u, lengths=torch.tensor([1, 4, 6]))
    assert state is None
    for row, length in enumerate((1, 4, 6)):
        torch.testing.assert_close(short[row, :length], whole[row, :length])


@every
def test_models_side_by_side(kind: type[DeltaRule], settings: DeltaNetSettings) -> None:
    """Outputs and gradients under vmap are those of each model alone."""
    layers = [made(kind, settings, seed=seed) for seed in range(3)]
    parameters = {
        name: torch.stack([dict(layer.named_parameters())[name].detach() for layer in layers]).requires_grad_()
        for name, _ in layers[0].named_parameters()
    }
    u = drawn(3, 2, 6, 5)

    def run(of: dict[str, Tensor], x: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(layers[0], of, (x,))[0]
        return found

    together = torch.func.vmap(run)(parameters, u)
    grads = torch.autograd.grad(together.square().sum(), list(parameters.values()))
    for i, layer in enumerate(layers):
        alone = layer(u[i])[0]
        torch.testing.assert_close(together[i], alone)
        for grad, wanted in zip(
            grads, torch.autograd.grad(alone.square().sum(), list(layer.parameters())), strict=True
        ):
            torch.testing.assert_close(grad[i], wanted)


@every
def test_gradients(kind: type[DeltaRule], settings: DeltaNetSettings) -> None:
    layer, u = made(kind, settings, width=2), drawn(1, 4, 2).requires_grad_()
    given = [u, *(p.detach().requires_grad_() for p in layer.parameters())]
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Tensor, *values: Tensor) -> Any:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))[0]

    assert torch.autograd.gradcheck(run, given)


@pytest.mark.parametrize("kind", [DeltaNet, GatedDeltaProduct])
def test_gradients_are_finite_at_length_500(kind: type[Any]) -> None:
    layer = kind(8, generator=torch.Generator().manual_seed(0))
    y, _ = layer(drawn(2, 500, 8).float())
    y[:, -1].square().sum().backward()
    assert y.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_parameters_are_counted() -> None:
    layer = DeltaNet(10, generator=torch.Generator().manual_seed(0))
    count = 3 * 10 * 64 + 3 * 64 * 4 + 10 * 4 + 16 + 64 * 10  # q, k, v; filters; beta; gain; output
    assert sum(p.numel() for p in layer.parameters()) == count
    assert layer.transition_parameters() == 10 * 64 + 64 * 4 + 10 * 4
    gated = GatedDeltaProduct(10, generator=torch.Generator().manual_seed(0))
    count = 5 * 10 * 64 + 5 * 64 * 4 + 10 * 8 + 16 + 64 * 10 + 10 * 64 + 10 * 4 + 4 + 4  # and both gates
    assert sum(p.numel() for p in gated.parameters()) == count
    assert gated.transition_parameters() == 10 * 128 + 128 * 4 + 10 * 8 + 10 * 4 + 4 + 4


def test_eigenvalues() -> None:
    """beta lies in (0, 2), or (0, 1) without negative eigenvalues; alpha starts in (0, 1)."""
    u = 100 * drawn(50, 5)
    for negative, most in ((True, 2.0), (False, 1.0)):
        settings = GatedDeltaProductSettings(negative_eigenvalues=negative)
        _, beta, alpha, _ = made(GatedDeltaProduct, settings).parts(u)
        assert beta.min() >= 0 and 0.99 * most < beta.max() <= most
        assert alpha.min() >= 0 and alpha.max() <= 1


def test_the_same_seed_is_the_same_layer() -> None:
    first, second = (GatedDeltaProduct(4, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (DeltaNetSettings, {"head_size": 129}, "head_size is 129; it must be from 1 to 128"),
        (DeltaNetSettings, {"heads": 0}, "heads is 0"),
        (DeltaNetSettings, {"conv": 1}, "conv is 1; it must be from 2"),
        (DeltaNetSettings, {"conv": "wide"}, "conv is 'wide'"),
        (GatedDeltaProductSettings, {"householders": 0}, "householders is 0"),
    ],
)
def test_bad_settings_are_named(kind: type[Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        kind(**settings)
