"""DeltaNet and Gated DeltaProduct: the equations of the papers, and properties of a mixer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sdssm.errors import SettingsError
from sdssm.layers.delta import DeltaNet, DeltaRule, GatedDeltaProduct
from sdssm.layers.settings import DeltaNetSettings, GatedDeltaProductSettings

SMALL: dict[str, Any] = {"heads": 2, "head_size": 3}
CASES: list[tuple[type[DeltaRule], DeltaNetSettings]] = [
    (DeltaNet, DeltaNetSettings(**SMALL)),
    (DeltaNet, DeltaNetSettings(**SMALL, conv=None, negative_eigenvalues=False)),
    (GatedDeltaProduct, GatedDeltaProductSettings(**SMALL)),
    (GatedDeltaProduct, GatedDeltaProductSettings(**SMALL, householders=3, forget_gate=False, conv=2)),
    (DeltaNet, DeltaNetSettings(**SMALL, output_gate=True)),
    # without gates and convolution, as in the published experiments on state tracking
    (GatedDeltaProduct, GatedDeltaProductSettings(**SMALL, forget_gate=False, output_gate=False, conv=None)),
]
every = pytest.mark.parametrize(("kind", "settings"), CASES, ids=[f"{k.name}-{i}" for i, (k, _) in enumerate(CASES)])


def make_layer(kind: type[DeltaRule], settings: DeltaNetSettings, width: int = 5, seed: int = 0) -> DeltaRule:
    layer: DeltaRule = kind(width, settings, generator=torch.Generator().manual_seed(seed))  # type: ignore[call-arg]
    return layer.double()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(layer: DeltaRule, u: Tensor) -> Tensor:
    """Compute one sequence (L, D) from the equations of the docstrings, with full matrices, head by head."""
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
            o = S[h] @ (q / (q @ q + 1e-6).sqrt() / math.sqrt(D))
            heads.append(o / (o.square().mean() + 1e-5).sqrt() * layer.gain)
        joined = torch.cat(heads)
        if settings.output_gate:
            assert layer.gate is not None
            joined = joined * functional.silu(u[t] @ layer.gate.weight.mT)
        rows.append(joined @ layer.output.weight.mT)
    return torch.stack(rows)


@every
def test_outputs_follow_the_equations(kind: type[DeltaRule], settings: DeltaNetSettings) -> None:
    layer, u = make_layer(kind, settings), random_tensor(7, 5)
    with torch.no_grad():
        # Small inputs make small outputs S q, for which the epsilon of the norm matters, and with it the scale of q.
        for scale in (1.0, 1e-2):
            expected = by_hand(layer, scale * u)
            torch.testing.assert_close(layer(scale * u[None])[0][0], expected, rtol=1e-12, atol=1e-12)


@every
def test_gradients_agree_with_finite_differences(kind: type[DeltaRule], settings: DeltaNetSettings) -> None:
    layer, u = make_layer(kind, settings, width=2), random_tensor(1, 4, 2).requires_grad_()
    inputs = [u, *(p.detach().requires_grad_() for p in layer.parameters())]
    names = [name for name, _ in layer.named_parameters()]

    def run(x: Tensor, *values: Tensor) -> Any:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))[0]

    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("kind", [DeltaNet, GatedDeltaProduct])
def test_gradients_are_finite_at_length_500(kind: type[Any]) -> None:
    layer = kind(8, generator=torch.Generator().manual_seed(0))
    y, _ = layer(random_tensor(2, 500, 8).float())
    y[:, -1].square().sum().backward()
    assert y.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_settings_turn_gates_and_convolution_off() -> None:
    settings = GatedDeltaProductSettings(**SMALL, forget_gate=False, output_gate=False, conv=None)
    names = {name for name, _ in make_layer(GatedDeltaProduct, settings).named_parameters()}
    assert names == {"projection.weight", "strength.weight", "gain", "output.weight"}
    gated = make_layer(DeltaNet, DeltaNetSettings(**SMALL, output_gate=True))
    assert gated.gate is not None and make_layer(DeltaNet, DeltaNetSettings(**SMALL)).gate is None


def test_number_of_parameters() -> None:
    layer = DeltaNet(10, generator=torch.Generator().manual_seed(0))
    count = 3 * 10 * 64 + 3 * 64 * 4 + 10 * 4 + 16 + 64 * 10  # q, k, v; filters; beta; gain; output
    assert sum(p.numel() for p in layer.parameters()) == count
    assert layer.transition_parameters() == 10 * 64 + 64 * 4 + 10 * 4
    gated = GatedDeltaProduct(10, generator=torch.Generator().manual_seed(0))
    count = 5 * 10 * 64 + 5 * 64 * 4 + 10 * 8 + 16 + 64 * 10 + 10 * 64 + 10 * 4 + 4 + 4  # and both gates
    assert sum(p.numel() for p in gated.parameters()) == count
    assert gated.transition_parameters() == 10 * 128 + 128 * 4 + 10 * 8 + 10 * 4 + 4 + 4


def test_ranges_of_beta_and_alpha() -> None:
    """beta lies in (0, 2), or (0, 1) without negative eigenvalues; alpha starts in (0, 1)."""
    u = 100 * random_tensor(50, 5)
    for negative, most in ((True, 2.0), (False, 1.0)):
        settings = GatedDeltaProductSettings(negative_eigenvalues=negative)
        _, beta, alpha, _ = make_layer(GatedDeltaProduct, settings).parts(u)
        assert beta.min() >= 0 and 0.99 * most < beta.max() <= most
        assert alpha.min() >= 0 and alpha.max() <= 1


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
def test_invalid_settings(kind: type[Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        kind(**settings)
