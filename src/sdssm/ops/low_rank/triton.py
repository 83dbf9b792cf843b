# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Kernels of diagonal plus low-rank systems on NVIDIA GPUs, step by step, a program for each channel.

With S = (I - h lambda)^{-1}, h = dt / 2, Woodbury's formula makes the steps those of a diagonal matrix and one number:

    x_0 = dt S B - c / 2 dt q (P^* S B)         q = S P, c = 2 h / (1 + h P^* S P), p = conj(P) S
    x_{l+1} = G x_l - c s_l q                   G = 2 S - 1, s_l = 2 Re sum_m p_m x_{l,m}

The step depends on the one before only through x and the sum s, which a warp adds up without shared memory. The states
and sums are stored for the gradient, whose loop runs backward in time.

Constants of the kernels: L taps, M modes padded to MP.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.complex_numbers import inverse, times, times_conjugate
from sdssm.ops.modes.triton import load_pair, store_pair
from sdssm.ops.padding import next_power_of_two

#: Modes for each warp of a program.
MODES_PER_WARP = 64


@triton.jit
def load_system(log_dt, log_decay, frequency, P, row, replica, channel, D, m, mask, M: tl.constexpr):
    """Return h, lambda, P, S, q, p and c / (2 h) = 1 / (1 + h P^* S P) of a channel."""
    h = 0.5 * tl.exp(tl.load(log_dt + row))
    a = -tl.exp(tl.load(log_decay + row * M + m, mask=mask, other=0.0))
    ai = tl.load(frequency + row * M + m, mask=mask, other=0.0)
    r, ri = load_pair(P, replica, channel, D, m, mask, M)
    s, si = inverse(1.0 - h * a, -h * ai)
    q, qi = times(s, si, r, ri)
    p, pi = times_conjugate(s, si, r, ri)
    factor = 1.0 / (1.0 + h * 2.0 * tl.sum(p * r - pi * ri, axis=0))
    return h, a, ai, r, ri, s, si, q, qi, p, pi, factor


@triton.jit(do_not_specialize=["D"])
def low_rank_forward_kernel(
    log_dt, log_decay, frequency, P, B, C, taps, states, sums, D,
    L: tl.constexpr, M: tl.constexpr, MP: tl.constexpr,
):  # fmt: skip
    """Fill taps (R, D, L), the states (R, D, L, 2, M) and sums (R, D, L)."""
    row = tl.program_id(0).to(tl.int64)
    replica = row // D
    channel = row % D
    m = tl.arange(0, MP)
    mask = m < M
    h, _, _, _, _, s, si, q, qi, p, pi, factor = load_system(
        log_dt, log_decay, frequency, P, row, replica, channel, D, m, mask, M
    )
    b, bi = load_pair(B, replica, channel, D, m, mask, M)
    c, ci = load_pair(C, replica, channel, D, m, mask, M)
    x, xi = times(s, si, b, bi)
    first = h * factor * 2.0 * tl.sum(p * b - pi * bi, axis=0)
    x = 2.0 * h * (x - first * q)
    xi = 2.0 * h * (xi - first * qi)
    for l in range(L):  # noqa: E741  # a time
        at = (row * L + l) * 2 * M + m
        tl.store(states + at, x, mask=mask)
        tl.store(states + at + M, xi, mask=mask)
        tl.store(taps + row * L + l, 2.0 * tl.sum(c * x - ci * xi, axis=0))
        total = 2.0 * tl.sum(p * x - pi * xi, axis=0)
        tl.store(sums + row * L + l, total)
        y, yi = times(2.0 * s - 1.0, 2.0 * si, x, xi)
        x = y - 2.0 * h * factor * total * q
        xi = yi - 2.0 * h * factor * total * qi


@triton.jit
def load_state(states, step, m, mask, M: tl.constexpr):
    """Load a state from (R D L, 2, M)."""
    at = step * 2 * M + m
    return tl.load(states + at, mask=mask, other=0.0), tl.load(states + at + M, mask=mask, other=0.0)


