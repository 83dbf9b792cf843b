# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The token scan and its adjoint for thousands of rows over a small alphabet.

With one row per program (recurrence.py) A[token_t] is read from the caches at every step, which is fastest for few rows
but limited by the caches for thousands. Here the V matrices stay on chip, TB states are multiplied with each of them,
and every row selects the product of its own symbol. If programs share multiprocessors, rows are sorted by length
(tile_order.py): those of a program are about equally long, so that few of its steps are past the length of a row, and
the longest start first. On an H200 with 64 replicas of 128 rows, V 2, N 64 and lengths up to 40 it took 142 instead of
310 us before the rows were sorted; for fewer than about 2,000 rows it was slower.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.devices import multiprocessors
from sdssm.ops._triton.tensor_cores import split
from sdssm.ops._triton.tile_order import order_tiles
from sdssm.ops.padding import next_power_of_two

#: Where it was faster: least number of rows, largest number of symbols (each costs a product), sizes of a state.
LEAST_ROWS, MOST_SYMBOLS, STATES = 2048, 4, range(16, 65)
#: Rows per program.
ROWS = 16
#: Warps of a program: of one that has a multiprocessor for itself, and of several that share one.
WARPS, WARPS_SHARED = 8, 4


@triton.jit
def symbol_parts(A, replica, v: tl.constexpr, V: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, TRANS: tl.constexpr):
    """Load A_v, or with TRANS its transpose, as parts (NP, NP): rows are multiplied with it from the left.

    For v past the last symbol the result is not used, and the compiler leaves the load out.
    """
    i = tl.arange(0, NP)[:, None]
    j = tl.arange(0, NP)[None, :]
    place = j * N + i if TRANS else i * N + j
    return split(tl.load(A + (replica * V + v) * N * N + place, mask=(i < N) & (j < N) & (v < V), other=0.0), True)


@triton.jit
def multiply_parts(high, low, a_high, a_low):
    """Return x a with the precision of float32, for the parts of x and a.

    The three products do not wait for each other, as those of the precision "tf32x3" of `tl.dot` do.
    """
    small = tl.dot(high, a_low, input_precision="tf32") + tl.dot(low, a_high, input_precision="tf32")
    return tl.dot(high, a_high, input_precision="tf32") + small


@triton.jit
def select_product(
    x, token, a0, a0_low, a1, a1_low, a2, a2_low, a3, a3_low, V: tl.constexpr,
):  # fmt: skip
    """Return x A[token] for rows x, with the parts of V matrices: all products, of which each row selects one."""
    high, low = split(x, True)
    z = multiply_parts(high, low, a0, a0_low)
    if V > 1:
        z = tl.where((token == 1)[:, None], multiply_parts(high, low, a1, a1_low), z)
    if V > 2:
        z = tl.where((token == 2)[:, None], multiply_parts(high, low, a2, a2_low), z)
    if V > 3:
        z = tl.where((token == 3)[:, None], multiply_parts(high, low, a3, a3_low), z)
    return z


@triton.jit
def row_norms(z):
    """Return ||z||_2 of each row.

    If the squares of its entries would overflow or underflow, they are divided by the largest one first. The norm of a
    row does not depend on the other rows of its tile.
    """
    total = tl.sum(z * z, axis=1)
    norm = tl.sqrt(total)
    out_of_range = ((total < 1e-28) | (total > 1e28)).to(tl.int32)
    if tl.max(out_of_range, axis=0) > 0:
        scale = tl.max(tl.abs(z), axis=1)
        z = z / tl.where(scale > 0.0, scale, 1.0)[:, None]
        norm = tl.where(out_of_range > 0, scale * tl.sqrt(tl.sum(z * z, axis=1)), norm)
    return norm


@triton.jit
def rows_of_tile(order, lengths, R, L, B, TB: tl.constexpr):
    """Return the replica of the program, its rows (TB), whether they exist, and their lengths.

    Without order its rows follow one another, and the first tile of every replica starts before the second of any.
    """
    program = tl.program_id(0).to(tl.int64)
    if order is None:
        replica = program % R
        string = program // R * TB + tl.arange(0, TB)
        in_range = string < B
        row = replica * B + string
    else:
        listed = tl.load(order + program * TB + tl.arange(0, TB))
        in_range = listed >= 0
        row = tl.maximum(listed, 0).to(tl.int64)
        replica = tl.max(row, axis=0) // B
    if lengths is None:
        length = tl.where(in_range, L, 0)
    else:
        length = tl.load(lengths + row, mask=in_range, other=0).to(tl.int32)
    return replica, row, in_range, length


