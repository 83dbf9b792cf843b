"""Two gated convolutions of symbols at the end of strings, as the last layer of H3 computes them."""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.checks import check_device, check_dtypes, check_integers, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.gated import reference
from sdssm.ops.layout import as_one_replica

OPERATION = DifferentiableOperation(
    "gated_end",
    "gated",
    tensors=("table", "first", "first_skip", "second", "second_skip", "tokens", "lengths"),
    differentiable=("table", "first", "first_skip", "second", "second_skip"),
    results=("y",),
    unsaved_results=("y",),
)
#: The most symbols and the greatest length of the kernels.
MOST_SYMBOLS, MOST_LENGTH = 16, 64


def gated_end(
    table: Tensor,
    first: Tensor,
    first_skip: Tensor,
    second: Tensor,
    second_skip: Tensor,
    tokens: Tensor,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return y = q (K' * (v (K * k + D k)) + D' v (K * k + D k)) at the end of strings.

    q, k and v (B, L, D) are the thirds of the rows of a table that the strings select. All products are entrywise and
    all convolutions along time, for each channel.

    Args:
        table: (V, 3 D).
        first: K (D, at most L taps).
        first_skip: D of the first convolution, (D,).
        second: K' (D, at most L taps).
        second_skip: D' (D,).
        tokens: Strings (B, L), integers below V.
        lengths: (B,); None is L.

    Returns:
        y (B, D).

    >>> import torch
    >>> one, table = torch.ones(1), torch.tensor([[1.0, 1.0, 1.0], [2.0, 3.0, 1.0]])
    >>> taps = torch.tensor([[1.0, 10.0]])
    >>> gated_end(table, taps, 0 * one, taps, 0 * one, torch.tensor([[0, 1]]))  # 2 (1 (3 + 10) + 10)
    tensor([[46.]])
    """
    op = "gated_end"
    check_rank(op, "table", table, ("V", "3 D"))
    check_rank(op, "first", first, ("D", "T"))
    check_integers(op, "tokens", tokens)
    named = [("first", first), ("first_skip", first_skip), ("second", second), ("second_skip", second_skip)]
    check_dtypes(op, [("table", table), *named])
    check_device(op, "tokens", tokens, "table", table)
    V, D = table.shape[0], first.shape[0]
    fits = table.shape[1] == 3 * D and second.dim() == 2 and second.shape[0] == D and tokens.dim() == 2
    fits = fits and first_skip.shape == (D,) and second_skip.shape == (D,) and tokens.shape[1] > 0
    if not fits or (lengths is not None and lengths.shape != tokens.shape[:1]):
        shapes = ", ".join(format_shape(x) for x in (table, *(tensor for _, tensor in named), tokens))
        raise OpsError(
            f"{op}: the shapes {shapes} do not fit; pass (V, 3 D), (D, T), (D,), (D, T'), (D,), (B, L), (B,)"
        )
    chosen = backend.choose(table)
    backend.check_backend(op, table, 1)
    with backend.no_autocast(table):
        too_large = V > MOST_SYMBOLS or tokens.shape[1] > MOST_LENGTH
        if not backend.has_fast_kernels(table) or too_large:
            return reference.gated_end(table, first, first_skip, second, second_skip, tokens, lengths)
        (y,) = OPERATION(*as_one_replica(table, first, first_skip, second, second_skip, tokens, lengths), chosen)
    return y.squeeze(0)
