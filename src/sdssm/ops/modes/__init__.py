"""The kernels of diagonal systems: first taps and their gradient in one kernel each, in place of about fifty.

For short lengths on a GPU, and with numba on a CPU. `sdssm.layers.convolution` computes them elsewhere.
"""

from __future__ import annotations

from torch import Tensor

from sdssm.errors import did_you_mean
from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.checks import check_dtypes, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import as_one_replica
from sdssm.ops.modes import reference

OPERATION = DifferentiableOperation(
    "modal_taps",
    "modes",
    tensors=("log_dt", "log_decay", "frequency", "C", "B"),
    differentiable=("log_dt", "log_decay", "frequency", "C", "B"),
    results=("taps",),
    unsaved_results=("taps",),
)
#: The most taps of the kernels. Those of Triton hold the powers of a mode in registers.
MOST_TAPS = 64


def modal_taps(
    log_dt: Tensor,
    log_decay: Tensor,
    frequency: Tensor,
    C: Tensor,
    B: Tensor | None = None,
    *,
    length: int,
    discretisation: str = "zero-order-hold",
) -> Tensor:
    """Return the kernels K_l = 2 Re sum_m C_m Abar_m^l Bbar_m of systems with M modes for each of D channels.

    The eigenvalues of A are -exp(log_decay) + i frequency, and dt = exp(log_dt).

    Args:
        log_dt: (D,).
        log_decay: (D, M).
        frequency: (D, M).
        C: (2, D, M), real and imaginary parts.
        B: As C; None is 1.
        length: L, the number of taps.
        discretisation: How A and B become Abar and Bbar, "zero-order-hold" or "bilinear".

    Returns:
        K (D, L).

    >>> import torch
    >>> C = torch.tensor([[[0.5]], [[0.0]]])
    >>> modal_taps(torch.zeros(1), torch.zeros(1, 1), torch.zeros(1, 1), C, length=3)  # (1 - 1/e) e^-l
    tensor([[0.6321, 0.2325, 0.0855]])
    """
    op = "modal_taps"
    check_rank(op, "frequency", frequency, ("D", "M"))
    pairs = [("C", C), *([] if B is None else [("B", B)])]
    check_dtypes(op, [("log_dt", log_dt), ("log_decay", log_decay), ("frequency", frequency), *pairs])
    if discretisation not in reference.DISCRETISATIONS:
        raise OpsError(
            f"{op}: discretisation is {discretisation!r}; {did_you_mean(discretisation, reference.DISCRETISATIONS)}"
        )
    shape = frequency.shape
    fits = log_dt.shape == shape[:1] and log_decay.shape == shape
    if not fits or any(pair.shape != (2, *shape) for _, pair in pairs):
        shapes = ", ".join(format_shape(x) for x in (log_dt, log_decay, frequency, *(pair for _, pair in pairs)))
        raise OpsError(f"{op}: the shapes {shapes} do not fit; pass (D,), (D, M), (D, M) and (2, D, M)")
    chosen = backend.choose(log_dt)
    backend.check_backend(op, log_dt, 1)
    with backend.no_autocast(log_dt):
        if not backend.has_fast_kernels(log_dt) or length > MOST_TAPS:
            return reference.taps(log_dt, log_decay, frequency, C, B, length, discretisation)
        (taps,) = OPERATION(*as_one_replica(log_dt, log_decay, frequency, C, B), length, discretisation, chosen)
    return taps.squeeze(0)