@triton.jit(do_not_specialize=["D"])
def low_rank_backward_kernel(
    grad, log_dt, log_decay, frequency, P, B, C, states, sums, d_log_dt, d_log_decay, d_frequency, dP, dB, dC, D,
    L: tl.constexpr, M: tl.constexpr, MP: tl.constexpr,
):  # fmt: skip
    """Fill the gradients of all parameters of a channel; dz stands for that of z, (Re z, Im z)."""
    row = tl.program_id(0).to(tl.int64)
    replica = row // D
    channel = row % D
    m = tl.arange(0, MP)
    mask = m < M
    h, a, ai, r, ri, s, si, q, qi, p, pi, factor = load_system(
        log_dt, log_decay, frequency, P, row, replica, channel, D, m, mask, M
    )
    c, ci = load_pair(C, replica, channel, D, m, mask, M)
    strength = 2.0 * h * factor
    dx = tl.zeros((MP,), a.dtype)
    dxi = dx
    dg = dx
    dgi = dx
    dp = dx
    dpi = dx
    dq = dx
    dqi = dx
    dc = dx
    dci = dx
    d_strength = tl.sum(dx, axis=0)
    # What a step needs is loaded one step ahead.
    last: tl.constexpr = L - 1
    x, xi = load_state(states, row * L + last, m, mask, M)
    before, before_i = load_state(states, row * L + max(last - 1, 0), m, mask, M)
    g = 2.0 * tl.load(grad + row * L + last)
    total = tl.load(sums + row * L + max(last - 1, 0))
    for back in range(last):
        l = last - back  # noqa: E741  # a time
        ahead = row * L + tl.maximum(l - 2, 0)
        next_state, next_state_i = load_state(states, ahead, m, mask, M)
        next_total = tl.load(sums + ahead)
        next_g = 2.0 * tl.load(grad + row * L + l - 1)
        dx += g * c
        dxi -= g * ci
        dc += g * x
        dci -= g * xi
        # x_l = G x_{l-1} - strength total q
        inner = tl.sum(q * dx + qi * dxi, axis=0)
        d_strength -= total * inner
        dq -= strength * total * dx
        dqi -= strength * total * dxi
        y, yi = times_conjugate(dx, dxi, before, before_i)
        dg += y
        dgi += yi
        d_total = -2.0 * strength * inner
        dp += d_total * before
        dpi -= d_total * before_i
        y, yi = times_conjugate(dx, dxi, 2.0 * s - 1.0, 2.0 * si)
        dx = y + d_total * p
        dxi = yi - d_total * pi
        x = before
        xi = before_i
        before = next_state
        before_i = next_state_i
        g = next_g
        total = next_total
    dx += g * c
    dxi -= g * ci
    dc += g * x
    dci -= g * xi
    store_pair(dC, dc, dci, replica, channel, D, m, mask, M)
    # x_0 = 2 h S B - strength (h t) q with t = 2 Re sum p B
    b, bi = load_pair(B, replica, channel, D, m, mask, M)
    t = 2.0 * tl.sum(p * b - pi * bi, axis=0)
    inner = tl.sum(q * dx + qi * dxi, axis=0)
    sb, sbi = times(s, si, b, bi)
    d_strength -= h * t * inner
    dh = 2.0 * tl.sum(dx * sb + dxi * sbi, axis=0) - strength * t * inner
    dt = -2.0 * strength * h * inner
    dq -= strength * h * t * dx
    dqi -= strength * h * t * dxi
    dp += dt * b
    dpi -= dt * bi
    db, dbi = times_conjugate(dx, dxi, s, si)
    store_pair(dB, 2.0 * h * db + dt * p, 2.0 * h * dbi - dt * pi, replica, channel, D, m, mask, M)
    # G = 2 S - 1, and S B in x_0
    ds, dsi = times_conjugate(dx, dxi, b, bi)
    ds = 2.0 * h * ds + 2.0 * dg
    dsi = 2.0 * h * dsi + 2.0 * dgi
    # strength = 2 h / (1 + h n) with n = 2 Re sum p P
    dh += d_strength * 2.0 * factor * factor
    dn = -d_strength * 2.0 * h * h * factor * factor
    dp += 2.0 * dn * r
    dpi -= 2.0 * dn * ri
    dr = 2.0 * dn * p
    dri = -2.0 * dn * pi
    # q = S P, p = S conj(P)
    y, yi = times_conjugate(dq, dqi, s, si)
    z, zi = times_conjugate(dp, dpi, s, si)
    store_pair(dP, dr + y + z, dri + yi - zi, replica, channel, D, m, mask, M)
    y, yi = times_conjugate(dq, dqi, r, ri)
    z, zi = times(dp, dpi, r, ri)
    ds += y + z
    dsi += yi + zi
    # S = 1 / (1 - h lambda)
    square, square_i = times(s, si, s, si)
    dv, dvi = times_conjugate(ds, dsi, square, square_i)  # of h lambda
    dh += tl.sum(tl.where(mask, dv * a + dvi * ai, 0.0), axis=0)
    tl.store(d_log_dt + row, h * dh)
    tl.store(d_log_decay + row * M + m, h * dv * a, mask=mask)
    tl.store(d_frequency + row * M + m, h * dvi, mask=mask)


def kernel_constants(length: int, M: int) -> dict[str, Any]:
    """Return the compile-time constants of the kernels."""
    MP = max(32, next_power_of_two(M))
    return {"L": length, "M": M, "MP": MP, "num_warps": max(1, MP // MODES_PER_WARP)}


def forward(
    log_dt: Tensor, log_decay: Tensor, frequency: Tensor, P: Tensor, B: Tensor, C: Tensor, length: int
) -> tuple[Tensor, ...]:
    """Return taps (R, D, L), and for the gradient states (R, D, L, 2, M) and sums (R, D, L)."""
    R, D, M = frequency.shape
    taps = frequency.new_empty(R, D, length)
    states, sums = frequency.new_empty(R, D, length, 2, M), torch.empty_like(taps)
    if taps.numel():
        low_rank_forward_kernel[(R * D,)](
            log_dt, log_decay, frequency, P, B, C, taps, states, sums, D, **kernel_constants(length, M)
        )
    return taps, states, sums


def backward(
    grad: Tensor,
    log_dt: Tensor,
    log_decay: Tensor,
    frequency: Tensor,
    P: Tensor,
    B: Tensor,
    C: Tensor,
    states: Tensor,
    sums: Tensor,
    length: int,
) -> tuple[Tensor, ...]:
    """Return the gradients of all parameters."""
    R, D, M = frequency.shape
    parameters = (log_dt, log_decay, frequency, P, B, C)
    if not grad.numel():
        return tuple(torch.zeros_like(parameter) for parameter in parameters)
    grads = tuple(torch.empty_like(parameter) for parameter in parameters)
    low_rank_backward_kernel[(R * D,)](grad, *parameters, states, sums, *grads, D, **kernel_constants(length, M))
    return grads
