"""The mixture scan compiled by numba: a few matrices at a time are mixed, normalised and used while in the caches.

Imported only if numba is installed.

Each kernel processes rows or groups of rows first..last, and computes each of them by the same instructions for any
number of threads. An optional argument that is None arrives as an empty array. A division by zero
has a result, as in numpy: a loop that may raise an error would not be vectorised.
"""

# Kernels are compiled for several types of arrays, which one signature cannot express.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sdssm.ops.numba_kernels import (
    FAST,
    add_columns,
    add_outside_gradient,
    copy_vector,
    finish_row,
    rescale_state,
    start_state,
    store_without_denormals,
)

#: |v|^e in float32 as 2^(e log2 |v|). With |v| = 2^k m and m between sqrt(1/2) and sqrt(2), log2 m is the series of
#: 2 / ln 2 artanh(s) with s = (m - 1) / (m + 1), up to s^9; 2^r with |r| <= 1/2 is the series of exp(r ln 2), up to the
#: seventh power. Both errors are below the rounding of float32.
S1, S3, S5, S7, S9 = (np.float32(2 / math.log(2) / k) for k in (1, 3, 5, 7, 9))
E1, E2, E3, E4, E5, E6, E7 = (np.float32(math.log(2) ** k / math.factorial(k)) for k in range(1, 8))
ROOT_HALF_BITS, SIZE_BITS = np.int32(0x3F3504F3), np.int32(0x7FFFFFFF)
MANTISSA, BIAS, ONE_BIT = np.int32(23), np.int32(127), np.int32(1)
#: Beyond these the power is 0 or infinite in float32.
LEAST_POWER, GREATEST_POWER = np.float32(-200), np.float32(200)
#: Entries of a matrix that are mixed at a time.
TILE = 1024
#: Bytes of a line of the cache. A vector that lies across two lines is loaded in twice the time.
LINE = 64
ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
SMALLEST = np.finfo(np.float32).tiny


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def power32(value, exponent):
    """Return |value|^exponent in float32, by instructions that vectorise; 0 stays 0 and NaN stays NaN.

    The exponent is not 0. Denormal numbers count as 0, and a result above 2^127 may become infinite.
    """
    size = np.float32(value).view(np.int32) & SIZE_BITS
    k = (size - ROOT_HALF_BITS) >> MANTISSA
    m = np.int32(size - (k << MANTISSA)).view(np.float32)
    s = (m - ONE) / (m + ONE)
    square = s * s
    log2 = np.float32(k) + s * (S1 + square * (S3 + square * (S5 + square * (S7 + square * S9))))
    v = min(max(log2 * exponent, LEAST_POWER), GREATEST_POWER)
    whole = np.floor(v + HALF)
    r = v - whole
    series = ONE + r * (E1 + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * (E6 + r * E7))))))
    # 2^whole as a product of two, since it may be a denormal number or infinite.
    half = np.int32(whole) >> ONE_BIT
    first = np.int32((half + BIAS) << MANTISSA).view(np.float32)
    second = np.int32((np.int32(whole) - half + BIAS) << MANTISSA).view(np.float32)
    result = series * first * second + value * ZERO  # NaN and infinity times 0 are NaN
    return ZERO if abs(value) < SMALLEST else result


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_powers(values, exponent, out):
    """Add |values|^exponent to `out`."""
    if exponent == 1:
        for n in range(len(out)):
            out[n] += abs(values[n])
    elif values.itemsize == 4:
        for n in range(len(out)):
            out[n] += power32(values[n], np.float32(exponent))
    else:
        for n in range(len(out)):
            out[n] += abs(values[n]) ** exponent


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def column_norms(matrix, p, sums, out):
    """Fill `out` with the l_p norm of each column of the matrix (N, N); `sums` (N,) is overwritten."""
    sums[:] = 0
    for i in range(len(matrix)):
        add_powers(matrix[i], p, sums)
    out[:] = 0
    add_powers(sums, 1 / p, out)


