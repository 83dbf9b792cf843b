"""The taps of diagonal systems and their gradient, channel by channel. Imported only if numba is installed.

All arithmetic is in float64: the modes of a channel are a few vectors, so it costs little, and with it the error of a
power by repeated multiplication is far below the rounding of a float32 tap. Real and imaginary parts are separate
arrays, so that loops over modes become vector instructions.
"""

# Kernels are compiled for several types of arrays, which one signature cannot express.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import numpy as np
from numba import njit

from sdssm.ops.numba_kernels import FAST, INNER, KERNEL


@njit(**INNER)
def discretise(dt, a, ai, hold):
    """Return Abar and the gain Bbar / B of an eigenvalue a: four numbers, real and imaginary parts."""
    if hold:
        grown = math.expm1(dt * a)
        # From half of the angle, since 1 - cos would lose the digits of a small one.
        sine, cosine = math.sin(0.5 * dt * ai), math.cos(0.5 * dt * ai)
        e, ei = grown - 2.0 * (grown + 1.0) * sine * sine, 2.0 * (grown + 1.0) * sine * cosine  # e^{dt a} - 1
        size = a * a + ai * ai
        return e + 1.0, ei, (e * a + ei * ai) / size, (ei * a - e * ai) / size
    g, gi = 1.0 / dt - 0.5 * a, -0.5 * ai
    size = g * g + gi * gi
    g, gi = g / size, -gi / size
    return 1.0 + a * g - ai * gi, a * gi + ai * g, g, gi


@njit(fastmath=FAST, error_model="numpy", **KERNEL)
def forward(first, last, log_dt, log_decay, frequency, C, B, hold, discrete, taps):
    """Fill taps (R D, L) of the channels first..last, and real and imaginary parts of Abar and the gain, (R D, 4, M).

    log_dt (R D,), log_decay and frequency (R D, M), C and B (R, 2, D, M); B may be empty.
    """
    M, D = frequency.shape[1], C.shape[2]
    y, yi = np.empty(M), np.empty(M)
    for row in range(first, last):
        replica, channel = row // D, row % D
        dt = math.exp(np.float64(log_dt[row]))
        x, xi, gain, gain_i = discrete[row, 0], discrete[row, 1], discrete[row, 2], discrete[row, 3]
        for m in range(M):
            a, ai = -math.exp(np.float64(log_decay[row, m])), np.float64(frequency[row, m])
            x[m], xi[m], gain[m], gain_i[m] = discretise(dt, a, ai, hold)
        c, ci = C[replica, 0, channel], C[replica, 1, channel]
        for m in range(M):
            y[m], yi[m] = 2.0 * (c[m] * gain[m] - ci[m] * gain_i[m]), 2.0 * (c[m] * gain_i[m] + ci[m] * gain[m])
        if len(B):
            b, bi = B[replica, 0, channel], B[replica, 1, channel]
            for m in range(M):
                y[m], yi[m] = y[m] * b[m] - yi[m] * bi[m], y[m] * bi[m] + yi[m] * b[m]
        for t in range(taps.shape[1]):
            total = 0.0
            for m in range(M):
                total += y[m]
                y[m], yi[m] = y[m] * x[m] - yi[m] * xi[m], y[m] * xi[m] + yi[m] * x[m]
            taps[row, t] = total


@njit(fastmath=FAST, error_model="numpy", **KERNEL)
def backward(
    first, last, grad, log_dt, log_decay, frequency, C, B, discrete, hold, d_log_dt, d_log_decay, d_frequency, dC, dB
):
    """Fill the gradients of all parameters of the channels first..last; grad (R D, L). Otherwise as in `forward`.

    dz stands for the gradient of a complex number z, (Re dz, Im dz).
    """
    M, D, length = frequency.shape[1], C.shape[2], grad.shape[1]
    w, wi, v, vi = np.empty(M), np.empty(M), np.empty(M), np.empty(M)
    for row in range(first, last):
        replica, channel = row // D, row % D
        x, xi, gain, gain_i = discrete[row, 0], discrete[row, 1], discrete[row, 2], discrete[row, 3]
        for m in range(M):
            w[m] = wi[m] = v[m] = vi[m] = 0.0
        # The polynomial sum_t g_t x^t and its derivative, by Horner's rule, are the conjugates of dw for the weight
        # w = C Bbar, and of dx / conj(w). Two loops: for more arrays the compiler makes no vector instructions.
        for t in range(length - 1, -1, -1):
            g = 2.0 * np.float64(grad[row, t])
            slope = 2.0 * (t + 1) * np.float64(grad[row, t + 1]) if t + 1 < length else 0.0
            for m in range(M):
                w[m], wi[m] = w[m] * x[m] - wi[m] * xi[m] + g, w[m] * xi[m] + wi[m] * x[m]
            for m in range(M):
                v[m], vi[m] = v[m] * x[m] - vi[m] * xi[m] + slope, v[m] * xi[m] + vi[m] * x[m]
        dt, d_dt = math.exp(np.float64(log_dt[row])), 0.0
        for m in range(M):
            c, ci = np.float64(C[replica, 0, channel, m]), np.float64(C[replica, 1, channel, m])
            s, si, dw, dwi, dx, dxi = gain[m], gain_i[m], w[m], -wi[m], v[m], -vi[m]
            cs, csi = c * s - ci * si, c * si + ci * s
            if len(B):
                b, bi = np.float64(B[replica, 0, channel, m]), np.float64(B[replica, 1, channel, m])
                dB[replica, 0, channel, m] = dw * cs + dwi * csi
                dB[replica, 1, channel, m] = dwi * cs - dw * csi
                dw, dwi = dw * b + dwi * bi, dwi * b - dw * bi
                dx, dxi = dx * b + dxi * bi, dxi * b - dx * bi
            dC[replica, 0, channel, m] = dw * s + dwi * si
            dC[replica, 1, channel, m] = dwi * s - dw * si
            dx, dxi = dx * cs + dxi * csi, dxi * cs - dx * csi
            ds, dsi = dw * c + dwi * ci, dwi * c - dw * ci
            a, ai = -math.exp(np.float64(log_decay[row, m])), np.float64(frequency[row, m])
            if hold:  # x = e^{dt a}, s = (x - 1) / a
                size = a * a + ai * ai
                ds, dsi = (ds * a - dsi * ai) / size, (dsi * a + ds * ai) / size
                sum_x, sum_xi = dx + ds, dxi + dsi
                dr, dri = sum_x * x[m] + sum_xi * xi[m], sum_xi * x[m] - sum_x * xi[m]
                da, dai = dt * dr - (ds * s + dsi * si), dt * dri - (dsi * s - ds * si)
                d_dt += dr * a + dri * ai
            else:  # s = 2 / (2 / dt - a), x = 1 + a s
                more, more_i = ds + dx * a + dxi * ai, dsi + dxi * a - dx * ai
                square, square_i = s * s - si * si, 2.0 * s * si
                dq, dqi = more * square + more_i * square_i, more_i * square - more * square_i
                da, dai = dx * s + dxi * si + 0.5 * dq, dxi * s - dx * si + 0.5 * dqi
                d_dt += dq / (dt * dt)
            d_log_decay[row, m], d_frequency[row, m] = da * a, dai
        d_log_dt[row] = dt * d_dt
