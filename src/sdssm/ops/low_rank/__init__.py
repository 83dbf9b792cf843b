"""The kernels of diagonal plus low-rank systems: first taps and their gradient in one kernel each.

For short lengths on a GPU, and with numba on a CPU. `sdssm.layers.s4` computes them elsewhere, with FFTs, which take
about ninety kernels.
"""

from __future__ import annotations

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.checks import check_dtypes, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import as_one_replica
from sdssm.ops.low_rank import reference

OPERATION = DifferentiableOperation(
    "low_rank_taps",
    "low_rank",
    tensors=("log_dt", "log_decay", "frequency", "P", "B", "C"),
    differentiable=("log_dt", "log_decay", "frequency", "P", "B", "C"),
    results=("taps",),
    unsaved_results=("taps",),
)
#: The most modes of the kernels. Programs of Triton hold a state in registers.
MOST_MODES = 512


def low_rank_taps(
    log_dt: Tensor, log_decay: Tensor, frequency: Tensor, P: Tensor, B: Tensor, C: Tensor, *, length: int
) -> Tensor:
    """Return the kernels K_l = C Abar^l Bbar of systems with A = diag(lambda) - P P^*, for each of D channels.

    Of each conjugate pair of modes one is given. The eigenvalues lambda are -exp(log_decay) + i frequency, the time
    step is exp(log_dt), and the discretisation is bilinear. The kernels take one step after the other.

    Args:
        log_dt: (D,).
        log_decay: (D, M).
        frequency: (D, M).
        P: (2, D, M), real and imaginary parts.
        B: As P.
        C: As P.
        length: L, the number of taps.

    Returns:
        K (D, L).

    >>> import torch
    >>> B = torch.tensor([[[0.5]], [[0.0]]])
    >>> low_rank_taps(torch.zeros(1), torch.zeros(1, 1), torch.zeros(1, 1), 0 * B, B, B, length=3)  # 1/3 of the last
    tensor([[0.3333, 0.1111, 0.0370]])
    """
    op = "low_rank_taps"
    check_rank(op, "frequency", frequency, ("D", "M"))
    pairs = [("P", P), ("B", B), ("C", C)]
    check_dtypes(op, [("log_dt", log_dt), ("log_decay", log_decay), ("frequency", frequency), *pairs])
    shape = frequency.shape
    fits = log_dt.shape == shape[:1] and log_decay.shape == shape
    if not fits or any(pair.shape != (2, *shape) for _, pair in pairs):
        shapes = ", ".join(format_shape(x) for x in (log_dt, log_decay, frequency, P, B, C))
        raise OpsError(f"{op}: the shapes {shapes} do not fit; pass (D,), (D, M), (D, M) and three times (2, D, M)")
    chosen = backend.choose(log_dt)
    backend.check_backend(op, log_dt, 1)
    with backend.no_autocast(log_dt):
        if not backend.has_fast_kernels(log_dt) or shape[1] > MOST_MODES:
            return reference.taps(log_dt, log_decay, frequency, P, B, C, length)
        (taps,) = OPERATION(*as_one_replica(log_dt, log_decay, frequency, P, B, C), length, chosen)
    return taps.squeeze(0)
