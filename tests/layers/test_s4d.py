"""The kernel of S4D against matrix exponentials; properties that it shares with S4 are tested in test_s4.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sdssm.errors import SettingsError
from sdssm.layers.convolution import DiagonalSystem
from sdssm.layers.s4d import S4d, s4d_inv, s4d_lin
from sdssm.layers.settings import ModeSettings, S4dSettings
from tests.layers.test_s4 import WIDTH, assert_same, make_layer, random_tensor


def blocks(system: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return real A (D, N, N), B (D, N), C (D, N): a mode a + ib is a block [[a, -b], [b, a]], and y = 2 Re(C x)."""
    decay, frequency = -system.log_decay.detach().double().exp(), system.frequency.detach().double()
    width, modes = decay.shape
    A = torch.zeros(width, modes, 2, modes, 2, dtype=torch.float64)
    B = torch.zeros(width, modes, 2, dtype=torch.float64)
    C = torch.zeros(width, modes, 2, dtype=torch.float64)
    for j in range(modes):
        A[:, j, 0, j, 0] = A[:, j, 1, j, 1] = decay[:, j]
        A[:, j, 0, j, 1], A[:, j, 1, j, 0] = -frequency[:, j], frequency[:, j]
        B[:, j, 0], B[:, j, 1] = (1.0, 0.0) if system.B is None else system.B.detach().double()[:, :, j]
        C[:, j, 0], C[:, j, 1] = 2 * system.C.detach().double()[0, :, j], -2 * system.C.detach().double()[1, :, j]
    return A.reshape(width, 2 * modes, 2 * modes), B.flatten(1), C.flatten(1)


def zero_order_hold_matrices(system: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return Abar, Bbar, C of a zero-order hold, from the exponential of [[A, B], [0, 0]] dt."""
    A, B, C = blocks(system)
    dt = system.log_dt.detach().double().exp()[:, None, None]
    n = A.shape[-1]
    joined = torch.zeros(len(A), n + 1, n + 1, dtype=torch.float64)
    joined[:, :n, :n], joined[:, :n, n] = A, B
    exponential = torch.linalg.matrix_exp(dt * joined)
    return exponential[:, :n, :n], exponential[:, :n, n], C


def trapezoid(system: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return Abar, Bbar, C with x_l - x_{l-1} = dt A (x_l + x_{l-1}) / 2 + dt B u_l."""
    A, B, C = blocks(system)
    dt = system.log_dt.detach().double().exp()[:, None, None]
    eye = torch.eye(A.shape[-1], dtype=torch.float64)
    left = eye - dt / 2 * A
    return torch.linalg.solve(left, eye + dt / 2 * A), torch.linalg.solve(left, dt[..., 0] * B), C


def recurrence(A: Tensor, B: Tensor, C: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Run x = A x + B u, y = C x in a loop over u (B, L, D) -> y (B, L, D), final x (B, D, N)."""
    x = torch.zeros(len(u), *B.shape, dtype=torch.float64)
    outputs = []
    for u_t in u.unbind(1):
        x = torch.einsum("dnm,bdm->bdn", A, x) + B * u_t[..., None]
        outputs.append((C * x).sum(-1))
    return torch.stack(outputs, dim=1), x


def impulse(length: int, width: int) -> Tensor:
    u = torch.zeros(1, length, width, dtype=torch.float64)
    u[:, 0] = 1
    return u


@pytest.mark.parametrize("length", [1, 2, 7, 41, 600])
@pytest.mark.parametrize("form", ["s4d, lin", "s4d, inv"])
def test_the_kernel_agrees_with_the_matrix_recurrence(form: str, length: int) -> None:
    layer = make_layer(form)
    expected = recurrence(*zero_order_hold_matrices(layer.system), impulse(length, WIDTH))[0][0].mT
    assert_same(layer.system.kernel(length), expected)


@pytest.mark.parametrize("init", ["lin", "inv"])
@pytest.mark.parametrize("length", [41, 600])
def test_the_kernel_in_single_precision(init: str, length: int) -> None:
    layer = S4d(8, S4dSettings(init=init), generator=torch.Generator().manual_seed(0))
    expected = recurrence(*zero_order_hold_matrices(layer.system), impulse(length, 8))[0][0].mT
    # Frequencies of Inv reach 1283, so that a phase dt lambda l is known to about 1e-5 of a turn while it matters.
    assert_same(layer.system.kernel(length).double(), expected, tolerance=2e-5)


@pytest.mark.parametrize("length", [1, 41, 300])
def test_the_bilinear_kernel_with_an_input_matrix(length: int) -> None:
    generator = torch.Generator().manual_seed(0)
    system = DiagonalSystem(
        WIDTH, s4d_lin(6), ModeSettings(), "bilinear", input_matrix=True, generator=generator
    ).double()
    assert system.B is not None
    with torch.no_grad():
        system.B.add_(random_tensor(*system.B.shape))
    assert_same(system.kernel(length), recurrence(*trapezoid(system), impulse(length, WIDTH))[0][0].mT)


def test_outputs_follow_the_equations() -> None:
    layer, u = make_layer("s4d, lin"), random_tensor(2, 9, WIDTH)
    y, x = recurrence(*zero_order_hold_matrices(layer.system), u)
    y = nn.functional.gelu(y + layer.system.skip * u)
    a, b = (y @ layer.output.weight.mT + layer.output.bias).chunk(2, dim=-1)
    outputs, state = layer(u)
    assert_same(outputs, a * torch.sigmoid(b))
    assert_same(torch.view_as_real(state).flatten(-2), x)


def test_initial_frequencies() -> None:
    assert s4d_lin(8).imag.tolist() == pytest.approx([0, math.pi, 2 * math.pi, 3 * math.pi])
    assert s4d_inv(8).imag.tolist() == pytest.approx([8 / math.pi * (8 / (2 * j + 1) - 1) for j in range(4)])
    assert (s4d_inv(8).real == -0.5).all() and (s4d_lin(8).real == -0.5).all()
    for init, expected in (("lin", s4d_lin(64)), ("inv", s4d_inv(64))):
        system: Any = S4d(5, S4dSettings(init=init), generator=torch.Generator()).system
        torch.testing.assert_close(system.eigenvalues, expected.to(torch.complex64).expand(5, -1))


def test_initial_values_as_published() -> None:
    layer = S4d(256, generator=torch.Generator().manual_seed(0))
    system: Any = layer.system
    assert abs(system.C.var() - 0.5) < 0.02 and abs(system.skip.var() - 1) < 0.2
    log_dt = system.log_dt / math.log(10)
    assert -3 <= log_dt.min() < -2.9 and -1.1 < log_dt.max() <= -1 and abs(log_dt.mean() + 2) < 0.1


def test_number_of_parameters() -> None:
    """For each channel dt, D, and of N/2 modes two numbers each for lambda and C; then D (2D) + 2D."""
    assert sum(p.numel() for p in S4d(64, generator=torch.Generator()).parameters()) == 64 * (2 + 2 * 64) + 64 * 130


def test_invalid_init() -> None:
    with pytest.raises(SettingsError, match="init is 'linn'; did you mean 'lin'?"):
        S4dSettings(init="linn")
