"""S4D's kernel against matrix exponentials. The laws that it keeps stand in test_s4.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sdssm.errors import SettingsError
from sdssm.layers.convolution import DiagonalSystem, ModeSettings, bilinear
from sdssm.layers.s4d import S4d, S4dSettings, s4d_inv, s4d_lin
from tests.layers.test_s4 import WIDTH, drawn, made, same


def blocks(system: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A (D, N, N), B (D, N), C (D, N) over the reals: a mode a + ib is a block [[a, -b], [b, a]], and y = 2 Re(C x)."""
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


def held(system: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Abar, Bbar, C under a zero-order hold: the exponential of [[A, B], [0, 0]] dt holds both."""
    A, B, C = blocks(system)
    dt = system.log_dt.detach().double().exp()[:, None, None]
    n = A.shape[-1]
    joined = torch.zeros(len(A), n + 1, n + 1, dtype=torch.float64)
    joined[:, :n, :n], joined[:, :n, n] = A, B
    grown = torch.linalg.matrix_exp(dt * joined)
    return grown[:, :n, :n], grown[:, :n, n], C


def trapezoid(system: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Abar, Bbar, C with x_l - x_{l-1} = dt A (x_l + x_{l-1}) / 2 + dt B u_l."""
    A, B, C = blocks(system)
    dt = system.log_dt.detach().double().exp()[:, None, None]
    eye = torch.eye(A.shape[-1], dtype=torch.float64)
    left = eye - dt / 2 * A
    return torch.linalg.solve(left, eye + dt / 2 * A), torch.linalg.solve(left, dt[..., 0] * B), C


def recurrence(A: Tensor, B: Tensor, C: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """x = A x + B u, y = C x, one input (B, D) of u (B, L, D) after the other: y (B, L, D), x (B, D, N)."""
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
def test_the_kernel_is_that_of_the_matrix_recurrence(form: str, length: int) -> None:
    layer = made(form)
    wanted = recurrence(*held(layer.system), impulse(length, WIDTH))[0][0].mT
    same(layer.system.kernel(length), wanted)


@pytest.mark.parametrize("init", ["lin", "inv"])
@pytest.mark.parametrize("length", [41, 600])
def test_the_kernel_in_single_precision(init: str, length: int) -> None:
    layer = S4d(8, S4dSettings(init=init), generator=torch.Generator().manual_seed(0))
    wanted = recurrence(*held(layer.system), impulse(length, 8))[0][0].mT
    # Frequencies of Inv reach 1283, so that a phase dt lambda l is known to about 1e-5 of a turn while it matters.
    same(layer.system.kernel(length).double(), wanted, tolerance=2e-5)


@pytest.mark.parametrize("length", [1, 41, 300])
def test_the_bilinear_kernel_with_an_input_matrix(length: int) -> None:
    generator = torch.Generator().manual_seed(0)
    system = DiagonalSystem(
        WIDTH, s4d_lin(6), ModeSettings(), bilinear, input_matrix=True, generator=generator
    ).double()
    assert system.B is not None
    with torch.no_grad():
        system.B.add_(drawn(*system.B.shape))
    same(system.kernel(length), recurrence(*trapezoid(system), impulse(length, WIDTH))[0][0].mT)


def test_the_whole_layer_is_its_equations() -> None:
    layer, u = made("s4d, lin"), drawn(2, 9, WIDTH)
    y, x = recurrence(*held(layer.system), u)
    y = nn.functional.gelu(y + layer.system.skip * u)
    a, b = (y @ layer.output.weight.mT + layer.output.bias).chunk(2, dim=-1)
    outputs, state = layer(u)
    same(outputs, a * torch.sigmoid(b))
    same(torch.view_as_real(state).flatten(-2), x)


def test_where_frequencies_begin() -> None:
    assert s4d_lin(8).imag.tolist() == pytest.approx([0, math.pi, 2 * math.pi, 3 * math.pi])
    assert s4d_inv(8).imag.tolist() == pytest.approx([8 / math.pi * (8 / (2 * j + 1) - 1) for j in range(4)])
    assert (s4d_inv(8).real == -0.5).all() and (s4d_lin(8).real == -0.5).all()
    for init, wanted in (("lin", s4d_lin(64)), ("inv", s4d_inv(64))):
        system: Any = S4d(5, S4dSettings(init=init), generator=torch.Generator()).system
        torch.testing.assert_close(system.eigenvalues, wanted.to(torch.complex64).expand(5, -1))


def test_the_other_parameters_begin_as_published() -> None:
    layer = S4d(256, generator=torch.Generator().manual_seed(0))
    system: Any = layer.system
    assert abs(system.C.var() - 0.5) < 0.02 and abs(system.skip.var() - 1) < 0.2
    log_dt = system.log_dt / math.log(10)
    assert -3 <= log_dt.min() < -2.9 and -1.1 < log_dt.max() <= -1 and abs(log_dt.mean() + 2) < 0.1


def test_parameters() -> None:
    """For each channel dt, D, and of N/2 modes two numbers each for lambda and C; then D (2D) + 2D."""
    assert sum(p.numel() for p in S4d(64, generator=torch.Generator()).parameters()) == 64 * (2 + 2 * 64) + 64 * 130


def test_an_init_that_cannot_be() -> None:
    with pytest.raises(SettingsError, match="init is 'linn'; did you mean 'lin'?"):
        S4dSettings(init="linn")
