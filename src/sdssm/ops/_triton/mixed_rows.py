# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""What a mixture scan computes for every position on its own: norms, matrices, gradients of dictionary and weights.

M_t = sum_k weights_t[k] A_k for a tile of positions t is a product of two matrices, weights x dictionary. A program
takes a tile of positions and of columns and loops over the rows: row i of all its M_t is one tile (P, J), computed by
tensor cores from row i of the dictionary. A sum down a column is then a sum over the loop, without an exchange between
threads, and what belongs to the columns (norms, states) is loaded once.

Arguments and constants of the kernels: a replica has `positions` positions, a tile P of them and J columns; KP is K
padded to a power of two of at least MIN_PADDED; ACC is the accumulator's dtype; NVIDIA: in float32, on such a GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops._triton.tensor_cores import multiply, split

#: The smallest number of columns of a left factor of tl.dot.
MIN_PADDED = 16
#: The sign of a float32.
SIGN_BIT = tl.constexpr(-(1 << 31))
#: In place of p - 1 = 0, so that |x|^(p - 1) is 0 for x = 0 and 1 otherwise.
SMALL_EXPONENT = tl.constexpr(1e-30)
#: Arguments whose values must not cause a new compilation.
ANY_COUNT = ["positions", "count", "rows", "L", "first_row", "first_step", "steps", "tiles", "rows_per_program"]


@triton.jit
def load_weights(weights, position, inside, K: tl.constexpr, KP: tl.constexpr, ACC: tl.constexpr):
    """Load the weights of the positions, (P, KP)."""
    k = tl.arange(0, KP)[None, :]
    return tl.load(weights + position[:, None] * K + k, mask=inside[:, None] & (k < K), other=0.0).to(ACC)


@triton.jit
def dictionary_row(dictionary, i, j, K: tl.constexpr, N: tl.constexpr, KP: tl.constexpr, ACC: tl.constexpr):
    """Load row i of every A_k for the columns j, (KP, J)."""
    k = tl.arange(0, KP)[:, None]
    return tl.load(dictionary + (k * N + i) * N + j[None, :], mask=(k < K) & (j < N)[None, :], other=0.0).to(ACC)


