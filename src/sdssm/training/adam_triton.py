# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""`adam_step` on a GPU in two launches: sums of squares of blocks of the gradients, then the update.

Every program of the second kernel adds up the block sums of its replica in the same order and so gets the same norm,
without synchronization. Nothing is read on the host: a step can be captured in a graph and is bit-reproducible.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit(do_not_specialize=["P"])
def squares_kernel(gradient, parts, P, BLOCK: tl.constexpr):
    """Store the sum of squares of each block of a gradient in parts (R, blocks)."""
    replica, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n = block * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gradient + replica * P + n, mask=n < P, other=0.0)
    tl.store(parts + replica * tl.num_programs(1) + block, tl.sum(g * g))


@triton.jit(do_not_specialize=["P", "S_lr", "S_decay", "S_bias1", "S_bias2", "S_loss"])
def update_kernel(
    parameters, gradient, first, second, parts, lr, weight_decay, bias1, bias2, alive, loss, norm,
    P, S_lr, S_decay, S_bias1, S_bias2, S_loss, beta1, rest1, beta2, rest2, eps, clip,
    CLIP: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Update the moments with the clipped gradient, then parameters -= rate first / (sqrt(second) + eps).

    The first program of a replica also writes its norm and clears `alive`. The other programs may read `alive` before
    or after that: each of them also checks the norm and the loss itself.
    """
    replica, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    blocks = tl.num_programs(1)
    part = tl.arange(0, PARTS)
    total = tl.sum(tl.load(parts + replica * blocks + part, mask=part < blocks, other=0.0))
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
        n = block * BLOCK + tl.arange(0, BLOCK)
        in_range = n < P
        offset = replica * P + n
        p = tl.load(parameters + offset, mask=in_range)
        g = tl.load(gradient + offset, mask=in_range)
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


def adam_step(
    parameters: Tensor,
    gradient: Tensor,
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
) -> Tensor:
    """Compute `adam.adam_step` on a GPU.

    Parameters, moments and `alive` must be contiguous; lr and the other rows may have any stride.
    """
    assert all(tensor.is_contiguous() for tensor in (parameters, first, second, alive))
    gradient = gradient.contiguous()
    R, P = parameters.shape
    blocks = triton.cdiv(P, BLOCK)
    parts = gradient.new_empty(R, blocks)
    norm = gradient.new_empty(R)
    squares_kernel[(R, blocks)](gradient, parts, P, BLOCK=BLOCK, num_warps=4)
    update_kernel[(R, blocks)](
        parameters, gradient, first, second, parts,
        lr, weight_decay, bias1, bias2, alive.view(torch.uint8), loss, norm,
        P, *(setting.stride(0) for setting in (lr, weight_decay, bias1, bias2, loss)),
        # 1 - beta in double precision: computed from a rounded beta of 0.999 it would lose three digits.
        betas[0], 1 - betas[0], betas[1], 1 - betas[1], eps, 0.0 if clip is None else clip,
        CLIP=clip is not None, PARTS=triton.next_power_of_2(blocks), BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return norm
