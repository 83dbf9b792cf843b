"""The selective scan, row after row and channel after channel, compiled by numba. Imported only where it is installed.

The states of one channel, (L, N), stay in the cache: none are kept for the gradient, all are formed again. Every kernel
runs over rows first..last, which are the same for any number of threads.
"""

# Kernels take whatever arrays numba compiles them for: one signature would say less than it hides.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sdssm.ops.numba_kernels import FAST

#: exp(v) in float32: v = k ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts, the first of few bits; 1/2! .. 1/6!.
LOG2E, LN2_HIGH, LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
E2, E3, E4, E5, E6 = (np.float32(1 / math.factorial(k)) for k in range(2, 7))
LEAST, MOST = np.float32(-87), np.float32(88)
ONE, HALF, NOTHING, INFINITY = np.float32(1), np.float32(0.5), np.float32(0), np.float32(math.inf)


@njit(nogil=True, cache=True, fastmath=FAST)
def decays(rate, time, powers, out):
    """out = exp(time rate); in float32, 0 below e^-87 and inf past e^88, in a form compiled for many at once."""
    if out.itemsize != 4:
        for n in range(len(out)):
            out[n] = math.exp(time * rate[n])
        return
    for n in range(len(out)):
        v = min(max(np.float32(time * rate[n]), LEAST), MOST)
        k = np.floor(v * LOG2E + HALF)
        r = v - k * LN2_HIGH - k * LN2_LOW
        out[n] = ONE + r * (ONE + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * E6)))))
        powers[n] = (np.int32(k) + np.int32(127)) << np.int32(23)  # the bits of 2^k
    scale = powers.view(np.float32)
    for n in range(len(out)):
        v = time * rate[n]
        beyond = NOTHING if v <= LEAST else v * INFINITY  # NaN stays NaN
        out[n] = out[n] * scale[n] if v > LEAST and v < MOST else beyond


@njit(nogil=True, cache=True, fastmath=FAST)
def forward(first, last, x, delta, A, B, C, h0, lengths, rows, least, y, final):
    """x, delta, y (P, L, D), A (R, D, N), B, C (P, L, N), h0 (P, D, N) or empty, final (P, D, N); P = R rows.

    States and gradients below `least`, next to the denormal numbers, become 0: those slow every product a hundredfold.
    """
    N = A.shape[2]
    decay, powers = np.empty(N, x.dtype), np.empty(N, np.int32)
    for row in range(first, last):
        for d in range(x.shape[2]):
            rate, h = A[row // rows, d], final[row, d]
            h[:] = 0
            if len(h0):
                h[:] = h0[row, d]
            for t in range(lengths[row]):
                time, now, read = delta[row, t, d], B[row, t], C[row, t]
                decays(rate, time, powers, decay)
                drive = time * x[row, t, d]
                total = drive * 0
                for n in range(N):
                    value = decay[n] * h[n] + drive * now[n]
                    h[n] = value if abs(value) > least else value * 0
                    total += h[n] * read[n]
                y[row, t, d] = total
        y[row, lengths[row] :] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def backward(first, last, dy, dfinal, x, delta, A, B, C, h0, lengths, rows, least, dx, ddelta, dA, dB, dC, dh0):
    """The gradients, dA (P, D, N) for each row alone. dy and dfinal may be empty, as h0 and then dh0."""
    L, N = x.shape[1], A.shape[2]
    states, decay = np.empty((L + 1, N), x.dtype), np.empty((L, N), x.dtype)
    g, powers = np.empty(N, x.dtype), np.empty(N, np.int32)
    for row in range(first, last):
        length = lengths[row]
        dx[row, length:], ddelta[row, length:] = 0, 0
        dB[row], dC[row], dA[row] = 0, 0, 0
        for d in range(x.shape[2]):
            rate, dA_row = A[row // rows, d], dA[row, d]
            states[0] = 0
            if len(h0):
                states[0] = h0[row, d]
            for t in range(length):
                time, now = delta[row, t, d], B[row, t]
                decays(rate, time, powers, decay[t])
                drive = time * x[row, t, d]
                for n in range(N):
                    value = decay[t, n] * states[t, n] + drive * now[n]
                    states[t + 1, n] = value if abs(value) > least else value * 0
            g[:] = 0
            if len(dfinal):
                g[:] = dfinal[row, d]
            for t in range(length - 1, -1, -1):
                time, now, read = delta[row, t, d], B[row, t], C[row, t]
                drive = time * x[row, t, d]
                if len(dy):
                    arriving = dy[row, t, d]
                    for n in range(N):
                        g[n] += arriving * read[n]
                        dC[row, t, n] += arriving * states[t + 1, n]
                ddrive, dtime = drive * 0, drive * 0
                for n in range(N):
                    through = g[n] * decay[t, n]
                    dB[row, t, n] += drive * g[n]
                    ddrive += g[n] * now[n]
                    g[n] = through if abs(through) > least else through * 0
                    moved = g[n] * states[t, n]
                    dA_row[n] += time * moved
                    dtime += rate[n] * moved
                dx[row, t, d] = ddrive * time
                ddelta[row, t, d] = ddrive * x[row, t, d] + dtime
            if len(dh0):
                dh0[row, d] = g
