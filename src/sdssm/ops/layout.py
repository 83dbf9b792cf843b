"""Leading dimensions: broadcast as in all of torch, then flattened to the form that kernels take.

Kernels take parameters (R, ...) and data (R, B, ...), while users have any number of leading dimensions on either. Here
`lead` is the broadcast of all of them; the leading dimensions of a parameter are `lead` without its last one, B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor

from sdssm.ops.checks import format_shape
from sdssm.ops.errors import OpsError


def lead_of(tensor: Tensor, tail: int) -> torch.Size:
    """Return the dimensions before the last `tail`."""
    return tensor.shape[: tensor.dim() - tail]


def broadcast_shapes(first: Sequence[int], second: Sequence[int]) -> torch.Size:
    """Return the shape of two shapes broadcast together; a ValueError if they do not fit.

    torch.broadcast_shapes imports sympy, which takes a quarter of a second before the first step of a training.

    >>> broadcast_shapes((3, 1), (2, 1, 4))
    torch.Size([2, 3, 4])
    """
    if len(first) < len(second):
        first, second = second, first
    missing = len(first) - len(second)
    sizes = list(first)
    for axis, size in enumerate(second, start=missing):
        if sizes[axis] == 1:
            sizes[axis] = size
        elif size not in (1, sizes[axis]):
            raise ValueError(f"shapes {tuple(first)} and {tuple(second)} do not broadcast")
    return torch.Size(sizes)


def broadcast_leads(op: str, tensors: Sequence[tuple[str, Tensor | None, int]]) -> torch.Size:
    """Return the common leading dimensions of tensors.

    tensors: (name, tensor, number of dimensions that are not leading) for each.

    The error names the first tensor that does not fit.
    """
    lead = torch.Size()
    for at, (name, tensor, tail) in enumerate(tensors):
        if tensor is None:
            continue
        own = lead_of(tensor, tail)
        if own == lead:
            continue
        try:
            lead = broadcast_shapes(lead, own)
        except ValueError:
            before = ", ".join(f"{other} {format_shape(t)}" for other, t, _ in tensors[:at] if t is not None)
            raise OpsError(
                f"{op}: {name} of shape {format_shape(tensor)} has leading dimensions {tuple(own)}; "
                f"they must broadcast with {tuple(lead)} of {before}"
            ) from None
    return lead


@overload
def flatten_leading(tensor: Tensor, lead: Sequence[int], tail: int, shape: Sequence[int]) -> Tensor: ...
@overload
def flatten_leading(tensor: Tensor | None, lead: Sequence[int], tail: int, shape: Sequence[int]) -> Tensor | None: ...
def flatten_leading(tensor: Tensor | None, lead: Sequence[int], tail: int, shape: Sequence[int]) -> Tensor | None:
    """Broadcast the leading dimensions to `lead` and reshape them to `shape`; contiguous. None stays None."""
    if tensor is None:
        return None
    own, rest = lead_of(tensor, tail), tensor.shape[tensor.dim() - tail :]
    if math.prod(own) == math.prod(lead):  # `expand` would sum the gradient over dimensions of size 1, in a kernel
        return tensor.reshape(*shape, *rest).contiguous()
    if tuple(own) != tuple(lead):
        tensor = tensor.expand(*lead, *rest)
    if len(lead) != len(shape) or (-1 not in shape and tuple(lead) != tuple(shape)):
        tensor = tensor.reshape(*shape, *rest)
    return tensor.contiguous()


@overload
def flatten_integers(values: Tensor, lead: Sequence[int], tail: int, shape: Sequence[int]) -> Tensor: ...
@overload
def flatten_integers(values: Tensor | None, lead: Sequence[int], tail: int, shape: Sequence[int]) -> Tensor | None: ...
def flatten_integers(values: Tensor | None, lead: Sequence[int], tail: int, shape: Sequence[int]) -> Tensor | None:
    """Do the same for lengths, tokens or positions, as int64: kernels take no other integers."""
    return None if values is None else flatten_leading(values.long(), lead, tail, shape)


def replicas_and_rows(parameters: Sequence[torch.Size], lead: torch.Size) -> tuple[tuple[int, ...], int, int]:
    """Split `lead` (..., B) into R replicas with parameters of their own and B rows each.

    Parameters shared by all rows make a single replica, so that nothing is copied and the gradient is one sum instead
    of many.

    >>> replicas_and_rows([torch.Size([])], torch.Size([3, 7, 5]))
    ((1,), 1, 105)
    >>> replicas_and_rows([torch.Size([7])], torch.Size([3, 7, 5]))
    ((3, 7), 21, 5)
    """
    if all(math.prod(own) == 1 for own in parameters):
        return (1,), 1, math.prod(lead)
    outer = tuple(lead[:-1])
    return outer, math.prod(outer), lead[-1]


def as_one_replica(*tensors: Tensor | None) -> list[Any]:
    """Return tensors of one model (...) as kernels take them, (1, ...) and contiguous; None stays None.

    Remove the axis of the results by `squeeze(0)`: the gradient of `result[0]` would fill and copy a tensor.

    >>> [None if tensor is None else tuple(tensor.shape) for tensor in as_one_replica(torch.zeros(2, 3), None)]
    [(1, 2, 3), None]
    """
    return [None if tensor is None else tensor[None].contiguous() for tensor in tensors]


def merge_replicas(*tensors: Tensor | None) -> list[Any]:
    """Merge replicas and their rows: (R, B, *) -> (R B, *); None stays None.

    >>> [None if tensor is None else tuple(tensor.shape) for tensor in merge_replicas(torch.zeros(2, 3, 5), None)]
    [(6, 5), None]
    """
    return [None if tensor is None else tensor.flatten(0, 1) for tensor in tensors]


def rows_as_replicas(*tensors: Tensor | None) -> list[Any]:
    """Reshape (R, B, *) -> (R B, 1, *), so that each row is a replica with its own parameters.

    >>> [None if tensor is None else tuple(tensor.shape) for tensor in rows_as_replicas(torch.zeros(2, 3, 5), None)]
    [(6, 1, 5), None]
    """
    return [None if tensor is None else tensor.flatten(0, 1)[:, None] for tensor in tensors]
