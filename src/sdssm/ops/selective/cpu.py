"""Selective scan on the CPU: through numba where it is installed, else in torch alone.

In torch blocks of rows small enough for the cache go step after step. Every STRIDE steps the state is kept where a
gradient is wanted; `backward` forms the states between again, STRIDE at a time. A step past the end of a row has
delta = 0, so that it leaves the state alone. The compiled kernels keep nothing, see `numba_kernels`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops import compiled
from sdssm.ops.autograd import absent
from sdssm.ops.transitions import least_kept

#: Steps from one kept state to the next.
STRIDE = 8
#: Numbers in the states of a block of rows.
BLOCK = 1 << 16


def kept_states(L: int) -> int:
    """How many states of a row of L steps are kept: those before steps 0, STRIDE, 2 STRIDE ..."""
    return -(-L // STRIDE)


def blocks(x: Tensor, N: int, lengths: Tensor | None) -> Iterator[tuple[tuple[int, slice], int]]:
    """Blocks of rows of one replica each, and how many steps the longest row of each has."""
    R, B, L, D = x.shape
    rows = max(1, BLOCK // (D * N))
    for replica in range(R):
        for first in range(0, B, rows):
            at = replica, slice(first, min(first + rows, B))
            yield at, L if lengths is None else int(lengths[at].max())


def inside_only(tensors: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
    """Tensors (R, B, L, *) with zeros past the ends of rows."""
    if lengths is None:
        return tensors
    inside = torch.arange(tensors[0].shape[2]) < lengths[..., None]
    return tuple(torch.where(inside[..., None], tensor, 0) for tensor in tensors)


def forward(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h0: Tensor | None, lengths: Tensor | None, wanted: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """y (R, B, L, D), final (R, B, D, N) and, if `wanted`, the kept states (R, B, L / STRIDE, D, N), else nothing.

    x, delta (R, B, L, D), A (R, D, N), B, C (R, B, L, N), h0 (R, B, D, N), lengths (R, B).
    """
    if compiled.available():
        return *_compiled_forward(x, delta, A, B, C, h0, lengths), absent(x)
    L, (D, N) = x.shape[2], A.shape[1:]
    x, delta, B, C = inside_only((x, delta, B, C), lengths)
    drive = delta * x
    y = torch.zeros_like(x)
    final = x.new_empty(*x.shape[:2], D, N)
    kept = x.new_zeros(*x.shape[:2], kept_states(L), D, N) if wanted else absent(x)
    for at, steps in blocks(x, N, lengths):
        h = torch.zeros_like(final[at]) if h0 is None else h0[at].clone()
        decay = torch.empty_like(h)
        for t in range(steps):
            if wanted and t % STRIDE == 0:
                kept[at][:, t // STRIDE] = h
            torch.mul(delta[at][:, t, :, None], A[at[0]], out=decay).exp_()
            h.mul_(decay).addcmul_(drive[at][:, t, :, None], B[at][:, t, None])
            y[at][:, t] = torch.bmm(h, C[at][:, t, :, None])[..., 0]
        final[at] = h
    return y, final, kept


def backward(
    grad_y: Tensor | None,
    grad_final: Tensor | None,
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    y: Tensor,
    final: Tensor,
    kept: Tensor,
    wanted: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of x, delta, A, B, C, h0. With g_t the gradient of h_t and a_t = exp(delta_t A),

    g_t = dy_t C_t + a_{t+1} g_{t+1},  d(a_t)[d, n] = g_t h_{t-1},  d(delta_t x_t)[d] = sum_n g_t B_t,
    dB_t = sum_d g_t delta_t x_t,  dC_t = sum_d dy_t h_t.
    """
    if kept.dim() == 2:  # nothing was kept
        return _compiled_backward(grad_y, grad_final, x, delta, A, B, C, h0, lengths)
    N = A.shape[-1]
    x, delta, B, C = inside_only((x, delta, B, C), lengths)
    if grad_y is not None:
        (grad_y,) = inside_only((grad_y,), lengths)
    drive = delta * x
    # d(delta x) first, and the part of d(delta) that comes through exp(delta A)
    dx, ddelta, dB, dC = (torch.zeros_like(one) for one in (x, x, B, B))
    dA = torch.zeros_like(A)
    dh0 = None if h0 is None else torch.empty_like(h0)
    for at, steps in blocks(x, N, lengths):
        rates = A[at[0]]
        g = torch.zeros_like(final[at]) if grad_final is None else grad_final[at].clone()
        dA_rows = torch.zeros_like(g)
        states, decays = g.new_empty(STRIDE + 1, *g.shape), g.new_empty(STRIDE, *g.shape)
        product = torch.empty_like(g)
        for start in range((steps - 1) // STRIDE * STRIDE, -1, -STRIDE):
            stop = min(start + STRIDE, steps)
            times = delta[at][:, start:stop].movedim(1, 0)[..., None]
            decay = torch.mul(times, rates, out=decays[: stop - start]).exp_()
            states[0] = kept[at][:, start // STRIDE]
            for i, t in enumerate(range(start, stop)):
                torch.mul(decay[i], states[i], out=states[i + 1])
                states[i + 1].addcmul_(drive[at][:, t, :, None], B[at][:, t, None])
            for t in range(stop - 1, start - 1, -1):
                i = t - start
                if grad_y is not None:
                    now = grad_y[at][:, t]
                    g.addcmul_(now[..., None], C[at][:, t, None])
                    dC[at][:, t] = torch.bmm(now[:, None], states[i + 1])[:, 0]
                dx[at][:, t] = torch.bmm(g, B[at][:, t, :, None])[..., 0]
                dB[at][:, t] = torch.bmm(drive[at][:, t, None], g)[:, 0]
                g = functional.hardshrink(g.mul_(decay[i]), least_kept(g.dtype))
                torch.mul(g, states[i], out=product)
                dA_rows.addcmul_(times[i], product)
                ddelta[at][:, t] = product.mul_(rates).sum(-1)
        dA[at[0]] += dA_rows.sum(0)
        if dh0 is not None:
            dh0[at] = g
    (ddelta,) = inside_only((ddelta.addcmul_(dx, x),), lengths)
    return dx.mul_(delta), ddelta, dA, dB, dC, dh0


def _compiled_forward(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    from sdssm.ops.selective import numba_kernels

    R, rows, L, D = x.shape
    y, final = torch.empty_like(x), x.new_empty(R, rows, D, A.shape[-1])
    compiled._share(
        numba_kernels.forward, R * rows, 4 * L * final.numel(),
        *_arrays(x, delta, A, B, C, h0, lengths), rows, least_kept(x.dtype),
        y.flatten(0, 1).numpy(), final.flatten(0, 1).numpy(),
    )  # fmt: skip
    return y, final


def _compiled_backward(
    grad_y: Tensor | None, grad_final: Tensor | None,
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, h0: Tensor | None, lengths: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    from sdssm.ops.selective import numba_kernels

    R, rows, L, D = x.shape
    dx, ddelta, dB, dC = (torch.empty_like(one) for one in (x, x, B, B))
    dA = x.new_empty(R, rows, D, A.shape[-1])
    dh0 = None if h0 is None else torch.empty_like(h0)
    empty = x.new_empty(0, 0, 0)
    given = (empty if one is None else one.flatten(0, 1) for one in (grad_y, grad_final))
    found = (empty if one is None else one.flatten(0, 1) for one in (dx, ddelta, dA, dB, dC, dh0))
    compiled._share(
        numba_kernels.backward, R * rows, 16 * L * dA.numel(),
        *(one.numpy() for one in given), *_arrays(x, delta, A, B, C, h0, lengths), rows, least_kept(x.dtype),
        *(one.numpy() for one in found),
    )  # fmt: skip
    return dx, ddelta, dA.sum(1), dB, dC, dh0


def _arrays(*given: Tensor | None) -> list[np.ndarray[Any, Any]]:
    """x, delta, A, B, C, h0 and lengths as the kernels read them: R and B are one dimension, h0 may be empty."""
    x, delta, A, B, C, h0, lengths = given
    assert x is not None and A is not None
    rows, L = x.shape[0] * x.shape[1], x.shape[2]
    whole = [one if one is None or one is A else one.flatten(0, 1) for one in (x, delta, A, B, C, h0)]
    return [
        *(compiled._array(one, x, (0, 0, 0)) for one in whole),
        compiled._lengths(None if lengths is None else lengths.flatten(), rows, L),
    ]
