# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Kernels of shift systems on NVIDIA GPUs: a program computes the taps of one channel, or their gradient.

Constants of the kernels: L taps padded to LP, N states padded to NP.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.padding import next_power_of_two

WARPS = 2


@triton.jit
def shift_forward_kernel(B, C, taps, L: tl.constexpr, LP: tl.constexpr, N: tl.constexpr, NP: tl.constexpr):
    """Fill taps (R, D, L)."""
    row = tl.program_id(0).to(tl.int64)
    l = tl.arange(0, LP)  # noqa: E741  # delays
    i = tl.arange(0, NP)
    later = l[:, None] + i[None, :]
    b = tl.load(B + row * N + i, mask=i < N, other=0.0)
    c = tl.load(C + row * N + later, mask=later < N, other=0.0)
    tl.store(taps + row * L + l, tl.sum(c * b[None, :], axis=1), mask=l < L)


@triton.jit
def shift_backward_kernel(grad, B, C, dB, dC, L: tl.constexpr, LP: tl.constexpr, N: tl.constexpr, NP: tl.constexpr):
    """Fill the gradients of B and C."""
    row = tl.program_id(0).to(tl.int64)
    l = tl.arange(0, LP)  # noqa: E741  # delays
    i = tl.arange(0, NP)
    g = tl.load(grad + row * L + l, mask=l < L, other=0.0)
    later = l[:, None] + i[None, :]
    c = tl.load(C + row * N + later, mask=later < N, other=0.0)
    tl.store(dB + row * N + i, tl.sum(c * g[:, None], axis=0), mask=i < N)
    earlier = i[None, :] - l[:, None]
    b = tl.load(B + row * N + earlier, mask=(earlier >= 0) & (earlier < N), other=0.0)
    tl.store(dC + row * N + i, tl.sum(b * g[:, None], axis=0), mask=i < N)


def kernel_constants(length: int, N: int) -> dict[str, Any]:
    """Return the compile-time constants of the kernels."""
    return {"L": length, "LP": next_power_of_two(length), "N": N, "NP": next_power_of_two(N), "num_warps": WARPS}


def forward(B: Tensor, C: Tensor, length: int) -> tuple[Tensor]:
    """Return taps (R, D, L) for B and C (R, D, N)."""
    R, D, N = B.shape
    taps = B.new_empty(R, D, length)
    if taps.numel():
        shift_forward_kernel[(R * D,)](B, C, taps, **kernel_constants(length, N))
    return (taps,)


def backward(grad: Tensor, B: Tensor, C: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of B and C."""
    R, D, N = B.shape
    if not grad.numel():
        return torch.zeros_like(B), torch.zeros_like(C)
    dB, dC = torch.empty_like(B), torch.empty_like(C)
    shift_backward_kernel[(R * D,)](grad, B, C, dB, dC, **kernel_constants(length, N))
    return dB, dC
