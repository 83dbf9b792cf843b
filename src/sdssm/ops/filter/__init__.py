"""What stands before a scan: a causal filter of every channel, SiLU, and some channels divided by their length."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import plainly
from sdssm.ops.checks import check_kinds, check_rank, check_tail, shape_of
from sdssm.ops.errors import OpsError
from sdssm.ops.filter import reference
from sdssm.ops.layout import broadcast_leads, flatten, lead_of, replicas_and_rows
from sdssm.ops.prepare import one_dtype

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
    """y_t = SiLU(sum_i filters[i] x_{t-(T-1)+i} + bias) in every channel, and the last inputs.

    The first `vectors` runs of `size` channels are then divided by their length, y / sqrt(|y|^2 + 1e-6).

    x (..., B, L, C), filters (..., T, C), the last for the present input, bias (..., C), before (..., B, T - 1, C), the
    inputs before the first, zeros where None -> y (..., B, L, C) and the `before` of what follows (..., B, T - 1, C).

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
    first, second, bias, before = one_dtype((x, filters, bias, before))
    assert first is not None and second is not None
    x, filters = first, second
    check_kinds(op, [("x", x), ("filters", filters), ("bias", bias), ("before", before)])
    length, channels = x.shape[-2:]
    check_tail(op, "filters", filters, (channels,), ("C",), "x", x)
    taps = filters.shape[-2]
    if bias is not None:
        check_tail(op, "bias", bias, (channels,), ("C",), "x", x)
    if taps == 1 and before is not None:
        if before.shape[-2:] != (0, channels):
            raise OpsError(f"{op}: before has shape {shape_of(before)}; one tap sees nothing before: leave it out")
        before = None
    if before is not None:
        check_tail(op, "before", before, (taps - 1, channels), ("T-1", "C"), "filters", filters)
    if vectors < 0 or size < 1 or vectors * size > channels:
        raise OpsError(f"{op}: there are {vectors} vectors of size {size}; the {channels} channels of x must hold them")
    # Parameters have no row dimension: one of size 1 stands in for it while leads, where they have any, are compared.
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
        # One place alone is less work on a CPU than calling a function with a gradient of its own.
        by_itself = chosen == "cpu" and length == 1
        too_large = chosen == "triton" and vectors > 0 and size > backend.TRITON_LARGEST_STATE
        if plainly(chosen, x) or by_itself or too_large:
            return _plain(x, filters, bias, before, vectors, size, lead), after
        leads = [lead_of(filters, 2), *([] if bias is None else [lead_of(bias, 1)])]
        outer, replicas, rows = replicas_and_rows(leads, lead)

        def of_replicas(tensor: Tensor, tail: int) -> Tensor:
            return flatten(tensor, lead_of(tensor, tail) if replicas == 1 else outer, tail, (replicas,))

        (y,) = OPERATION(
            flatten(x, lead, 2, (replicas, rows)),
            of_replicas(filters, 2),
            None if bias is None else of_replicas(bias, 1),
            None if before is None else flatten(before, lead, 2, (replicas, rows)),
            vectors, size, chosen,
        )  # fmt: skip
    return y.reshape(*lead, length, channels), after


def last_inputs(x: Tensor, before: Tensor | None, many: int) -> Tensor:
    """The last `many` of the inputs `before` (..., many, C) and x (..., L, C)."""
    length = x.shape[-2]
    if length >= many:
        return x[..., length - many :, :]
    return reference.joined(x, before, many)[..., length:, :]


def _plain(
    x: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    before: Tensor | None,
    vectors: int,
    size: int,
    lead: torch.Size,
) -> Tensor:
    """The reference, 16-bit numbers in float32."""
    dtype = x.dtype
    wide = torch.float32 if dtype in backend.NARROW else dtype
    found = reference.filtered(
        x.to(wide),
        filters.to(wide),
        None if bias is None else bias.to(wide),
        None if before is None else before.to(wide),
        vectors,
        size,
    )
    return found.to(dtype).expand(*lead, *found.shape[-2:])
