"""Hyena against direct sums; properties that it shares with S4 are tested in test_s4.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.hyena import Hyena
from sdssm.layers.settings import HyenaSettings
from tests.layers.test_s4 import WIDTH, assert_same, random_tensor


def make_layer(**changes: Any) -> Hyena:
    settings = HyenaSettings(**{"longest": 12, "filter_width": 5, "bands": 2, "frequency": 3.0, **changes})
    return Hyena(WIDTH, settings, generator=torch.Generator().manual_seed(0)).double()


def tap(layer: Hyena, t: int) -> Tensor:
    """Compute the filter h(t) (D,) entry by entry."""
    settings, parts = layer.settings, layer.filter
    linear: Any
    last = settings.longest - 1
    bands = [1e-4 + (settings.bands - 1 - 1e-4) * b / max(settings.bands - 1, 1) for b in range(settings.bands)]
    angles = [2 * math.pi * f * t / settings.longest for f in bands]
    x = torch.tensor([t / last, *map(math.cos, angles), *(-math.sin(a) for a in angles)], dtype=torch.float64)
    for linear in parts.layers:
        x = torch.sin(parts.frequency * (linear.weight @ x + linear.bias))
    decays = [-math.log(0.01) / 1.5 + c / (WIDTH - 1) * math.log(0.01) * (1 / 1.5 - 1 / 0.3) for c in range(WIDTH)]
    return parts.last.weight @ x * torch.tensor([math.exp(-d * t / last) for d in decays], dtype=torch.float64)


def by_hand(layer: Hyena, u: Tensor) -> Tensor:
    """Compute one sequence (L, D) by direct sums."""
    D, taps, weight = WIDTH, layer.settings.conv, layer.conv_weight
    p = u @ layer.input.weight.mT + layer.input.bias
    projected = []
    for t in range(len(u)):
        value: Tensor = layer.conv_bias
        for back in range(min(taps, t + 1)):
            value = value + weight[:, taps - 1 - back] * p[t - back]
        projected.append(value)
    h = [tap(layer, t) for t in range(len(u))]
    outputs = []
    for t, now in enumerate(projected):
        y = layer.filter.skip * now[D : 2 * D] * now[2 * D :]
        for m in range(t + 1):
            past = projected[t - m]
            y = y + h[m] * past[D : 2 * D] * past[2 * D :]
        outputs.append(layer.output.weight @ (now[:D] * y) + layer.output.bias)
    return torch.stack(outputs)


@pytest.mark.parametrize("changes", [{}, {"bands": 1}, {"conv": 1}, {"conv": 5}, {"learned_features": False}])
@pytest.mark.parametrize("length", [1, 7, 12])
def test_outputs_agree_with_direct_sums(changes: dict[str, Any], length: int) -> None:
    layer, u = make_layer(**changes), random_tensor(2, length, WIDTH)
    # The tables of features and of the window are stored in float32.
    assert_same(layer(u)[0], torch.stack([by_hand(layer, row) for row in u]), tolerance=1e-6)


def test_the_filter_is_computed_from_its_tables() -> None:
    """As above, without the rounding of the tables."""
    layer: Any = make_layer()
    x = layer.filter.features[:9]
    for linear in layer.filter.layers:
        x = torch.sin(layer.filter.frequency * (x @ linear.weight.mT + linear.bias))
    assert_same(layer.filter.kernel(9), (x @ layer.filter.last.weight.mT * layer.filter.window[:9]).mT)
    assert (layer.filter.frequency == 3).all()


def test_the_filter_depends_on_longest_but_not_on_the_input_length() -> None:
    layer = make_layer()
    assert_same(layer.filter.kernel(5), layer.filter.kernel(12)[:, :5])
    assert not torch.allclose(make_layer(longest=13).filter.kernel(5), layer.filter.kernel(5))


def test_inputs_longer_than_the_limit_are_refused() -> None:
    layer = make_layer()
    assert layer.longest == 12
    for call in (layer, lambda u: layer.mix(layer.parts(u))):
        with pytest.raises(ModelError, match="hyena reads at most 12 inputs, got 13"):
            call(random_tensor(2, 13, WIDTH))


def test_there_is_no_state() -> None:
    layer, u = make_layer(), random_tensor(2, 5, WIDTH)
    assert not layer.is_recurrent and layer(u)[1] is None
    with pytest.raises(ModelError, match="no state to step from"):
        layer.step(u[:, 0])
    with pytest.raises(ModelError, match="no state to continue from"):
        layer(u, random_tensor(2, 5))


def test_number_of_parameters() -> None:
    """Maps D 3D + 3D and D D + D, the short convolution, D, the features, their network of width 64, frequencies."""
    actual = sum(p.numel() for p in Hyena(64, generator=torch.Generator()).parameters())
    network = (3 * 64 + 64) + 2 * (64 * 64 + 64) + 64 * 64 + 64
    assert actual == (64 * 192 + 192) + (64 * 64 + 64) + 192 * (3 + 1) + 64 + 602 * 3 + network
    fixed = Hyena(64, HyenaSettings(learned_features=False), generator=torch.Generator())
    assert sum(p.numel() for p in fixed.parameters()) == actual - 602 * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"longest": 1}, "longest is 1; it must be from 2"),
        ({"filter_width": 0}, "filter_width is 0; it must be "),
        ({"bands": 0}, "bands is 0; it must be "),
        ({"conv": 0}, "conv is 0; it must be "),
        ({"frequency": 0.0}, "frequency is 0.0; it must be above 0"),
        ({"learned_features": 1}, "learned_features is 1; it must be true or false"),
    ],
)
def test_invalid_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        HyenaSettings(**changes)
    assert message in str(error.value)
