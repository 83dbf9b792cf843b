"""H3 against direct sums; properties that it shares with S4 are tested in test_s4.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm.layers.channels import swap_channels
from sdssm.layers.convolution import LtiSystem
from sdssm.layers.h3 import H3, ShiftSystem
from tests.layers.test_s4 import WIDTH, assert_same, make_layer, random_tensor
from tests.layers.test_s4d import recurrence, trapezoid


def make_shift(places: int = 4, *, width: int = WIDTH) -> ShiftSystem:
    """Return a shift system whose B is not a unit vector."""
    system = ShiftSystem(width, places, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        system.B.add_(random_tensor(width, places, seed=8))
    return system


def run(system: LtiSystem, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Run a system: u (B, L, D) -> y (B, L, D) and the final state."""
    y, state = system.run(swap_channels(u), state, carry=True)
    return swap_channels(y), state


def shift_matrices(system: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return S (D, N, N), which shifts every entry by one, B and C."""
    S = torch.diag(torch.ones(system.places - 1, dtype=torch.float64), -1)
    return S.expand(len(system.C), -1, -1), system.B.detach(), system.C.detach()


@pytest.mark.parametrize("places", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 3, 4, 9])
def test_the_shift_system_is_a_delay_line(places: int, length: int) -> None:
    system, u = make_shift(places), random_tensor(2, length, WIDTH)
    y, _ = run(system, u)
    assert_same(y, recurrence(*shift_matrices(system), u)[0] + system.skip * u)


def test_the_shift_kernel_is_a_finite_correlation() -> None:
    system = make_shift(4)
    expected = torch.zeros(WIDTH, 4, dtype=torch.float64)
    for tap in range(4):
        for i in range(4 - tap):
            expected[:, tap] += system.C[:, i + tap] * system.B[:, i]
    assert_same(system.kernel(9), expected)
    assert_same(system.kernel(2), expected[:, :2])
    fresh = ShiftSystem(WIDTH, 5, generator=torch.Generator().manual_seed(0)).double()
    assert_same(fresh.kernel(5), fresh.C)  # B is initialised to a unit vector
    assert fresh.C.abs().max() <= 5**-0.5


@pytest.mark.parametrize("places", [1, 4])
def test_the_shift_system_continues_from_its_last_inputs(places: int) -> None:
    system, u = make_shift(places), random_tensor(2, 9, WIDTH)
    all_outputs, final = run(system, u)
    first, state = run(system, u[:, :2])
    rest, state = run(system, u[:, 2:], state)
    assert_same(torch.cat([first, rest], dim=1), all_outputs)
    assert state is not None and final is not None
    assert_same(state, final)
    assert_same(final, u[:, -places:].mT)


def test_outputs_follow_the_equations() -> None:
    layer, u = make_layer("h3"), random_tensor(2, 9, WIDTH)
    with torch.no_grad():
        for B in (layer.shift.B, layer.diagonal.B):
            B.add_(random_tensor(*B.shape, seed=8))

    def linear(layer: Any, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, layer.weight, layer.bias)

    q, k, v = (linear(module, u) for module in (layer.q, layer.k, layer.v))
    k = recurrence(*shift_matrices(layer.shift), k)[0] + layer.shift.skip * k
    y, x = recurrence(*trapezoid(layer.diagonal), k * v)
    y = y + layer.diagonal.skip * k * v
    outputs, (_, modes) = layer(u)
    assert_same(outputs, linear(layer.output, q * y))
    assert_same(torch.view_as_real(modes).flatten(-2), x)


def test_convolutions_agree_with_direct_sums() -> None:
    system: Any = make_layer("h3").diagonal
    u, kernel = random_tensor(2, 7, WIDTH), system.kernel(7)
    expected = system.skip * u
    for t in range(7):
        for m in range(t + 1):
            expected[:, t] = expected[:, t] + kernel[:, m] * u[:, t - m]
    assert_same(run(system, u)[0], expected)


def test_number_of_parameters() -> None:
    """Four maps D D + D; shift: B, C of N, D; diagonal: dt, D, two numbers each for lambda, B, C of N/2 modes."""
    actual = sum(p.numel() for p in H3(64, generator=torch.Generator()).parameters())
    assert actual == 4 * (64 * 64 + 64) + 64 * (2 * 64 + 1) + 64 * (2 + 3 * 64)
