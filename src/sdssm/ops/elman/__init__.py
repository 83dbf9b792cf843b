"""The Elman recurrence h_t = relu(W h_{t-1} + drive_t).

drive_t is the input after its linear map.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_last_dimensions, check_rank, check_square
from sdssm.ops.elman import reference
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.precision import call_in_float32
from sdssm.ops.prepare import check_length_values, check_lengths, promote_under_autocast, start_state

OPERATION = DifferentiableOperation(
    "elman_scan",
    "elman",
    tensors=("W", "drive", "x0", "lengths"),
    differentiable=("W", "drive", "x0"),
    results=("states", "final"),
)


def _validate(
    op: str, W: Tensor, drive: Tensor, drive_dims: tuple[str, ...], x: Tensor | None, x_name: str
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Check shapes, dtypes and devices; return W, drive and the state in one dtype."""
    check_rank(op, "W", W, ("N", "N"))
    check_square(op, "W", W)
    W, drive, x = promote_under_autocast(W, drive, x)
    check_dtypes(op, [("W", W), ("drive", drive), (x_name, x)])
    check_rank(op, "drive", drive, drive_dims)
    for name, tensor in (("drive", drive), (x_name, x)):
        if tensor is not None:
            check_last_dimensions(op, name, tensor, W.shape[-1:], ("N",), "W", W)
    return W, drive, x


def elman_scan(
    W: Tensor, drive: Tensor, x0: Tensor | None = None, *, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute h_t = relu(W h_{t-1} + drive_t) for every step t.

    Args:
        W: (..., N, N). It is a parameter: its leading dimensions are those before B.
        drive: (..., B, L, N).
        x0: The state before the first step, broadcast to (..., B, N); None is zero.
        lengths: Number of steps of each row, broadcast to (..., B); None is L.

    Returns:
        The states (..., B, L, N), zero past the end of a row, and the last state of each row (..., B, N).

    >>> W, drive = torch.tensor([[-1.0]]), torch.tensor([[[3.0], [1.0], [1.0], [1.0]]])
    >>> states, final = elman_scan(W, drive)
    >>> states.flatten().tolist(), final.tolist()
    ([3.0, 0.0, 1.0, 0.0], [[0.0]])
    """
    op = "elman_scan"
    W, drive, x0 = _validate(op, W, drive, ("B", "L", "N"), x0, "x0")
    check_lengths(op, lengths, "W", W)
    length, size = drive.shape[-2:]
    backend.check_backend(op, W, size)
    check_length_values(op, lengths, length)
    # W has no row dimension; a dimension of size 1 takes its place while leading dimensions are broadcast.
    lead = broadcast_leads(op, [("drive", drive, 2), ("W", W.unsqueeze(-3), 2), ("x0", x0, 1), ("lengths", lengths, 0)])
    chosen = backend.choose(W)
    with backend.no_autocast(W):
        if uses_reference(chosen, W) or not math.prod(lead):
            return call_in_float32(reference.scan, W, drive, start_state(x0, lead, W, size), lengths)
        outer, replicas, rows = replicas_and_rows([lead_of(W, 2)], lead)
        states, final = OPERATION(
            W.reshape(1, size, size).contiguous() if replicas == 1 else flatten_leading(W, outer, 2, (replicas,)),
            flatten_leading(drive, lead, 2, (replicas, rows)),
            flatten_leading(x0, lead, 1, (replicas, rows)),
            flatten_integers(lengths, lead, 0, (replicas, rows)),
            chosen,
        )
    return states.reshape(*lead, length, size), final.reshape(*lead, size)


def elman_step(W: Tensor, drive: Tensor, x: Tensor) -> Tensor:
    """Compute one step of `elman_scan`: drive (..., B, N), x (..., B, N) -> the next state (..., B, N).

    >>> elman_step(torch.tensor([[2.0]]), torch.tensor([[1.0], [-9.0]]), torch.ones(2, 1)).tolist()
    [[3.0], [0.0]]
    """
    W, drive, state = _validate("elman_step", W, drive, ("B", "N"), x, "x")
    assert state is not None
    with backend.no_autocast(W):
        return reference.step(W, drive, state)


def can_use_torch_rnn(u: Tensor) -> bool:
    """Return whether torch's own RNN and LSTM can be used for inputs u.

    They map inputs to drives themselves and are faster on the CPU for a single model. They support neither `vmap` over
    replicas nor the choice of a backend, so both go to `elman_scan` and `lstm_scan`.
    """
    chosen = backend.choose(u)
    if chosen != "cpu" or uses_reference(chosen, u) or torch._C._are_functorch_transforms_active():
        return False
    backend.check_backend("elman_scan", u, 1)
    return not backend.is_autocast_enabled(u)


def torch_rnn(u: Tensor, weights: tuple[Tensor, ...], x0: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute `elman_scan` with torch's own RNN, input map included.

    u (B, L, D), weights in the order of `nn.RNN`, x0 (B, N) or None -> states (B, L, N), final (B, N).
    """
    start = start_state(x0, u.shape[:1], u, weights[1].shape[-1])
    states, final = torch.rnn_relu(u, start[None], weights, True, 1, 0.0, False, False, True)
    return states, final[0]
