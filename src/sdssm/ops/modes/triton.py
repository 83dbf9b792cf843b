# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Kernels of diagonal systems on NVIDIA GPUs: a program computes the taps of one channel, or their gradient.

All powers of a tile of modes are in registers, (LP, TM), computed by repeated squaring. The gradient computes them
again. A program owns its channel, so there are no partial sums.

Constants of the kernels: L taps padded to LP = 2^BITS, M modes in tiles of TM, HOLD for the zero-order hold.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.complex_numbers import complex_expm1, complex_power, inverse, times, times_conjugate
from sdssm.ops.padding import next_power_of_two

#: The most modes of a tile, and warps of a program of the forward and the backward kernel.
MODES = 32
FORWARD_WARPS, BACKWARD_WARPS = 4, 1


@triton.jit
def discretise(dt, a, ai, HOLD: tl.constexpr):
    """Return Abar and the gain Bbar / B for eigenvalues a."""
    if HOLD:
        e, ei = complex_expm1(dt * a, dt * ai)
        inv, inv_i = inverse(a, ai)
        g, gi = times(e, ei, inv, inv_i)
        return e + 1.0, ei, g, gi
    else:
        g, gi = inverse(1.0 / dt - 0.5 * a, -0.5 * ai)
        z, zi = times(a, ai, g, gi)
        return z + 1.0, zi, g, gi


@triton.jit
def load_pair(pair, replica, channel, D, m, mask, M: tl.constexpr):
    """Load real and imaginary parts (2, D, M) of a channel."""
    at = (2 * replica * D + channel) * M + m
    return tl.load(pair + at, mask=mask, other=0.0), tl.load(pair + at + D * M, mask=mask, other=0.0)


@triton.jit
def store_pair(pair, x, xi, replica, channel, D, m, mask, M: tl.constexpr):
    """Store real and imaginary parts (2, D, M) of a channel."""
    at = (2 * replica * D + channel) * M + m
    tl.store(pair + at, x, mask=mask)
    tl.store(pair + at + D * M, xi, mask=mask)


@triton.jit(do_not_specialize=["D"])
def modal_forward_kernel(
    log_dt, log_decay, frequency, C, B, taps, D,
    L: tl.constexpr, LP: tl.constexpr, BITS: tl.constexpr, M: tl.constexpr, TM: tl.constexpr, HOLD: tl.constexpr,
):  # fmt: skip
    """Fill taps (R, D, L)."""
    row = tl.program_id(0).to(tl.int64)
    replica = row // D
    channel = row % D
    dt = tl.exp(tl.load(log_dt + row))
    time = tl.arange(0, LP)
    total = tl.zeros((LP,), taps.dtype.element_ty)
    for first in range(0, M, TM):
        m = first + tl.arange(0, TM)
        mask = m < M
        a = -tl.exp(tl.load(log_decay + row * M + m, mask=mask, other=0.0))
        ai = tl.load(frequency + row * M + m, mask=mask, other=0.0)
        x, xi, w, wi = discretise(dt, a, ai, HOLD)
        c, ci = load_pair(C, replica, channel, D, m, mask, M)
        w, wi = times(w, wi, c, ci)
        if B is not None:
            b, bi = load_pair(B, replica, channel, D, m, mask, M)
            w, wi = times(w, wi, b, bi)
        z, zi = complex_power(x[None, :], xi[None, :], time[:, None], BITS)
        total += tl.sum(w[None, :] * z - wi[None, :] * zi, axis=1)
    tl.store(taps + row * L + time, 2.0 * total, mask=time < L)


