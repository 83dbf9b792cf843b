# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Readout and loss on NVIDIA GPUs: one kernel computes the loss and all gradients of the loss.

A program has TB strings and iterates over the classes, CT at a time. Sums over all strings (of losses, and of the
gradients of parameters) are completed by a second kernel each, in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.autograd import empty_placeholder
from sdssm.ops.padding import next_power_of_two
from sdssm.ops.readout.class_tiles import SMALL, SMALLEST_VARIANCE, TERMS, class_spread, class_tile, small_loss
from sdssm.ops.readout.reference import EPSILON

#: Entries of a tile of classes: the rows of `weight` that a program holds at a time, in float32.
CLASS_ENTRIES = 4096
#: Multiply float32 by three tensor-core products of its parts, which keeps the precision of float32, unlike TF32.
PRECISION = "tf32x3"


@triton.jit(do_not_specialize=["B"])
def readout_forward_kernel(
    x, weight, bias, gain, shift, labels, scale, attraction, projection, classes,
    losses, centre_losses, hits, dx, parts, spread, B,
    N: tl.constexpr, C: tl.constexpr, NP: tl.constexpr, CT: tl.constexpr, TB: tl.constexpr, ROW: tl.constexpr,
    EPS: tl.constexpr, UNIT: tl.constexpr, NORM: tl.constexpr, COSINE: tl.constexpr, EXACT: tl.constexpr,
    GRADIENTS: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute losses, centre losses and hits, (R, tiles) each, and with GRADIENTS the gradients.

    Hits are correct predictions. dx is (R, B, N); parts (R, tiles, ROW) holds the sums of a tile for weight, bias,
    gain, shift and projection. With EXACT the gradient of the label's logit is minus the sum of the others. UNIT is the
    factor of the features. With `classes` the first program of a replica stores `class_spread` in spread (R, N + 2).
    """
    tile = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    string = tile * TB + tl.arange(0, TB)
    n = tl.arange(0, NP)
    in_range = string < B
    mask = in_range[:, None] & (n < N)[None, :]
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
    unprojected = h
    if projection is not None:
        square_mask = (n < N)[:, None] & (n < N)[None, :]
        P = tl.load(projection + replica * N * N + n[:, None] * N + n[None, :], mask=square_mask, other=0.0)
        h = h + tl.dot(h, P, input_precision=PRECISION, out_dtype=ACC)
    h = h * UNIT
    z = h
    h_inverse = tl.full((TB,), 1.0, ACC)
    if COSINE:
        square = tl.sum(h * h, axis=1)
        h_inverse = tl.where(square > 0.0, 1.0 / tl.sqrt(tl.where(square > 0.0, square, 1.0)), 0.0)
        h = h * h_inverse[:, None]

    s = tl.full((), 1.0, ACC)
    if scale is not None:
        s = tl.load(scale + replica)
    label = tl.load(labels + replica * B + string, mask=in_range, other=-1).to(tl.int32)

    if C <= CT:  # one tile has all classes and is used by both passes
        c, rows, inverse, products = class_tile(weight, bias, replica, h, 0, N, C, NP, CT, COSINE, ACC, PRECISION)
    top = tl.full((TB,), float("-inf"), ACC)
    total = tl.zeros((TB,), ACC)
    rest = tl.zeros((TB,), ACC)  # as `total`, without the label
    own = tl.zeros((TB,), ACC)
    other = tl.full((TB,), float("-inf"), ACC)
    prediction = tl.full((TB,), -1, tl.int32)
    for first in range(0, C, CT):
        if C > CT:
            c, rows, inverse, products = class_tile(
                weight, bias, replica, h, first, N, C, NP, CT, COSINE, ACC, PRECISION
            )
        logits = tl.where((c < C)[None, :], products * s, float("-inf"))
        most = tl.max(logits, axis=1)
        prediction = tl.where(most > top, first + tl.argmax(logits, axis=1).to(tl.int32), prediction)
        new = tl.maximum(top, most)
        is_label = c[None, :] == label[:, None]
        powers = tl.exp(logits - new[:, None])
        total = total * tl.exp(top - new) + tl.sum(powers, axis=1)
        if EXACT:
            rest = rest * tl.exp(top - new) + tl.sum(tl.where(is_label, 0.0, powers), axis=1)
        top = new
        own += tl.sum(tl.where(is_label, products, 0.0), axis=1)
        if attraction is not None:
            rivals = tl.where(is_label | (c >= C)[None, :], float("-inf"), products)
            other = tl.maximum(other, tl.max(rivals, axis=1))
    # The largest logit is subtracted from each logit first: `top + log(total)` would round loss and gradient to the
    # precision of `top`, which leaves hardly a correct digit near a loss of zero.
    log_total = tl.log(total)
    loss = log_total - (own * s - top)
    if EXACT:
        rest = rest / total  # 1 - p of the label's probability p
        loss = tl.where(rest < SMALL, small_loss(rest, TERMS), loss)
    at = replica * tl.num_programs(0) + tile
    if attraction is not None:
        weight_label = weight + (replica * C + label)[:, None] * N + n[None, :]
        difference = z - tl.load(weight_label, mask=mask, other=0.0)
        gate = tl.where(in_range, tl.minimum(tl.maximum(own - other, 0.0), 1.0), 0.0)
        centre_loss = gate * tl.sum(difference * difference, axis=1)
        tl.store(centre_losses + at, tl.sum(centre_loss, axis=0) / B)
        strength = tl.load(attraction + replica)
        if classes is not None:
            mean, variance, count = class_spread(weight, classes, replica, N, C, NP, CT, ACC)
            strength = strength / variance
            place_spread = spread + replica * (N + 2)
            tl.store(place_spread + n, mean, mask=(n < N) & (tile == 0))
            tl.store(place_spread + N, variance, mask=tile == 0)
            tl.store(place_spread + N + 1, count, mask=tile == 0)
        loss += strength * centre_loss
        dcentre = difference * (gate * (2.0 * strength / B))[:, None]
    tl.store(losses + at, tl.sum(tl.where(in_range, loss, 0.0), axis=0) / B)
    tl.store(hits + at, tl.sum((in_range & (prediction == label)).to(tl.int32), axis=0))

    if GRADIENTS:
        part = parts + at * ROW
        dh = tl.zeros((TB, NP), ACC)
        for first in range(0, C, CT):
            if C > CT:
                c, rows, inverse, products = class_tile(
                    weight, bias, replica, h, first, N, C, NP, CT, COSINE, ACC, PRECISION
                )
            logits = tl.where((c < C)[None, :], products * s, float("-inf"))
            one_hot = (c[None, :] == label[:, None]).to(ACC)
            dproducts = tl.exp((logits - top[:, None]) - log_total[:, None])
            dproducts = tl.where(one_hot > 0.0, -rest[:, None], dproducts) if EXACT else dproducts - one_hot
            dproducts = dproducts * s
            dproducts = tl.where(in_range[:, None], dproducts / B, 0.0)
            dh += tl.dot(dproducts, rows, input_precision=PRECISION, out_dtype=ACC)
            drows = tl.dot(tl.trans(dproducts), h, input_precision=PRECISION, out_dtype=ACC)
            if COSINE:  # a cosine does not change with the length of a vector
                drows = (drows - rows * tl.sum(rows * drows, axis=1)[:, None]) * inverse[:, None]
            if attraction is not None:
                drows -= tl.dot(tl.trans(one_hot), dcentre, input_precision=PRECISION, out_dtype=ACC)
            tl.store(part + c[:, None] * N + n[None, :], drows, mask=(c < C)[:, None] & (n < N)[None, :])
            if bias is not None:
                tl.store(part + C * N + c, tl.sum(dproducts, axis=0), mask=c < C)
        if COSINE:
            dh = (dh - h * tl.sum(h * dh, axis=1)[:, None]) * h_inverse[:, None]
        if attraction is not None:
            dh += dcentre
        dh = dh * UNIT
        if projection is not None:
            dprojection = tl.dot(tl.trans(unprojected), dh, input_precision=PRECISION, out_dtype=ACC)
            start = part + ROW - N * N
            tl.store(start + n[:, None] * N + n[None, :], dprojection, mask=square_mask)
            dh += tl.dot(dh, tl.trans(P), input_precision=PRECISION, out_dtype=ACC)
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
            inner = tl.sum(dh * normed, axis=1) / N
            dh = (dh - (tl.sum(dh, axis=1) / N)[:, None] - normed * inner[:, None]) * rstd[:, None]
        tl.store(dx + place, dh, mask=mask)


@triton.jit(do_not_specialize=["tiles"])
def totals_kernel(losses, centre_losses, hits, loss, centre_loss, correct, tiles, PARTS: tl.constexpr):
    """Sum losses, centre losses and correct predictions (R, tiles) over the tiles."""
    replica = tl.program_id(0).to(tl.int64)
    loss_sum = tl.zeros((PARTS,), losses.dtype.element_ty)
    centre_sum = tl.zeros((PARTS,), losses.dtype.element_ty)
    hit_sum = tl.zeros((PARTS,), tl.int64)
    for first in range(0, tiles, PARTS):
        part = first + tl.arange(0, PARTS)
        loss_sum += tl.load(losses + replica * tiles + part, mask=part < tiles, other=0.0)
        if centre_losses is not None:
            centre_sum += tl.load(centre_losses + replica * tiles + part, mask=part < tiles, other=0.0)
        hit_sum += tl.load(hits + replica * tiles + part, mask=part < tiles, other=0)
    tl.store(loss + replica, tl.sum(loss_sum, axis=0))
    if centre_losses is not None:
        tl.store(centre_loss + replica, tl.sum(centre_sum, axis=0))
    tl.store(correct + replica, tl.sum(hit_sum, axis=0))


@triton.jit(do_not_specialize=["tiles", "sums", "size", "x_size", "count", "R"])
def readout_backward_kernel(
    grad, saved, parts, centre_loss, weight, attraction, classes, spread,
    dx, dweight, dbias, dgain, dshift, dattraction, dprojection,
    tiles, sums, size, x_size, count, R,
    N: tl.constexpr, C: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Multiply all gradients by that of the loss, `grad`.

    The first `sums` programs sum the parts, the others multiply the saved gradient of x. With `classes` the centre loss
    was divided by the variance of the rows of `weight` in spread (R, N + 2), which is a function of them.
    """
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
        if centre_loss is not None:
            factor = tl.load(grad + at, mask=at < R, other=0.0) * tl.load(centre_loss + at, mask=at < R, other=0.0)
            if classes is not None:
                factor = factor / tl.load(spread + at * (N + 2) + N, mask=at < R, other=1.0)
            tl.store(dattraction + at, factor, mask=at < R)
        if classes is not None:
            is_weight = (at < size) & (place < C * N)
            variance = tl.load(spread + replica * (N + 2) + N, mask=is_weight, other=1.0)
            mean = tl.load(spread + replica * (N + 2) + place % N, mask=is_weight, other=0.0)
            share = tl.load(classes + replica * C + place // N, mask=is_weight, other=0.0)
            share = share / tl.load(spread + replica * (N + 2) + N + 1, mask=is_weight, other=1.0)
            strength = tl.load(attraction + replica, mask=is_weight, other=0.0)
            strength *= tl.load(centre_loss + replica, mask=is_weight, other=0.0)
            difference = tl.load(weight + replica * C * N + place, mask=is_weight, other=0.0) - mean
            slope = strength / variance / variance * 2.0 * share * difference
            total -= tl.where(variance > SMALLEST_VARIANCE, slope, 0.0)
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
            tl.store(dshift + replica * N + place, total, mask=(at < size) & (place >= 0) & (place < N))
            place -= N
        if dprojection is not None:
            tl.store(dprojection + replica * N * N + place, total, mask=(at < size) & (place >= 0))
    else:
        at = (program - sums) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        factor = tl.load(grad + at // x_size, mask=inside, other=0.0)
        tl.store(dx + at, factor * tl.load(saved + at, mask=inside, other=0.0), mask=inside)


def constants(R: int, B: int, C: int, N: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the sizes of the tiles.

    float64 has half as many classes; there are more strings per program if there are many.
    """
    padded = max(16, next_power_of_two(N))
    classes = CLASS_ENTRIES // padded * 4 // dtype.itemsize
    class_tile_size = max(16, min(next_power_of_two(C), classes))
    strings = 16 if R * B <= 2**18 or padded > 128 else 32
    return {"N": N, "C": C, "NP": padded, "CT": class_tile_size, "TB": strings}


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None, labels: Tensor,
    scale: Tensor | None, attraction: Tensor | None, projection: Tensor | None, classes: Tensor | None, norm: bool,
    cosine: bool, unit: bool, exact_gradient: bool, with_gradients: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return loss (R,), correct (R,), dx (R, B, N), parts (R, tiles, ROW), the centre loss (R,) and spread (R, N + 2).

    dx and parts are for `backward`, and empty unless `with_gradients`; the centre loss is empty without attraction, and
    the spread (see `class_spread`) without classes.
    """
    R, B, N = x.shape
    C = weight.shape[1]
    sizes = constants(R, B, C, N, x.dtype)
    tiles = triton.cdiv(B, sizes["TB"])
    row = sum(0 if tensor is None else tensor[0].numel() for tensor in (weight, bias, gain, shift, projection))
    loss, correct = x.new_empty(R), labels.new_empty(R)
    losses, hits = x.new_empty(R, tiles), labels.new_empty(R, tiles)
    parts = x.new_empty(R, tiles, row) if with_gradients else empty_placeholder(x)
    dx = torch.empty_like(x) if with_gradients else empty_placeholder(x)
    centre_losses = None if attraction is None else torch.empty_like(losses)
    centre_loss = empty_placeholder(x) if attraction is None else torch.empty_like(loss)
    spread = empty_placeholder(x) if classes is None else x.new_empty(R, N + 2)
    if not R:
        return loss, correct, dx, parts, centre_loss, spread
    readout_forward_kernel[(tiles, R)](
        x, weight, bias, gain, shift, labels, scale, attraction, projection, classes,
        losses, centre_losses, hits, dx, parts, spread, B,
        ROW=row, EPS=EPSILON, UNIT=N**-0.5 if unit else 1.0, NORM=norm, COSINE=cosine, EXACT=exact_gradient,
        GRADIENTS=with_gradients,
        ACC=tl.float64 if x.dtype == torch.float64 else tl.float32,
        PRECISION="ieee" if x.dtype == torch.float64 else PRECISION,
        num_warps=4 if sizes["NP"] * x.element_size() <= 256 and sizes["CT"] >= C and projection is None else 8,
        **sizes,
    )  # fmt: skip
    totals_kernel[(R,)](
        losses,
        centre_losses,
        hits,
        loss,
        centre_loss,
        correct,
        tiles,
        PARTS=min(256, next_power_of_two(tiles)),
        num_warps=1,
    )
    return loss, correct, dx, parts, centre_loss, spread


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None,
    labels: Tensor, scale: Tensor | None, attraction: Tensor | None, projection: Tensor | None,
    classes: Tensor | None, *rest: Any,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of x, weight, bias, gain, shift, attraction and projection, from that of the loss (R,)."""
    saved, parts, centre_loss, spread = rest[-9:-5]  # the last five are the settings
    R, B, N = x.shape
    gradients = [None if tensor is None else torch.empty_like(tensor) for tensor in (x, weight, bias, gain, shift)]
    dattraction = torch.empty_like(centre_loss) if centre_loss.numel() else None
    dprojection = None if projection is None else torch.empty_like(projection)
    if not R:
        return *gradients, dattraction, dprojection
    tiles, row = parts.shape[1:]
    block = 256
    sums = triton.cdiv(R * row, block)
    readout_backward_kernel[(sums + triton.cdiv(R * B * N, block),)](
        grad, saved, parts, None if dattraction is None else centre_loss, weight, attraction, classes, spread,
        *gradients, dattraction, dprojection, tiles, sums, R * row, B * N, R * B * N, R,
        N=N, C=weight.shape[1], ROW=row, PARTS=8, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return *gradients, dattraction, dprojection
