"""The kernel of a diagonal system in plain torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: dt (D, 1) and eigenvalues (D, M) -> log Abar and Bbar / B, both (D, M).
Discretisation = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def zero_order_hold(dt: Tensor, eigenvalues: Tensor) -> tuple[Tensor, Tensor]:
    """Discretise with inputs constant during a step: Abar = e^{dt A}, Bbar = (e^{dt A} - 1) / A B."""
    rate = dt * eigenvalues
    return rate, rate.expm1() / eigenvalues


def bilinear(dt: Tensor, eigenvalues: Tensor) -> tuple[Tensor, Tensor]:
    """Discretise by the trapezoidal rule.

    Abar = (1 + dt A / 2) / (1 - dt A / 2), Bbar = dt / (1 - dt A / 2) B.
    """
    gain = 2 / (2 / dt - eigenvalues)
    return (eigenvalues * gain).log1p(), gain  # Abar - 1 = A dt / (1 - dt A / 2)


#: The discretisations of the kernels, by name.
DISCRETISATIONS: dict[str, Discretisation] = {"zero-order-hold": zero_order_hold, "bilinear": bilinear}


def taps(
    log_dt: Tensor,
    log_decay: Tensor,
    frequency: Tensor,
    C: Tensor,
    B: Tensor | None,
    length: int,
    discretisation: str,
) -> Tensor:
    """Return K (D, length), see `modal_taps`."""
    eigenvalues = torch.complex(-log_decay.exp(), frequency)
    rate, weight = DISCRETISATIONS[discretisation](log_dt.exp()[:, None], eigenvalues)
    for pair in (C, B):
        weight = weight if pair is None else weight * torch.complex(pair[0], pair[1])
    times = torch.arange(length, device=log_dt.device, dtype=log_dt.dtype)
    powers = (rate[:, None] * times[:, None]).exp()  # (D, L, M)
    return 2 * (weight[:, None] * powers).real.sum(-1)
