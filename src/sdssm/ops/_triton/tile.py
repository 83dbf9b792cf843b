# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Code that all scan kernels share: the source of the matrix A_t, and the layout of its tile.

A state of N = H * S entries is H blocks of S; A_t is block diagonal, block h acts on entries h*S .. h*S+S-1. A dense
matrix is one block (H = 1), a real diagonal is N blocks of size 1, and a complex diagonal is N blocks of size 2, since
multiplying by a + bi is the real 2 x 2 matrix [[a, -b], [b, a]]. So all scans use the same
kernels; they differ in the SOURCE of A_t:

    DENSE     A (rows, L, H, S, S)                      A_t is read
    COMPLEX   A (rows, L, H, 2): real, imaginary        A_t is read as 2 x 2 blocks
    TOKEN     A (R, V, S, S), tokens (rows, L)          A_t = A[token_t]
    MIXTURE   A (R, K, S, S), weights (rows, L, K)      A_t = sum_k weights_t[k] A_k, columns divided by norms_t; the
                                                        dictionary stays in registers

A program holds the tile a[HB, SP, SP]: HB blocks, the block size padded to the power of two SP. `index` below is the
number of the matrix (and of its bias b_t) inside its tensor.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: Arguments whose values must not cause a new compilation: lengths and batch sizes change from call to call.
ANY_LENGTH = ["L", "T", "C", "rows_per_replica"]

#: Entries of a dictionary in float32 that a warp reads at once.
WARP_ENTRIES = tl.constexpr(128)

DENSE = tl.constexpr(0)
COMPLEX = tl.constexpr(1)
TOKEN = tl.constexpr(2)
MIXTURE = tl.constexpr(3)


@triton.jit
def matrix_index(tokens, row, replica, t, L, count: tl.constexpr, SOURCE: tl.constexpr):
    """Return the number of the matrix at step t: its token with TOKEN, else its position."""
    if SOURCE == TOKEN:
        return replica * count + tl.load(tokens + row * L + t)
    return row * L + t


@triton.jit
def dictionary_tile(
    A, replica, count: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, KP: tl.constexpr, COLUMNS: tl.constexpr = 0
):  # fmt: skip
    """Load the dictionary A_1 .. A_K of a replica into registers, (KP, SP * SP).

    With flat matrices each thread has the same entries of every A_k, so that mixing moves no data between threads.
    Their rows follow one another, or with COLUMNS blocks of so many columns, each of which a warp reads at once: if
    there are SP // COLUMNS warps, each has all rows of its columns, and a sum down a column does not cross warps.
    """
    k = tl.arange(0, KP)[:, None]
    at = tl.arange(0, SP * SP)[None, :]
    if COLUMNS > 0 and (COLUMNS <= SP and COLUMNS * SP >= WARP_ENTRIES):
        rows: tl.constexpr = WARP_ENTRIES // COLUMNS
        i = at // (rows * SP) * rows + at // COLUMNS % rows
        j = at // WARP_ENTRIES * COLUMNS % SP + at % COLUMNS
    else:
        i = at // SP
        j = at % SP
    inside = (k < count) & (i < S) & (j < S)
    return tl.load(A + ((replica * count + k) * S + i) * S + j, mask=inside, other=0.0)


