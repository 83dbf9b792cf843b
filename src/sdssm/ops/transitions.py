"""The matrices of a scan behind one interface, and the recurrence over it in plain torch.

Rows are flat here: P = R x B independent sequences. A subclass defines how step t acts on a vector and how two steps
compose. From that this module runs the recurrence forwards and backwards, and `chunks` runs it in parallel.
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
    block: int  # S: how many entries of a state one entry of the next depends on; N when dense, 1 when diagonal

    @abstractmethod
    def apply(self, t: int, x: Tensor) -> Tensor:
        """Return A_t x: (P, N) -> (P, N)."""

    @abstractmethod
    def adjoint(self, t: int, g: Tensor) -> Tensor:
        """Return A_t^H g: (P, N) -> (P, N)."""

    @abstractmethod
    def matrix(self, t: int) -> Tensor:
        """Return A_t in a form that can be multiplied: (P, H, S, S), or (P, N) when diagonal."""

    @abstractmethod
    def chunked(self, chunk: int) -> Transitions:
        """Return the same matrices with every row cut into ceil(L / chunk) rows of length `chunk`."""

    def of_products(self, products: Tensor) -> Transitions:
        """Return transitions whose step t is products[:, t], for the scan over chunks."""
        from sdssm.ops.block_diagonal.cpu import BlockTransitions

        return BlockTransitions(products)

    def forward(
        self, drive: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run the recurrence step by step: states (P, L, N) and factors (P, L), empty unless `rescale`.

        drive: b_t for every step, (P, L, N), or None. like: a tensor with the dtype and device of the states.
        """
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
        stacked_factors = torch.stack(factors, 1) if rescale else no_factors(like)
        if lengths is not None:
            padding = is_past_length(lengths, self.length)
            stacked = stacked.masked_fill_(padding[..., None], 0)
            stacked_factors = stacked_factors.masked_fill_(padding, 0) if rescale else stacked_factors
        return stacked, stacked_factors

    def backward(
        self,
        grad_states: Tensor | None,
        grad_final: Tensor | None,
        lengths: Tensor | None,
        states: Tensor,
        factors: Tensor,
        rescale: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of z_t = A_t x_{t-1} + b_t, (P, L, N), and of x0, (P, N)."""
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
                g = functional.hardshrink(g, flush_threshold(g.dtype))
            adjoints.append(g)
            carry = self.adjoint(t, g)
        if lengths is not None and grad_final is not None:
            carry = torch.where((lengths == 0)[:, None], grad_final, carry)
        return torch.stack(adjoints[::-1], 1), carry


def is_past_length(lengths: Tensor, length: int) -> Tensor:
    """Whether each of the steps 0..length-1 lies past the length of its row: (...) -> (..., length)."""
    return torch.arange(length, device=lengths.device) >= lengths[..., None]


def flush_threshold(dtype: torch.dtype) -> float:
    """Return the threshold below which gradients become 0.

    It is close to the denormal numbers, with which a CPU computes a hundred times more slowly.
    """
    return 64 * torch.finfo(dtype).tiny


def no_factors(like: Tensor) -> Tensor:
    """Return the empty tensor of factors for a scan without `rescale`."""
    return like.new_empty(0, dtype=like.dtype.to_real())


def inner(x: Tensor, g: Tensor) -> Tensor:
    """Return the real inner product of rows: (P, N), (P, N) -> (P,)."""
    return ((x.conj() * g).real if x.is_complex() else x * g).sum(-1)


def inverse_norm(z: Tensor) -> Tensor:
    """Return 1 / ||z||_2 of each row, 0 for a row of zeros: (P, N) -> (P,).

    Entries are divided by the largest one first, so that squares neither overflow nor underflow.
    """
    largest = z.abs().amax(-1)
    divisor = torch.where(largest == 0, 1, largest)
    inverse = 1 / (divisor * torch.linalg.vector_norm(z / divisor[:, None], dim=-1))
    return torch.where(largest == 0, 0, inverse)


def final_state(states: Tensor, x0: Tensor | None, lengths: Tensor | None) -> Tensor:
    """Return the state at each row's length, x0 for length 0: (P, L, N) -> (P, N), a new tensor."""
    if lengths is None:
        return states[:, -1].clone()
    last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, states.shape[-1])
    final = states.gather(1, last)[:, 0]
    start = torch.zeros_like(final) if x0 is None else x0
    return torch.where((lengths == 0)[:, None], start, final)


def previous_states(states: Tensor, x0: Tensor | None) -> Tensor:
    """Return x_{t-1} for every t: (P, L, N) -> (P, L, N)."""
    start = torch.zeros_like(states[:, :1]) if x0 is None else x0[:, None]
    return torch.cat([start, states[:, :-1]], 1)


def cut_into_chunks(data: Tensor, chunk: int) -> Tensor:
    """Cut sequences into chunks, padded with zeros: (P, L, ...) -> (P ceil(L / chunk), chunk, ...)."""
    rows, length, *rest = data.shape
    count = -(-length // chunk)
    if count * chunk != length:
        data = functional.pad(data, (*(0, 0) * len(rest), 0, count * chunk - length))
    return data.reshape(rows * count, chunk, *rest)
