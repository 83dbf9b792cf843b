# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Column-one-hot scan on NVIDIA GPUs: a program runs one row, with its state in registers.

Of P only the row of the 1 in each column, targets(j), is read. A step sends entry j to entry targets(j): entry i of the
next state is the sum over all j with targets(j) = i, in ascending order. So that no thread looks at all j, those with
the same target are linked: `first` is the smallest j of each i, `following` the next larger one of each j (-1 is the
end), and `counts` the most j of any i. Backward in time entry j receives entry targets(j), without a sum. The gradients
of P and D are computed from all adjoints afterwards; for a table by the kernel of `token_scan`.

Complex numbers are pairs of real ones in memory, and separate real and imaginary parts in registers. NP is N padded to
a power of two, ACC the accumulator's dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.column_one_hot.gradients import step_gradients, table_gradients
from sdssm.ops.padding import next_power_of_two
from sdssm.ops.token.triton import weight_gradient
from sdssm.ops.transitions import previous_states

#: Entries of a state per warp: one warp moves them by shuffles, several through shared memory. Entries of an N x N tile
#: per warp of the kernel that links them.
ENTRIES, LINK_ENTRIES = 128, 1024
#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["L", "V", "B"]


@triton.jit
def transition_index(tokens, row, t, L, V, B):
    """Return the index of the transition that a row takes at step t."""
    index = row * L + t
    if tokens is not None:
        index = (row // B) * V + tl.load(tokens + index)
    return index


@triton.jit
def links_kernel(targets, first, following, counts, N: tl.constexpr, NP: tl.constexpr):
    """Fill first and following (transitions, N) and counts (transitions,) from targets (transitions, N)."""
    transition = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, NP)
    target = tl.load(targets + transition * N + n, mask=n < N, other=-1)
    sends = target[:, None] == n[None, :]  # (j, i)
    smallest = tl.min(tl.where(sends, n[:, None], NP), axis=0)
    tl.store(first + transition * N + n, tl.where(smallest < NP, smallest, -1), mask=n < N)
    tl.store(counts + transition, tl.max(tl.sum(sends.to(tl.int32), axis=0), axis=0))
    columns = tl.load(targets + transition * N + n, mask=n < N, other=-1)
    later = (columns[:, None] == target[None, :]) & (n[:, None] > n[None, :])  # (larger j, j)
    smallest = tl.min(tl.where(later, n[:, None], NP), axis=0)
    tl.store(following + transition * N + n, tl.where(smallest < NP, smallest, -1), mask=n < N)


@triton.jit
def load_links(first, following, counts, D, index, n, N: tl.constexpr):
    """Load the links of a transition, -1 for padding, and the real and imaginary parts of D_j."""
    offsets = index * N + n
    first_j = tl.load(first + offsets, mask=n < N, other=-1)
    following_j = tl.load(following + offsets, mask=n < N, other=-1)
    real = tl.load(D + 2 * offsets, mask=n < N, other=0.0)
    imaginary = tl.load(D + 2 * offsets + 1, mask=n < N, other=0.0)
    return first_j, following_j, tl.load(counts + index), real, imaginary


@triton.jit
def load_transition(targets, D, index, n, N: tl.constexpr):
    """Load targets(j), -1 for padding, and the real and imaginary parts of D_j."""
    offsets = index * N + n
    target = tl.load(targets + offsets, mask=n < N, other=-1)
    real = tl.load(D + 2 * offsets, mask=n < N, other=0.0)
    imaginary = tl.load(D + 2 * offsets + 1, mask=n < N, other=0.0)
    return target, real, imaginary


