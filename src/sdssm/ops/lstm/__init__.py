"""LSTM: a cell that gates let keep, add to and show, its inputs already mapped to drives."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation, gradient_is_wanted
from sdssm.ops.backend import plainly
from sdssm.ops.checks import check_kinds, check_rank, check_tail, shape_of
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import broadcast_leads, flatten, lead_of, replicas_and_rows
from sdssm.ops.lstm import reference
from sdssm.ops.prepare import check_length_values, check_lengths, one_dtype, start_state

OPERATION = DifferentiableOperation(
    "lstm_scan",
    "lstm",
    tensors=("W", "drive", "x0", "c0", "lengths"),
    differentiable=("W", "drive", "x0", "c0"),
    results=("states", "final", "cell"),
)


def _checked(
    op: str, W: Tensor, drive: Tensor, form: tuple[str, ...], x: Tensor | None, c: Tensor | None, names: tuple[str, str]
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    check_rank(op, "W", W, ("4N", "N"))
    if W.shape[-2] != 4 * W.shape[-1]:
        raise OpsError(
            f"{op}: W has shape {shape_of(W)}; it must be (..., 4N, N), the rows of the gates i, f, g, o one after the "
            "other"
        )
    first, second, x, c = one_dtype((W, drive, x, c))
    assert first is not None and second is not None
    check_kinds(op, [("W", first), ("drive", second), (names[0], x), (names[1], c)])
    check_rank(op, "drive", second, form)
    check_tail(op, "drive", second, W.shape[-2:-1], ("4N",), "W", W)
    for name, tensor in zip(names, (x, c), strict=True):
        if tensor is not None:
            check_tail(op, name, tensor, W.shape[-1:], ("N",), "W", W)
    return first, second, x, c


def lstm_scan(
    W: Tensor,
    drive: Tensor,
    x0: Tensor | None = None,
    c0: Tensor | None = None,
    *,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM over drives, its gates in torch's order:

        i, f, g, o  the four parts of W h_{t-1} + drive_t, through sigmoid, sigmoid, tanh, sigmoid
        c_t         f c_{t-1} + i g
        h_t         o tanh(c_t)

    W (..., 4N, N), drive (..., B, L, 4N), x0 and c0 broadcast to (..., B, N) and are zero where None, lengths to
    (..., B) -> states h (..., B, L, N), the last state and the last cell (..., B, N). States past the end of a row are
    zero. W is a parameter: its leading dimensions are those before B.

    >>> keep, add = [-99.0, 99.0, 0.0, 99.0], [99.0, 99.0, 99.0, 99.0]  # what a cell of size 1 may be told
    >>> states, final, cell = lstm_scan(torch.zeros(4, 1), torch.tensor([[add, keep, add]]))
    >>> cell.tolist(), torch.equal(final, cell.tanh())
    ([[2.0]], True)
    """
    op = "lstm_scan"
    W, drive, x0, c0 = _checked(op, W, drive, ("B", "L", "4N"), x0, c0, ("x0", "c0"))
    check_lengths(op, lengths, "W", W)
    length, size = drive.shape[-2], W.shape[-1]
    backend.check_backend(op, W, size)
    check_length_values(op, lengths, length)
    # A parameter has no row dimension: a dimension of size 1 stands in for it while leads are compared.
    lead = broadcast_leads(
        op,
        [("drive", drive, 2), ("W", W.unsqueeze(-3), 2), ("x0", x0, 1), ("c0", c0, 1), ("lengths", lengths, 0)],
    )
    chosen = backend.choose(W)
    with backend.no_autocast(W):
        if plainly(chosen, W) or not math.prod(lead):
            wide = torch.float32 if W.dtype in backend.NARROW else W.dtype
            x, c = (start_state(start, lead, W, size).to(wide) for start in (x0, c0))
            states, final, cell = reference.scan(W.to(wide), drive.to(wide), x, c, lengths)
            return states.to(W.dtype), final.to(W.dtype), cell.to(W.dtype)
        outer, replicas, rows = replicas_and_rows([lead_of(W, 2)], lead)
        states, final, cell = OPERATION(
            W.reshape(1, 4 * size, size).contiguous() if replicas == 1 else flatten(W, outer, 2, (replicas,)),
            flatten(drive, lead, 2, (replicas, rows)),
            None if x0 is None else flatten(x0, lead, 1, (replicas, rows)),
            None if c0 is None else flatten(c0, lead, 1, (replicas, rows)),
            None if lengths is None else flatten(lengths.long(), lead, 0, (replicas, rows)),
            gradient_is_wanted((W, drive, x0, c0)),
            chosen,
        )
    return states.reshape(*lead, length, size), final.reshape(*lead, size), cell.reshape(*lead, size)


def lstm_step(W: Tensor, drive: Tensor, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """One step of `lstm_scan`: drive (..., B, 4N), state x and cell c (..., B, N) -> the next state and cell.

    >>> x, c = lstm_step(torch.zeros(4, 1), torch.zeros(1, 4), torch.ones(1, 1), torch.ones(1, 1))
    >>> c.tolist()  # every gate half open, and nothing to add
    [[0.5]]
    """
    W, drive, state, cell = _checked("lstm_step", W, drive, ("B", "4N"), x, c, ("x", "c"))
    assert state is not None and cell is not None
    with backend.no_autocast(W):
        return reference.step(W, drive, state, cell)


def torch_lstm(
    u: Tensor, weights: tuple[Tensor, ...], x0: Tensor | None, c0: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """`lstm_scan` by torch: u (B, L, D), weights as `nn.LSTM` has them -> states (B, L, N), final and cell (B, N)."""
    start = [start_state(one, u.shape[:1], u, weights[1].shape[-1])[None] for one in (x0, c0)]
    states, final, cell = torch.lstm(u, start, weights, True, 1, 0.0, False, False, True)
    return states, final[0], cell[0]
