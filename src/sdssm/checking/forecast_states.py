"""The states of a model as vectors, and the centres of classes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sdssm import ops
from sdssm.models import TokenModel

#: Larger parts of a state are projected to this many random directions, which changes distances by about 5 %.
MOST_ENTRIES = 256


@dataclass(frozen=True, eq=False)
class ClassCentres:
    """The mean vector of each of K classes, and the distances between the means.

    Attributes:
        means: (K, D), the centre of each class.
        counts: (K,), the number of vectors of each class; 0 if its centre is unknown.
        gaps: (K, K), the squared distances of centres; infinite on the diagonal, for an unknown centre, and between
            classes that need not be distinguished.
    """

    means: Tensor
    counts: Tensor
    gaps: Tensor

    @classmethod
    def build(cls, vectors: Tensor, classes: Tensor, n_classes: int, outputs: Tensor | None = None) -> ClassCentres:
        """Average vectors (M, D) by class (M,). With `outputs` (K,), classes of equal output are not distinguished."""
        means, counts = class_means(vectors, classes, n_classes)
        gaps = torch.cdist(means, means).square()
        apart = (counts > 0)[:, None] & (counts > 0)
        apart &= ~torch.eye(n_classes, dtype=torch.bool, device=means.device)
        if outputs is not None:
            apart &= outputs[:, None] != outputs
        return cls(means, counts, gaps.masked_fill(~apart, torch.inf))

    @property
    def nearest(self) -> Tensor:
        """The distance of each centre from the nearest other one, (K,); infinite if unknown."""
        return self.gaps.amin(1).sqrt()

    def ratios(self, vectors: Tensor, classes: Tensor) -> Tensor:
        """Return how far each vector (M, D) is on its way to another centre, (M,); NaN if no centre is known.

        It is the distance from its own centre in the direction of another one, over the distance of the two centres;
        the largest over all others. 0 is the centre of its own class, and above 1/2 another centre is nearer.

        >>> centres = ClassCentres.build(torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 1]), 2)
        >>> centres.ratios(torch.tensor([[1.0, 5.0], [3.0, 0.0]]), torch.tensor([0, 0])).tolist()
        [0.25, 0.75]
        """
        own = self.means[classes]
        offsets = vectors - own  # (M, D)
        along = offsets @ self.means.T - (offsets * own).sum(-1, keepdim=True)  # (M, K)
        gaps = self.gaps[classes]
        return (along / gaps).amax(-1).where(gaps.isfinite().any(-1), torch.nan)


def class_means(vectors: Tensor, classes: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean of the vectors (M, D) of each class, (K, D), and their number, (K,)."""
    counts = torch.bincount(classes, minlength=n_classes)
    sums = vectors.new_zeros(n_classes, vectors.shape[1]).index_add_(0, classes, vectors)
    return sums / counts.clamp(min=1)[:, None], counts


class StateFlattener:
    """Turns the state of a model into vectors (B, D).

    Tensors without an axis of size B, and tensors of whole numbers, are left out. Large tensors are projected to a few
    random directions.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self._sizes: list[int] = []
        self._scales: list[Tensor] = []
        self._maps: dict[int, Tensor] = {}

    def __call__(self, state: Any) -> Tensor:
        """Return the state as vectors (B, D)."""
        parts = [self._flatten(tensor) for tensor in state_tensors(state) if batch_axis(tensor, self.batch) is not None]
        self._sizes = [part.shape[1] for part in parts]
        return torch.cat(parts, 1)

    def _flatten(self, tensor: Tensor) -> Tensor:
        axis = batch_axis(tensor, self.batch)
        assert axis is not None
        rows = tensor.movedim(axis, 0)
        real = torch.view_as_real(rows) if rows.is_complex() else rows
        flat = real.reshape(self.batch, -1).float()
        size = flat.shape[1]
        if size <= MOST_ENTRIES:
            return flat
        if size not in self._maps:
            directions = torch.randn(size, MOST_ENTRIES, generator=torch.Generator().manual_seed(size))
            self._maps[size] = (directions / MOST_ENTRIES**0.5).to(flat.device)
        return flat @ self._maps[size]

    def fit(self, vectors: Tensor) -> None:
        """Choose a unit for each part of the vectors (..., D), so that all parts count alike."""
        self._scales = []
        for part in torch.split(vectors, self._sizes, dim=-1):
            flat = part.reshape(-1, part.shape[-1])
            scale = (flat - flat.mean(0)).square().sum(1).mean().sqrt()
            self._scales.append(scale.where(scale > 0, 1.0))

    def for_batch(self, batch: int) -> StateFlattener:
        """Return a flattener for states of another batch size, with the same units."""
        other = StateFlattener(batch)
        other._sizes, other._scales, other._maps = self._sizes, self._scales, self._maps
        return other

    def normalise(self, vectors: Tensor) -> Tensor:
        """Divide each part of the vectors (..., D) by its unit."""
        parts = torch.split(vectors, self._sizes, dim=-1)
        return torch.cat([part / scale for part, scale in zip(parts, self._scales, strict=True)], -1)

    def directions(self, vectors: Tensor) -> Tensor:
        """Divide each part of the vectors (..., D) by its own norm."""
        parts = torch.split(vectors, self._sizes, dim=-1)
        return torch.cat([torch.nn.functional.normalize(part, dim=-1) for part in parts], -1)


def batch_axis(tensor: Tensor, batch: int) -> int | None:
    """Return the first axis of size `batch` of a tensor of real or complex numbers, or None."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or batch not in tensor.shape:
        return None
    return tuple(tensor.shape).index(batch)


def state_tensors(state: Any) -> Iterator[Tensor]:
    """Yield all tensors of a state: a tensor, or tensors in nested tuples, lists or dictionaries."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for part in state.values():
            yield from state_tensors(part)
    elif isinstance(state, tuple | list):
        for part in state:
            yield from state_tensors(part)


def largest_entry(state: Any) -> float:
    """Return the largest absolute value in a state; infinity if an entry is not finite."""
    floats = [tensor for tensor in state_tensors(state) if tensor.is_floating_point() or tensor.is_complex()]
    largest = max((float(tensor.abs().amax()) for tensor in floats if tensor.numel()), default=0.0)
    return largest if math.isfinite(largest) else math.inf


def map_tensors(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Return a state with every tensor changed by a function; the nesting stays.

    >>> map_tensors(lambda x: x + 1, {"h": [torch.zeros(1), None]})
    {'h': [tensor([1.]), None]}
    """
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, dict):
        return {name: map_tensors(change, part) for name, part in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(map_tensors(change, part) for part in state))
    if isinstance(state, tuple | list):
        return type(state)(map_tensors(change, part) for part in state)
    return state


@contextmanager
def reading(model: TokenModel) -> Iterator[None]:
    """Disable gradients, dropout and the check of tokens while a model reads strings."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(), ops.unchecked():
            yield
    finally:
        model.train(training)
