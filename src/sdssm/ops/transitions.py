"""One interface to the matrices of a scan, whatever form they are kept in, and the plain torch passes over it.

Rows are flat here: P = R x B independent sequences. A subclass says how step t acts on a vector and how two steps
compose; from that this module runs the recurrence forwards and backwards, and `chunks` runs it in parallel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional


class Transitions(ABC):
    """The matrices A_0 .. A_{L-1} of P rows."""

    rows: int
    length: int
    size: int  # N
    block: int  # S: how many entries of a state one entry of the last depends on; N when dense, 1 when diagonal

    @abstractmethod
    def apply(self, t: int, x: Tensor) -> Tensor:
        """A_t x: (P, N) -> (P, N)."""

    @abstractmethod
    def adjoint(self, t: int, g: Tensor) -> Tensor:
        """A_t^H g: (P, N) -> (P, N)."""

    @abstractmethod
    def matrix(self, t: int) -> Tensor:
        """A_t in a form that composes: (P, H, S, S), or (P, N) when diagonal."""

    @abstractmethod
    def chunked(self, chunk: int) -> Transitions:
        """The same matrices with every row cut into ceil(L / chunk) rows of length `chunk`."""

    def of_products(self, products: Tensor) -> Transitions:
        """Transitions whose step t is products[:, t], for the scan over chunks."""
        from sdssm.ops.block_diagonal.cpu import BlockTransitions

        return BlockTransitions(products)

    def forward(
        self, drive: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One step after the other: states (P, L, N) and factors (P, L), empty unless `rescale`."""
        x = like.new_zeros(self.rows, self.size) if x0 is None else x0
        states, factors = [], []
        for t in range(self.length):
            z = self.apply(t, x)
            if drive is not None:
                z = z + drive[:, t]
            if rescale:
                factor = inverse_norm(z)
                z = z * factor[:, None]
                factors.append(factor)
            x = z
            states.append(z)
        stacked = torch.stack(states, 1)
        kept = torch.stack(factors, 1) if rescale else no_factors(like)
        if lengths is not None:
            stacked = stacked.masked_fill_(past(lengths, self.length)[..., None], 0)
            kept = kept.masked_fill_(past(lengths, self.length), 0) if rescale else kept
        return stacked, kept

    def backward(
        self,
        grad_states: Tensor | None,
        grad_final: Tensor | None,
        lengths: Tensor | None,
        states: Tensor,
        factors: Tensor,
        rescale: bool,
    ) -> tuple[Tensor, Tensor]:
        """The gradients at z_t = A_t x_{t-1} + b_t, (P, L, N), and at x0, (P, N)."""
        carry = states.new_zeros(self.rows, self.size)
        if lengths is None and grad_final is not None:
            carry = grad_final
        adjoints: list[Tensor] = []
        for t in reversed(range(self.length)):
            g = carry if grad_states is None else carry + grad_states[:, t]
            if lengths is not None and grad_final is not None:
                g = torch.where((lengths == t + 1)[:, None], g + grad_final, g)
            if rescale:
                x = states[:, t]
                g = (g - x * inner(x, g)[:, None]) * factors[:, t, None]
            if lengths is not None:
                g = torch.where((lengths > t)[:, None], g, 0)
            if not g.is_complex():
                g = functional.hardshrink(g, least_kept(g.dtype))
            adjoints.append(g)
            carry = self.adjoint(t, g)
        if lengths is not None and grad_final is not None:
            carry = torch.where((lengths == 0)[:, None], grad_final, carry)
        return torch.stack(adjoints[::-1], 1), carry


def past(lengths: Tensor, length: int) -> Tensor:
    """Which of the steps 0..length-1 lie past each row's own length: (P, length)."""
    return torch.arange(length, device=lengths.device) >= lengths[:, None]


def least_kept(dtype: torch.dtype) -> float:
    """Gradients smaller than this count as 0: next to the denormal numbers, a hundred times slower on a CPU."""
    return 64 * torch.finfo(dtype).tiny


def no_factors(like: Tensor) -> Tensor:
    return like.new_empty(0, dtype=like.dtype.to_real())


def inner(x: Tensor, g: Tensor) -> Tensor:
    """The real inner product of rows: (P, N), (P, N) -> (P,)."""
    return ((x.conj() * g).real if x.is_complex() else x * g).sum(-1)


def inverse_norm(z: Tensor) -> Tensor:
    """1 / ||z||_2 of each row, 0 for a row of zeros: (P, N) -> (P,).

    The largest entry is taken out first, so that squares neither overflow nor vanish.
    """
    largest = z.abs().amax(-1)
    safe = torch.where(largest == 0, 1, largest)
    inverse = 1 / (safe * torch.linalg.vector_norm(z / safe[:, None], dim=-1))
    return torch.where(largest == 0, 0, inverse)


def final_state(states: Tensor, x0: Tensor | None, lengths: Tensor | None) -> Tensor:
    """The state at each row's length, x0 at length 0: (P, L, N) -> (P, N), never a view of its arguments."""
    if lengths is None:
        return states[:, -1].clone()
    last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, states.shape[-1])
    found = states.gather(1, last)[:, 0]
    start = torch.zeros_like(found) if x0 is None else x0
    return torch.where((lengths == 0)[:, None], start, found)


def previous(states: Tensor, x0: Tensor | None) -> Tensor:
    """x_{t-1} beside x_t: (P, L, N) -> (P, L, N)."""
    start = torch.zeros_like(states[:, :1]) if x0 is None else x0[:, None]
    return torch.cat([start, states[:, :-1]], 1)


def cut(data: Tensor, chunk: int) -> Tensor:
    """(P, L, ...) -> (P ceil(L / chunk), chunk, ...), zeros added at the end."""
    rows, length, *rest = data.shape
    count = -(-length // chunk)
    if count * chunk != length:
        data = functional.pad(data, (*(0, 0) * len(rest), 0, count * chunk - length))
    return data.reshape(rows * count, chunk, *rest)
