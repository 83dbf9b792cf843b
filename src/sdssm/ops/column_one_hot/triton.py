# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Column-one-hot scan on NVIDIA GPUs: a program runs one row, its state in registers, real and imaginary parts apart.

Of P only the row of each column's 1 is read. A step sends entry j to entry to(j): row i of the next state is the sum of
those j with to(j) = i, a masked sum over an N x N tile that is never in memory, in a fixed order. The gradients of the
tables are formed from all adjoints afterwards: for a table of symbols by the kernel that does it for `token_scan`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.column_one_hot.gradients import of_places, of_sums
from sdssm.ops.padding import power_of_two
from sdssm.ops.token.triton import weight_gradient
from sdssm.ops.transitions import previous

#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["L", "V", "B"]


@triton.jit
def place(tokens, row, t, L, V, B):
    """The number of the transition that a row takes at step t."""
    index = row * L + t
    if tokens is not None:
        index = (row // B) * V + tl.load(tokens + index)
    return index


@triton.jit
def transition(to, D, index, n, N: tl.constexpr):
    """to(j), -1 beyond N, and the real and imaginary parts of D_j."""
    at = index * N + n
    target = tl.load(to + at, mask=n < N, other=-1)
    real = tl.load(D + 2 * at, mask=n < N, other=0.0)
    imaginary = tl.load(D + 2 * at + 1, mask=n < N, other=0.0)
    return target, real, imaginary


@triton.jit(do_not_specialize=ANY_SIZE)
def forward_kernel(
    to, D, tokens, b, x0, lengths, states, final, L, V, B, N: tl.constexpr, NP: tl.constexpr, ACC: tl.constexpr
):
    """x_t = P_t (D_t * x_{t-1}) + b_t; complex numbers are pairs in memory."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, NP)
    mask = n < N
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    xr = tl.zeros((NP,), ACC)
    xi = tl.zeros((NP,), ACC)
    if x0 is not None:
        xr = tl.load(x0 + 2 * (row * N + n), mask=mask, other=0.0)
        xi = tl.load(x0 + 2 * (row * N + n) + 1, mask=mask, other=0.0)
    # Transitions do not depend on the state: the next one is fetched while this one is applied, its number before.
    target, dr, di = transition(to, D, place(tokens, row, 0, L, V, B), n, N)
    ahead = place(tokens, row, tl.minimum(1, L - 1), L, V, B)
    for t in range(length):
        further = place(tokens, row, tl.minimum(t + 2, L - 1), L, V, B)
        target_next, dr_next, di_next = transition(to, D, ahead, n, N)
        zr = dr * xr - di * xi
        zi = dr * xi + di * xr
        lands = target[None, :] == n[:, None]  # column j on row i
        xr = tl.sum(tl.where(lands, zr[None, :], 0.0), axis=1)
        xi = tl.sum(tl.where(lands, zi[None, :], 0.0), axis=1)
        at = 2 * ((row * L + t) * N + n)
        if b is not None:
            xr += tl.load(b + at, mask=mask, other=0.0)
            xi += tl.load(b + at + 1, mask=mask, other=0.0)
        tl.store(states + at, xr, mask=mask)
        tl.store(states + at + 1, xi, mask=mask)
        ahead = further
        target, dr, di = target_next, dr_next, di_next
    nothing = tl.zeros((NP,), ACC)
    for t in range(length, L):
        at = 2 * ((row * L + t) * N + n)
        tl.store(states + at, nothing, mask=mask)
        tl.store(states + at + 1, nothing, mask=mask)
    tl.store(final + 2 * (row * N + n), xr, mask=mask)
    tl.store(final + 2 * (row * N + n) + 1, xi, mask=mask)


@triton.jit(do_not_specialize=ANY_SIZE)
def backward_kernel(
    to, D, tokens, grad_states, grad_final, lengths, adjoints, dx0, L, V, B,
    N: tl.constexpr, NP: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """a_t = g_t + h_{t+1}, h_t = conj(D_t) * (P_t^T a_t), backwards in t; dx0 is h at the first step."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, NP)
    mask = n < N
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    nothing = tl.zeros((NP,), ACC)
    for t in range(length, L):
        at = 2 * ((row * L + t) * N + n)
        tl.store(adjoints + at, nothing, mask=mask)
        tl.store(adjoints + at + 1, nothing, mask=mask)
    hr = nothing
    hi = nothing
    if grad_final is not None:
        hr = tl.load(grad_final + 2 * (row * N + n), mask=mask, other=0.0)
        hi = tl.load(grad_final + 2 * (row * N + n) + 1, mask=mask, other=0.0)
    last = tl.maximum(length - 1, 0)
    target, dr, di = transition(to, D, place(tokens, row, last, L, V, B), n, N)
    ahead = place(tokens, row, tl.maximum(last - 1, 0), L, V, B)
    for back in range(length):
        t = length - 1 - back
        further = place(tokens, row, tl.maximum(t - 2, 0), L, V, B)
        target_next, dr_next, di_next = transition(to, D, ahead, n, N)
        at = 2 * ((row * L + t) * N + n)
        if grad_states is not None:
            hr += tl.load(grad_states + at, mask=mask, other=0.0)
            hi += tl.load(grad_states + at + 1, mask=mask, other=0.0)
        tl.store(adjoints + at, hr, mask=mask)
        tl.store(adjoints + at + 1, hi, mask=mask)
        lands = target[None, :] == n[:, None]
        zr = tl.sum(tl.where(lands, hr[:, None], 0.0), axis=0)
        zi = tl.sum(tl.where(lands, hi[:, None], 0.0), axis=0)
        hr = dr * zr + di * zi
        hi = dr * zi - di * zr
        ahead = further
        target, dr, di = target_next, dr_next, di_next
    tl.store(dx0 + 2 * (row * N + n), hr, mask=mask)
    tl.store(dx0 + 2 * (row * N + n) + 1, hi, mask=mask)


def constants(N: int, dtype: torch.dtype) -> dict[str, Any]:
    padded = max(2, power_of_two(N))
    warps = min(8, max(1, padded * padded // 1024))
    return {"N": N, "NP": padded, "ACC": tl.float64 if dtype == torch.complex128 else tl.float32, "num_warps": warps}


def pairs(x: Tensor | None) -> Tensor | None:
    """Complex numbers (...) as pairs (..., 2), without a copy where they lie dense."""
    return None if x is None else torch.view_as_real(x.resolve_conj().contiguous())


def forward(
    P: Tensor, D: Tensor, tokens: Tensor | None, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """States (R, B, L, N), final (R, B, N) and the row of each column's 1, (R, V, N). Without tokens V is L, B is 1."""
    to = P.argmax(-2).to(torch.int32)
    return *states_of(to, D, tokens, b, x0, lengths), to


def states_of(
    to: Tensor, D: Tensor, tokens: Tensor | None, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """States and final, where it is known which entry each one goes to."""
    R, V, N = D.shape
    B, L = (1, V) if tokens is None else tokens.shape[1:]
    states, final = D.new_empty(R, B, L, N), D.new_empty(R, B, N)
    if states.numel():
        forward_kernel[(R * B,)](
            to, pairs(D), tokens, pairs(b), pairs(x0), lengths, pairs(states), pairs(final), L, V, B,
            **constants(N, D.dtype),
        )  # fmt: skip
    return states, final


def adjoints_of(
    grad_states: Tensor | None, grad_final: Tensor | None, to: Tensor, D: Tensor, tokens: Tensor | None,
    lengths: Tensor | None, states: Tensor, final: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Those of all states, which are the gradient of b, and the gradient of x0."""
    R, V, N = D.shape
    B, L = states.shape[1:3]
    adjoints, dx0 = torch.empty_like(states), torch.empty_like(final)
    if states.numel():
        backward_kernel[(R * B,)](
            to, pairs(D), tokens, pairs(grad_states), pairs(grad_final), lengths, pairs(adjoints), pairs(dx0), L, V, B,
            **constants(N, D.dtype),
        )  # fmt: skip
    return adjoints, dx0


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, P: Tensor, D: Tensor, tokens: Tensor | None,
    b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, states: Tensor, final: Tensor, to: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of P, D, b and x0."""
    adjoints, dx0 = adjoints_of(grad_states, grad_final, to, D, tokens, lengths, states, final)
    if not states.numel():
        return torch.zeros_like(P), torch.zeros_like(D), adjoints, dx0
    if tokens is None:
        before = previous(states[:, 0], None if x0 is None else x0[:, 0])
        dP, dD = of_places(adjoints[:, 0], before, D, to)
    else:
        dP, dD = of_sums(sums_of(tokens, x0, lengths, states, adjoints, D.shape[1]), D, to)
    return dP, dD, None if b is None else adjoints, None if x0 is None else dx0


def sums_of(
    tokens: Tensor, x0: Tensor | None, lengths: Tensor | None, states: Tensor, adjoints: Tensor, V: int
) -> Tensor:
    """Sums of conj(a_i) x_j over the places of each symbol, (R, V, N, N), from those of pairs, (R, V, 2N, 2N)."""
    R, B, L, N = states.shape
    flat = [None if x is None else torch.view_as_real(x.resolve_conj()).flatten(-2) for x in (x0, states, adjoints)]
    start, before, after = flat
    assert before is not None and after is not None
    shaped = before.new_empty(()).expand(R, V, 2 * N, 2 * N)  # its sizes are all that is read
    found, _ = weight_gradient(shaped, None, tokens, start, lengths, before, after.view(R * B, L, 2 * N))
    (rr, ri), (ir, ii) = (row.unbind(-1) for row in found.view(R, V, N, 2, N, 2).unbind(3))
    return torch.complex(rr + ii, ri - ir)
