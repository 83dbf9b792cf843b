"""The taps of diagonal plus low-rank systems and their gradient, step by step. Imported only if numba is installed.

The recurrence is that of `sdssm.ops.low_rank.triton`, with the same names. All arithmetic is in float64, and real and
imaginary parts are separate arrays, as in `sdssm.ops.modes.numba_kernels`. The gradient computes the states again:
those of a channel stay in the first cache, while storing those of all channels would take longer.
"""

# Kernels are compiled for several types of arrays, which one signature cannot express.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sdssm.ops.numba_kernels import FAST, INNER, KERNEL

#: Rows of the buffer of a channel: real and imaginary parts of lambda, P, S, G, q, p and C.
A, P_ROW, S, G, Q, P_STAR, C_ROW = 0, 2, 4, 6, 8, 10, 12
ROWS = 14


@njit(fastmath=FAST, **INNER)
def load_system(row, log_dt, log_decay, frequency, P, C, system):
    """Fill a buffer (ROWS, M) for a channel and return h and c / (2 h) = 1 / (1 + h P^* S P)."""
    M, D = frequency.shape[1], P.shape[2]
    replica, channel = row // D, row % D
    h, inner = 0.5 * math.exp(np.float64(log_dt[row])), 0.0
    for m in range(M):
        a, ai = -math.exp(np.float64(log_decay[row, m])), np.float64(frequency[row, m])
        r, ri = np.float64(P[replica, 0, channel, m]), np.float64(P[replica, 1, channel, m])
        s, si = 1.0 - h * a, h * ai
        size = s * s + si * si
        s, si = s / size, si / size
        p, pi = s * r + si * ri, si * r - s * ri
        inner += p * r - pi * ri
        system[A, m], system[A + 1, m] = a, ai
        system[P_ROW, m], system[P_ROW + 1, m] = r, ri
        system[S, m], system[S + 1, m] = s, si
        system[G, m], system[G + 1, m] = 2.0 * s - 1.0, 2.0 * si
        system[Q, m], system[Q + 1, m] = s * r - si * ri, s * ri + si * r
        system[P_STAR, m], system[P_STAR + 1, m] = p, pi
        system[C_ROW, m], system[C_ROW + 1, m] = C[replica, 0, channel, m], C[replica, 1, channel, m]
    return h, 1.0 / (1.0 + 2.0 * h * inner)


@njit(fastmath=FAST, **INNER)
def first_state(b, bi, system, h, factor, x, xi):
    """Fill the first state (M,) for B, and return 2 Re sum_m p_m B_m."""
    total = 0.0
    s, si, q, qi, p, pi = system[S], system[S + 1], system[Q], system[Q + 1], system[P_STAR], system[P_STAR + 1]
    for m in range(len(x)):
        total += 2.0 * (p[m] * b[m] - pi[m] * bi[m])
    scale = h * factor * total
    for m in range(len(x)):
        x[m] = 2.0 * h * (s[m] * b[m] - si[m] * bi[m] - scale * q[m])
        xi[m] = 2.0 * h * (s[m] * bi[m] + si[m] * b[m] - scale * qi[m])
    return total


@njit(fastmath=FAST, **INNER)
def next_state(system, strength, x, xi, y, yi):
    """Fill the state (M,) after x, and return 2 Re sum_m p_m x_m."""
    total = 0.0
    g, gi, q, qi, p, pi = system[G], system[G + 1], system[Q], system[Q + 1], system[P_STAR], system[P_STAR + 1]
    for m in range(len(x)):
        total += 2.0 * (p[m] * x[m] - pi[m] * xi[m])
    scale = strength * total
    for m in range(len(x)):
        real, imaginary = x[m], xi[m]
        y[m] = g[m] * real - gi[m] * imaginary - scale * q[m]
        yi[m] = g[m] * imaginary + gi[m] * real - scale * qi[m]
    return total