@triton.jit(do_not_specialize=["R", "L", "B"])
def tiles_forward_kernel(
    A, b, tokens, x0, lengths, order, states, final, factors, R, L, B,
    V: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, RESCALE: tl.constexpr,
):  # fmt: skip
    """Compute x_t = A[token_t] x_{t-1} + b[token_t], with RESCALE divided by its norm.

    The same as recurrence_forward_kernel, for TB rows of a replica.
    """
    replica, row, in_range, length = rows_of_tile(order, lengths, R, L, B, TB)
    n = tl.arange(0, NP)
    mask = in_range[:, None] & (n < N)[None, :]
    longest = tl.max(length, axis=0)

    a0, a0_low = symbol_parts(A, replica, 0, V, N, NP, True)
    a1, a1_low = symbol_parts(A, replica, 1, V, N, NP, True)
    a2, a2_low = symbol_parts(A, replica, 2, V, N, NP, True)
    a3, a3_low = symbol_parts(A, replica, 3, V, N, NP, True)
    x = tl.zeros((TB, NP), tl.float32)
    if x0 is not None:
        x = tl.load(x0 + row[:, None] * N + n[None, :], mask=mask, other=0.0)

    token = tl.load(tokens + row * L, mask=in_range, other=0).to(tl.int32)
    for t in range(longest):
        ahead = tl.load(tokens + row * L + tl.minimum(t + 1, L - 1), mask=in_range, other=0).to(tl.int32)
        z = select_product(x, token, a0, a0_low, a1, a1_low, a2, a2_low, a3, a3_low, V)
        if b is not None:
            z += tl.load(b + (replica * V + token)[:, None] * N + n[None, :], mask=mask, other=0.0)
        inside = t < length
        if RESCALE:
            norm = row_norms(z)
            inverse = tl.where(norm > 0.0, 1.0 / tl.where(norm > 0.0, norm, 1.0), 0.0)
            z = z * inverse[:, None]  # a zero state stays zero
            tl.store(factors + row * L + t, tl.where(inside, inverse, 0.0), mask=in_range)
        x = tl.where(inside[:, None], z, x)
        tl.store(states + (row * L + t)[:, None] * N + n[None, :], tl.where(inside[:, None], z, 0.0), mask=mask)
        token = ahead

    zeros = tl.zeros((TB, NP), tl.float32)
    for t in range(longest, L):  # past the lengths of all rows
        tl.store(states + (row * L + t)[:, None] * N + n[None, :], zeros, mask=mask)
        if RESCALE:
            tl.store(factors + row * L + t, tl.zeros((TB,), tl.float32), mask=in_range)
    tl.store(final + row[:, None] * N + n[None, :], x, mask=mask)


