# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Readout and loss on NVIDIA GPUs: one kernel for the loss and, for a gradient of 1 at the loss, all gradients.

A program takes TB strings and goes through the classes CT at a time. Sums over all strings (of losses, and of the
gradients of parameters) are finished by a second kernel each, in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.autograd import absent
from sdssm.ops.padding import power_of_two
from sdssm.ops.readout.reference import EPSILON

#: Entries of a tile of classes: the rows of `weight` that a program holds at a time, float32.
CLASS_ENTRIES = 4096
#: float32 as three tensor-core products of its parts, which keeps float32's exactness; TF32 alone would not.
PRECISION = "tf32x3"


@triton.jit
def class_tile(
    weight, bias, replica, h, first,
    N: tl.constexpr, C: tl.constexpr, NP: tl.constexpr, CT: tl.constexpr, COSINE: tl.constexpr, ACC: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Classes first ..: their numbers, rows (CT, NP), of length 1 with COSINE, 1 / length, products h rows^T + bias."""
    n = tl.arange(0, NP)
    c = first + tl.arange(0, CT)
    inside = (c < C)[:, None] & (n < N)[None, :]
    rows = tl.load(weight + (replica * C + c[:, None]) * N + n[None, :], mask=inside, other=0.0)
    inverse = tl.full((CT,), 1.0, ACC)
    if COSINE:
        square = tl.sum(rows * rows, axis=1)
        inverse = tl.where(square > 0.0, 1.0 / tl.sqrt(tl.where(square > 0.0, square, 1.0)), 0.0)
        rows = rows * inverse[:, None]
    products = tl.dot(h, tl.trans(rows), input_precision=PRECISION, out_dtype=ACC)
    if bias is not None:
        products += tl.load(bias + replica * C + c, mask=c < C, other=0.0)[None, :]
    return c, rows, inverse, products


@triton.jit(do_not_specialize=["B"])
def forward_kernel(
    x, weight, bias, gain, shift, labels, scale, attraction, losses, pulls, hits, dx, parts, B,
    N: tl.constexpr, C: tl.constexpr, NP: tl.constexpr, CT: tl.constexpr, TB: tl.constexpr, ROW: tl.constexpr,
    EPS: tl.constexpr, NORM: tl.constexpr, COSINE: tl.constexpr, WANTED: tl.constexpr, ACC: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """losses, pulls, hits (R, tiles); with WANTED dx (R, B, N), parts (R, tiles, ROW): weight, bias, gain, shift."""
    tile = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    string = tile * TB + tl.arange(0, TB)
    n = tl.arange(0, NP)
    here = string < B
    mask = here[:, None] & (n < N)[None, :]
    place = (replica * B + string)[:, None] * N + n[None, :]

    normed = tl.load(x + place, mask=mask, other=0.0)
    rstd = tl.full((TB,), 1.0, ACC)
    if NORM:
        mean = tl.sum(normed, axis=1) / N
        normed = tl.where((n < N)[None, :], normed - mean[:, None], 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(normed * normed, axis=1) / N + EPS)
        normed = normed * rstd[:, None]
    h = normed
    if gain is not None:
        factor = tl.load(gain + replica * N + n, mask=n < N, other=0.0)
        h = h * factor[None, :]
    if shift is not None:
        h = h + tl.load(shift + replica * N + n, mask=n < N, other=0.0)[None, :]
    z = h
    h_inverse = tl.full((TB,), 1.0, ACC)
    if COSINE:
        square = tl.sum(h * h, axis=1)
        h_inverse = tl.where(square > 0.0, 1.0 / tl.sqrt(tl.where(square > 0.0, square, 1.0)), 0.0)
        h = h * h_inverse[:, None]

    s = tl.full((), 1.0, ACC)
    if scale is not None:
        s = tl.load(scale + replica)
    label = tl.load(labels + replica * B + string, mask=here, other=-1).to(tl.int32)

    if C <= CT:  # one tile has all classes, and serves both passes
        c, rows, inverse, products = class_tile(weight, bias, replica, h, 0, N, C, NP, CT, COSINE, ACC, PRECISION)
    top = tl.full((TB,), float("-inf"), ACC)
    total = tl.zeros((TB,), ACC)
    own = tl.zeros((TB,), ACC)
    other = tl.full((TB,), float("-inf"), ACC)
    guess = tl.full((TB,), -1, tl.int32)
    for first in range(0, C, CT):
        if C > CT:
            c, rows, inverse, products = class_tile(
                weight, bias, replica, h, first, N, C, NP, CT, COSINE, ACC, PRECISION
            )
        logits = tl.where((c < C)[None, :], products * s, float("-inf"))
        most = tl.max(logits, axis=1)
        guess = tl.where(most > top, first + tl.argmax(logits, axis=1).to(tl.int32), guess)
        new = tl.maximum(top, most)
        total = total * tl.exp(top - new) + tl.sum(tl.exp(logits - new[:, None]), axis=1)
        top = new
        is_label = c[None, :] == label[:, None]
        own += tl.sum(tl.where(is_label, products, 0.0), axis=1)
        if attraction is not None:
            rivals = tl.where(is_label | (c >= C)[None, :], float("-inf"), products)
            other = tl.maximum(other, tl.max(rivals, axis=1))
    # The largest logit is subtracted first, from each logit: `top + log(total)` would round loss and gradient to the
    # precision of `top`, and near a loss of zero hardly a digit of either would be left.
    log_total = tl.log(total)
    loss = log_total - (own * s - top)
    at = replica * tl.num_programs(0) + tile
    if attraction is not None:
        weight_label = weight + (replica * C + label)[:, None] * N + n[None, :]
        apart = z - tl.load(weight_label, mask=mask, other=0.0)
        gate = tl.where(here, tl.minimum(tl.maximum(own - other, 0.0), 1.0), 0.0)
        pulled = gate * tl.sum(apart * apart, axis=1)
        tl.store(pulls + at, tl.sum(pulled, axis=0) / B)
        strength = tl.load(attraction + replica)
        loss += strength * pulled
        apart = apart * (gate * (2.0 * strength / B))[:, None]  # its gradient
    tl.store(losses + at, tl.sum(tl.where(here, loss, 0.0), axis=0) / B)
    tl.store(hits + at, tl.sum((here & (guess == label)).to(tl.int32), axis=0))

    if WANTED:
        part = parts + at * ROW
        dh = tl.zeros((TB, NP), ACC)
        for first in range(0, C, CT):
            if C > CT:
                c, rows, inverse, products = class_tile(
                    weight, bias, replica, h, first, N, C, NP, CT, COSINE, ACC, PRECISION
                )
            logits = tl.where((c < C)[None, :], products * s, float("-inf"))
            mine = (c[None, :] == label[:, None]).to(ACC)
            dproducts = (tl.exp((logits - top[:, None]) - log_total[:, None]) - mine) * s
            dproducts = tl.where(here[:, None], dproducts / B, 0.0)
            dh += tl.dot(dproducts, rows, input_precision=PRECISION, out_dtype=ACC)
            drows = tl.dot(tl.trans(dproducts), h, input_precision=PRECISION, out_dtype=ACC)
            if COSINE:  # along a direction nothing changes
                drows = (drows - rows * tl.sum(rows * drows, axis=1)[:, None]) * inverse[:, None]
            if attraction is not None:
                drows -= tl.dot(tl.trans(mine), apart, input_precision=PRECISION, out_dtype=ACC)
            tl.store(part + c[:, None] * N + n[None, :], drows, mask=(c < C)[:, None] & (n < N)[None, :])
            if bias is not None:
                tl.store(part + C * N + c, tl.sum(dproducts, axis=0), mask=c < C)
        if COSINE:
            dh = (dh - h * tl.sum(h * dh, axis=1)[:, None]) * h_inverse[:, None]
        if attraction is not None:
            dh += apart
        after = C * N
        if bias is not None:
            after += C
        if gain is not None:
            tl.store(part + after + n, tl.sum(dh * normed, axis=0), mask=n < N)
            after += N
        if shift is not None:
            tl.store(part + after + n, tl.sum(dh, axis=0), mask=n < N)
        if gain is not None:
            dh = dh * factor[None, :]
        if NORM:
            along = tl.sum(dh * normed, axis=1) / N
            dh = (dh - (tl.sum(dh, axis=1) / N)[:, None] - normed * along[:, None]) * rstd[:, None]
        tl.store(dx + place, dh, mask=mask)


@triton.jit(do_not_specialize=["tiles"])
def totals_kernel(losses, pulls, hits, loss, pull, correct, tiles, PARTS: tl.constexpr):
    """The sums of losses, pulls and hits (R, tiles) over the tiles."""
    replica = tl.program_id(0).to(tl.int64)
    lost = tl.zeros((PARTS,), losses.dtype.element_ty)
    pulled = tl.zeros((PARTS,), losses.dtype.element_ty)
    right = tl.zeros((PARTS,), tl.int64)
    for first in range(0, tiles, PARTS):
        part = first + tl.arange(0, PARTS)
        lost += tl.load(losses + replica * tiles + part, mask=part < tiles, other=0.0)
        if pulls is not None:
            pulled += tl.load(pulls + replica * tiles + part, mask=part < tiles, other=0.0)
        right += tl.load(hits + replica * tiles + part, mask=part < tiles, other=0)
    tl.store(loss + replica, tl.sum(lost, axis=0))
    if pulls is not None:
        tl.store(pull + replica, tl.sum(pulled, axis=0))
    tl.store(correct + replica, tl.sum(right, axis=0))


@triton.jit(do_not_specialize=["tiles", "sums", "size", "each", "count", "R"])
def backward_kernel(
    grad, kept, parts, pull, dx, dweight, dbias, dgain, dshift, dattraction, tiles, sums, size, each, count, R,
    N: tl.constexpr, C: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients times that of the loss: the first `sums` programs add up the parts, the others take x's, kept."""
    program = tl.program_id(0).to(tl.int64)
    if program < sums:
        at = program * BLOCK + tl.arange(0, BLOCK)
        replica = at // ROW
        place = at % ROW
        total = tl.zeros((BLOCK,), parts.dtype.element_ty)
        for first in range(0, tiles, PARTS):
            part = first + tl.arange(0, PARTS)
            inside = (part < tiles)[:, None] & (at < size)[None, :]
            offset = (replica[None, :] * tiles + part[:, None]) * ROW + place[None, :]
            total += tl.sum(tl.load(parts + offset, mask=inside, other=0.0), axis=0)
        if pull is not None:
            one = tl.load(grad + at, mask=at < R, other=0.0) * tl.load(pull + at, mask=at < R, other=0.0)
            tl.store(dattraction + at, one, mask=at < R)
        total *= tl.load(grad + replica, mask=at < size, other=0.0)
        tl.store(dweight + replica * C * N + place, total, mask=(at < size) & (place < C * N))
        place -= C * N
        if dbias is not None:
            tl.store(dbias + replica * C + place, total, mask=(at < size) & (place >= 0) & (place < C))
            place -= C
        if dgain is not None:
            tl.store(dgain + replica * N + place, total, mask=(at < size) & (place >= 0) & (place < N))
            place -= N
        if dshift is not None:
            tl.store(dshift + replica * N + place, total, mask=(at < size) & (place >= 0))
    else:
        at = (program - sums) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        factor = tl.load(grad + at // each, mask=inside, other=0.0)
        tl.store(dx + at, factor * tl.load(kept + at, mask=inside, other=0.0), mask=inside)


def constants(R: int, B: int, C: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Sizes of the tiles; float64 takes half as many classes. More strings a program where there are many."""
    padded = max(16, power_of_two(N))
    classes = CLASS_ENTRIES // padded * 4 // dtype.itemsize
    together = max(16, min(power_of_two(C), classes))
    strings = 16 if R * B <= 2**18 or padded > 128 else 32
    return {"N": N, "C": C, "NP": padded, "CT": together, "TB": strings}


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None, labels: Tensor,
    scale: Tensor | None, attraction: Tensor | None, norm: bool, cosine: bool, wanted: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Loss (R,), correct (R,) and, if `wanted`, for `backward`: dx (R, B, N), parts (R, tiles, ROW), pull (R,)."""
    R, B, N = x.shape
    C = weight.shape[1]
    sizes = constants(R, B, C, N, x.dtype)
    tiles = triton.cdiv(B, sizes["TB"])
    row = C * N + sum(0 if one is None else one.shape[1] for one in (bias, gain, shift))
    loss, correct = x.new_empty(R), labels.new_empty(R)
    losses, hits = x.new_empty(R, tiles), labels.new_empty(R, tiles)
    parts = x.new_empty(R, tiles, row) if wanted else absent(x)
    dx = torch.empty_like(x) if wanted else absent(x)
    pulls = None if attraction is None else torch.empty_like(losses)
    pull = absent(x) if attraction is None else torch.empty_like(loss)
    if not R:
        return loss, correct, dx, parts, pull
    forward_kernel[(tiles, R)](
        x, weight, bias, gain, shift, labels, scale, attraction, losses, pulls, hits, dx, parts, B,
        ROW=row, EPS=EPSILON, NORM=norm, COSINE=cosine, WANTED=wanted,
        ACC=tl.float64 if x.dtype == torch.float64 else tl.float32,
        PRECISION="ieee" if x.dtype == torch.float64 else PRECISION,
        num_warps=4 if sizes["NP"] * x.element_size() <= 256 and sizes["CT"] >= C else 8, **sizes,
    )  # fmt: skip
    totals_kernel[(R,)](
        losses, pulls, hits, loss, pull, correct, tiles, PARTS=min(256, power_of_two(tiles)), num_warps=1
    )
    return loss, correct, dx, parts, pull


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None, *rest: Any
) -> tuple[Tensor | None, ...]:
    """The gradients of x, weight, bias, gain, shift and attraction from those for 1 and from `grad` (R,)."""
    kept, parts, pull = rest[-6:-3]  # the three settings stand last
    R, B, N = x.shape
    found = [None if one is None else torch.empty_like(one) for one in (x, weight, bias, gain, shift)]
    dattraction = torch.empty_like(pull) if pull.numel() else None
    if not R:
        return *found, dattraction
    tiles, row = parts.shape[1:]
    block = 256
    sums = triton.cdiv(R * row, block)
    backward_kernel[(sums + triton.cdiv(R * B * N, block),)](
        grad, kept, parts, None if dattraction is None else pull, *found, dattraction,
        tiles, sums, R * row, B * N, R * B * N, R,
        N=N, C=weight.shape[1], ROW=row, PARTS=8, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return *found, dattraction
