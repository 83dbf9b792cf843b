"""States of any model as vectors: nested tensors with one row per string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sdssm.layers.mixer import map_state, state_tensors


def state_vectors(state: Any, batch: int) -> list[Tensor]:
    """Return the parts of a state that have one row per string, each as vectors (B, D).

    Tensors without an axis of size B, and tensors of whole numbers, are left out. Give B as a prime: the axis of a
    state that has this size is then the batch axis, also in a state such as (layers, B, N).

    >>> [tuple(part.shape) for part in state_vectors({"h": torch.zeros(2, 7, 3), "steps": torch.tensor(4)}, batch=7)]
    [(7, 6)]
    """
    vectors = []
    for tensor in state_tensors(state):
        axis = _batch_axis(tensor, batch)
        if axis is not None:
            vectors.append(tensor.movedim(axis, 0).reshape(batch, -1))
    return vectors


def replace_vectors(state: Any, batch: int, vectors: Sequence[Tensor]) -> Any:
    """Return a state with other values in the parts that `state_vectors` returns; the rest stays.

    >>> state = {"h": torch.zeros(2, 7, 3), "steps": torch.tensor(4)}
    >>> replace_vectors(state, 7, [torch.ones(7, 6)])["h"].sum().item()
    42.0
    """
    remaining = iter(vectors)

    def replace(tensor: Tensor) -> Tensor:
        axis = _batch_axis(tensor, batch)
        if axis is None:
            return tensor
        rows = tensor.movedim(axis, 0)
        return next(remaining).to(tensor.dtype).reshape(rows.shape).movedim(0, axis)

    return map_state(replace, state)


def class_means(vectors: Tensor, classes: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean of the vectors (M, D) of each class, (K, D), and their number, (K,)."""
    counts = torch.bincount(classes, minlength=n_classes)
    sums = vectors.new_zeros(n_classes, vectors.shape[1]).index_add_(0, classes, vectors)
    return sums / counts.clamp(min=1)[:, None], counts


def _batch_axis(tensor: Tensor, batch: int) -> int | None:
    """Return the first axis of size `batch` of a tensor of real or complex numbers, or None."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or batch not in tensor.shape:
        return None
    return tuple(tensor.shape).index(batch)
