# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Vectors of one head in Triton: reading, writing, rotations, inner products and weighted sums.

Tensors are (T, SP): steps, and the size S of a head padded to a power of two. Products run on tensor cores with the
precision of float32 (see `_triton/tensor_cores.py`). The sides of such a product are 16 rows, 8 columns and 8 summed
entries, so heads of 8 entries fill them. `tl.dot` however sums over at least 16 entries: for small heads both parts
of a left vector are summed over at once, [q, q'] [k, k] + [q, q'] [k', k'] with the rests q' and k'.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops._triton.tensor_cores import multiply, reordered, split


@triton.jit
def load_vectors(pointers, t, length, STEP: tl.constexpr, S: tl.constexpr, SP: tl.constexpr):
    """Load vectors of steps t, (T, SP), zeros past the end."""
    s = tl.arange(0, SP)[None, :]
    return tl.load(pointers + t[:, None] * STEP + s, mask=(t < length)[:, None] & (s < S), other=0.0)


@triton.jit
def store_vectors(pointers, vectors, t, start, end, STEP: tl.constexpr, S: tl.constexpr, SP: tl.constexpr):
    """Store vectors (T, SP) of the steps t that are between start and end."""
    s = tl.arange(0, SP)[None, :]
    mask = ((t >= start) & (t < end))[:, None] & (s < S)
    tl.store(pointers + t[:, None] * STEP + s, vectors, mask=mask)


@triton.jit
def store_zeros(
    pointers, start, end, T: tl.constexpr, STEP: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, ACC: tl.constexpr
):
    """Store zeros for the steps start .. end - 1."""
    for first in range(start, end, T):
        store_vectors(pointers, tl.zeros((T, SP), ACC), first + tl.arange(0, T), start, end, STEP, S, SP)


@triton.jit
def load_rotation(table, positions, t, length, count, S: tl.constexpr, SP: tl.constexpr):
    """Return cosine and sine for steps t, (T, SP / 2)."""
    i = tl.arange(0, SP // 2)[None, :]
    mask = (t < length)[:, None] & (i < S // 2)
    places = tl.load(positions + t, mask=t < length, other=0)[:, None] * (S // 2) + i
    cos = tl.load(table + places, mask=mask, other=0.0)
    return cos, tl.load(table + (count + 1) * (S // 2) + places, mask=mask, other=0.0)


@triton.jit
def rotate(x, cos, sin):
    """Rotate the adjacent pairs of vectors (T, SP)."""
    even, odd = tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))
    return tl.reshape(tl.join(even * cos - odd * sin, odd * cos + even * sin), (x.shape[0], x.shape[1]))


@triton.jit
def paired(first, second):
    """Return the columns of the first and then those of the second."""
    both = tl.permute(tl.join(first, second), (0, 2, 1))
    return tl.reshape(both, (first.shape[0], 2 * first.shape[1]))


@triton.jit
def inner_products(left, left_rest, right, right_rest, NVIDIA: tl.constexpr, ACC: tl.constexpr):
    """Return left right^T, (M, N), for vectors (M, SP) and (N, SP) that were split."""
    if left.shape[1] >= 16:
        return multiply(left, left_rest, tl.trans(right), tl.trans(right_rest), NVIDIA, ACC)
    elif NVIDIA:
        both = paired(left, left_rest)
        small = tl.dot(both, tl.trans(paired(right_rest, right_rest)), input_precision="tf32", out_dtype=ACC)
        return tl.dot(both, tl.trans(paired(right, right)), small, input_precision="tf32", out_dtype=ACC)
    else:
        both = paired(left, tl.zeros_like(left))
        return tl.dot(both, tl.trans(paired(right, right)), input_precision="ieee", out_dtype=ACC)


@triton.jit
def weighted_sums(weights, vectors, vectors_rest, NVIDIA: tl.constexpr, ACC: tl.constexpr):
    """Return the sums of vectors (N, SP), which were split, with weights (M, N), which are a product."""
    high, rest = split(weights, NVIDIA)
    if NVIDIA:  # in the order of `reordered`
        high, rest = reordered(high), reordered(rest)
        vectors = tl.trans(reordered(tl.trans(vectors)))
        vectors_rest = tl.trans(reordered(tl.trans(vectors_rest)))
    return multiply(high, rest, vectors, vectors_rest, NVIDIA, ACC)
