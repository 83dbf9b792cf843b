# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Dropout on NVIDIA GPUs: the same kernel for values and gradients."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.residual.triton import drop

#: Entries of a program.
BLOCK = 512


@triton.jit(do_not_specialize=["count"])
def dropout_kernel(x, noise, y, count, RATE: tl.constexpr, BLOCK: tl.constexpr):
    """Fill y with x after dropout, `count` entries each."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.load(noise + at, mask=at < count, other=0.0)
    tl.store(y + at, drop(tl.load(x + at, mask=at < count, other=0.0), numbers, RATE), mask=at < count)


def forward(x: Tensor, noise: Tensor, rate: float) -> tuple[Tensor]:
    """Return y (R, M) for x and noise (R, M)."""
    y = torch.empty_like(x)
    if y.numel():
        dropout_kernel[(triton.cdiv(y.numel(), BLOCK),)](x, noise, y, y.numel(), RATE=rate, BLOCK=BLOCK, num_warps=4)
    return (y,)


def backward(grad: Tensor, x: Tensor, noise: Tensor, rate: float) -> tuple[Tensor]:
    """Return the gradient of x."""
    return forward(grad, noise, rate)
