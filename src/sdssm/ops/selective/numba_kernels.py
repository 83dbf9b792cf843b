"""The selective scan compiled by numba, row by row and channel by channel.

Imported only if numba is installed.

The states of one channel, (L, N), stay in the cache: none are kept for the gradient, all are recomputed. Each kernel
processes rows first..last; the result does not depend on how rows are divided among threads.
"""

# Numba compiles each kernel for the arrays it is called with; one annotation could not describe them all.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sdssm.ops.numba_kernels import FAST, copy_vector

#: exp(v) in float32 as 2^k exp(r) with v = k ln 2 + r and |r| <= ln 2 / 2. ln 2 is split in two parts, the first of few
#: bits, so that k LN2_HIGH is exact. E2 .. E6 are the Taylor coefficients 1/2! .. 1/6! of exp(r).
LOG2E, LN2_HIGH, LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
E2, E3, E4, E5, E6 = (np.float32(1 / math.factorial(k)) for k in range(2, 7))
MIN_EXPONENT, MAX_EXPONENT = np.float32(-87), np.float32(88)
ONE, HALF, ZERO, INFINITY = np.float32(1), np.float32(0.5), np.float32(0), np.float32(math.inf)


@njit(nogil=True, cache=True, fastmath=FAST)
def decays(A_d, delta_t, powers, out):
    """Fill `out` with exp(delta_t A_d).

    In float32 it is a polynomial that vectorises, with 0 below e^-87 and inf above e^88.
    """
    if out.itemsize != 4:
        for n in range(len(out)):
            out[n] = math.exp(delta_t * A_d[n])
        return
    for n in range(len(out)):
        v = min(max(np.float32(delta_t * A_d[n]), MIN_EXPONENT), MAX_EXPONENT)
        k = np.floor(v * LOG2E + HALF)
        r = v - k * LN2_HIGH - k * LN2_LOW
        out[n] = ONE + r * (ONE + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * E6)))))
        powers[n] = (np.int32(k) + np.int32(127)) << np.int32(23)  # the bits of 2^k
    scale = powers.view(np.float32)
    for n in range(len(out)):
        v = delta_t * A_d[n]
        out_of_range = ZERO if v <= MIN_EXPONENT else v * INFINITY  # NaN stays NaN
        out[n] = out[n] * scale[n] if v > MIN_EXPONENT and v < MAX_EXPONENT else out_of_range


@njit(nogil=True, cache=True, fastmath=FAST)
def forward(first, last, x, delta, A, B, C, h0, lengths, rows, least, y, final):
    """Fill y (P, L, D) and final (P, D, N) for rows first..last of P = R rows.

    x, delta (P, L, D), A (R, D, N), B, C (P, L, N), h0 (P, D, N) or empty. States and gradients below `least`, close
    to the denormal numbers, become 0: denormals make every product a hundred times slower.
    """
    N = A.shape[2]
    decay, powers = np.empty(N, x.dtype), np.empty(N, np.int32)
    for row in range(first, last):
        for d in range(x.shape[2]):
            A_d, h = A[row // rows, d], final[row, d]
            h[:] = 0
            if len(h0):
                copy_vector(h0[row, d], h)
            for t in range(lengths[row]):
                delta_t, B_t, C_t = delta[row, t, d], B[row, t], C[row, t]
                decays(A_d, delta_t, powers, decay)
                drive = delta_t * x[row, t, d]
                total = drive * 0
                for n in range(N):
                    value = decay[n] * h[n] + drive * B_t[n]
                    h[n] = value if abs(value) > least else value * 0
                    total += h[n] * C_t[n]
                y[row, t, d] = total
        y[row, lengths[row] :] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def backward(first, last, grad_y, grad_final, x, delta, A, B, C, h0, lengths, rows, least, dx, ddelta, dA, dB, dC, dh0):
    """Fill the gradients of rows first..last, with dA (P, D, N) per row.

    grad_y, grad_final and h0 may be empty; dh0 is empty if h0 is.
    """
    L, N = x.shape[1], A.shape[2]
    states, decay = np.empty((L + 1, N), x.dtype), np.empty((L, N), x.dtype)
    g, powers = np.empty(N, x.dtype), np.empty(N, np.int32)
    for row in range(first, last):
        length = lengths[row]
        dx[row, length:], ddelta[row, length:] = 0, 0
        dB[row], dC[row], dA[row] = 0, 0, 0
        for d in range(x.shape[2]):
            A_d, dA_d = A[row // rows, d], dA[row, d]
            states[0] = 0
            if len(h0):
                copy_vector(h0[row, d], states[0])
            for t in range(length):
                delta_t, B_t = delta[row, t, d], B[row, t]
                decays(A_d, delta_t, powers, decay[t])
                drive = delta_t * x[row, t, d]
                for n in range(N):
                    value = decay[t, n] * states[t, n] + drive * B_t[n]
                    states[t + 1, n] = value if abs(value) > least else value * 0
            g[:] = 0
            if len(grad_final):
                copy_vector(grad_final[row, d], g)
            for t in range(length - 1, -1, -1):
                delta_t, B_t, C_t = delta[row, t, d], B[row, t], C[row, t]
                drive = delta_t * x[row, t, d]
                if len(grad_y):
                    grad = grad_y[row, t, d]
                    for n in range(N):
                        g[n] += grad * C_t[n]
                        dC[row, t, n] += grad * states[t + 1, n]
                ddrive, ddelta_t = drive * 0, drive * 0
                for n in range(N):
                    g_decayed = g[n] * decay[t, n]
                    dB[row, t, n] += drive * g[n]
                    ddrive += g[n] * B_t[n]
                    g[n] = g_decayed if abs(g_decayed) > least else g_decayed * 0
                    g_h = g[n] * states[t, n]
                    dA_d[n] += delta_t * g_h
                    ddelta_t += A_d[n] * g_h
                dx[row, t, d] = ddrive * delta_t
                ddelta[row, t, d] = ddrive * x[row, t, d] + ddelta_t
            if len(dh0):
                copy_vector(g, dh0[row, d])