@triton.jit
def flat_matrix(flat, SP: tl.constexpr, COLUMNS: tl.constexpr):
    """Return a flat matrix, in the order of `dictionary_tile`, as (1, SP, SP); threads keep what they have."""
    if COLUMNS > 0 and (COLUMNS <= SP and COLUMNS * SP >= WARP_ENTRIES):
        rows: tl.constexpr = WARP_ENTRIES // COLUMNS
        blocks = tl.reshape(flat, (SP // rows, SP // COLUMNS, rows, COLUMNS))
        return tl.reshape(tl.permute(blocks, (0, 2, 1, 3)), (1, SP, SP))
    else:
        return tl.reshape(flat, (1, SP, SP))


@triton.jit
def coefficients(
    weights, norms, index, count: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, KP: tl.constexpr,
    SOURCE: tl.constexpr, RESIDENT: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Load weights_t (KP) and norms_t (SP), which turn a dictionary into A_t.

    Separate from `transition`, so that the coefficients of a step are loaded while the previous step is mixed. With
    TOKEN the dictionary is the matrices of the symbols, and one of them has weight 1; of two, w is its number.
    """
    if RESIDENT and SOURCE == TOKEN:
        if KP == 2:
            return index % count, index
        else:
            return (tl.arange(0, KP) == index % count).to(ACC), index
    elif RESIDENT:
        k = tl.arange(0, KP)
        w = tl.load(weights + index * count + k, mask=k < count, other=0.0).to(ACC)
        rho = tl.full((SP,), 1.0, ACC)
        if norms is not None:
            column = tl.arange(0, SP)
            rho = tl.load(norms + index * S + column, mask=column < S, other=1.0).to(ACC)
        return w, rho
    else:
        return index, index


@triton.jit
def transition(
    A, dictionary, w, rho, index, head, SOURCE: tl.constexpr, H: tl.constexpr, S: tl.constexpr, HB: tl.constexpr,
    SP: tl.constexpr, RESIDENT: tl.constexpr, ACC: tl.constexpr, COLUMNS: tl.constexpr = 0,
):  # fmt: skip
    """Return A_t as a tile a[HB, SP, SP] in the accumulator's type; zero outside the H blocks of size S."""
    h = (head + tl.arange(0, HB))[:, None, None]
    i = tl.arange(0, SP)[None, :, None]
    j = tl.arange(0, SP)[None, None, :]
    inside = (h < H) & (i < S) & (j < S)
    if RESIDENT and SOURCE == TOKEN and dictionary.shape[0] == 2:
        first, second = tl.split(tl.permute(dictionary, (1, 0)))
        a = flat_matrix(tl.where(w == 1, second, first).to(ACC), SP, COLUMNS)
    elif RESIDENT and SOURCE == TOKEN:  # a selection: 0 times an infinite entry of another matrix would be NaN
        a = flat_matrix(tl.sum(tl.where((w > 0.0)[:, None], dictionary.to(ACC), 0.0), axis=0), SP, COLUMNS)
    elif RESIDENT:
        a = flat_matrix(tl.sum(w[:, None] * dictionary.to(ACC), axis=0), SP, COLUMNS)
        a = over_columns(a, rho[None, None, :], ACC)
    elif SOURCE == COMPLEX:
        part = tl.where(i == j, 0, 1)
        a = tl.load(A + (index * H + h) * 2 + part, mask=inside, other=0.0).to(ACC)
        a = tl.where(i < j, -a, a)
    else:
        a = tl.load(A + ((index * H + h) * S + i) * S + j, mask=inside, other=0.0).to(ACC)
    return a


@triton.jit
def l2_norm(x, ACC: tl.constexpr):
    """Return ||x||_2 of a tile.

    Entries whose squares would overflow or underflow are divided by the largest one first.
    """
    smallest: tl.constexpr = 1e-280 if tl.float64 == ACC else 1e-28
    largest: tl.constexpr = 1e280 if tl.float64 == ACC else 1e28
    total = tl.sum(tl.sum(x * x, axis=1), axis=0)
    norm = tl.sqrt(total)
    if (total < smallest) | (total > largest):
        scale = tl.max(tl.max(tl.abs(x), axis=1), axis=0)
        x = x / tl.where(scale > 0.0, scale, 1.0)
        norm = scale * tl.sqrt(tl.sum(tl.sum(x * x, axis=1), axis=0))
    return norm


@triton.jit
def over_columns(a, rho, ACC: tl.constexpr):
    """Return a / rho.

    In float32 by the reciprocal, which is faster; in float64 exactly, so that x / |x| is 1.
    """
    if tl.float64 == ACC:
        return a / rho
    else:
        return a * (1.0 / rho)


@triton.jit
def outside_gradient(grad, states, offset, mask, PROJECT: tl.constexpr, ACC: tl.constexpr):
    """Load the gradient that reaches a state x from outside, with PROJECT without its part along x.

    x = z / ||z|| does not change along z, so only g - x (x . g) reaches z, times the factor 1 / ||z||.
    """
    g = tl.load(grad, mask=mask, other=0.0).to(ACC)
    if PROJECT:
        x = tl.load(states + offset, mask=mask, other=0.0).to(ACC)
        g -= x * tl.sum(tl.sum(x * g, axis=1), axis=0)
    return g