@triton.jit(do_not_specialize=["R", "L", "B"])
def tiles_backward_kernel(
    A, tokens, grad_states, grad_final, lengths, order, states, factors, adjoints, dx0, R, L, B,
    V: tl.constexpr, N: tl.constexpr, NP: tl.constexpr, TB: tl.constexpr, RESCALE: tl.constexpr,
):  # fmt: skip
    """Compute dz_t = factor_t (g_t + h_{t+1}) and h_t = A[token_t]^T dz_t, backwards in t.

    The same as recurrence_backward_kernel, for TB rows of a replica.
    """
    replica, row, in_range, length = rows_of_tile(order, lengths, R, L, B, TB)
    n = tl.arange(0, NP)
    mask = in_range[:, None] & (n < N)[None, :]
    longest = tl.max(length, axis=0)

    a0, a0_low = symbol_parts(A, replica, 0, V, N, NP, False)
    a1, a1_low = symbol_parts(A, replica, 1, V, N, NP, False)
    a2, a2_low = symbol_parts(A, replica, 2, V, N, NP, False)
    a3, a3_low = symbol_parts(A, replica, 3, V, N, NP, False)
    zeros = tl.zeros((TB, NP), tl.float32)
    for t in range(longest, L):  # past the lengths of all rows
        tl.store(adjoints + (row * L + t)[:, None] * N + n[None, :], zeros, mask=mask)
    h = zeros
    if grad_final is not None:
        h = tl.load(grad_final + row[:, None] * N + n[None, :], mask=mask, other=0.0)
        if RESCALE:  # a final state that is x0 itself has length 0 and is not rescaled
            last = (row * L + tl.maximum(length - 1, 0))[:, None] * N + n[None, :]
            x = tl.load(states + last, mask=mask & (length > 0)[:, None], other=0.0)
            h -= x * tl.sum(x * h, axis=1)[:, None]

    last_t = tl.maximum(longest - 1, 0)
    token = tl.load(tokens + row * L + last_t, mask=in_range, other=0).to(tl.int32)
    for back in range(longest):
        t = longest - 1 - back
        ahead = tl.load(tokens + row * L + tl.maximum(t - 1, 0), mask=in_range, other=0).to(tl.int32)
        place = (row * L + t)[:, None] * N + n[None, :]
        inside = t < length
        dz = h
        if grad_states is not None:
            g = tl.load(grad_states + place, mask=mask & inside[:, None], other=0.0)
            if RESCALE:
                x = tl.load(states + place, mask=mask & inside[:, None], other=0.0)
                g -= x * tl.sum(x * g, axis=1)[:, None]
            dz += g
        if RESCALE:
            dz = dz * tl.load(factors + row * L + t, mask=in_range, other=0.0)[:, None]
        tl.store(adjoints + place, tl.where(inside[:, None], dz, 0.0), mask=mask)
        z = select_product(dz, token, a0, a0_low, a1, a1_low, a2, a2_low, a3, a3_low, V)
        h = tl.where(inside[:, None], z, h)
        token = ahead
    tl.store(dx0 + row[:, None] * N + n[None, :], h, mask=mask)


def is_faster(A: Tensor, tokens: Tensor, mode: str) -> bool:
    """Whether these kernels are used for A (R, V, N, N) and tokens (R, B, L)."""
    R, B, _ = tokens.shape
    _, V, N, _ = A.shape
    fits = A.dtype == torch.float32 and V <= MOST_SYMBOLS and N in STATES and ROWS <= B
    return mode == "recurrent" and fits and R * B >= LEAST_ROWS


def launch(tokens: Tensor, lengths: Tensor | None) -> tuple[tuple[int], Tensor | None, dict[str, int]]:
    """Return the number of programs, the rows of each or None (see rows_of_tile), and the constants of a tile."""
    R, B, _ = tokens.shape
    tiles = R * triton.cdiv(B, ROWS)
    # If every program has a multiprocessor, the longest tile ends last in any order.
    if tiles <= multiprocessors(tokens.device):
        return (tiles,), None, {"TB": ROWS, "num_warps": WARPS}
    # The backward pass sorts again: vmap, which joins replicas, could not join a saved order over all of them.
    order = None if lengths is None else order_tiles(lengths, ROWS)
    return (tiles if order is None else len(order),), order, {"TB": ROWS, "num_warps": WARPS_SHARED}


def forward(
    A: Tensor, b: Tensor | None, tokens: Tensor, x0: Tensor | None, lengths: Tensor | None, rescale: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (R, B, L, N), final (R, B, N) and factors (R, B, L) or empty."""
    R, V, N, _ = A.shape
    _, B, L = tokens.shape
    states, final = A.new_empty(R, B, L, N), A.new_empty(R, B, N)
    factors = A.new_empty((R, B, L) if rescale else (0,))
    grid, order, tile = launch(tokens, lengths)
    tiles_forward_kernel[grid](
        A, b, tokens, x0, lengths, order, states, final, factors if rescale else None, R, L, B,
        V=V, N=N, NP=next_power_of_two(N), RESCALE=rescale, **tile,
    )  # fmt: skip
    return states, final, factors


def backward(
    A: Tensor, tokens: Tensor, grad_states: Tensor | None, grad_final: Tensor | None, lengths: Tensor | None,
    states: Tensor, factors: Tensor, rescale: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return adjoints dz (R, B, L, N) and dx0 (R, B, N)."""
    R, V, N, _ = A.shape
    _, B, L = tokens.shape
    adjoints, dx0 = torch.empty_like(states), A.new_empty(R, B, N)
    grid, order, tile = launch(tokens, lengths)
    tiles_backward_kernel[grid](
        A, tokens, grad_states, grad_final, lengths, order, states, factors if rescale else None, adjoints, dx0,
        R, L, B, V=V, N=N, NP=next_power_of_two(N), RESCALE=rescale, **tile,
    )  # fmt: skip
    return adjoints, dx0
