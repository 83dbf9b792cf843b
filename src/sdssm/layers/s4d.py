"""S4D: S4 with a diagonal state matrix (Gu, Gupta, Goel and Re 2022)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.layers.convolution import DiagonalSystem, LtiMixer
from sdssm.layers.settings import S4dSettings


def s4d_lin(state: int) -> Tensor:
    """Return the eigenvalues of S4D-Lin, -1/2 + i pi j for j < N / 2.

    >>> s4d_lin(4)
    tensor([-0.5000+0.0000j, -0.5000+3.1416j], dtype=torch.complex128)
    """
    return _decaying(math.pi * torch.arange(state // 2, dtype=torch.float64))


def s4d_inv(state: int) -> Tensor:
    """Return the eigenvalues of S4D-Inv, -1/2 + i (N / pi) (N / (2j + 1) - 1) for j < N / 2.

    >>> s4d_inv(4)
    tensor([-0.5000+3.8197j, -0.5000+0.4244j], dtype=torch.complex128)
    """
    j = torch.arange(state // 2, dtype=torch.float64)
    return _decaying(state / math.pi * (state / (2 * j + 1) - 1))


def _decaying(frequency: Tensor) -> Tensor:
    return torch.complex(torch.full_like(frequency, -0.5), frequency)


INITS = {"lin": s4d_lin, "inv": s4d_inv}


class S4d(LtiMixer):
    """S4D: y = K * u + D u with K_l = C Abar^l Bbar and a diagonal A; then GELU, Linear, GLU.

    With a zero-order hold K_l = 2 Re sum_j C_j (e^{dt lambda_j} - 1) / lambda_j e^{l dt lambda_j}. Every channel has
    N / 2 modes lambda_j = -exp(a_j) + i b_j, and B = 1. Gu, Gupta, Goel and Re 2022, "On the Parameterization and
    Initialization of Diagonal State Space Models".

    >>> layer = S4d(3, generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(2, 10, 3)
    >>> outputs, final = layer(u)
    >>> first, state = layer(u[:, :4])
    >>> rest, state = layer(u[:, 4:], state)
    >>> torch.allclose(outputs, torch.cat([first, rest], dim=1), atol=1e-5), outputs.shape, final.shape
    (True, torch.Size([2, 10, 3]), torch.Size([2, 3, 32]))
    """

    name = "s4d"
    Settings = S4dSettings

    def __init__(self, width: int, settings: S4dSettings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or S4dSettings()
        super().__init__(width, settings, generator=generator)
        eigenvalues = INITS[settings.init](settings.state)
        self.system = DiagonalSystem(width, eigenvalues, settings, "zero-order-hold", generator=generator)
