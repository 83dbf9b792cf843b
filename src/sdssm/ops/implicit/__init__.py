"""Filters that a small network computes from positional features: one Triton kernel, and one for the gradient.

For short lengths and narrow networks on a GPU, and where a CPU has the compiled kernels of the other operations of
Hyena. `sdssm.layers.hyena` computes them elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.checks import check_dtypes, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.implicit import reference
from sdssm.ops.layout import as_one_replica

TENSORS = (
    "features", "window", "frequency", "weight1", "bias1", "weight2", "bias2", "weight3", "bias3", "last",
)  # fmt: skip
OPERATION = DifferentiableOperation(
    "implicit_taps",
    "implicit",
    tensors=TENSORS,
    differentiable=tuple(name for name in TENSORS if name != "window"),
    results=("taps",),
    unsaved_results=("taps",),
)
#: The most features and hidden units, and the most taps, of the Triton kernels, which hold a layer in registers.
MOST_UNITS, MOST_TAPS = 64, 64


def implicit_taps(
    features: Tensor,
    window: Tensor,
    frequency: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    last: Tensor,
    *,
    length: int,
) -> Tensor:
    """Return the taps K = (last x_3) window, where x_i = sin(frequency (W_i x_{i-1} + b_i)) from the features x_0.

    Args:
        features: (at least L, F).
        window: (at least L, D). It is not differentiated.
        frequency: (H,).
        layers: The weights (H, F), (H, H), (H, H) and biases (H,) of three layers.
        last: (D, H).
        length: L, the number of taps.

    Returns:
        K (D, L).

    >>> import torch
    >>> one = torch.ones(1, 1)
    >>> implicit_taps(torch.tensor([[0.0], [1.0]]), one.expand(2, 1), one[0], [(one, 0 * one[0])] * 3, one, length=2)
    tensor([[0.0000, 0.6784]])
    """
    op = "implicit_taps"
    check_rank(op, "features", features, ("L", "F"))
    tensors = (features, window, frequency, *(tensor for layer in layers for tensor in layer), last)
    check_dtypes(op, list(zip(TENSORS, tensors, strict=True)))
    H, D = len(frequency), window.shape[-1]
    shapes = [(H, features.shape[1]), (H,), (H, H), (H,), (H, H), (H,), (D, H)]
    fits = [tuple(tensor.shape) for tensor in tensors[3:]] == shapes and min(len(features), len(window)) >= length
    if not fits:
        found = ", ".join(map(format_shape, tensors))
        raise OpsError(f"{op}: the shapes {found} do not fit {length} taps; pass those of its documentation")
    chosen = backend.choose(features)
    backend.check_backend(op, features, 1)
    with backend.no_autocast(features):
        too_large = max(H, features.shape[1]) > MOST_UNITS or length > MOST_TAPS
        if not backend.has_fast_kernels(features) or too_large:
            return reference.taps(features, window, frequency, layers, last, length)
        (taps,) = OPERATION(*as_one_replica(*tensors), length, chosen)
    return taps.squeeze(0)
