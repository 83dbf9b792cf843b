"""A causal convolution of each channel with SiLU and optional normalisation.

Mamba and DeltaNet apply it to the inputs of their scans.
"""

from __future__ import annotations

from torch import Tensor

from sdssm.devices import TRITON_LARGEST_STATE
from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_last_dimensions, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.filter import reference
from sdssm.ops.layout import broadcast_leads, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.precision import call_in_float32
from sdssm.ops.prepare import promote_under_autocast

OPERATION = DifferentiableOperation(
    "causal_filter",
    "filter",
    tensors=("x", "filters", "bias", "before"),
    differentiable=("x", "filters", "bias", "before"),
    results=("y",),
)


def causal_filter(
    x: Tensor,
    filters: Tensor,
    bias: Tensor | None = None,
    before: Tensor | None = None,
    *,
    vectors: int = 0,
    size: int = 1,
) -> tuple[Tensor, Tensor]:
    """Compute y_t = SiLU(sum_i filters[i] x_{t-(T-1)+i} + bias) in every channel.

    The first `vectors` groups of `size` channels are then normalised to length 1: y / sqrt(|y|^2 + 1e-6).

    Args:
        x: Inputs (..., B, L, C).
        filters: (..., T, C), the last tap for the present input. Its leading dimensions are those before B.
        bias: (..., C); None is zero.
        before: The T - 1 inputs before the first (..., B, T - 1, C); None is zero.
        vectors: How many groups of channels are normalised.
        size: Channels of each of these groups.

    Returns:
        The outputs y (..., B, L, C), and the last T - 1 inputs (..., B, T - 1, C): the `before` of the next call.

    >>> import torch
    >>> x, filters = torch.tensor([[[8.0], [9.0], [-99.0]]]), torch.tensor([[10.0], [1.0]])  # B = 1, L = 3, T = 2
    >>> y, after = causal_filter(x, filters)
    >>> y.flatten().round().tolist(), after.tolist()
    ([8.0, 89.0, -0.0], [[[-99.0]]])
    >>> y, _ = causal_filter(torch.tensor([[[30.0, 40.0, 50.0]]]), torch.ones(1, 3), vectors=1, size=2)
    >>> y.flatten()
    tensor([ 0.6000,  0.8000, 50.0000])
    """
    op = "causal_filter"
    check_rank(op, "x", x, ("B", "L", "C"))
    check_rank(op, "filters", filters, ("T", "C"))
    x, filters, bias, before = promote_under_autocast(x, filters, bias, before)
    check_dtypes(op, [("x", x), ("filters", filters), ("bias", bias), ("before", before)])
    length, channels = x.shape[-2:]
    check_last_dimensions(op, "filters", filters, (channels,), ("C",), "x", x)
    taps = filters.shape[-2]
    if bias is not None:
        check_last_dimensions(op, "bias", bias, (channels,), ("C",), "x", x)
    if taps == 1 and before is not None:
        if before.shape[-2:] != (0, channels):
            raise OpsError(f"{op}: before has shape {format_shape(before)}; one tap needs no earlier inputs, pass None")
        before = None
    if before is not None:
        check_last_dimensions(op, "before", before, (taps - 1, channels), ("T-1", "C"), "filters", filters)
    if vectors < 0 or size < 1 or vectors * size > channels:
        raise OpsError(
            f"{op}: vectors is {vectors} and size is {size}; they must be at least 0 and 1, and their product at most "
            f"{channels}, the channels of x"
        )
    # Parameters have no row dimension; one of size 1 takes its place while leading dimensions, if any, are broadcast.
    lead = broadcast_leads(
        op,
        [
            ("x", x, 2),
            ("filters", filters.unsqueeze(-3) if filters.dim() > 2 else None, 2),
            ("bias", bias.unsqueeze(-2) if bias is not None and bias.dim() > 1 else None, 1),
            ("before", before, 2),
        ],
    )
    chosen = backend.choose(x)
    backend.check_backend(op, x, 1)
    after = last_inputs(x, before, taps - 1).expand(*lead, taps - 1, channels)
    with backend.no_autocast(x):
        # For a single step on a CPU the reference is faster than the overhead of an autograd function.
        single_step = chosen == "cpu" and length == 1
        too_large = chosen == "triton" and vectors > 0 and size > TRITON_LARGEST_STATE
        if uses_reference(chosen, x) or single_step or too_large:
            (y,) = call_in_float32(reference.filter_inputs, x, filters, bias, before, vectors, size)
            return y.expand(*lead, *y.shape[-2:]), after
        leads = [lead_of(filters, 2), *([] if bias is None else [lead_of(bias, 1)])]
        outer, replicas, rows = replicas_and_rows(leads, lead)

        def flatten_parameter(tensor: Tensor, tail: int) -> Tensor:
            return flatten_leading(tensor, lead_of(tensor, tail) if replicas == 1 else outer, tail, (replicas,))

        (y,) = OPERATION(
            flatten_leading(x, lead, 2, (replicas, rows)),
            flatten_parameter(filters, 2),
            None if bias is None else flatten_parameter(bias, 1),
            flatten_leading(before, lead, 2, (replicas, rows)),
            vectors,
            size,
            chosen,
        )
    return y.reshape(*lead, length, channels), after


def last_inputs(x: Tensor, before: Tensor | None, count: int) -> Tensor:
    """Return the last `count` inputs of x (..., L, C), preceded by `before` (..., count, C)."""
    length = x.shape[-2]
    if length >= count:
        return x[..., length - count :, :]
    return reference.prepend(x, before, count)[..., length:, :]
