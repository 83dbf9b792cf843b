"""Softplus of a linear map of few inputs to many outputs, as the step sizes of Mamba are computed."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_last_dimensions, check_rank
from sdssm.ops.layout import broadcast_leads, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.precision import call_in_float32
from sdssm.ops.prepare import promote_under_autocast
from sdssm.ops.softplus import reference

OPERATION = DifferentiableOperation(
    "softplus_map",
    "softplus",
    tensors=("r", "weight", "bias"),
    differentiable=("r", "weight", "bias"),
    results=("y",),
    unsaved_results=("y",),
)
#: The most inputs and outputs of the Triton kernels, whose programs hold an entire row of each.
MOST_INPUTS, MOST_OUTPUTS = 16, 1024


def softplus_map(r: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute y = log(1 + exp(weight r + bias)).

    A GPU computes it in one pass over the outputs, and its gradients in one pass over theirs.

    Args:
        r: Inputs (..., B, K).
        weight: (..., D, K). Its leading dimensions are those before B.
        bias: (..., D).

    Returns:
        y (..., B, D).

    >>> import torch
    >>> softplus_map(torch.tensor([[2.0]]), torch.tensor([[0.0], [50.0]]), torch.tensor([0.0, 1.0])).tolist()
    [[0.6931471824645996, 101.0]]
    """
    op = "softplus_map"
    check_rank(op, "r", r, ("B", "K"))
    check_rank(op, "weight", weight, ("D", "K"))
    r, weight, bias = promote_under_autocast(r, weight, bias)
    check_dtypes(op, [("r", r), ("weight", weight), ("bias", bias)])
    check_last_dimensions(op, "weight", weight, r.shape[-1:], ("K",), "r", r)
    check_last_dimensions(op, "bias", bias, weight.shape[-2:-1], ("D",), "weight", weight)
    backend.check_backend(op, r, 1)
    lead = broadcast_leads(op, [("r", r, 1), ("weight", weight.unsqueeze(-3), 2), ("bias", bias.unsqueeze(-2), 1)])
    D, K = weight.shape[-2:]
    chosen = backend.choose(r)
    with backend.no_autocast(r):
        too_large = chosen == "triton" and (K > MOST_INPUTS or D > MOST_OUTPUTS)
        if uses_reference(chosen, r) or too_large:
            (y,) = call_in_float32(reference.softplus_map, r, weight, bias)
            return y.expand(*lead, D)
        outer, replicas, rows = replicas_and_rows([lead_of(weight, 2), lead_of(bias, 1)], lead)
        (y,) = OPERATION(
            flatten_leading(r, lead, 1, (replicas, rows)),
            flatten_leading(weight, outer, 2, (replicas,)),
            flatten_leading(bias, outer, 1, (replicas,)),
            chosen,
        )
    return y.reshape(*lead, D)
