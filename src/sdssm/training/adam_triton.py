# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""`adam_step` on a GPU in two launches: sums of squares of blocks of the gradients, then the update.

The gradients of the parameters are read where they are, and not joined first, unless there are many. Every program of
the second kernel adds up the block sums of its replica in the same order and so gets the same norm, without
synchronization. Nothing is read on the host: a step can be captured in a graph and is bit-reproducible.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.training.adam import MOST_PARTS, join_parts

BLOCK = 1024


@triton.jit
def place_of(block, SIZES: tl.constexpr, BLOCKS: tl.constexpr, STARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the part of a block of a row, and the start, the size and the offset in it.

    SIZES are the entries of each part in a row, BLOCKS the number of its first block, STARTS that of its first entry.
    """
    part = 0
    first = 0
    start = 0
    size = SIZES[0]
    for i in tl.static_range(1, len(SIZES)):
        is_later = block >= BLOCKS[i]
        part = tl.where(is_later, i, part)
        first = tl.where(is_later, BLOCKS[i], first)
        start = tl.where(is_later, STARTS[i], start)
        size = tl.where(is_later, SIZES[i], size)
    return part, start, size, (block - first) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def load_gradient(gradients, replica, part, start, size, place, P, BLOCK: tl.constexpr):
    """Load the entries `place` of a part of the gradient of a replica, 0 past its end.

    `gradients` has one for each part, or a single one with the rows (R, P) of all parts.
    """
    g = tl.zeros((BLOCK,), tl.float32)
    if len(gradients) == 1:
        g = tl.load(gradients[0] + replica * P + start + place, mask=place < size, other=0.0)
    else:
        for i in tl.static_range(len(gradients)):
            if part == i:
                g = tl.load(gradients[i] + replica * size + place, mask=place < size, other=0.0)
    return g


@triton.jit(do_not_specialize=["P"])
def squares_kernel(
    gradients, sums, P, SIZES: tl.constexpr, BLOCKS: tl.constexpr, STARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Store the sum of squares of each block of a gradient in sums (R, blocks)."""
    replica, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    part, start, size, place = place_of(block, SIZES, BLOCKS, STARTS, BLOCK)
    g = load_gradient(gradients, replica, part, start, size, place, P, BLOCK)
    tl.store(sums + replica * tl.num_programs(1) + block, tl.sum(g * g))


@triton.jit(do_not_specialize=["P", "S_lr", "S_decay", "S_bias1", "S_bias2", "S_loss"])
def update_kernel(
    parameters, gradients, first, second, packed, sums, lr, weight_decay, bias1, bias2, alive, loss, norm,
    P, S_lr, S_decay, S_bias1, S_bias2, S_loss, beta1, rest1, beta2, rest2, eps, clip,
    SIZES: tl.constexpr, BLOCKS: tl.constexpr, STARTS: tl.constexpr, CLIP: tl.constexpr, SUMS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Update the moments with the clipped gradient, then parameters -= rate first / (sqrt(second) + eps).

    The first program of a replica also writes its norm and clears `alive`. The other programs may read `alive` before
    or after that: each of them also checks the norm and the loss itself.
    """
    replica, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    blocks = tl.num_programs(1)
    k = tl.arange(0, SUMS)
    total = tl.sum(tl.load(sums + replica * blocks + k, mask=k < blocks, other=0.0))
    grad_norm = tl.sqrt(total)
    value = tl.load(loss + replica * S_loss)
    is_alive = (
        (tl.load(alive + replica) != 0) & (grad_norm - grad_norm == 0) & (value - value == 0)
    )  # neither NaN nor infinite
    if block == 0:
        tl.store(norm + replica, grad_norm)
        tl.store(alive + replica, is_alive.to(tl.uint8))
    if is_alive:
        root = tl.sqrt(tl.load(bias2 + replica * S_bias2))
        rate = tl.load(lr + replica * S_lr) * root / tl.load(bias1 + replica * S_bias1)
        part, start, size, place = place_of(block, SIZES, BLOCKS, STARTS, BLOCK)
        in_range = place < size
        offset = replica * P + start + place
        p = tl.load(parameters + offset, mask=in_range)
        g = load_gradient(gradients, replica, part, start, size, place, P, BLOCK)
        m = tl.load(first + offset, mask=in_range)
        v = tl.load(second + offset, mask=in_range)
        if CLIP:
            g = g * tl.minimum(clip / (grad_norm + 1e-6), 1.0)
        g = g + tl.load(weight_decay + replica * S_decay) * p
        m = m * beta1 + g * rest1
        v = v * beta2 + g * g * rest2
        p = p - rate * (m / (tl.sqrt(v) + eps * root))
        tl.store(first + offset, m, mask=in_range)
        tl.store(second + offset, v, mask=in_range)
        tl.store(parameters + offset, p, mask=in_range)
        if packed is not None:
            tl.store(packed + tl.num_programs(0).to(tl.int64) * start + replica * size + place, p, mask=in_range)


def adam_step(
    parameters: Tensor,
    gradients: Sequence[Tensor],
    first: Tensor,
    second: Tensor,
    lr: Tensor,
    weight_decay: Tensor,
    bias1: Tensor,
    bias2: Tensor,
    betas: tuple[float, float],
    eps: float,
    clip: float | None,
    alive: Tensor,
    loss: Tensor,
    packed: Tensor | None = None,
) -> Tensor:
    """Compute `adam.adam_step` on a GPU.

    Parameters, moments and `alive` must be contiguous; lr and the other rows may have any stride.
    """
    assert all(tensor.is_contiguous() for tensor in (parameters, first, second, alive))
    R, P = parameters.shape
    is_joined = len(gradients) > MOST_PARTS or any(part.dtype != torch.float32 for part in gradients)
    # Without a packed copy, blocks of a joined gradient need not end where a parameter does.
    sizes = (P,) if is_joined and packed is None else tuple(part.numel() // R for part in gradients)
    parts = (join_parts(gradients),) if is_joined else tuple(part.contiguous() for part in gradients)
    counts = [triton.cdiv(size, BLOCK) for size in sizes]
    blocks = sum(counts)
    layout = {
        "SIZES": sizes,
        "BLOCKS": tuple(accumulate(counts[:-1], initial=0)),
        "STARTS": tuple(accumulate(sizes[:-1], initial=0)),
    }
    sums = parameters.new_empty(R, blocks)
    norm = parameters.new_empty(R)
    squares_kernel[(R, blocks)](parts, sums, P, **layout, BLOCK=BLOCK, num_warps=4)
    update_kernel[(R, blocks)](
        parameters, parts, first, second, packed, sums,
        lr, weight_decay, bias1, bias2, alive.view(torch.uint8), loss, norm,
        P, *(setting.stride(0) for setting in (lr, weight_decay, bias1, bias2, loss)),
        # 1 - beta in double precision: computed from a rounded beta of 0.999 it would lose three digits.
        betas[0], 1 - betas[0], betas[1], 1 - betas[1], eps, 0.0 if clip is None else clip,
        **layout, CLIP=clip is not None, SUMS=triton.next_power_of_2(blocks), BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return norm
