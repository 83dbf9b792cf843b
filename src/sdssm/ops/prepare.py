"""Preparation of arguments that all public scans share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVarTuple, cast

import torch
from torch import Tensor

from sdssm.devices import TRITON_LARGEST_STATE
from sdssm.ops import backend
from sdssm.ops.checks import check_device, check_integers, check_range
from sdssm.ops.errors import OpsError

#: Tensors, some of which may be None.
Tensors = TypeVarTuple("Tensors")


def promote_under_autocast(*tensors: *Tensors) -> tuple[*Tensors]:
    """Convert the tensors to their widest dtype if autocast is on; otherwise return them unchanged. None stays None.

    Under autocast some arguments arrive in 16 bits and parameters in 32.
    """
    present = [tensor for tensor in tensors if isinstance(tensor, Tensor)]
    if not present or not backend.is_autocast_enabled(present[0]):
        return tensors
    widest = present[0].dtype
    for tensor in present[1:]:
        widest = torch.promote_types(widest, tensor.dtype)
    promoted = tuple(tensor.to(widest) if isinstance(tensor, Tensor) else tensor for tensor in tensors)
    return cast(tuple[*Tensors], promoted)


def check_options(
    op: str,
    first: Tensor,
    state: int,
    b: Tensor | None,
    rescale: bool,
    mode: str,
    most: int = TRITON_LARGEST_STATE,
) -> None:
    """Check the options of a linear scan over states of size `state`."""
    backend.check_mode(op, mode)
    backend.check_backend(op, first, state, most)
    check_homogeneous(op, b, rescale)


def check_homogeneous(op: str, b: Tensor | None, rescale: bool) -> None:
    """Check that there is no b together with `rescale`."""
    if rescale and b is not None:
        raise OpsError(f"{op}: b was given with rescale=True; a rescaled recurrence is homogeneous, leave b None")


def check_lengths(op: str, lengths: Tensor | None, first_name: str, first: Tensor) -> None:
    """Check dtype and device of `lengths`."""
    if lengths is not None:
        check_integers(op, "lengths", lengths)
        check_device(op, "lengths", lengths, first_name, first)


def check_length_values(op: str, lengths: Tensor | None, length: int) -> None:
    """Check that all lengths lie in 0..length. Reads the values."""
    if lengths is not None:
        check_range(op, "lengths", lengths, 0, length, "lengths must be in")


def start_state(x0: Tensor | None, lead: Sequence[int], like: Tensor, size: int) -> Tensor:
    """Return x0, or zeros, with all leading dimensions: (*lead, N)."""
    return like.new_zeros(*lead, size) if x0 is None else x0.expand(*lead, size)
