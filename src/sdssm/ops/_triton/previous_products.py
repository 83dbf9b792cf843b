# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The gradient of the matrices of a scan, dz_t x_{t-1}^H for each block, in one kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.padding import next_power_of_two

#: Entries of a tile.
ENTRIES = 1024


@triton.jit(do_not_specialize=["positions", "L"])
def previous_products_kernel(
    adjoints, states, x0, dA, positions, L,
    N: tl.constexpr, S: tl.constexpr, TP: tl.constexpr, TE: tl.constexpr, COMPLEX: tl.constexpr,
):  # fmt: skip
    """Fill dA (positions, N, S) from adjoints and states (positions, N), and x0 (rows, N), None for zeros.

    A row has L positions, and entry n of a state is in block n // S. A tile has TP positions and TE entries
    of their N S. With COMPLEX all numbers are pairs, and S is 1.
    """
    position = tl.program_id(0) * TP + tl.arange(0, TP)
    entry = tl.program_id(1) * TE + tl.arange(0, TE)
    mask = (position < positions)[:, None] & (entry < N * S)[None, :]
    n = (entry // (S * S) * S + entry % S)[None, :]  # of the state before
    later = mask & (position % L > 0)[:, None]
    first = mask & (position % L == 0)[:, None]
    place = position.to(tl.int64)[:, None]
    after = place * N + (entry // S)[None, :]
    if COMPLEX:
        before = ((place - 1) * N + n) * 2
        real = tl.load(states + before, mask=later, other=0.0)
        imaginary = tl.load(states + before + 1, mask=later, other=0.0)
        if x0 is not None:
            start = (place // L * N + n) * 2
            real = tl.where(first, tl.load(x0 + start, mask=first, other=0.0), real)
            imaginary = tl.where(first, tl.load(x0 + start + 1, mask=first, other=0.0), imaginary)
        dreal = tl.load(adjoints + after * 2, mask=mask, other=0.0)
        dimaginary = tl.load(adjoints + after * 2 + 1, mask=mask, other=0.0)
        tl.store(dA + after * 2, dreal * real + dimaginary * imaginary, mask=mask)
        tl.store(dA + after * 2 + 1, dimaginary * real - dreal * imaginary, mask=mask)
    else:
        x = tl.load(states + (place - 1) * N + n, mask=later, other=0.0)
        if x0 is not None:
            x = tl.where(first, tl.load(x0 + place // L * N + n, mask=first, other=0.0), x)
        tl.store(dA + place * (N * S) + entry[None, :], tl.load(adjoints + after, mask=mask, other=0.0) * x, mask=mask)


def matrix_gradient(adjoints: Tensor, states: Tensor, x0: Tensor | None, A: Tensor) -> Tensor:
    """Return dA in shape and dtype of A: (B, L, N) real or complex, or (B, L, H, S, S).

    adjoints: dz as real numbers, (B, L, N), or (B, L, 2 N) for a complex A. states and x0 have the dtype of A.
    """
    dA = torch.empty_like(A)
    real = (torch.view_as_real(part) if part is not None and part.is_complex() else part for part in (states, x0, dA))
    real_states, real_x0, real_dA = real
    rows, L, N = states.shape
    S = 1 if A.dim() == 3 else A.shape[-1]
    TE = min(ENTRIES, next_power_of_two(N * S))
    if A.numel():
        previous_products_kernel[(triton.cdiv(rows * L, ENTRIES // TE), triton.cdiv(N * S, TE))](
            adjoints, real_states, real_x0, real_dA, rows * L, L,
            N=N, S=S, TP=ENTRIES // TE, TE=TE, COMPLEX=A.is_complex(), num_warps=4,
        )  # fmt: skip
    return dA
