"""Leading dimensions: broadcast as in all of torch, then flattened to what the kernels take.

A kernel knows parameters (R, ...) and data (R, B, ...). Users have any number of leading dimensions on either. Here
`lead` is the broadcast of all of them; a parameter's own leading dimensions are `lead` without its last part, B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sdssm.ops.checks import shape_of
from sdssm.ops.errors import OpsError


def lead_of(tensor: Tensor, tail: int) -> torch.Size:
    """The dimensions before the last `tail`."""
    return tensor.shape[: tensor.dim() - tail]


def broadcast_leads(op: str, named: Sequence[tuple[str, Tensor | None, int]]) -> torch.Size:
    """The common leading dimensions of (name, tensor, size of its tail); an error names the first that does not fit."""
    lead = torch.Size()
    for at, (name, tensor, tail) in enumerate(named):
        if tensor is None:
            continue
        own = lead_of(tensor, tail)
        if own == lead:
            continue
        try:
            lead = torch.broadcast_shapes(lead, own)  # type: ignore[no-untyped-call]  # torch's own
        except RuntimeError:
            before = ", ".join(f"{other} {shape_of(t)}" for other, t, _ in named[:at] if t is not None)
            raise OpsError(
                f"{op}: {name} of shape {shape_of(tensor)} has leading dimensions {tuple(own)}; "
                f"they must broadcast with {tuple(lead)} of {before}"
            ) from None
    return lead


def flatten(tensor: Tensor, lead: Sequence[int], tail: int, into: Sequence[int]) -> Tensor:
    """Broadcast the leading dimensions to `lead`, reshape them to `into`, and lay the result out contiguously."""
    own, rest = lead_of(tensor, tail), tensor.shape[tensor.dim() - tail :]
    if tuple(own) != tuple(lead):
        tensor = tensor.expand(*lead, *rest)
    if len(lead) != len(into) or (-1 not in into and tuple(lead) != tuple(into)):
        tensor = tensor.reshape(*into, *rest)
    return tensor.contiguous()


def replicas_and_rows(parameters: Sequence[torch.Size], lead: torch.Size) -> tuple[tuple[int, ...], int, int]:
    """How `lead` (..., B) splits into R replicas with parameters of their own and B rows each.

    Parameters shared by all rows make one replica of everything, so that nothing is copied and one sum of gradients
    is formed instead of many.

    >>> replicas_and_rows([torch.Size([])], torch.Size([3, 7, 5]))
    ((1,), 1, 105)
    >>> replicas_and_rows([torch.Size([7])], torch.Size([3, 7, 5]))
    ((3, 7), 21, 5)
    """
    if all(math.prod(own) == 1 for own in parameters):
        return (1,), 1, math.prod(lead)
    outer = tuple(lead[:-1])
    return outer, math.prod(outer), lead[-1]


def rows_as_replicas(*given: Tensor | None) -> list[Any]:
    """(R, B, *) -> (R B, 1, *): for a kernel whose parameters belong to replicas, where each row has its own.

    >>> [None if one is None else tuple(one.shape) for one in rows_as_replicas(torch.zeros(2, 3, 5), None)]
    [(6, 1, 5), None]
    """
    return [None if one is None else one.flatten(0, 1)[:, None] for one in given]
