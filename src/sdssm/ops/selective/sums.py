# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Sums across threads in the backward kernel of the selective scan.

The backward pass has four sums across threads at every step. With shuffles and barriers for each of them they would
cost more than the recurrence. So a step adds only what one thread holds (neighbours in n, and its channels), and the
partial sums of four steps are exchanged together: `tl.split` needs its last axis inside a thread, so `sum_last_axis`
moves them through shared memory once and adds in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: How many partial sums `sum_last_axis` adds in registers.
FOLD = tl.constexpr(8)


@triton.jit
def sum_neighbours(v, NEAR: tl.constexpr):
    """Sum v (DB, NP) over groups of NEAR neighbours, which one thread holds: (DB, NP / NEAR)."""
    return tl.sum(tl.reshape(v, (v.shape[0], v.shape[1] // NEAR, NEAR)), axis=2)


@triton.jit
def sum_channels(v, W: tl.constexpr):
    """Sum v (DB, NP) over every W-th channel, which one thread holds: (W, NP)."""
    return tl.sum(tl.reshape(v, (v.shape[0] // W, W, v.shape[1])), axis=0)


@triton.jit
def sum_last_axis(v, PARTS: tl.constexpr):
    """Sum v (I, J, M, K) over its last axis.

    The first halvings, of up to PARTS entries, are inside a thread.
    """
    if v.shape[3] == 1:
        return tl.reshape(v, (v.shape[0], v.shape[1], v.shape[2]))
    elif PARTS == 1:
        return tl.sum(v, axis=3)
    else:
        even, odd = tl.split(tl.reshape(v, (v.shape[0], v.shape[1], v.shape[2], v.shape[3] // 2, 2)))
        return sum_last_axis(even + odd, PARTS // 2)


@triton.jit
def stack_four(v0, v1, v2, v3):
    """Stack four tensors (I, J, M) along a new last axis: (I, J, M, 4)."""
    return tl.reshape(tl.join(tl.join(v0, v2), tl.join(v1, v3)), (v0.shape[0], v0.shape[1], v0.shape[2], 4))


@triton.jit
def stack_four_rows(v0, v1, v2, v3):
    """Stack four tensors (I, J) along a new last axis: (I, J, 1, 4).

    With `stack_four` they would need a third axis, for which the compiler moves each through shared memory.
    """
    return tl.reshape(tl.join(tl.join(v0, v2), tl.join(v1, v3)), (v0.shape[0], v0.shape[1], 1, 4))