@triton.jit(do_not_specialize=["D"])
def modal_backward_kernel(
    grad, log_dt, log_decay, frequency, C, B, d_log_dt, d_log_decay, d_frequency, dC, dB, D,
    L: tl.constexpr, LP: tl.constexpr, BITS: tl.constexpr, M: tl.constexpr, TM: tl.constexpr, HOLD: tl.constexpr,
):  # fmt: skip
    """Fill the gradients of all parameters of a channel."""
    row = tl.program_id(0).to(tl.int64)
    replica = row // D
    channel = row % D
    dt = tl.exp(tl.load(log_dt + row))
    time = tl.arange(0, LP)
    g = 2.0 * tl.load(grad + row * L + time, mask=time < L, other=0.0)
    later = 2.0 * tl.load(grad + row * L + time + 1, mask=time + 1 < L, other=0.0)
    slope = later * (time + 1).to(later.dtype)
    d_dt = tl.zeros((TM,), g.dtype)
    for first in range(0, M, TM):
        m = first + tl.arange(0, TM)
        mask = m < M
        a = -tl.exp(tl.load(log_decay + row * M + m, mask=mask, other=0.0))
        ai = tl.load(frequency + row * M + m, mask=mask, other=0.0)
        x, xi, s, si = discretise(dt, a, ai, HOLD)
        c, ci = load_pair(C, replica, channel, D, m, mask, M)
        z, zi = complex_power(x[None, :], xi[None, :], time[:, None], BITS)
        dw = tl.sum(z * g[:, None], axis=0)
        dwi = -tl.sum(zi * g[:, None], axis=0)
        dx = tl.sum(z * slope[:, None], axis=0)
        dxi = -tl.sum(zi * slope[:, None], axis=0)
        cs, csi = times(c, ci, s, si)
        if B is not None:
            b, bi = load_pair(B, replica, channel, D, m, mask, M)
            db, dbi = times_conjugate(dw, dwi, cs, csi)
            store_pair(dB, db, dbi, replica, channel, D, m, mask, M)
            dw, dwi = times_conjugate(dw, dwi, b, bi)
            dx, dxi = times_conjugate(dx, dxi, b, bi)
        # The weight of a mode is C times the gain s (times B, whose factor dw and dx have now).
        dc, dci = times_conjugate(dw, dwi, s, si)
        store_pair(dC, dc, dci, replica, channel, D, m, mask, M)
        dx, dxi = times_conjugate(dx, dxi, cs, csi)
        ds, dsi = times_conjugate(dw, dwi, c, ci)
        if HOLD:  # x = e^(dt a), s = (x - 1) / a
            inv, inv_i = inverse(a, ai)
            ds, dsi = times_conjugate(ds, dsi, inv, inv_i)
            loss, loss_i = times_conjugate(ds, dsi, s, si)
            dr, dri = times_conjugate(dx + ds, dxi + dsi, x, xi)
            da = dt * dr - loss
            dai = dt * dri - loss_i
            d_dt += tl.where(mask, dr * a + dri * ai, 0.0)
        else:  # s = 2 / (2 / dt - a), x = 1 + a s
            rest, rest_i = times_conjugate(dx, dxi, s, si)
            more, more_i = times_conjugate(dx, dxi, a, ai)
            square, square_i = times(s, si, s, si)
            dq, dqi = times_conjugate(ds + more, dsi + more_i, square, square_i)
            da = rest + 0.5 * dq
            dai = rest_i + 0.5 * dqi
            d_dt += tl.where(mask, dq, 0.0) / (dt * dt)
        tl.store(d_log_decay + row * M + m, da * a, mask=mask)
        tl.store(d_frequency + row * M + m, dai, mask=mask)
    tl.store(d_log_dt + row, dt * tl.sum(d_dt, axis=0))


def kernel_constants(length: int, M: int, discretisation: str) -> dict[str, Any]:
    """Return the compile-time constants of the kernels."""
    LP = max(16, next_power_of_two(length))
    return {
        "L": length, "LP": LP, "BITS": LP.bit_length() - 1, "M": M, "TM": min(MODES, max(8, next_power_of_two(M))),
        "HOLD": discretisation == "zero-order-hold",
    }  # fmt: skip


def forward(
    log_dt: Tensor, log_decay: Tensor, frequency: Tensor, C: Tensor, B: Tensor | None, length: int, discretisation: str
) -> tuple[Tensor]:
    """Return taps (R, D, L)."""
    R, D, M = frequency.shape
    taps = frequency.new_empty(R, D, length)
    if taps.numel():
        modal_forward_kernel[(R * D,)](
            log_dt, log_decay, frequency, C, B, taps, D,
            **kernel_constants(length, M, discretisation), num_warps=FORWARD_WARPS,
        )  # fmt: skip
    return (taps,)


def backward(
    grad: Tensor,
    log_dt: Tensor,
    log_decay: Tensor,
    frequency: Tensor,
    C: Tensor,
    B: Tensor | None,
    length: int,
    discretisation: str,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of all parameters."""
    R, D, M = frequency.shape
    parameters = (log_dt, log_decay, frequency, C, B)
    grads = [None if parameter is None else torch.empty_like(parameter) for parameter in parameters]
    if grad.numel():
        modal_backward_kernel[(R * D,)](
            grad, *parameters, *grads, D,
            **kernel_constants(length, M, discretisation), num_warps=BACKWARD_WARPS,
        )  # fmt: skip
    else:
        grads = [None if parameter is None else torch.zeros_like(parameter) for parameter in parameters]
    return tuple(grads)
