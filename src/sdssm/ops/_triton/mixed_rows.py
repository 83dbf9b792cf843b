# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""What a mixture scan computes for every position on its own: norms, matrices, gradients of dictionary and weights.

M_t = sum_k weights_t[k] A_k for a tile of positions t is a product of two matrices, weights x dictionary. A program
takes a tile of positions, some columns and a block of rows at a time: these entries of all its M_t are one tile
(P, ROWS * J), computed by tensor cores from the same entries of the dictionary. A block has several rows, since the
latency of a product hardly depends on their number. A sum down a column is a sum over the blocks, without an exchange
between threads.

Arguments and constants of the kernels: a replica has `positions` positions, a tile P of them, J columns and ROWS rows;
KP is K padded to a power of two of at least MIN_PADDED; `transposed` is the dictionary as (R, N * N, K); ACC is the
accumulator's dtype; NVIDIA: in float32, on such a GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops._triton.tensor_cores import multiply, multiply_transposed, split

#: The smallest number of columns of a left factor of tl.dot.
MIN_PADDED = 16
#: The sign of a float32.
SIGN_BIT = tl.constexpr(-(1 << 31))
#: In place of p - 1 = 0, so that |x|^(p - 1) is 0 for x = 0 and 1 otherwise.
SMALL_EXPONENT = tl.constexpr(1e-30)
#: Arguments whose values must not cause a new compilation.
ANY_COUNT = ["positions", "count", "rows", "L", "first_row", "first_step", "steps", "tiles", "blocks_per_program"]


@triton.jit
def load_weights(weights, position, inside, K: tl.constexpr, KP: tl.constexpr, ACC: tl.constexpr):
    """Load the weights of the positions, (P, KP)."""
    k = tl.arange(0, KP)[None, :]
    return tl.load(weights + position[:, None] * K + k, mask=inside[:, None] & (k < K), other=0.0).to(ACC)


@triton.jit
def place_of_rows(start, column, N: tl.constexpr, J: tl.constexpr, ROWS: tl.constexpr):
    """Return the offsets of some rows and columns in a matrix, row after row, and whether they are inside it."""
    i = start + tl.arange(0, ROWS * J) // J
    j = column + tl.arange(0, ROWS * J) % J
    return i * N + j, (i < N) & (j < N)


