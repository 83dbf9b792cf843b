# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""One step of an LSTM inside a Triton kernel: the four gates, their activations and gradients."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """Return tanh(x), from e = exp(-2 |x|) so that nothing overflows: |tanh(x)| = (1 - e) / (1 + e)."""
    e = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0.0, -size, size)


@triton.jit
def sigmoid(x):
    """Return 1 / (1 + exp(-x)); an exponential that overflows gives 0."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def load_gates(pointers, mask, N: tl.constexpr):
    """Load the parts i, f, g, o of vectors of 4N entries."""
    i = tl.load(pointers, mask=mask, other=0.0)
    f = tl.load(pointers + N, mask=mask, other=0.0)
    g = tl.load(pointers + 2 * N, mask=mask, other=0.0)
    o = tl.load(pointers + 3 * N, mask=mask, other=0.0)
    return i, f, g, o


@triton.jit
def store_gates(pointers, i, f, g, o, mask, N: tl.constexpr):
    """Store the parts i, f, g, o of vectors of 4N entries."""
    tl.store(pointers, i, mask=mask)
    tl.store(pointers + N, f, mask=mask)
    tl.store(pointers + 2 * N, g, mask=mask)
    tl.store(pointers + 3 * N, o, mask=mask)


@triton.jit
def step_forward(i, f, g, o, c):
    """Return the activated gates, the next cell and the next state.

    The arguments are the gates before activation and the previous cell.
    """
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    c = f * c + i * g
    return i, f, g, o, c, o * tanh(c)


@triton.jit
def step_backward(i, f, g, o, c, previous_c, dh, dc, in_length):
    """Return the gradients of the gates before activation and of the previous cell; 0 past the end.

    dh and dc are the gradients of h_t and c_t.
    """
    tanh_c = tanh(c)
    dc += dh * o * (1.0 - tanh_c * tanh_c)
    do = tl.where(in_length, dh * tanh_c * o * (1.0 - o), 0.0)
    di = tl.where(in_length, dc * g * i * (1.0 - i), 0.0)
    df = tl.where(in_length, dc * previous_c * f * (1.0 - f), 0.0)
    dg = tl.where(in_length, dc * i * (1.0 - g * g), 0.0)
    return di, df, dg, do, tl.where(in_length, dc * f, 0.0)


@triton.jit
def dot(x, w, PRECISION: tl.constexpr, ACC: tl.constexpr):
    """Return x @ w in the precision and with the accumulator of the kernel."""
    return tl.dot(x, w, input_precision=PRECISION, out_dtype=ACC)


@triton.jit
def add_streamed_products(
    i, f, g, o, x, row_mask, W, n, N: tl.constexpr, CK: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr
):
    """Add entries n of W x to the four gates; x holds pointers to rows of N entries.

    W is read in tiles, as in `streamed_product`, but each tile of x is loaded once for all four gates.
    """
    for start in range(0, N, CK):
        k = start + tl.arange(0, CK)
        x_tile = tl.load(x[:, None] + k[None, :], mask=row_mask[:, None] & (k < N)[None, :], other=0.0)
        wi, wf, wg, wo = load_gates(W + n[None, :] * N + k[:, None], (k < N)[:, None] & (n < N)[None, :], N * N)
        i += dot(x_tile, wi, PRECISION, ACC)
        f += dot(x_tile, wf, PRECISION, ACC)
        g += dot(x_tile, wg, PRECISION, ACC)
        o += dot(x_tile, wo, PRECISION, ACC)
    return i, f, g, o