@triton.jit
def mixed_row(
    dictionary, w, w_rest, i, j, K: tl.constexpr, N: tl.constexpr, KP: tl.constexpr, NVIDIA: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Return row i of M_t for all positions of the tile, (P, J)."""
    row, row_rest = split(dictionary_row(dictionary, i, j, K, N, KP, ACC), NVIDIA)
    return multiply(w, w_rest, row, row_rest, NVIDIA, ACC)


@triton.jit
def times_inverse(a, divisor, inverse, ACC: tl.constexpr):
    """Return a / divisor: in float32 by the inverse, which is faster; in float64 exactly, so that x / |x| is 1."""
    if tl.float64 == ACC:
        return a / divisor
    else:
        return a * inverse


@triton.jit
def with_sign_of(x, size, ACC: tl.constexpr):
    """Return `size`, which is not negative, with the sign of x."""
    if tl.float32 == ACC:
        return (size.to(tl.int32, bitcast=True) | (x.to(tl.int32, bitcast=True) & SIGN_BIT)).to(
            tl.float32, bitcast=True
        )
    else:
        return tl.where(x < 0.0, -size, size)


@triton.jit
def power_of(x, exponent, NVIDIA: tl.constexpr):
    """Return x^exponent for x >= 0 and exponent > 0.

    NVIDIA: by the two instructions of its GPUs, whose error is below 2^-21, where Triton's log2 takes 20 others. They
    take denormal numbers as zero.
    """
    if NVIDIA:
        log = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [log * exponent], tl.float32, True, 1)
    else:
        return tl.exp2(tl.log2(x) * exponent)


@triton.jit(do_not_specialize=ANY_COUNT)
def norms_kernel(
    dictionary, weights, p, norms, positions,
    N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, P: tl.constexpr, J: tl.constexpr,
    NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute norms_t[j] = (sum_i |M_t[i, j]|^p)^(1/p).

    Absolute values are divided by a reference value of the column, so that no power overflows: its largest entry in the
    dictionary, which costs nothing per position, or for a large p (and in float64) its largest entry in M_t itself.
    """
    replica = tl.program_id(2).to(tl.int64)
    at = tl.program_id(1) * P + tl.arange(0, P)
    inside = at < positions
    position = replica * positions + at
    j = tl.program_id(0) * J + tl.arange(0, J)
    dictionary += replica * K * N * N
    w, w_rest = split(load_weights(weights, position, inside, K, KP, ACC), NVIDIA)
    power = tl.load(p + replica).to(ACC)
    total = tl.zeros((P, J), ACC)
    if power == 1.0:
        for i in range(N):
            total += tl.abs(mixed_row(dictionary, w, w_rest, i, j, K, N, KP, NVIDIA, ACC))
        rho = total
    else:
        reference = tl.zeros((P, J), ACC)
        if (power > 4.0) | (tl.float64 == ACC):
            for i in range(N):
                size = tl.abs(mixed_row(dictionary, w, w_rest, i, j, K, N, KP, NVIDIA, ACC))
                reference = tl.maximum(reference, size)
        else:
            largest = tl.zeros((KP, J), ACC)
            for i in range(N):
                largest = tl.maximum(largest, tl.abs(dictionary_row(dictionary, i, j, K, N, KP, ACC)))
            reference += tl.max(largest, axis=0)[None, :]
        divisor = tl.where(reference > 0.0, reference, 1.0)
        inverse = 1.0 / divisor
        if power == 2.0:
            for i in range(N):
                size = tl.abs(mixed_row(dictionary, w, w_rest, i, j, K, N, KP, NVIDIA, ACC))
                ratio = times_inverse(size, divisor, inverse, ACC)
                total += ratio * ratio
            rho = reference * tl.sqrt(total)
        else:
            for i in range(N):
                size = tl.abs(mixed_row(dictionary, w, w_rest, i, j, K, N, KP, NVIDIA, ACC))
                total += power_of(times_inverse(size, divisor, inverse, ACC), power, NVIDIA)
            rho = reference * tl.where(total > 0.0, tl.exp2(tl.log2(total) / power), 0.0)
    tl.store(norms + position[:, None] * N + j[None, :], rho, mask=inside[:, None] & (j < N)[None, :])


@triton.jit(do_not_specialize=ANY_COUNT)
def matrices_kernel(
    dictionary, weights, norms, matrices, count, rows, L, first_row, first_step, steps, rows_per_program,
    N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, P: tl.constexpr, J: tl.constexpr,
    NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Store A_t, that is M_t with its columns divided by norms_t, for a piece of every replica.

    The piece are `steps` steps of some rows, `count` positions; matrices is (R, count, N, N).
    """
    replica = tl.program_id(2).to(tl.int64)
    columns: tl.constexpr = (N + J - 1) // J
    at = tl.program_id(1) * P + tl.arange(0, P)
    inside = at < count
    position = (replica * rows + first_row + at // steps) * L + first_step + at % steps
    j = tl.program_id(0) % columns * J + tl.arange(0, J)
    mask = inside[:, None] & (j < N)[None, :]
    dictionary += replica * K * N * N
    w, w_rest = split(load_weights(weights, position, inside, K, KP, ACC), NVIDIA)
    divisor = tl.full((P, J), 1.0, ACC)
    if norms is not None:
        divisor = tl.load(norms + position[:, None] * N + j[None, :], mask=mask, other=1.0).to(ACC)
    inverse = 1.0 / divisor
    start = tl.program_id(0) // columns * rows_per_program
    for i in range(start, tl.minimum(start + rows_per_program, N)):
        mixed = mixed_row(dictionary, w, w_rest, i, j, K, N, KP, NVIDIA, ACC)
        place = ((replica * count + at)[:, None] * N + i) * N + j[None, :]
        tl.store(matrices + place, times_inverse(mixed, divisor, inverse, ACC), mask=mask)


@triton.jit
def previous_states(states, x0, replica, positions, rows, at, L, j, mask, N: tl.constexpr):
    """Load x_{t-1} of the positions, (P, J): x0, if not None, before the first position of a row."""
    position = replica * positions + at
    is_first = at % L == 0
    later = mask & (is_first == 0)[:, None]
    x = tl.load(states + (position[:, None] - 1) * N + j[None, :], mask=later, other=0.0)
    if x0 is not None:
        row = replica * rows + at // L
        x += tl.load(x0 + row[:, None] * N + j[None, :], mask=mask & is_first[:, None], other=0.0)
    return x


@triton.jit(do_not_specialize=ANY_COUNT)
def gradients_kernel(
    dictionary, weights, norms, p, adjoints, pullbacks, states, x0, ddictionary, dweights,
    positions, rows, L, tiles, rows_per_program,
    N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, P: tl.constexpr, J: tl.constexpr,
    NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute partial sums of dA_k = sum_t weights_t[k] dM_t and of dweights_t[k] = <A_k, dM_t>.

    With rho_j the norm of column j, A = M / rho, dA = dz x^T and h = A^T dz (the pullback),

        dM[i, j] = x_j / rho_j (dz_i - h_j sign(M_ij) (|M_ij| / rho_j)^(p-1)).

    A program has `tiles` tiles of positions, J columns and some rows. ddictionary (segments, R, K, N, N) is summed over
    the segments of tiles afterwards, dweights (groups, R, positions, K) over the groups of rows and columns.
    """
    replica = tl.program_id(2).to(tl.int64)
    group = tl.program_id(0).to(tl.int64)
    columns: tl.constexpr = (N + J - 1) // J
    j = tl.program_id(0) % columns * J + tl.arange(0, J)
    k = tl.arange(0, KP)
    exponent = tl.full((), 1.0, ACC)
    if norms is not None:
        exponent = tl.maximum(tl.load(p + replica).to(ACC) - 1.0, SMALL_EXPONENT)
    dictionary += replica * K * N * N
    ddictionary += (tl.program_id(1).to(tl.int64) * tl.num_programs(2) + replica) * K * N * N
    part_mask = (k < K)[:, None] & (j < N)[None, :]
    start = tl.program_id(0) // columns * rows_per_program
    end = tl.minimum(start + rows_per_program, N)
    first = tl.program_id(1) * tiles
    for tile in range(first, tl.minimum(first + tiles, tl.cdiv(positions, P))):
        at = tile * P + tl.arange(0, P)
        inside = at < positions
        position = replica * positions + at
        mask = inside[:, None] & (j < N)[None, :]
        w, w_rest = split(load_weights(weights, position, inside, K, KP, ACC), NVIDIA)
        x = previous_states(states, x0, replica, positions, rows, at, L, j, mask, N).to(ACC)
        h = tl.zeros((P, J), ACC)
        rho = tl.full((P, J), 1.0, ACC)
        if norms is not None:
            h = tl.load(pullbacks + position[:, None] * N + j[None, :], mask=mask, other=0.0).to(ACC)
            rho = tl.load(norms + position[:, None] * N + j[None, :], mask=mask, other=1.0).to(ACC)
            rho = tl.where(rho > 0.0, rho, 1.0)
        inverse = 1.0 / rho
        x = times_inverse(x, rho, inverse, ACC)
        h *= x
        dw = tl.zeros((P, KP), ACC)
        for i in range(start, end):
            row, row_rest = split(dictionary_row(dictionary, i, j, K, N, KP, ACC), NVIDIA)
            dM = x * tl.load(adjoints + position * N + i, mask=inside, other=0.0).to(ACC)[:, None]
            if norms is not None:
                ratio = times_inverse(multiply(w, w_rest, row, row_rest, NVIDIA, ACC), rho, inverse, ACC)  # A_t
                dM -= h * with_sign_of(ratio, power_of(tl.abs(ratio), exponent, NVIDIA), ACC)
            dM, dM_rest = split(dM, NVIDIA)
            dw += multiply(dM, dM_rest, tl.trans(row), tl.trans(row_rest), NVIDIA, ACC)
            part = multiply(tl.trans(w), tl.trans(w_rest), dM, dM_rest, NVIDIA, ACC)
            place = ddictionary + (k[:, None] * N + i) * N + j[None, :]
            if tile > first:
                part += tl.load(place, mask=part_mask, other=0.0)
            tl.store(place, part, mask=part_mask)
        place = dweights + (group * tl.num_programs(2) * positions + position[:, None]) * K + k[None, :]
        tl.store(place, dw, mask=inside[:, None] & (k < K)[None, :])
