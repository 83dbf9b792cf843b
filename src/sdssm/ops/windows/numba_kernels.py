"""The gated convolution of windows of symbols, string by string. Imported only if numba is installed.

Every window of T symbols is a number, and what the short convolution makes of it a row of a table, so that nothing is
convolved twice. Strings are groups of equal parts of a replica: the groups, and so the order of all sums, do not depend
on the number of threads.
"""

# Kernels are compiled for several types of arrays, which one signature cannot express.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import njit

from sdssm.ops.numba_kernels import FAST, INNER, KERNEL


@njit(**INNER)
def window_numbers(tokens, bits, row, length, windows, numbers):
    """Fill numbers (L,) with the windows of a string, the last first.

    The symbol of a window with delay i is digit i of its number, of so many bits, all 1 before the start of the string.
    """
    number = windows - 1
    for t in range(length):
        number = ((number << bits) & (windows - 1)) | tokens[row, t]
        numbers[length - 1 - t] = number


@njit(fastmath=FAST, **KERNEL)
def forward(first, last, bits, gates, products, kernel, tokens, lengths, y):
    """Fill y (R B, D) of the strings first..last.

    gates and products (R, W, D) are x_1 and x_2 v of each window of symbols of so many bits, kernel (R, K, D), tokens
    (R B, L), lengths (R B,).
    """
    (rows, size), windows = y.shape, gates.shape[1]
    numbers, total = np.empty(tokens.shape[1], np.int64), np.empty(size, y.dtype)
    for row in range(first, last):
        replica, length = row // (rows // len(gates)), lengths[row]
        window_numbers(tokens, bits, row, length, windows, numbers)
        for i in range(size):
            total[i] = 0
        for t in range(min(length, kernel.shape[1])):
            w = numbers[t]  # read outside of the loop: the compiler cannot know that the sum is not stored there
            for i in range(size):
                total[i] += kernel[replica, t, i] * products[replica, w, i]
        w = numbers[0] if length else 0
        for i in range(size):
            y[row, i] = gates[replica, w, i] * total[i]


@njit(fastmath=FAST, **KERNEL)
def backward(first, last, grad, bits, gates, products, kernel, tokens, lengths, grad_gates, grad_products, grad_kernel):
    """Fill the gradients of the groups first..last, (R G, ...) for G groups of each replica.

    The other arguments are those of `forward`.
    """
    (rows, size), windows = grad.shape, gates.shape[1]
    per_replica, groups = rows // len(gates), len(grad_kernel) // len(gates)
    numbers, total, factor = np.empty(tokens.shape[1], np.int64), np.empty(size, grad.dtype), np.empty(size, grad.dtype)
    for group in range(first, last):
        replica, part = group // groups, group % groups
        for w in range(windows):
            for i in range(size):
                grad_gates[group, w, i] = 0
                grad_products[group, w, i] = 0
        for t in range(kernel.shape[1]):
            for i in range(size):
                grad_kernel[group, t, i] = 0
        top = replica * per_replica
        for row in range(top + part * per_replica // groups, top + (part + 1) * per_replica // groups):
            length = lengths[row]
            if not length:
                continue
            window_numbers(tokens, bits, row, length, windows, numbers)
            for i in range(size):
                total[i] = 0
                factor[i] = grad[row, i] * gates[replica, numbers[0], i]
            for t in range(min(length, kernel.shape[1])):
                w = numbers[t]
                for i in range(size):
                    tap, value = kernel[replica, t, i], products[replica, w, i]
                    total[i] += tap * value
                    grad_kernel[group, t, i] += factor[i] * value
                    grad_products[group, w, i] += factor[i] * tap
            for i in range(size):
                grad_gates[group, numbers[0], i] += grad[row, i] * total[i]
