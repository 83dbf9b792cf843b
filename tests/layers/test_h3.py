"""H3 against direct sums. The laws that it keeps stand in test_s4.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm.layers.channels import swap_channels
from sdssm.layers.convolution import LtiSystem
from sdssm.layers.h3 import H3, ShiftSystem
from tests.layers.test_s4 import WIDTH, drawn, made, same
from tests.layers.test_s4d import recurrence, trapezoid


def shifted(places: int = 4, *, width: int = WIDTH) -> ShiftSystem:
    """A delay line whose B is no longer a unit vector."""
    system = ShiftSystem(width, places, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        system.B.add_(drawn(width, places, seed=8))
    return system


def run(system: LtiSystem, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """u (B, L, D) -> y (B, L, D) and the state after it."""
    y, state = system.run(swap_channels(u), state, carry=True)
    return swap_channels(y), state


def lines(system: Any) -> tuple[Tensor, Tensor, Tensor]:
    """S (D, N, N) that moves every entry one place on, B and C."""
    S = torch.diag(torch.ones(system.places - 1, dtype=torch.float64), -1)
    return S.expand(len(system.C), -1, -1), system.B.detach(), system.C.detach()


@pytest.mark.parametrize("places", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 3, 4, 9])
def test_the_shift_is_a_delay_line(places: int, length: int) -> None:
    system, u = shifted(places), drawn(2, length, WIDTH)
    y, _ = run(system, u)
    same(y, recurrence(*lines(system), u)[0] + system.skip * u)


def test_its_kernel_is_a_correlation_and_ends() -> None:
    system = shifted(4)
    wanted = torch.zeros(WIDTH, 4, dtype=torch.float64)
    for tap in range(4):
        for i in range(4 - tap):
            wanted[:, tap] += system.C[:, i + tap] * system.B[:, i]
    same(system.kernel(9), wanted)
    same(system.kernel(2), wanted[:, :2])
    fresh = ShiftSystem(WIDTH, 5, generator=torch.Generator().manual_seed(0)).double()
    same(fresh.kernel(5), fresh.C)  # B begins as a unit vector
    assert fresh.C.abs().max() <= 5**-0.5


@pytest.mark.parametrize("places", [1, 4])
def test_the_shift_goes_on_from_its_last_inputs(places: int) -> None:
    system, u = shifted(places), drawn(2, 9, WIDTH)
    whole, final = run(system, u)
    first, state = run(system, u[:, :2])
    rest, state = run(system, u[:, 2:], state)
    same(torch.cat([first, rest], dim=1), whole)
    assert state is not None and final is not None
    same(state, final)
    same(final, u[:, -places:].mT)


def test_the_whole_layer_is_its_equations() -> None:
    layer, u = made("h3"), drawn(2, 9, WIDTH)
    with torch.no_grad():
        for B in (layer.shift.B, layer.diagonal.B):
            B.add_(drawn(*B.shape, seed=8))

    def linear(layer: Any, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, layer.weight, layer.bias)

    q, k, v = (linear(one, u) for one in (layer.q, layer.k, layer.v))
    k = recurrence(*lines(layer.shift), k)[0] + layer.shift.skip * k
    y, x = recurrence(*trapezoid(layer.diagonal), k * v)
    y = y + layer.diagonal.skip * k * v
    outputs, (_, modes) = layer(u)
    same(outputs, linear(layer.output, q * y))
    same(torch.view_as_real(modes).flatten(-2), x)


def test_convolutions_are_direct_sums() -> None:
    system: Any = made("h3").diagonal
    u, kernel = drawn(2, 7, WIDTH), system.kernel(7)
    wanted = system.skip * u
    for t in range(7):
        for m in range(t + 1):
            wanted[:, t] = wanted[:, t] + kernel[:, m] * u[:, t - m]
    same(run(system, u)[0], wanted)


def test_parameters() -> None:
    """Four maps D D + D; shift: B, C of N, D; diagonal: dt, D, two numbers each for lambda, B, C of N/2 modes."""
    found = sum(p.numel() for p in H3(64, generator=torch.Generator()).parameters())
    assert found == 4 * (64 * 64 + 64) + 64 * (2 * 64 + 1) + 64 * (2 + 3 * 64)