@triton.jit(do_not_specialize=ANY_SIZE)
def column_one_hot_forward_kernel(
    first, following, counts, D, tokens, b, x0, lengths, states, final, L, V, B,
    N: tl.constexpr, NP: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute x_t = P_t (D_t * x_{t-1}) + b_t."""
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
    # Transitions do not depend on the state: the next one is loaded while this one is applied, its index even earlier.
    index = transition_index(tokens, row, 0, L, V, B)
    first_j, following_j, count, dr, di = load_links(first, following, counts, D, index, n, N)
    next_index = transition_index(tokens, row, tl.minimum(1, L - 1), L, V, B)
    for t in range(length):
        later_index = transition_index(tokens, row, tl.minimum(t + 2, L - 1), L, V, B)
        next_first, next_following, next_count, next_dr, next_di = load_links(
            first, following, counts, D, next_index, n, N
        )
        zr = dr * xr - di * xi
        zi = dr * xi + di * xr
        xr = tl.zeros((NP,), ACC)
        xi = tl.zeros((NP,), ACC)
        j = first_j
        # Not a for loop: the compiler drops what is carried from step to step and only used as the bound of a for loop.
        links = 0
        while links < count:
            place = tl.maximum(j, 0)
            xr += tl.where(j >= 0, tl.gather(zr, place, 0), 0.0)
            xi += tl.where(j >= 0, tl.gather(zi, place, 0), 0.0)
            j = tl.where(j >= 0, tl.gather(following_j, place, 0), -1)
            links += 1
        offsets = 2 * ((row * L + t) * N + n)
        if b is not None:
            xr += tl.load(b + offsets, mask=mask, other=0.0)
            xi += tl.load(b + offsets + 1, mask=mask, other=0.0)
        tl.store(states + offsets, xr, mask=mask)
        tl.store(states + offsets + 1, xi, mask=mask)
        next_index = later_index
        first_j, following_j, count, dr, di = next_first, next_following, next_count, next_dr, next_di
    zeros = tl.zeros((NP,), ACC)
    for t in range(length, L):
        offsets = 2 * ((row * L + t) * N + n)
        tl.store(states + offsets, zeros, mask=mask)
        tl.store(states + offsets + 1, zeros, mask=mask)
    tl.store(final + 2 * (row * N + n), xr, mask=mask)
    tl.store(final + 2 * (row * N + n) + 1, xi, mask=mask)


@triton.jit(do_not_specialize=ANY_SIZE)
def column_one_hot_backward_kernel(
    targets, D, tokens, grad_states, grad_final, lengths, adjoints, dx0, L, V, B,
    N: tl.constexpr, NP: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute the adjoints a_t = g_t + h_{t+1} with h_t = conj(D_t) * (P_t^T a_t), backward in t.

    dx0 is h at the first step.
    """
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, NP)
    mask = n < N
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    zeros = tl.zeros((NP,), ACC)
    for t in range(length, L):
        offsets = 2 * ((row * L + t) * N + n)
        tl.store(adjoints + offsets, zeros, mask=mask)
        tl.store(adjoints + offsets + 1, zeros, mask=mask)
    hr = zeros
    hi = zeros
    if grad_final is not None:
        hr = tl.load(grad_final + 2 * (row * N + n), mask=mask, other=0.0)
        hi = tl.load(grad_final + 2 * (row * N + n) + 1, mask=mask, other=0.0)
    last_step = tl.maximum(length - 1, 0)
    target, dr, di = load_transition(targets, D, transition_index(tokens, row, last_step, L, V, B), n, N)
    next_index = transition_index(tokens, row, tl.maximum(last_step - 1, 0), L, V, B)
    for i_back in range(length):
        t = length - 1 - i_back
        later_index = transition_index(tokens, row, tl.maximum(t - 2, 0), L, V, B)
        next_target, next_dr, next_di = load_transition(targets, D, next_index, n, N)
        offsets = 2 * ((row * L + t) * N + n)
        if grad_states is not None:
            hr += tl.load(grad_states + offsets, mask=mask, other=0.0)
            hi += tl.load(grad_states + offsets + 1, mask=mask, other=0.0)
        tl.store(adjoints + offsets, hr, mask=mask)
        tl.store(adjoints + offsets + 1, hi, mask=mask)
        source = tl.maximum(target, 0)  # of padding any entry: D is 0 there
        zr = tl.gather(hr, source, 0)
        zi = tl.gather(hi, source, 0)
        hr = dr * zr + di * zi
        hi = dr * zi - di * zr
        next_index = later_index
        target, dr, di = next_target, next_dr, next_di
    tl.store(dx0 + 2 * (row * N + n), hr, mask=mask)
    tl.store(dx0 + 2 * (row * N + n) + 1, hi, mask=mask)


