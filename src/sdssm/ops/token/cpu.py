"""The token scan on the CPU: V matrices, looked up by symbol and not copied for every step."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops import chunks, compiled
from sdssm.ops.layout import merge_replicas
from sdssm.ops.token import compiled as compiled_token
from sdssm.ops.transitions import Transitions, cut_into_chunks, final_state, previous_states

#: Up to this many symbols multiplying with all matrices and selecting is faster than gathering a matrix for each row
#: (without numba).
FEW_SYMBOLS = 8


class TokenTransitions(Transitions):
    """Matrices (R V, N, N), and the index of the matrix for every row and step, (P, L)."""

    def __init__(self, pool: Tensor, index: Tensor, replicas: int) -> None:
        self.pool, self.index, self.replicas = pool, index, replicas
        self.rows, self.length = index.shape
        self.size = self.block = pool.shape[-1]
        self.symbols = pool.shape[0] // replicas

    def _multiply(self, pool: Tensor, t: int, x: Tensor) -> Tensor:
        """Return pool[index] x: (P, N) -> (P, N)."""
        index = self.index[:, t]
        if self.symbols > FEW_SYMBOLS:
            return (pool[index] @ x[..., None])[..., 0]
        per_replica = self.rows // self.replicas
        stacked = pool.reshape(self.replicas, self.symbols * self.size, self.size)
        products = x.reshape(self.replicas, per_replica, self.size) @ stacked.mT  # (R, B, V N)
        symbol = index.remainder(self.symbols)[:, None, None].expand(-1, 1, self.size)
        return products.reshape(self.rows, self.symbols, self.size).gather(1, symbol)[:, 0]

    def apply(self, t: int, x: Tensor) -> Tensor:
        return self._multiply(self.pool, t, x)

    def adjoint(self, t: int, g: Tensor) -> Tensor:
        return self._multiply(self.pool.mT, t, g)

    def matrix(self, t: int) -> Tensor:
        return self.pool[self.index[:, t]].unsqueeze(1)  # (P, 1, N, N)

    def chunked(self, chunk: int) -> Transitions:
        return TokenTransitions(self.pool, cut_into_chunks(self.index, chunk), self.replicas)

    def forward(
        self, drive: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, like: Tensor
    ) -> tuple[Tensor, Tensor]:
        if not compiled.is_available():
            return super().forward(drive, x0, lengths, rescale, like)
        steps, flat = torch.arange(self.index.numel()).view_as(self.index), None
        if drive is not None:
            flat = drive.flatten(0, 1)
        return compiled_token.forward(self.pool, self.index, flat, steps, x0, lengths, rescale)

    def backward(
        self,
        grad_states: Tensor | None,
        grad_final: Tensor | None,
        lengths: Tensor | None,
        states: Tensor,
        factors: Tensor,
        rescale: bool,
    ) -> tuple[Tensor, Tensor]:
        if not compiled.is_available():
            return super().backward(grad_states, grad_final, lengths, states, factors, rescale)
        return compiled_token.backward(self.pool, self.index, grad_states, grad_final, lengths, states, factors)


def transitions_of(A: Tensor, tokens: Tensor) -> TokenTransitions:
    """Return the transitions for A (R, V, N, N) and tokens (R, B, L)."""
    replicas, symbols = A.shape[:2]
    index = tokens
    if replicas > 1:
        index = tokens + torch.arange(replicas, device=A.device)[:, None, None] * symbols
    return TokenTransitions(A.flatten(0, 1), index.flatten(0, 1), replicas)


def forward(
    A: Tensor,
    b: Tensor | None,
    tokens: Tensor,
    x0: Tensor | None,
    lengths: Tensor | None,
    *,
    rescale: bool,
    mode: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (R, B, L, N), final (R, B, N) and factors (R, B, L) or empty.

    A (R, V, N, N), b (R, V, N), tokens (R, B, L), x0 (R, B, N), lengths (R, B).
    """
    transitions = transitions_of(A, tokens)
    index, (table, start, steps) = transitions.index, merge_replicas(b, x0, lengths)
    if mode != "parallel" and compiled.is_available():
        states, factors = compiled_token.forward(transitions.pool, index, table, index, start, steps, rescale)
        final = final_state(states, start, steps)
    else:
        drive = None if table is None else table[index]
        states, final, factors = chunks.scan_forward(transitions, drive, start, steps, rescale, mode, like=A)
    shape = tokens.shape
    return (
        states.reshape(*shape, -1),
        final.reshape(*shape[:2], -1),
        factors.reshape(shape) if rescale else factors,
    )


def backward(
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    A: Tensor,
    b: Tensor | None,
    tokens: Tensor,
    x0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    factors: Tensor,
    *,
    rescale: bool,
    mode: str,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradients of A, b (None without b) and x0."""
    transitions = transitions_of(A, tokens)
    grad_states, grad_final, start, steps, states = merge_replicas(grad_states, grad_final, x0, lengths, states)
    factors = factors.flatten(0, 1) if rescale else factors
    adjoints, grad_x0 = chunks.scan_backward(
        transitions, grad_states, grad_final, steps, states, factors, rescale, mode
    )
    if compiled.is_available():
        count = len(transitions.pool)
        grad_A, grad_b = compiled_token.sum_by_symbol(count, transitions.index, adjoints, states, start, steps)
    else:
        grad_A, grad_b = sum_by_symbol(transitions, adjoints, previous_states(states, start))
    shape = (*tokens.shape[:2], -1)
    return grad_A.reshape(A.shape), None if b is None else grad_b.reshape(b.shape), grad_x0.reshape(shape)


def sum_by_symbol(transitions: TokenTransitions, adjoints: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """Sum adjoint x_{t-1}^T, (R V, N, N), and adjoint, (R V, N), over the positions of each symbol.

    Positions are sorted by symbol, so that each sum is one matrix product over a range of positions.
    """
    count = transitions.pool.shape[0]
    index = transitions.index.flatten()
    order = index.to(torch.int16 if count < 2**15 else torch.int64).argsort(stable=True)
    ends = torch.bincount(index, minlength=count).cumsum(0).tolist()
    left, right = adjoints.flatten(0, 1).index_select(0, order), before.flatten(0, 1).index_select(0, order)
    grad_A, grad_b = torch.zeros_like(transitions.pool), left.new_zeros(count, left.shape[-1])
    start = 0
    for symbol, end in enumerate(ends):
        if end > start:
            torch.mm(left[start:end].T, right[start:end], out=grad_A[symbol])
            torch.sum(left[start:end], 0, out=grad_b[symbol])
        start = end
    return grad_A, grad_b
