# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Complex numbers inside of Triton kernels, as pairs of real and imaginary parts."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def times(a, ai, b, bi):
    """Return a b."""
    return a * b - ai * bi, a * bi + ai * b


@triton.jit
def times_conjugate(a, ai, b, bi):
    """Return a conj(b)."""
    return a * b + ai * bi, ai * b - a * bi


@triton.jit
def inverse(a, ai):
    """Return 1 / a."""
    norm = a * a + ai * ai
    return a / norm, -ai / norm


@triton.jit
def expm1(x):
    """Return exp(x) - 1 of real x, accurate where x is small: the rounding of exp(x) cancels (after Kahan)."""
    u = tl.exp(x)
    is_small = (tl.abs(x) < 1.0) & (u != 1.0)
    ratio = (u - 1.0) * (x / tl.log(tl.where(is_small, u, 2.0)))
    return tl.where(is_small, ratio, tl.where(u == 1.0, x, u - 1.0))


@triton.jit
def complex_expm1(x, y):
    """Return exp(x + i y) - 1."""
    u = expm1(x)
    half = tl.sin(0.5 * y)
    loss = 2.0 * half * half  # 1 - cos(y)
    return u - loss - u * loss, (u + 1.0) * tl.sin(y)


@triton.jit
def complex_power(a, ai, exponent, BITS: tl.constexpr):
    """Return a^exponent for integers below 2^BITS, by repeated squaring."""
    y = tl.where(exponent >= 0, 1.0, 0.0).to(a.dtype) + 0.0 * a
    yi = 0.0 * y
    for bit in tl.static_range(BITS):
        z, zi = times(y, yi, a, ai)
        is_set = ((exponent >> bit) & 1) == 1
        y = tl.where(is_set, z, y)
        yi = tl.where(is_set, zi, yi)
        a, ai = times(a, ai, a, ai)
    return y, yi
