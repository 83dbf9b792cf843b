"""The recurrent passes row by row, compiled by numba. Imported only if numba is installed.

Every kernel runs over rows first..last and writes all of its outputs. An optional argument that is None arrives as an
empty array. The compiler may reorder the sum over a row of a matrix ("reassoc"), in the same way in every run; NaN and
infinity are kept.
"""

# Kernels are compiled for several types of arrays, which one signature cannot express.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math
from typing import Any

from numba import njit

FAST = {"reassoc", "contract", "nsz"}
#: Options of kernels, and of functions that only kernels call: no code that other languages, or Python, would call.
KERNEL: dict[str, Any] = {"nogil": True, "cache": True, "no_cfunc_wrapper": True}
INNER = {**KERNEL, "no_cpython_wrapper": True, "error_model": "numpy"}


@njit(nogil=True, cache=True)
def copy_vector(source, out):
    """Copy a vector, entry by entry.

    Not `out[:] = source`: numba compiles the error message for shapes that do not fit into every kernel with such a
    line, string formatting included: a third of the time that the kernels of a first training took to compile.
    """
    for i in range(len(out)):
        out[i] = source[i]


@njit(nogil=True, cache=True, fastmath=FAST)
def add_columns(columns, x, out):
    """Add sum_j x[j] columns[j] to out.

    Four columns at a time, so that `out` is loaded and stored a quarter as often.
    """
    count = len(x)
    multiple = count - count % 4
    for j in range(0, multiple, 4):
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        c0, c1, c2, c3 = columns[j], columns[j + 1], columns[j + 2], columns[j + 3]
        for i in range(len(out)):
            out[i] += (c0[i] * x0 + c1[i] * x1) + (c2[i] * x2 + c3[i] * x3)
    for j in range(multiple, count):
        xj, cj = x[j], columns[j]
        for i in range(len(out)):
            out[i] += cj[i] * xj


@njit(nogil=True, cache=True)
def rescale_state(z):
    """Divide z by its l2 norm in place and return the factor; a zero vector stays zero, with factor 0."""
    largest = abs(z[0])
    for i in range(1, len(z)):
        size = abs(z[i])
        if size > largest or size != size:
            largest = size
    if largest == 0:
        return largest
    total = largest * 0
    for i in range(len(z)):
        size = abs(z[i]) / largest
        total += size * size
    factor = 1 / (largest * math.sqrt(total))
    for i in range(len(z)):
        z[i] = z[i] * factor
    return factor


@njit(nogil=True, cache=True)
def add_outside_gradient(carry, t, row, length, grad_states, grad_final, states, factors):
    """Turn the gradient from later steps into the gradient of z_t, in place."""
    if len(grad_states):
        for i in range(len(carry)):
            carry[i] += grad_states[row, t, i]
    if len(grad_final) and t == length - 1:
        for i in range(len(carry)):
            carry[i] += grad_final[row, i]
    if len(factors):
        x, factor = states[row, t], factors[row, t]
        projection = factor * 0
        for i in range(len(carry)):
            projection += x[i].real * carry[i].real + x[i].imag * carry[i].imag
        for i in range(len(carry)):
            carry[i] = (carry[i] - x[i] * projection) * factor


@njit(nogil=True, cache=True)
def store_without_denormals(values, least, out):
    """Store a state or a gradient, with entries below `least` set to 0.

    Products with denormal numbers are a hundred times slower, and everything that decays over a long row reaches them.
    """
    for i in range(len(values)):
        value = values[i]
        if abs(value) < least:
            value = value * 0
        out[i] = value


@njit(nogil=True, cache=True)
def start_state(x0, row, x):
    """Set x to the start state of the row, zeros without x0."""
    x[:] = 0
    if len(x0):
        copy_vector(x0[row], x)


@njit(nogil=True, cache=True)
def finish_row(row, length, grad_final, carry, grad_x0):
    """Store the gradient of x0; for a row of length 0 that is the gradient of the final state."""
    copy_vector(carry, grad_x0[row])
    if length == 0 and len(grad_final):
        copy_vector(grad_final[row], grad_x0[row])


@njit(nogil=True, cache=True, fastmath=FAST)
def block_forward(first, last, A, drive, x0, lengths, least, states, factors):
    """Run a block-diagonal scan: A (P, L, H, S, S)."""
    blocks, size = A.shape[2], A.shape[3]
    x = states[0, 0].copy()
    for row in range(first, last):
        start_state(x0, row, x)
        for t in range(lengths[row]):
            z = states[row, t]
            for h in range(blocks):
                for i in range(size):
                    total = A[row, t, h, i, 0] * x[h * size]
                    for j in range(1, size):
                        total += A[row, t, h, i, j] * x[h * size + j]
                    z[h * size + i] = total
            if len(drive):
                for i in range(len(z)):
                    z[i] += drive[row, t, i]
            if len(factors):
                factors[row, t] = rescale_state(z)
            store_without_denormals(z, least, x)
            copy_vector(x, z)
        states[row, lengths[row] :] = 0
        if len(factors):
            factors[row, lengths[row] :] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def block_backward(first, last, A, grad_states, grad_final, lengths, states, factors, least, adjoints, grad_x0):
    """Compute the adjoints (P, L, N) of a block-diagonal scan and the gradient of x0, (P, N)."""
    blocks, size = A.shape[2], A.shape[3]
    carry = states[0, 0].copy()
    for row in range(first, last):
        length = lengths[row]
        adjoints[row, length:] = 0
        carry[:] = 0
        for t in range(length - 1, -1, -1):
            add_outside_gradient(carry, t, row, length, grad_states, grad_final, states, factors)
            store_without_denormals(carry, least, adjoints[row, t])
            carry[:] = 0
            for h in range(blocks):
                start, end = h * size, (h + 1) * size
                add_columns(A[row, t, h], adjoints[row, t, start:end], carry[start:end])
        finish_row(row, length, grad_final, carry, grad_x0)


@njit(nogil=True, cache=True, fastmath=FAST)
def diagonal_forward(first, last, A, drive, x0, lengths, least, states, factors):
    """Run a diagonal scan: A (P, L, N), real or complex."""
    x = states[0, 0].copy()
    for row in range(first, last):
        start_state(x0, row, x)
        for t in range(lengths[row]):
            for i in range(len(x)):
                x[i] = A[row, t, i] * x[i]
            if len(drive):
                for i in range(len(x)):
                    x[i] += drive[row, t, i]
            if len(factors):
                factors[row, t] = rescale_state(x)
            store_without_denormals(x, least, states[row, t])
            copy_vector(states[row, t], x)
        states[row, lengths[row] :] = 0
        if len(factors):
            factors[row, lengths[row] :] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def diagonal_backward(first, last, A, grad_states, grad_final, lengths, states, factors, least, adjoints, grad_x0):
    """Compute the adjoints (P, L, N) of a diagonal scan and the gradient of x0, (P, N)."""
    carry = states[0, 0].copy()
    for row in range(first, last):
        length = lengths[row]
        adjoints[row, length:] = 0
        carry[:] = 0
        for t in range(length - 1, -1, -1):
            add_outside_gradient(carry, t, row, length, grad_states, grad_final, states, factors)
            store_without_denormals(carry, least, adjoints[row, t])
            for i in range(len(carry)):
                carry[i] = A[row, t, i].conjugate() * adjoints[row, t, i]
        finish_row(row, length, grad_final, carry, grad_x0)
