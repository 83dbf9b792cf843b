"""The LSTM recurrence on inputs that are already mapped to its gates (the drive)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation, needs_gradient
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_last_dimensions, check_rank, format_shape
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading, lead_of, replicas_and_rows
from sdssm.ops.lstm import reference
from sdssm.ops.precision import call_in_float32
from sdssm.ops.prepare import check_length_values, check_lengths, promote_under_autocast, start_state

OPERATION = DifferentiableOperation(
    "lstm_scan",
    "lstm",
    tensors=("W", "drive", "x0", "c0", "lengths"),
    differentiable=("W", "drive", "x0", "c0"),
    results=("states", "final", "cell"),
)


def _validate(
    op: str,
    W: Tensor,
    drive: Tensor,
    drive_dims: tuple[str, ...],
    x: Tensor | None,
    c: Tensor | None,
    names: tuple[str, str],
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Check shapes, dtypes and devices; return W, drive, state and cell in one dtype.

    `names` are the names of x and c in messages.
    """
    check_rank(op, "W", W, ("4N", "N"))
    if W.shape[-2] != 4 * W.shape[-1]:
        raise OpsError(
            f"{op}: W has shape {format_shape(W)}; it must be (..., 4N, N), the rows of the gates i, f, g and o stacked"
        )
    W, drive, x, c = promote_under_autocast(W, drive, x, c)
    check_dtypes(op, [("W", W), ("drive", drive), (names[0], x), (names[1], c)])
    check_rank(op, "drive", drive, drive_dims)
    check_last_dimensions(op, "drive", drive, W.shape[-2:-1], ("4N",), "W", W)
    for name, tensor in zip(names, (x, c), strict=True):
        if tensor is not None:
            check_last_dimensions(op, name, tensor, W.shape[-1:], ("N",), "W", W)
    return W, drive, x, c


def lstm_scan(
    W: Tensor,
    drive: Tensor,
    x0: Tensor | None = None,
    c0: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the states of an LSTM for every step t, with the gates in torch's order.

        i, f, g, o = W h_{t-1} + drive_t, split in four, through sigmoid, sigmoid, tanh and sigmoid
        c_t = f c_{t-1} + i g
        h_t = o tanh(c_t)

    Args:
        W: (..., 4N, N). It is a parameter: its leading dimensions are those before B.
        drive: (..., B, L, 4N).
        x0: The state h before the first step, broadcast to (..., B, N); None is zero.
        c0: The cell before the first step, likewise.
        lengths: Number of steps of each row, broadcast to (..., B); None is L.

    Returns:
        The states h (..., B, L, N), zero past the end of a row, the last state and the last cell (..., B, N).

    >>> keep, add = [-99.0, 99.0, 0.0, 99.0], [99.0, 99.0, 99.0, 99.0]  # saturated gates of a cell of size 1
    >>> states, final, cell = lstm_scan(torch.zeros(4, 1), torch.tensor([[add, keep, add]]))
    >>> cell.tolist(), torch.equal(final, cell.tanh())
    ([[2.0]], True)
    """
    op = "lstm_scan"
    W, drive, x0, c0 = _validate(op, W, drive, ("B", "L", "4N"), x0, c0, ("x0", "c0"))
    check_lengths(op, lengths, "W", W)
    length, size = drive.shape[-2], W.shape[-1]
    backend.check_backend(op, W, size)
    check_length_values(op, lengths, length)
    # W has no row dimension; a dimension of size 1 takes its place while leading dimensions are broadcast.
    lead = broadcast_leads(
        op,
        [("drive", drive, 2), ("W", W.unsqueeze(-3), 2), ("x0", x0, 1), ("c0", c0, 1), ("lengths", lengths, 0)],
    )
    chosen = backend.choose(W)
    with backend.no_autocast(W):
        if uses_reference(chosen, W) or not math.prod(lead):
            x, c = (start_state(start, lead, W, size) for start in (x0, c0))
            return call_in_float32(reference.scan, W, drive, x, c, lengths)
        outer, replicas, rows = replicas_and_rows([lead_of(W, 2)], lead)
        states, final, cell = OPERATION(
            W.reshape(1, 4 * size, size).contiguous() if replicas == 1 else flatten_leading(W, outer, 2, (replicas,)),
            flatten_leading(drive, lead, 2, (replicas, rows)),
            flatten_leading(x0, lead, 1, (replicas, rows)),
            flatten_leading(c0, lead, 1, (replicas, rows)),
            flatten_integers(lengths, lead, 0, (replicas, rows)),
            needs_gradient((W, drive, x0, c0)),
            chosen,
        )
    return states.reshape(*lead, length, size), final.reshape(*lead, size), cell.reshape(*lead, size)


def lstm_step(W: Tensor, drive: Tensor, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Compute one step of `lstm_scan`.

    W (..., 4N, N), drive (..., B, 4N), state x and cell c (..., B, N) -> the next state and cell.

    >>> x, c = lstm_step(torch.zeros(4, 1), torch.zeros(1, 4), torch.ones(1, 1), torch.ones(1, 1))
    >>> c.tolist()  # every sigmoid gate is 0.5, and g is 0
    [[0.5]]
    """
    W, drive, state, cell = _validate("lstm_step", W, drive, ("B", "4N"), x, c, ("x", "c"))
    assert state is not None and cell is not None
    with backend.no_autocast(W):
        return reference.step(W, drive, state, cell)


def torch_lstm(
    u: Tensor, weights: tuple[Tensor, ...], x0: Tensor | None, c0: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `lstm_scan` with torch's own LSTM, input map included.

    u (B, L, D), weights in the order of `nn.LSTM`, x0 and c0 (B, N) or None -> states (B, L, N), final and cell (B, N).
    """
    start = [start_state(vector, u.shape[:1], u, weights[1].shape[-1])[None] for vector in (x0, c0)]
    states, final, cell = torch.lstm(u, start, weights, True, 1, 0.0, False, False, True)
    return states, final[0], cell[0]
