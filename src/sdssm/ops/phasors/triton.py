# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Complex numbers of a given absolute value on NVIDIA GPUs: one kernel forward and one backward.

A thread has one complex number. The gradient computes 1 / |w| again, so that nothing else is stored.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Complex numbers of a program.
BLOCK = 256


@triton.jit
def load_phasors(raw, row, n, inside, N: tl.constexpr):
    """Return w / |w| and 1 / |w|; (1, 0) and 0 for zeros. No square overflows: the larger part is divided by first."""
    real = tl.load(raw + row * 2 * N + n, mask=inside, other=0.0)
    imaginary = tl.load(raw + row * 2 * N + N + n, mask=inside, other=0.0)
    largest = tl.maximum(tl.abs(real), tl.abs(imaginary), propagate_nan=tl.PropagateNan.ALL)
    zero = largest == 0.0
    divisor = tl.where(zero, 1.0, largest)
    real, imaginary = real / divisor, imaginary / divisor
    size = tl.sqrt(tl.where(zero, 1.0, real * real + imaginary * imaginary))
    inverse = tl.where(zero, 0.0, 1.0 / size / divisor)
    return tl.where(zero, 1.0, real / size), imaginary / size, inverse


@triton.jit(do_not_specialize=["count"])
def phasors_forward_kernel(raw, a, count, N: tl.constexpr, RADIUS: tl.constexpr, BLOCK: tl.constexpr):
    """Fill a (rows, N, 2) from raw (rows, 2 N)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    real, imaginary, _ = load_phasors(raw, at // N, at % N, inside, N)
    tl.store(a + 2 * at, real * RADIUS, mask=inside)
    tl.store(a + 2 * at + 1, imaginary * RADIUS, mask=inside)


@triton.jit(do_not_specialize=["count"])
def phasors_backward_kernel(grad, raw, draw, count, N: tl.constexpr, RADIUS: tl.constexpr, BLOCK: tl.constexpr):
    """Fill draw (rows, 2 N): the part of grad (rows, N, 2) along the circle, over |w|."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    row = at // N
    n = at % N
    real, imaginary, inverse = load_phasors(raw, row, n, inside, N)
    dreal = tl.load(grad + 2 * at, mask=inside, other=0.0)
    dimaginary = tl.load(grad + 2 * at + 1, mask=inside, other=0.0)
    along = (dimaginary * real - dreal * imaginary) * inverse * RADIUS
    tl.store(draw + row * 2 * N + n, -along * imaginary, mask=inside)
    tl.store(draw + row * 2 * N + N + n, along * real, mask=inside)


def forward(raw: Tensor, radius: float) -> tuple[Tensor]:
    """Return a (R, M, N, 2) for raw (R, M, 2 N)."""
    *lead, double = raw.shape
    a = raw.new_empty(*lead, double // 2, 2)
    count = raw.numel() // 2
    if count:
        phasors_forward_kernel[(triton.cdiv(count, BLOCK),)](
            raw, a, count, N=double // 2, RADIUS=radius, BLOCK=BLOCK, num_warps=4
        )
    return (a,)


def backward(grad: Tensor, raw: Tensor, a: Tensor, radius: float) -> tuple[Tensor]:
    """Return the gradient of raw."""
    draw, count = torch.empty_like(raw), raw.numel() // 2
    if count:
        phasors_backward_kernel[(triton.cdiv(count, BLOCK),)](
            grad, raw, draw, count, N=raw.shape[-1] // 2, RADIUS=radius, BLOCK=BLOCK, num_warps=4
        )
    return (draw,)
