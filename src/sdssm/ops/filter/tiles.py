# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Tiles of rows and channels in the kernels of the causal filter, with entire vectors of channels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def channel_tile(C: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TC: tl.constexpr):
    """Return the channels of TC / DP vectors, each padded from D to DP, and the mask of existing ones."""
    j = tl.arange(0, TC)
    c = tl.program_id(1) * TC + j
    if D == DP:
        c_mask = c < C
    else:
        c = (tl.program_id(1) * (TC // DP) + j // DP) * D + j % DP
        c_mask = (c < C) & (j % DP < D)
    return c, c_mask


@triton.jit
def vector_sums(y, TR: tl.constexpr, TC: tl.constexpr, DP: tl.constexpr):
    """Return the sum over each vector, broadcast to all of its channels, (TR, TC)."""
    sums = tl.sum(tl.reshape(y, (TR, TC // DP, DP)), axis=2)
    return tl.reshape(tl.broadcast_to(sums[:, :, None], (TR, TC // DP, DP)), (TR, TC))
