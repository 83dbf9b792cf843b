# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""One step of an LSTM inside a Triton kernel: the four parts of its vectors, the gates, and their gradients."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """(1 - e) / (1 + e) with e = exp(-2 |x|), which no x overflows."""
    e = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0.0, -size, size)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)); an exponential that overflows gives 0."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def four(at, mask, N: tl.constexpr):
    """The parts i, f, g, o of vectors of 4N entries."""
    i = tl.load(at, mask=mask, other=0.0)
    f = tl.load(at + N, mask=mask, other=0.0)
    g = tl.load(at + 2 * N, mask=mask, other=0.0)
    o = tl.load(at + 3 * N, mask=mask, other=0.0)
    return i, f, g, o


@triton.jit
def put_four(at, i, f, g, o, mask, N: tl.constexpr):
    tl.store(at, i, mask=mask)
    tl.store(at + N, f, mask=mask)
    tl.store(at + 2 * N, g, mask=mask)
    tl.store(at + 3 * N, o, mask=mask)


@triton.jit
def opened(i, f, g, o, c):
    """The gates as they are used, the next cell and the next state."""
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    c = f * c + i * g
    return i, f, g, o, c, o * tanh(c)


@triton.jit
def closed(i, f, g, o, c, before, dh, dc, inside):
    """Gradients of the four parts, and of the cell before, from those of a state and its cell; zero past an end."""
    shown = tanh(c)
    dc += dh * o * (1.0 - shown * shown)
    do = tl.where(inside, dh * shown * o * (1.0 - o), 0.0)
    di = tl.where(inside, dc * g * i * (1.0 - i), 0.0)
    df = tl.where(inside, dc * before * f * (1.0 - f), 0.0)
    dg = tl.where(inside, dc * i * (1.0 - g * g), 0.0)
    return di, df, dg, do, tl.where(inside, dc * f, 0.0)


@triton.jit
def product(x, w, PRECISION: tl.constexpr, ACC: tl.constexpr):
    return tl.dot(x, w, input_precision=PRECISION, out_dtype=ACC)


@triton.jit
def add_streamed(
    i, f, g, o, x, here, W, n, N: tl.constexpr, CK: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr
):
    """Entries n of the four parts with the product of W and rows at the addresses x added, as `streamed` forms it."""
    for first in range(0, N, CK):
        k = first + tl.arange(0, CK)
        part = tl.load(x[:, None] + k[None, :], mask=here[:, None] & (k < N)[None, :], other=0.0)
        wi, wf, wg, wo = four(W + n[None, :] * N + k[:, None], (k < N)[:, None] & (n < N)[None, :], N * N)
        i += product(part, wi, PRECISION, ACC)
        f += product(part, wf, PRECISION, ACC)
        g += product(part, wg, PRECISION, ACC)
        o += product(part, wo, PRECISION, ACC)
    return i, f, g, o