def kernel_constants(N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the compile-time constants of the kernels and their warps."""
    NP = max(2, next_power_of_two(N))
    warps = min(8, max(1, NP // ENTRIES))
    return {"N": N, "NP": NP, "ACC": tl.float64 if dtype == torch.complex128 else tl.float32, "num_warps": warps}


def as_pairs(x: Tensor | None) -> Tensor | None:
    """Return complex numbers (...) as pairs of real ones (..., 2), without a copy if x is contiguous."""
    return None if x is None else torch.view_as_real(x.resolve_conj().contiguous())


def forward(
    P: Tensor, D: Tensor, tokens: Tensor | None, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (R, B, L, N), final (R, B, N) and targets (R, V, N), as the CPU implementation does."""
    targets = P.argmax(-2).to(torch.int32)
    return *run_forward(targets, D, tokens, b, x0, lengths), targets


def run_forward(
    targets: Tensor, D: Tensor, tokens: Tensor | None, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return states and final for known targets (R, V, N)."""
    R, V, N = D.shape
    B, L = (1, V) if tokens is None else tokens.shape[1:]
    states, final = D.new_empty(R, B, L, N), D.new_empty(R, B, N)
    if states.numel():
        constants = kernel_constants(N, D.dtype)
        first, following = (torch.empty_like(targets) for _ in range(2))
        counts = targets.new_empty(R * V)
        NP = constants["NP"]
        links_kernel[(R * V,)](
            targets, first, following, counts, N=N, NP=NP, num_warps=min(8, max(1, NP * NP // LINK_ENTRIES))
        )
        column_one_hot_forward_kernel[(R * B,)](
            first, following, counts, as_pairs(D), tokens, as_pairs(b), as_pairs(x0), lengths,
            as_pairs(states), as_pairs(final), L, V, B, **constants,
        )  # fmt: skip
    return states, final


def run_backward(
    grad_states: Tensor | None, grad_final: Tensor | None, targets: Tensor, D: Tensor, tokens: Tensor | None,
    lengths: Tensor | None, states: Tensor, final: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the adjoints of all states, which are the gradient of b, and the gradient of x0."""
    R, V, N = D.shape
    B, L = states.shape[1:3]
    adjoints, dx0 = torch.empty_like(states), torch.empty_like(final)
    if states.numel():
        column_one_hot_backward_kernel[(R * B,)](
            targets, as_pairs(D), tokens, as_pairs(grad_states), as_pairs(grad_final), lengths,
            as_pairs(adjoints), as_pairs(dx0), L, V, B, **kernel_constants(N, D.dtype),
        )  # fmt: skip
    return adjoints, dx0


def backward(
    grad_states: Tensor | None, grad_final: Tensor | None, P: Tensor, D: Tensor, tokens: Tensor | None,
    b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, states: Tensor, final: Tensor, targets: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of P, D, b and x0."""
    adjoints, dx0 = run_backward(grad_states, grad_final, targets, D, tokens, lengths, states, final)
    if not states.numel():
        return torch.zeros_like(P), torch.zeros_like(D), adjoints, dx0
    if tokens is None:
        previous_x = previous_states(states[:, 0], None if x0 is None else x0[:, 0])
        dP, dD = step_gradients(adjoints[:, 0], previous_x, D, targets)
    else:
        dP, dD = table_gradients(sum_by_symbol(tokens, x0, lengths, states, adjoints, D.shape[1]), D, targets)
    return dP, dD, None if b is None else adjoints, None if x0 is None else dx0


def sum_by_symbol(
    tokens: Tensor, x0: Tensor | None, lengths: Tensor | None, states: Tensor, adjoints: Tensor, V: int
) -> Tensor:
    """Return the sums of conj(a_i) x_j over all steps of each symbol, (R, V, N, N).

    They follow from the sums of products of real pairs (R, V, 2N, 2N), which the kernel of `token_scan` computes.
    """
    R, B, L, N = states.shape
    pairs = [None if x is None else torch.view_as_real(x.resolve_conj()).flatten(-2) for x in (x0, states, adjoints)]
    x0_pairs, state_pairs, adjoint_pairs = pairs
    assert state_pairs is not None and adjoint_pairs is not None
    like = state_pairs.new_empty(()).expand(R, V, 2 * N, 2 * N)  # only its shape is read
    sums, _ = weight_gradient(like, None, tokens, x0_pairs, lengths, state_pairs, adjoint_pairs.view(R * B, L, 2 * N))
    (rr, ri), (ir, ii) = (row.unbind(-1) for row in sums.view(R, V, N, 2, N, 2).unbind(3))
    return torch.complex(rr + ii, ri - ir)
