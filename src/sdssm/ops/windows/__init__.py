"""A gated convolution after a short one, at the end of strings, as the last layer of Hyena computes it."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.checks import check_device, check_dtypes, check_integers, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import as_one_replica
from sdssm.ops.windows import reference

OPERATION = DifferentiableOperation(
    "window_end",
    "windows",
    tensors=("table", "weight", "bias", "kernel", "skip", "tokens", "lengths"),
    differentiable=("table", "weight", "bias", "kernel", "skip"),
    results=("y",),
    unsaved_results=("y",),
)
#: The most symbols times taps of the Triton kernels, and the greatest length of all.
MOST_ENTRIES, MOST_LENGTH = 63, 64
#: The most bits of the number of a window in the compiled kernels: more windows would take longer than strings.
MOST_WINDOW_BITS = 9


def has_window_kernels(table: Tensor, taps: int) -> bool:
    """Whether kernels compute `window_end` for a table like this one (V, *) and windows of so many taps."""
    if backend.has_kernels(table):
        return len(table) * taps <= MOST_ENTRIES
    return len(table).bit_length() * taps <= MOST_WINDOW_BITS and backend.has_compiled_kernels(table)


def window_end(
    table: Tensor,
    weight: Tensor,
    bias: Tensor,
    kernel: Tensor,
    skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return y = x_1 (K * (x_2 v) + D x_2 v) at the end of strings.

    x_1, x_2 and v (B, L, D) are the thirds of the rows of a table that the strings select, after a short convolution.
    All products are entrywise and all convolutions along time, for each channel.

    Args:
        table: (V, 3 D).
        weight: Taps of the short convolution, (3 D, T), the last of which has no delay.
        bias: (3 D,), added by the short convolution.
        kernel: K (D, at most L taps).
        skip: D (D,).
        tokens: Strings (B, L), integers below V.
        lengths: (B,); None is L.

    Returns:
        y (B, D).

    >>> import torch
    >>> one, table = torch.ones(1), torch.tensor([[1.0, 1.0, 1.0], [2.0, 3.0, 1.0]])
    >>> window_end(table, one.expand(3, 1), 0 * table[0], torch.tensor([[1.0, 10.0]]), 0 * one, torch.tensor([[0, 1]]))
    tensor([[26.]])
    """
    op = "window_end"
    check_rank(op, "table", table, ("V", "3 D"))
    check_rank(op, "weight", weight, ("3 D", "T"))
    check_integers(op, "tokens", tokens)
    named = [("weight", weight), ("bias", bias), ("kernel", kernel), ("skip", skip)]
    check_dtypes(op, [("table", table), *named])
    check_device(op, "tokens", tokens, "table", table)
    D = skip.shape[0]
    fits = table.shape[1] == len(weight) == 3 * D and kernel.dim() == 2 and len(kernel) == D and tokens.dim() == 2
    fits = fits and bias.shape == weight.shape[:1] and skip.shape == (D,) and tokens.shape[1] > 0
    if not fits or (lengths is not None and lengths.shape != tokens.shape[:1]):
        shapes = ", ".join(format_shape(x) for x in (table, *(tensor for _, tensor in named), tokens))
        raise OpsError(
            f"{op}: the shapes {shapes} do not fit; pass (V, 3 D), (3 D, T), (3 D,), (D, T'), (D,), (B, L), (B,)"
        )
    chosen = backend.choose(table)
    backend.check_backend(op, table, 1)
    with backend.no_autocast(table):
        if tokens.shape[1] > MOST_LENGTH or not has_window_kernels(table, weight.shape[1]):
            return reference.window_end(table, weight, bias, kernel, skip, tokens, lengths)
        (y,) = OPERATION(*as_one_replica(table, weight, bias, kernel, skip, tokens, lengths), chosen)
    return y.squeeze(0)