@njit(nogil=True, cache=True)
def aligned_rows(count, width, like):
    """Return an array (count, width) of the type of `like`, not initialised, that starts at a line of the cache."""
    buffer = np.empty(count * width + LINE // like.itemsize, like.dtype)
    start = -buffer.ctypes.data % LINE // like.itemsize
    return buffer[start : start + count * width].reshape(count, width)


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def mix(dictionary, weights, out):
    """Fill out (T, N N) with sum_k weights[t, k] dictionary[k], for weights (T, K) and dictionary (K, N N).

    In tiles of which the K parts stay in the first cache.
    """
    for start in range(0, out.shape[1], TILE):
        end = min(start + TILE, out.shape[1])
        for t in range(len(weights)):
            tile = out[t, start:end]
            tile[:] = 0
            add_tiles(dictionary, start, end, weights[t], tile)


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_mixing_gradients(dictionary, weights, grads, grad_dictionary, grad_weights):
    """Add the gradients of `mix`: of the dictionary to (K, N N), of the weights to (T, K), from grads (T, N N)."""
    for start in range(0, grads.shape[1], TILE):
        end = min(start + TILE, grads.shape[1])
        for k in range(len(dictionary)):
            add_tiles(grads, start, end, weights[:, k], grad_dictionary[k, start:end])
        for t in range(len(grads)):
            add_inner_products(dictionary, start, end, grads[t, start:end], grad_weights[t])


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_tiles(rows, start, end, x, out):
    """Add sum_k x[k] rows[k, start:end] to out, four rows at a time.

    A slice of one row is contiguous for the compiler, rows[:, start:end] is not and its loops are not vectorised.
    """
    count = len(x)
    multiple = count - count % 4
    for k in range(0, multiple, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        r0, r1, r2, r3 = rows[k, start:end], rows[k + 1, start:end], rows[k + 2, start:end], rows[k + 3, start:end]
        for i in range(len(out)):
            out[i] += (r0[i] * x0 + r1[i] * x1) + (r2[i] * x2 + r3[i] * x3)
    for k in range(multiple, count):
        x0, r0 = x[k], rows[k, start:end]
        for i in range(len(out)):
            out[i] += r0[i] * x0


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_inner_products(rows, start, end, x, out):
    """Add the inner product of each of rows[:, start:end] with x to out, four rows at a time."""
    multiple = len(out) - len(out) % 4
    for k in range(0, multiple, 4):
        r0, r1, r2, r3 = rows[k, start:end], rows[k + 1, start:end], rows[k + 2, start:end], rows[k + 3, start:end]
        total0, total1, total2, total3 = out[k], out[k + 1], out[k + 2], out[k + 3]
        for i in range(len(x)):
            total0 += r0[i] * x[i]
            total1 += r1[i] * x[i]
            total2 += r2[i] * x[i]
            total3 += r3[i] * x[i]
        out[k] = total0
        out[k + 1] = total1
        out[k + 2] = total2
        out[k + 3] = total3
    for k in range(multiple, len(out)):
        total, r0 = out[k], rows[k, start:end]
        for i in range(len(x)):
            total += r0[i] * x[i]
        out[k] = total


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def forward(first, last, dictionary, weights, p, drive, x0, lengths, least, block, norms, states, factors):
    """Run the scan of rows first..last: dictionary (R, K, N N), weights (P, L, K).

    p (P,), and norms (P, L, N) to be filled, are empty without normalisation. The matrices of `block` steps exist at
    a time.
    """
    rows, _, size = states.shape
    x, scaled, total = states[0, 0].copy(), states[0, 0].copy(), states[0, 0].copy()
    mixed = aligned_rows(block, size * size, states)
    matrices = mixed.reshape(block, size, size)
    per_replica = rows // len(dictionary)
    for row in range(first, last):
        start_state(x0, row, x)
        for start in range(0, lengths[row], block):
            end = min(start + block, lengths[row])
            mix(dictionary[row // per_replica], weights[row, start:end], mixed)
            for t in range(start, end):
                z, matrix = states[row, t], matrices[t - start]
                copy_vector(x, scaled)
                if len(p):
                    column_norms(matrix, p[row], total, norms[row, t])
                    for j in range(size):
                        scaled[j] = x[j] / norms[row, t, j]
                z[:] = 0
                if len(drive):
                    copy_vector(drive[row, t], z)
                add_inner_products(matrix, 0, size, scaled, z)
                if len(factors):
                    factors[row, t] = rescale_state(z)
                store_without_denormals(z, least, x)
                copy_vector(x, z)
        states[row, lengths[row] :] = 0
        if len(p):
            norms[row, lengths[row] :] = 1
        if len(factors):
            factors[row, lengths[row] :] = 0


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def plain_step(matrix, before, adjoint, pullback):
    """Fill `pullback` with A^T adjoint, and replace the matrix A (N, N) by its gradient."""
    pullback[:] = 0
    add_columns(matrix, adjoint, pullback)
    for i in range(len(matrix)):
        for j in range(len(before)):
            matrix[i, j] = adjoint[i] * before[j]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def normalised_step(matrix, p, before, norm, adjoint, pullback):
    """Fill `pullback` with A^T adjoint, and replace the mixed matrix (N, N) by its gradient; A has unit columns.

    The gradient is that of `ParameterGradients`.
    """
    for i in range(len(matrix)):
        for j in range(len(norm)):
            matrix[i, j] = matrix[i, j] / norm[j]
    pullback[:] = 0
    add_columns(matrix, adjoint, pullback)
    for j in range(len(norm)):
        before[j] = before[j] / norm[j]
    for i in range(len(matrix)):
        row, g = matrix[i], adjoint[i]
        if p == 1:
            for j in range(len(row)):
                row[j] = (g - pullback[j] * np.sign(row[j])) * before[j]
        elif row.itemsize == 4:
            for j in range(len(row)):
                slope = math.copysign(power32(row[j], np.float32(p - 1)), row[j])
                row[j] = (g - pullback[j] * slope) * before[j]
        else:
            for j in range(len(row)):
                slope = math.copysign(abs(row[j]) ** (p - 1), row[j])
                row[j] = (g - pullback[j] * slope) * before[j]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def backward(
    first, last, dictionary, weights, p, norms, grad_states, grad_final, x0, lengths, states, factors, least, block,
    adjoints, grad_x0, grad_dictionary, grad_weights,
):  # fmt: skip
    """Compute the adjoints (P, L, N) of groups of rows, first..last, and the gradients of x0 (P, N) and weights.

    grad_dictionary (R, G, K, N N) is a sum for each of G groups of the rows of a replica, and group g of replica r has
    the number r G + g. The groups, and so the results, do not depend on the number of threads.
    """
    rows, _, size = states.shape
    carry, before, pullback = states[0, 0].copy(), states[0, 0].copy(), states[0, 0].copy()
    mixed = aligned_rows(block, size * size, states)
    matrices = mixed.reshape(block, size, size)
    groups, per_replica = grad_dictionary.shape[1], rows // len(dictionary)
    for number in range(first, last):
        replica, group = number // groups, number % groups
        own, grad_own = dictionary[replica], grad_dictionary[replica, group]
        grad_own[:] = 0
        top = replica * per_replica
        for row in range(top + group * per_replica // groups, top + (group + 1) * per_replica // groups):
            adjoints[row, lengths[row] :] = 0
            grad_weights[row] = 0
            carry[:] = 0
            for start in range((lengths[row] - 1) // block * block, -1, -block):
                end = min(start + block, lengths[row])
                mix(own, weights[row, start:end], mixed)
                for t in range(end - 1, start - 1, -1):
                    matrix, adjoint = matrices[t - start], adjoints[row, t]
                    add_outside_gradient(carry, t, row, lengths[row], grad_states, grad_final, states, factors)
                    store_without_denormals(carry, least, adjoint)
                    if t == 0:
                        start_state(x0, row, before)
                    else:
                        copy_vector(states[row, t - 1], before)
                    if len(p):
                        normalised_step(matrix, p[row], before, norms[row, t], adjoint, pullback)
                    else:
                        plain_step(matrix, before, adjoint, pullback)
                    copy_vector(pullback, carry)
                grad_mixed = mixed[: end - start]
                add_mixing_gradients(own, weights[row, start:end], grad_mixed, grad_own, grad_weights[row, start:end])
            finish_row(row, lengths[row], grad_final, carry, grad_x0)