@triton.jit
def dictionary_rows(
    dictionary, start, column, K: tl.constexpr, N: tl.constexpr, KP: tl.constexpr, J: tl.constexpr,
    ROWS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Load J columns of ROWS rows of every A_k, (KP, ROWS * J)."""
    k = tl.arange(0, KP)[:, None]
    place, inside = place_of_rows(start, column, N, J, ROWS)
    return tl.load(dictionary + k * N * N + place[None, :], mask=(k < K) & inside[None, :], other=0.0).to(ACC)


@triton.jit
def store_dictionary_rows(
    dictionary, part, start, column, K: tl.constexpr, N: tl.constexpr, KP: tl.constexpr, J: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Store J columns of ROWS rows of every A_k, (KP, ROWS * J)."""
    k = tl.arange(0, KP)[:, None]
    place, inside = place_of_rows(start, column, N, J, ROWS)
    tl.store(dictionary + k * N * N + place[None, :], part, mask=(k < K) & inside[None, :])


@triton.jit
def transposed_rows(
    transposed, start, column, K: tl.constexpr, N: tl.constexpr, KP: tl.constexpr, J: tl.constexpr,
    ROWS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Load J columns of ROWS rows of every A_k from the transposed dictionary (N * N, K): (ROWS * J, KP)."""
    k = tl.arange(0, KP)[None, :]
    place, inside = place_of_rows(start, column, N, J, ROWS)
    return tl.load(transposed + place[:, None] * K + k, mask=inside[:, None] & (k < K), other=0.0).to(ACC)


@triton.jit
def mix_rows(
    transposed, w, w_rest, start, column, K: tl.constexpr, N: tl.constexpr, KP: tl.constexpr, J: tl.constexpr,
    ROWS: tl.constexpr, NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Return ROWS rows of M_t for all positions of the tile, (P, ROWS * J).

    Tensor cores read the columns of a right factor of float32, so the transposed dictionary needs no rearrangement.
    """
    D, D_rest = split(transposed_rows(transposed, start, column, K, N, KP, J, ROWS, ACC), NVIDIA)
    return multiply(w, w_rest, tl.trans(D), tl.trans(D_rest), NVIDIA, ACC)


@triton.jit
def for_each_row(x, ROWS: tl.constexpr):
    """Repeat what belongs to the columns, (P, J), for every row: (P, ROWS * J)."""
    P: tl.constexpr = x.shape[0]
    J: tl.constexpr = x.shape[1]
    return tl.reshape(tl.broadcast_to(x[:, None, :], (P, ROWS, J)), (P, ROWS * J))


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
    transposed, weights, p, norms, positions,
    N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, P: tl.constexpr, J: tl.constexpr, ROWS: tl.constexpr,
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
    column = tl.program_id(0) * J
    j = column + tl.arange(0, J)
    transposed += replica * K * N * N
    w, w_rest = split(load_weights(weights, position, inside, K, KP, ACC), NVIDIA)
    power = tl.load(p + replica).to(ACC)
    total = tl.zeros((P, ROWS * J), ACC)  # of the rows that have the same place in their blocks
    if power == 1.0:
        for start in range(0, N, ROWS):
            total += tl.abs(mix_rows(transposed, w, w_rest, start, column, K, N, KP, J, ROWS, NVIDIA, ACC))
        rho = tl.sum(tl.reshape(total, (P, ROWS, J)), axis=1)
    else:
        reference = tl.zeros((P, J), ACC)
        if (power > 4.0) | (tl.float64 == ACC):
            for start in range(0, N, ROWS):
                size = tl.abs(mix_rows(transposed, w, w_rest, start, column, K, N, KP, J, ROWS, NVIDIA, ACC))
                reference = tl.maximum(reference, tl.max(tl.reshape(size, (P, ROWS, J)), axis=1))
        else:
            largest = tl.zeros((ROWS * J, KP), ACC)
            for start in tl.range(0, N, ROWS, loop_unroll_factor=4):  # four loads at once
                largest = tl.maximum(
                    largest, tl.abs(transposed_rows(transposed, start, column, K, N, KP, J, ROWS, ACC))
                )
            reference += tl.max(tl.reshape(tl.max(largest, axis=1), (ROWS, J)), axis=0)[None, :]
        divisor = tl.where(reference > 0.0, reference, 1.0)
        inverse = for_each_row(1.0 / divisor, ROWS)
        divisor = for_each_row(divisor, ROWS)
        if power == 2.0:
            for start in range(0, N, ROWS):
                size = tl.abs(mix_rows(transposed, w, w_rest, start, column, K, N, KP, J, ROWS, NVIDIA, ACC))
                ratio = times_inverse(size, divisor, inverse, ACC)
                total += ratio * ratio
            rho = reference * tl.sqrt(tl.sum(tl.reshape(total, (P, ROWS, J)), axis=1))
        else:
            for start in range(0, N, ROWS):
                size = tl.abs(mix_rows(transposed, w, w_rest, start, column, K, N, KP, J, ROWS, NVIDIA, ACC))
                total += power_of(times_inverse(size, divisor, inverse, ACC), power, NVIDIA)
            sums = tl.sum(tl.reshape(total, (P, ROWS, J)), axis=1)
            rho = reference * tl.where(sums > 0.0, tl.exp2(tl.log2(sums) / power), 0.0)
    tl.store(norms + position[:, None] * N + j[None, :], rho, mask=inside[:, None] & (j < N)[None, :])


@triton.jit(do_not_specialize=ANY_COUNT)
def matrices_kernel(
    transposed, weights, norms, matrices, count, rows, L, first_row, first_step, steps, blocks_per_program,
    N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, P: tl.constexpr, J: tl.constexpr, ROWS: tl.constexpr,
    NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Store A_t, that is M_t with its columns divided by norms_t, for a piece of every replica.

    The piece are `steps` steps of some rows, `count` positions; matrices is (R, count, N, N). A program has J columns
    and some blocks of ROWS rows.
    """
    replica = tl.program_id(2).to(tl.int64)
    columns: tl.constexpr = (N + J - 1) // J
    at = tl.program_id(1) * P + tl.arange(0, P)
    inside = at < count
    position = (replica * rows + first_row + at // steps) * L + first_step + at % steps
    column = tl.program_id(0) % columns * J
    j = column + tl.arange(0, J)
    transposed += replica * K * N * N
    matrices += (replica * count + at)[:, None] * N * N
    w, w_rest = split(load_weights(weights, position, inside, K, KP, ACC), NVIDIA)
    divisor = tl.full((P, J), 1.0, ACC)
    if norms is not None:
        mask = inside[:, None] & (j < N)[None, :]
        divisor = tl.load(norms + position[:, None] * N + j[None, :], mask=mask, other=1.0).to(ACC)
    inverse = for_each_row(1.0 / divisor, ROWS)
    divisor = for_each_row(divisor, ROWS)
    first = tl.program_id(0) // columns * blocks_per_program * ROWS
    for start in range(first, tl.minimum(first + blocks_per_program * ROWS, N), ROWS):
        mixed = mix_rows(transposed, w, w_rest, start, column, K, N, KP, J, ROWS, NVIDIA, ACC)
        place, in_matrix = place_of_rows(start, column, N, J, ROWS)
        matrix = times_inverse(mixed, divisor, inverse, ACC)
        tl.store(matrices + place[None, :], matrix, mask=inside[:, None] & in_matrix[None, :])


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
    positions, rows, L, tiles, blocks_per_program,
    N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, P: tl.constexpr, J: tl.constexpr, ROWS: tl.constexpr,
    NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute partial sums of dA_k = sum_t weights_t[k] dM_t and of dweights_t[k] = <A_k, dM_t>.

    With rho_j the norm of column j, A = M / rho, dA = dz x^T and h = A^T dz (the pullback),

        dM[i, j] = x_j / rho_j (dz_i - h_j sign(M_ij) (|M_ij| / rho_j)^(p-1)).

    A program has `tiles` tiles of positions, J columns and some blocks of ROWS rows. Afterwards ddictionary
    (segments, R, K, N, N) is summed over the segments of tiles, and dweights (groups, R, positions, K) over the groups
    of rows and columns.
    """
    replica = tl.program_id(2).to(tl.int64)
    group = tl.program_id(0).to(tl.int64)
    columns: tl.constexpr = (N + J - 1) // J
    column = tl.program_id(0) % columns * J
    j = column + tl.arange(0, J)
    k = tl.arange(0, KP)
    exponent = tl.full((), 1.0, ACC)
    if norms is not None:
        exponent = tl.maximum(tl.load(p + replica).to(ACC) - 1.0, SMALL_EXPONENT)
    dictionary += replica * K * N * N
    ddictionary += (tl.program_id(1).to(tl.int64) * tl.num_programs(2) + replica) * K * N * N
    dweights += (group * tl.num_programs(2) + replica) * positions * K
    first = tl.program_id(1) * tiles
    last = tl.minimum(first + tiles, tl.cdiv(positions, P))
    for block in range(blocks_per_program):
        start = (tl.program_id(0) // columns * blocks_per_program + block) * ROWS
        i = start + tl.arange(0, ROWS)
        D, D_rest = split(dictionary_rows(dictionary, start, column, K, N, KP, J, ROWS, ACC), NVIDIA)
        dA = tl.zeros((KP, ROWS * J), ACC)
        for tile in range(first, last):
            at = tile * P + tl.arange(0, P)
            inside = at < positions
            position = replica * positions + at
            mask = inside[:, None] & (j < N)[None, :]
            w, w_rest = split(load_weights(weights, position, inside, K, KP, ACC), NVIDIA)
            dz_mask = inside[:, None] & (i < N)[None, :]
            dz = tl.load(adjoints + position[:, None] * N + i[None, :], mask=dz_mask, other=0.0).to(ACC)
            x = previous_states(states, x0, replica, positions, rows, at, L, j, mask, N).to(ACC)
            if norms is None:
                dM = dz[:, :, None] * x[:, None, :]
            else:
                h = tl.load(pullbacks + position[:, None] * N + j[None, :], mask=mask, other=0.0).to(ACC)
                rho = tl.load(norms + position[:, None] * N + j[None, :], mask=mask, other=1.0).to(ACC)
                rho = tl.where(rho > 0.0, rho, 1.0)
                inverse = 1.0 / rho
                x = times_inverse(x, rho, inverse, ACC)
                h *= x
                mixed = tl.reshape(multiply(w, w_rest, D, D_rest, NVIDIA, ACC), (P, ROWS, J))
                ratio = times_inverse(mixed, rho[:, None, :], inverse[:, None, :], ACC)  # A_t
                slope = with_sign_of(ratio, power_of(tl.abs(ratio), exponent, NVIDIA), ACC)
                dM = dz[:, :, None] * x[:, None, :] - h[:, None, :] * slope
            dM, dM_rest = split(tl.reshape(dM, (P, ROWS * J)), NVIDIA)
            dw = multiply_transposed(dM, dM_rest, D, D_rest, NVIDIA, ACC)
            place = dweights + at[:, None] * K + k[None, :]
            part_mask = inside[:, None] & (k < K)[None, :]
            if block > 0:
                dw += tl.load(place, mask=part_mask, other=0.0)
            tl.store(place, dw, mask=part_mask)
            # Added outside of tensor cores, which round long sums towards zero.
            dA += multiply(tl.trans(w), tl.trans(w_rest), dM, dM_rest, NVIDIA, ACC)
        tl.debug_barrier()  # another thread may read what was stored in dweights
        store_dictionary_rows(ddictionary, dA, start, column, K, N, KP, J, ROWS)
