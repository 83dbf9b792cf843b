"""Two gated convolutions of symbols, string by string. Imported only if numba is installed.

Strings are groups of equal parts of a replica: the groups, and so the order of all sums, do not depend on the number of
threads. Steps count from the end of a string.
"""

# Kernels are compiled for several types of arrays, which one signature cannot express.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np
from numba import njit

from sdssm.ops.numba_kernels import FAST, INNER, KERNEL
from sdssm.ops.numba_vectors import VECTOR_BYTES, correlations

#: Steps whose sums are computed together. What they read past the end of a string is zero.
TILE = 4
PADDING = TILE - 1
add_two_vectors, add_entry = correlations(TILE, 2, 0), correlations(TILE, 1, 1)
add_vector_of_row, add_entry_of_row = correlations(1, 1, 0), correlations(1, 1, 1)


@njit(**INNER)
def add_correlations(a, a_row, b, b_row, count, out, out_row, rows):
    """Add sum_j a[a_row + j] b[b_row + j + r], entry by entry, to out[out_row + r].

    j < count and r < rows, which is TILE or 1.
    """
    size, lanes, i = out.shape[1], VECTOR_BYTES // out.itemsize, 0
    while rows == TILE and i + 2 * lanes <= size:
        add_two_vectors(a, a_row, b, b_row, count, out, out_row, i)
        i += 2 * lanes
    while rows == TILE and i < size:
        add_entry(a, a_row, b, b_row, count, out, out_row, i)
        i += 1
    while i + lanes <= size:
        add_vector_of_row(a, a_row, b, b_row, count, out, out_row, i)
        i += lanes
    while i < size:
        add_entry_of_row(a, a_row, b, b_row, count, out, out_row, i)
        i += 1


@njit(**INNER)
def select_keys(table, replica, tokens, row, length, out):
    """Fill the first rows of out with the k that a string selects from a table (R, V, 3, D), then some with zeros.

    A third of a table has a dimension of its own: the compiler does not know that the sum of two indices is positive.
    """
    size = out.shape[1]
    for t in range(length, length + PADDING):
        for i in range(size):
            out[t, i] = 0
    for t in range(length):
        symbol = tokens[row, length - 1 - t]
        for i in range(size):
            out[t, i] = table[replica, symbol, 1, i]


@njit(fastmath=FAST, **KERNEL)
def forward(first, last, table, taps, second, tokens, lengths, filtered, y):
    """Fill y (R B, D) of the strings first..last, and those results of the first convolution (R B L, D) that it needs.

    table (R, V, 3, D), taps and second (R T, D) and (R T', D), with the skips; tokens (R B, L), lengths (R B,).
    """
    (rows, size), longest = y.shape, tokens.shape[1]
    per_replica, n_first, n_second = rows // len(table), len(taps) // len(table), len(second) // len(table)
    k = np.empty((longest + PADDING, size), y.dtype)
    for row in range(first, last):
        replica, length = row // per_replica, lengths[row]
        select_keys(table, replica, tokens, row, length, k)
        count, top = min(length, n_second), row * longest
        for t in range(count):
            for i in range(size):
                filtered[top + t, i] = 0
        t = 0
        while t < count:
            steps = TILE if t + TILE <= count else 1
            add_correlations(taps, replica * n_first, k, t, min(n_first, length - t), filtered, top + t, steps)
            t += steps
        for i in range(size):
            y[row, i] = 0
        for t in range(count):
            step, tap, symbol = top + t, replica * n_second + t, tokens[row, length - 1 - t]
            for i in range(size):
                y[row, i] += second[tap, i] * table[replica, symbol, 2, i] * filtered[step, i]
        symbol = tokens[row, length - 1] if length else 0
        for i in range(size):
            y[row, i] *= table[replica, symbol, 0, i]


@njit(fastmath=FAST, **KERNEL)
def backward(
    first, last, grad, table, taps, reversed_taps, second, tokens, lengths, filtered, grad_table, grad_taps, grad_second
):
    """Fill the gradients of the groups first..last, (R G, V, 3, D) and (R G T, D). Otherwise as in `forward`.

    reversed_taps (R (T + 2 PADDING), D) are `taps` in reverse order, with zeros before and after those of each replica.
    """
    (rows, size), longest, symbols = grad.shape, tokens.shape[1], table.shape[1]
    per_replica, n_first, n_second = rows // len(table), len(taps) // len(table), len(second) // len(table)
    groups = len(grad_table) // len(table)
    k, dk = np.empty((longest + PADDING, size), grad.dtype), np.empty((longest, size), grad.dtype)
    df = np.empty((longest, size), grad.dtype)
    total, gate = np.empty(size, grad.dtype), np.empty(size, grad.dtype)
    for group in range(first, last):
        replica, part = group // groups, group % groups
        for symbol in range(symbols):
            for third in range(3):
                for i in range(size):
                    grad_table[group, symbol, third, i] = 0
        for t in range(n_first):
            for i in range(size):
                grad_taps[group * n_first + t, i] = 0
        for t in range(n_second):
            for i in range(size):
                grad_second[group * n_second + t, i] = 0
        top = replica * per_replica
        for row in range(top + part * per_replica // groups, top + (part + 1) * per_replica // groups):
            length = lengths[row]
            if not length:
                continue
            count, last_symbol = min(length, n_second), tokens[row, length - 1]
            select_keys(table, replica, tokens, row, length, k)
            for i in range(size):
                total[i] = 0
                gate[i] = grad[row, i] * table[replica, last_symbol, 0, i]
            for t in range(count):
                symbol, step, tap = tokens[row, length - 1 - t], row * longest + t, replica * n_second + t
                grad_tap = group * n_second + t
                for i in range(size):
                    v, weight = table[replica, symbol, 2, i], gate[i] * second[tap, i]
                    product = filtered[step, i] * v
                    total[i] += second[tap, i] * product
                    grad_second[grad_tap, i] += gate[i] * product
                    df[t, i] = weight * v
                    grad_table[group, symbol, 2, i] += weight * filtered[step, i]
            for i in range(size):
                grad_table[group, last_symbol, 0, i] += grad[row, i] * total[i]
            # The gradient of k at step t, in row length - 1 - t, is a sum of df[s] and tap t - s.
            for t in range(length):
                for i in range(size):
                    dk[t, i] = 0
            place = 0
            while place < length:
                steps, t = TILE if place + TILE <= length else 1, length - 1 - place
                start, end = max(0, t - steps + 2 - n_first), min(t + 1, count)
                row_of_tap = replica * (n_first + 2 * PADDING) + PADDING + n_first - 1 - t + start
                add_correlations(df, start, reversed_taps, row_of_tap, end - start, dk, place, steps)
                place += steps
            for t in range(length):
                symbol = tokens[row, t]
                for i in range(size):
                    grad_table[group, symbol, 1, i] += dk[t, i]
            t, taps_used = 0, min(n_first, length)
            while t < taps_used:
                steps = TILE if t + TILE <= taps_used else 1
                add_correlations(df, 0, k, t, min(count, length - t), grad_taps, group * n_first + t, steps)
                t += steps