@njit(fastmath=FAST, error_model="numpy", **KERNEL)
def forward(first, last, log_dt, log_decay, frequency, P, B, C, taps):
    """Fill taps (R D, L) of the channels first..last.

    log_dt (R D,), log_decay and frequency (R D, M), P, B and C (R, 2, D, M).
    """
    M, D = frequency.shape[1], P.shape[2]
    system, x, xi = np.empty((ROWS, M)), np.empty(M), np.empty(M)
    c, ci = system[C_ROW], system[C_ROW + 1]
    for row in range(first, last):
        h, factor = load_system(row, log_dt, log_decay, frequency, P, C, system)
        first_state(B[row // D, 0, row % D], B[row // D, 1, row % D], system, h, factor, x, xi)
        for t in range(taps.shape[1]):
            tap = 0.0
            for m in range(M):
                tap += 2.0 * (c[m] * x[m] - ci[m] * xi[m])
            taps[row, t] = tap
            next_state(system, 2.0 * h * factor, x, xi, x, xi)


@njit(fastmath=FAST, error_model="numpy", **KERNEL)
def backward(first, last, grad, log_dt, log_decay, frequency, P, B, C, d_log_dt, d_log_decay, d_frequency, dP, dB, dC):
    """Fill the gradients of all parameters of the channels first..last; grad (R D, L). Otherwise as in `forward`.

    dz stands for the gradient of a complex number z, (Re dz, Im dz).
    """
    M, D, length = frequency.shape[1], P.shape[2], grad.shape[1]
    system, states, sums = np.empty((ROWS, M)), np.empty((length, 2, M)), np.empty(length)
    dx, dxi, dg, dgi, dp, dpi = np.empty(M), np.empty(M), np.empty(M), np.empty(M), np.empty(M), np.empty(M)
    dq, dqi, dc, dci = np.empty(M), np.empty(M), np.empty(M), np.empty(M)
    g, gi, q, qi, p, pi = system[G], system[G + 1], system[Q], system[Q + 1], system[P_STAR], system[P_STAR + 1]
    c, ci = system[C_ROW], system[C_ROW + 1]
    for row in range(first, last):
        replica, channel = row // D, row % D
        b, bi = B[replica, 0, channel], B[replica, 1, channel]
        h, factor = load_system(row, log_dt, log_decay, frequency, P, C, system)
        strength, d_strength = 2.0 * h * factor, 0.0
        start = first_state(b, bi, system, h, factor, states[0, 0], states[0, 1])
        for t in range(1, length):
            before, after = states[t - 1], states[t]
            sums[t - 1] = next_state(system, strength, before[0], before[1], after[0], after[1])
        for m in range(M):
            dx[m] = dxi[m] = dg[m] = dgi[m] = dp[m] = dpi[m] = dq[m] = dqi[m] = dc[m] = dci[m] = 0.0
        for t in range(length - 1, -1, -1):
            slope, x, xi, inner = 2.0 * np.float64(grad[row, t]), states[t, 0], states[t, 1], 0.0
            for m in range(M):
                dx[m] += slope * c[m]
                dxi[m] -= slope * ci[m]
                dc[m] += slope * x[m]
                dci[m] -= slope * xi[m]
                inner += q[m] * dx[m] + qi[m] * dxi[m]
            if t == 0:
                break
            # x_t = G x_{t-1} - strength total q
            total, u, ui = sums[t - 1], states[t - 1, 0], states[t - 1, 1]
            d_strength -= total * inner
            d_total, scale = -2.0 * strength * inner, strength * total
            for m in range(M):
                real, imaginary = dx[m], dxi[m]
                dq[m] -= scale * real
                dqi[m] -= scale * imaginary
                dg[m] += real * u[m] + imaginary * ui[m]
                dgi[m] += imaginary * u[m] - real * ui[m]
                dp[m] += d_total * u[m]
                dpi[m] -= d_total * ui[m]
                dx[m] = real * g[m] + imaginary * gi[m] + d_total * p[m]
                dxi[m] = imaginary * g[m] - real * gi[m] - d_total * pi[m]
        # x_0 = 2 h S B - strength (h start) q, and strength = 2 h / (1 + h n) with n = 2 Re sum p P
        d_strength -= h * start * inner
        d_start, scale = -2.0 * strength * h * inner, strength * h * start
        dh = d_strength * 2.0 * factor * factor - strength * start * inner
        dn = -d_strength * 2.0 * h * h * factor * factor
        for m in range(M):
            r, ri, s, si, x, xi = system[P_ROW, m], system[P_ROW + 1, m], system[S, m], system[S + 1, m], dx[m], dxi[m]
            v, vi, w, wi = dq[m] - scale * x, dqi[m] - scale * xi, dp[m] + d_start * b[m], dpi[m] - d_start * bi[m]
            w, wi = w + 2.0 * dn * r, wi - 2.0 * dn * ri
            dh += 2.0 * (x * (s * b[m] - si * bi[m]) + xi * (s * bi[m] + si * b[m]))
            dC[replica, 0, channel, m], dC[replica, 1, channel, m] = dc[m], dci[m]
            dB[replica, 0, channel, m] = 2.0 * h * (x * s + xi * si) + d_start * p[m]
            dB[replica, 1, channel, m] = 2.0 * h * (xi * s - x * si) - d_start * pi[m]
            # q = S P, p = S conj(P)
            dP[replica, 0, channel, m] = 2.0 * dn * p[m] + (v * s + vi * si) + (w * s + wi * si)
            dP[replica, 1, channel, m] = -2.0 * dn * pi[m] + (vi * s - v * si) - (wi * s - w * si)
            # G = 2 S - 1, S B in x_0, q and p
            ds = 2.0 * h * (x * b[m] + xi * bi[m]) + 2.0 * dg[m] + (v * r + vi * ri) + (w * r - wi * ri)
            dsi = 2.0 * h * (xi * b[m] - x * bi[m]) + 2.0 * dgi[m] + (vi * r - v * ri) + (w * ri + wi * r)
            # S = 1 / (1 - h lambda): d(h lambda) = ds conj(S^2)
            square, square_i = s * s - si * si, 2.0 * s * si
            de, dei = ds * square + dsi * square_i, dsi * square - ds * square_i
            a, ai = system[A, m], system[A + 1, m]
            dh += de * a + dei * ai
            d_log_decay[row, m], d_frequency[row, m] = h * de * a, h * dei
        d_log_dt[row] = h * dh
