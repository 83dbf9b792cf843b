# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Parts of the kernels of the readout: a tile of classes, the spread of the class centres, and a loss near zero."""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops.readout import reference

#: Up to this probability of all other classes the loss is computed as a power series with so many terms, whose error is
#: below the precision of float64.
SMALL, TERMS = tl.constexpr(1 / 64), tl.constexpr(9)
SMALLEST_VARIANCE = tl.constexpr(reference.SMALLEST_VARIANCE)


@triton.jit
def small_loss(rest, TERMS: tl.constexpr):
    """Return -log(1 - rest), the loss of a label with probability 1 - rest, for a rest of at most SMALL.

    The logarithm of a GPU has a small absolute error, which near 1 leaves no correct digit; this power series has.
    """
    value = tl.zeros_like(rest)
    for term in tl.static_range(TERMS, 0, -1):
        value = (value + 1.0 / term) * rest
    return value


@triton.jit
def class_tile(
    weight, bias, replica, h, first,
    N: tl.constexpr, C: tl.constexpr, NP: tl.constexpr, CT: tl.constexpr, COSINE: tl.constexpr, ACC: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return indices, rows (CT, NP), inverse norms and products h rows^T + bias of CT classes.

    With COSINE the rows have norm 1.
    """
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


@triton.jit
def class_spread(
    weight, classes, replica,
    N: tl.constexpr, C: tl.constexpr, NP: tl.constexpr, CT: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Return mean (NP,) and variance of the rows of `weight`, weighted by `classes`, and the sum of these weights."""
    n = tl.arange(0, NP)
    count = tl.zeros((), ACC)
    mean = tl.zeros((NP,), ACC)
    for first in range(0, C, CT):
        c = first + tl.arange(0, CT)
        inside = (c < C)[:, None] & (n < N)[None, :]
        share = tl.load(classes + replica * C + c, mask=c < C, other=0.0)
        rows = tl.load(weight + (replica * C + c[:, None]) * N + n[None, :], mask=inside, other=0.0)
        count += tl.sum(share, axis=0)
        mean += tl.sum(share[:, None] * rows, axis=0)
    mean = mean / count
    variance = tl.zeros((), ACC)
    for first in range(0, C, CT):
        c = first + tl.arange(0, CT)
        inside = (c < C)[:, None] & (n < N)[None, :]
        share = tl.load(classes + replica * C + c, mask=c < C, other=0.0)
        rows = tl.load(weight + (replica * C + c[:, None]) * N + n[None, :], mask=inside, other=0.0)
        difference = tl.where(inside, rows - mean[None, :], 0.0)
        variance += tl.sum(share * tl.sum(difference * difference, axis=1), axis=0)
    return mean, tl.maximum(variance / count, SMALLEST_VARIANCE), count
