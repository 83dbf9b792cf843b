"""The taps of shift systems and their gradient, channel by channel. Imported only if numba is installed."""

# Kernels are compiled for several types of arrays, which one signature cannot express.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from numba import njit

from sdssm.ops.numba_kernels import FAST, KERNEL


@njit(fastmath=FAST, **KERNEL)
def forward(first, last, B, C, taps):
    """Fill taps (P, L) of the channels first..last; B and C (P, N)."""
    for row in range(first, last):
        for t in range(taps.shape[1]):
            total = B[row, 0] * 0
            for i in range(B.shape[1] - t):
                total += C[row, t + i] * B[row, i]
            taps[row, t] = total


@njit(fastmath=FAST, **KERNEL)
def backward(first, last, grad, B, C, dB, dC):
    """Fill the gradients of B and C."""
    for row in range(first, last):
        for i in range(B.shape[1]):
            dB[row, i] = dC[row, i] = 0
        for t in range(grad.shape[1]):
            slope = grad[row, t]
            for i in range(B.shape[1] - t):
                dB[row, i] += slope * C[row, t + i]
                dC[row, t + i] += slope * B[row, i]
