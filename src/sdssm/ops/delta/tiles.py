# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The part of the matrices that a program of the delta rule's kernels holds."""

from __future__ import annotations

import triton
import triton.language as tl

#: Arguments whose values must not lead to a new compilation.
ANY_LENGTH = ["L", "SHIFT", "C"]


@triton.jit
def head_tile(H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, KP: tl.constexpr, VB: tl.constexpr):
    """Return which part of S this program holds.

    Returns the index of the (row, head) pair, row, head, rows i and columns j of S, their masks (VB,), (KP,) and
    (VB, KP), and the offsets of S (VB, KP).
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // H
    head = program % H
    i = tl.program_id(1) * VB + tl.arange(0, VB)
    j = tl.arange(0, KP)
    v_mask = i < DV
    k_mask = j < DK
    mask = v_mask[:, None] & k_mask[None, :]
    offsets = i[:, None] * DK + j[None, :]
    return program, row, head, i, j, v_mask, k_mask, mask, offsets
