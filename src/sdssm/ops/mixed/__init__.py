"""A matrix for every symbol: mixed from a dictionary, with columns divided by their l_p norm."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.devices import TRITON_LARGEST_MATRIX
from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_device, check_dtypes, check_last_dimensions, check_rank, check_square
from sdssm.ops.layout import broadcast_leads, flatten_leading
from sdssm.ops.mixed import reference
from sdssm.ops.norms import check_p, check_p_values, flatten_exponent
from sdssm.ops.prepare import promote_under_autocast

OPERATION = DifferentiableOperation(
    "mixed_matrices",
    "mixed",
    tensors=("dictionary", "weights", "p"),
    differentiable=("dictionary", "weights"),
    results=("matrices",),
)


def mixed_matrices(dictionary: Tensor, weights: Tensor, p: float | Tensor | None) -> Tensor:
    """Mix a matrix with normalised columns for every symbol.

    The matrix of symbol v is sum_k weights[v, k] dictionary_k, each column divided by its l_p norm.
    dictionary (..., K, N, N), weights (..., V, K) -> (..., V, N, N). `p` is a number of at least 1, a tensor of them
    over the leading dimensions, or None for no normalisation; it is not differentiated. As in the paper a column of
    zeros gives NaN. The result is an argument of `token_scan`:

    >>> keep, swap = torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> weights = torch.tensor([[2.0, 0.0], [0.5, 0.5]])  # (V=2, K=2): symbol 0 keeps, symbol 1 mixes both
    >>> mixed_matrices(torch.stack([keep, swap]), weights, p=1).tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]
    """
    op = "mixed_matrices"
    check_rank(op, "dictionary", dictionary, ("K", "N", "N"))
    dictionary, weights = promote_under_autocast(dictionary, weights)
    check_dtypes(op, [("dictionary", dictionary), ("weights", weights)])
    check_rank(op, "weights", weights, ("V", "K"))
    check_last_dimensions(op, "weights", weights, (dictionary.shape[-3],), ("K",), "dictionary", dictionary)
    exponent = check_arguments(op, dictionary, p)
    lead = broadcast_leads(op, [("dictionary", dictionary, 3), ("weights", weights, 2), ("p", exponent, 0)])
    chosen = backend.choose(dictionary)
    with backend.no_autocast(dictionary):
        if uses_reference(chosen, dictionary):
            return _run_reference(dictionary, weights, p if exponent is None else exponent, lead)
        replicas = (math.prod(lead),)
        (matrices,) = OPERATION(
            flatten_leading(dictionary, lead, 3, replicas),
            flatten_leading(weights, lead, 2, replicas),
            flatten_exponent(p, lead, dictionary),
            chosen,
        )
    return matrices.reshape(*lead, *matrices.shape[1:])


def check_arguments(op: str, dictionary: Tensor, p: float | Tensor | None) -> Tensor | None:
    """Check the size of the matrices and p; return p without its gradient if it is a tensor, else None."""
    check_square(op, "dictionary", dictionary)
    backend.check_backend(op, dictionary, dictionary.shape[-1], TRITON_LARGEST_MATRIX)
    if p is not None:
        check_p(op, p)
    if not isinstance(p, Tensor):
        return None
    exponent = p.detach()
    check_device(op, "p", exponent, "dictionary", dictionary)
    check_p_values(op, exponent)
    return exponent


def _run_reference(dictionary: Tensor, weights: Tensor, p: float | Tensor | None, lead: torch.Size) -> Tensor:
    """Compute the reference, in float32 for 16-bit dtypes."""
    dtype = dictionary.dtype
    wide = torch.float32 if dtype in backend.NARROW else dtype
    exponent = p.to(wide) if isinstance(p, Tensor) else p
    matrices = reference.mix(dictionary.to(wide), weights.to(wide), exponent).to(dtype)
    return matrices.expand(*lead, *matrices.shape[-3:])
