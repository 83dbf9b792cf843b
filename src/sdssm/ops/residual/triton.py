# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Residual connection, dropout and LayerNorm on NVIDIA GPUs: one kernel forward, one and a sum backward.

The same kernels compute LayerNorm alone, see `ops/layer_norm`.

A program takes a tile of whole vectors. The backward pass computes mean and variance again, which is cheaper than to
store them; for vectors in registers they cost no memory traffic. The gradients of gain and shift are sums over all
vectors: each program stores a partial sum, and the partial sums are added in an order that does not depend on the
number of replicas.

Constants of the kernels: D entries of a vector padded to DP, TR vectors of a tile, TILES tiles of a program, ACC the
dtype of sums.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.partial_sums import new_parts
from sdssm.ops.padding import next_power_of_two

#: Entries of a tile, and the most tiles of a program of the backward pass, which share a partial sum.
ENTRIES, TILES = 512, 8
#: With fewer programs of each replica than this, a program has fewer tiles.
PROGRAMS = 64
#: Arguments whose values must not lead to a new compilation.
ANY_SIZE = ["B", "L", "J", "slot"]


@triton.jit
def load_noise(noise, replica, row, mask, d, B, L, J, slot, D: tl.constexpr):
    """Load the noise of rows (b, t), (TR, DP)."""
    place = ((((replica * L + row % L) * J + slot) * B + row // L) * D)[:, None] + d[None, :]
    return tl.load(noise + place, mask=mask, other=0.0)


@triton.jit
def drop(x, numbers, RATE: tl.constexpr):
    """Return x after dropout with these numbers."""
    return tl.where(numbers >= RATE, x * (1.0 / (1.0 - RATE)), 0.0)


@triton.jit
def normalise(z, d, D: tl.constexpr, EPS: tl.constexpr):
    """Return the normalised vectors (TR, DP), and their factors 1 / sqrt(variance + epsilon) (TR, 1)."""
    centred = tl.where((d < D)[None, :], z - (tl.sum(z, axis=1) / D)[:, None], 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / D + EPS)
    return centred * inverse[:, None], inverse[:, None]


@triton.jit(do_not_specialize=ANY_SIZE)
def residual_forward_kernel(
    h, x, gain, shift, noise, y, total, B, L, J, slot,
    D: tl.constexpr, DP: tl.constexpr, TR: tl.constexpr,
    RATE: tl.constexpr, EPS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill y and total, both (R, B, L, D); without x nothing is added, and `total` is h."""
    replica = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * TR + tl.arange(0, TR)
    d = tl.arange(0, DP)
    mask = (row < B * L)[:, None] & (d < D)[None, :]
    place = (replica * B * L + row)[:, None] * D + d[None, :]
    numbers = load_noise(noise, replica, row, mask, d, B, L, J, slot, D) if noise is not None else None
    z = tl.load(h + place, mask=mask, other=0.0).to(ACC)
    if x is not None:
        added = tl.load(x + place, mask=mask, other=0.0).to(ACC)
        z += drop(added, numbers, RATE) if noise is not None else added
        tl.store(total + place, z, mask=mask)
    normal, _ = normalise(z, d, D, EPS)
    if gain is not None:
        normal = normal * tl.load(gain + replica * D + d, mask=d < D, other=0.0)[None, :]
    if shift is not None:
        normal = normal + tl.load(shift + replica * D + d, mask=d < D, other=0.0)[None, :]
    tl.store(y + place, normal, mask=mask)


@triton.jit(do_not_specialize=ANY_SIZE)
def residual_backward_kernel(
    grad, grad_total, total, gain, noise, dh, dx, dgains, dshifts, B, L, J, slot,
    D: tl.constexpr, DP: tl.constexpr, TR: tl.constexpr, TILES: tl.constexpr, ROW: tl.constexpr,
    RATE: tl.constexpr, EPS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Fill dh and dx (R, B, L, D), and if they are given the partial sums for gain and shift.

    With n the normalised vector and g = grad gain, dz = (g - mean(g) - n mean(n g)) / sqrt(variance + epsilon).
    """
    replica = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, DP)
    weight = tl.full((1, DP), 1.0, ACC)
    if gain is not None:
        weight = tl.load(gain + replica * D + d, mask=d < D, other=0.0)[None, :]
    dgain = tl.zeros((TR, DP), ACC)  # summed over rows after the loop: sums across threads take longer
    dshift = tl.zeros((TR, DP), ACC)
    for tile in range(TILES):
        row = (tl.program_id(0) * TILES + tile) * TR + tl.arange(0, TR)
        mask = (row < B * L)[:, None] & (d < D)[None, :]
        place = (replica * B * L + row)[:, None] * D + d[None, :]
        numbers = load_noise(noise, replica, row, mask, d, B, L, J, slot, D) if noise is not None else None
        dz = tl.zeros((TR, DP), ACC)
        if grad_total is not None:
            dz += tl.load(grad_total + place, mask=mask, other=0.0)
        if grad is not None:
            z = tl.load(total + place, mask=mask, other=0.0).to(ACC)
            dy = tl.load(grad + place, mask=mask, other=0.0).to(ACC)
            normal, inverse = normalise(z, d, D, EPS)
            dgain += dy * normal
            dshift += dy
            g = dy * weight
            means = (tl.sum(g, axis=1) / D)[:, None] + normal * (tl.sum(g * normal, axis=1) / D)[:, None]
            dz += (g - means) * inverse
        tl.store(dh + place, dz, mask=mask)
        if noise is not None:
            tl.store(dx + place, drop(dz, numbers, RATE), mask=mask)
    place = (tl.program_id(0) * tl.num_programs(1) + replica) * ROW + d
    if dgains is not None:
        tl.store(dgains + place, tl.sum(dgain, axis=0), mask=d < D)
    if dshifts is not None:
        tl.store(dshifts + place, tl.sum(dshift, axis=0), mask=d < D)


def kernel_constants(h: Tensor, rate: float, epsilon: float) -> dict[str, Any]:
    """Return the constants of the kernels."""
    DP = next_power_of_two(h.shape[-1])
    ACC = tl.float64 if h.dtype == torch.float64 else tl.float32
    return {
        "D": h.shape[-1],
        "DP": DP,
        "TR": max(1, ENTRIES // DP),
        "RATE": rate,
        "EPS": epsilon,
        "ACC": ACC,
        "num_warps": 4,
    }


def run_forward(
    h: Tensor, x: Tensor | None, gain: Tensor | None, shift: Tensor | None, noise: Tensor | None,
    slot: int, rate: float, epsilon: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return y and z = h + dropout(x), (R, B, L, D); without x z is h."""
    R, B, L, _ = h.shape
    y, total = torch.empty_like(h), h if x is None else torch.empty_like(h)
    if y.numel():
        constants = kernel_constants(h, rate, epsilon)
        uses = 1 if noise is None else noise.shape[2]
        residual_forward_kernel[(triton.cdiv(B * L, constants["TR"]), R)](
            h, x, gain, shift, noise, y, total, B, L, uses, slot, **constants
        )
    return y, total


def run_backward(
    grad: Tensor | None, grad_total: Tensor | None, total: Tensor, gain: Tensor | None, shift: Tensor | None,
    noise: Tensor | None, slot: int, rate: float, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of h, x, gain and shift; those of h and x are one tensor without dropout."""
    R, B, L, D = total.shape
    dh = torch.empty_like(total)
    dx = dh if noise is None else torch.empty_like(total)
    if not total.numel():
        zeros = [None if vector is None else torch.zeros_like(vector) for vector in (gain, shift)]
        return dh, dx, zeros[0], zeros[1]
    constants = kernel_constants(total, rate, epsilon)
    tiles = triton.cdiv(B * L, constants["TR"])
    tiles_of_a_program = min(TILES, next_power_of_two(triton.cdiv(tiles, PROGRAMS)))
    programs = triton.cdiv(tiles, tiles_of_a_program)
    parts = None if gain is None and shift is None else new_parts(total, programs, R, D, D)
    uses = 1 if noise is None else noise.shape[2]
    residual_backward_kernel[(programs, R)](
        grad, grad_total, total, gain, noise, dh, dx,
        None if parts is None else parts.heads, None if parts is None else parts.rests, B, L, uses, slot,
        TILES=tiles_of_a_program, ROW=D if parts is None else parts.head_row, **constants,
    )  # fmt: skip
    if parts is None:
        return dh, dx, None, None
    dgain, dshift = parts.sums()
    return dh, dx, None if gain is None else dgain, None if shift is None else dshift


def forward(
    h: Tensor, x: Tensor, gain: Tensor, shift: Tensor, noise: Tensor | None, slot: int, rate: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return y and z (R, B, L, D) for h and x (R, B, L, D), gain and shift (R, D), noise (R, L, J, B, D)."""
    return run_forward(h, x, gain, shift, noise, slot, rate, epsilon)


def backward(
    grad: Tensor | None, grad_total: Tensor | None,
    h: Tensor, x: Tensor, gain: Tensor, shift: Tensor, noise: Tensor | None, total: Tensor,
    slot: int, rate: float, epsilon: float,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of h, x, gain and shift."""
    return run_backward(grad, grad_total, total, gain, shift, noise, slot, rate, epsilon)
