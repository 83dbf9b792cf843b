"""h_t = relu(W h_{t-1} + drive_t): an Elman network, its inputs already mapped to drives."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation
from sdssm.ops.backend import plainly
from sdssm.ops.checks import check_kinds, check_rank, check_square, check_tail
from sdssm.ops.elman import reference
from sdssm.ops.layout import broadcast_leads, flatten, lead_of, replicas_and_rows
from sdssm.ops.prepare import check_length_values, check_lengths, one_dtype, start_state

OPERATION = DifferentiableOperation(
    "elman_scan",
    "elman",
    tensors=("W", "drive", "x0", "lengths"),
    differentiable=("W", "drive", "x0"),
    results=("states", "final"),
)


def _checked(
    op: str, W: Tensor, drive: Tensor, form: tuple[str, ...], x: Tensor | None, x_name: str
) -> tuple[Tensor, Tensor, Tensor | None]:
    check_rank(op, "W", W, ("N", "N"))
    check_square(op, "W", W)
    first, second, x = one_dtype((W, drive, x))
    assert first is not None and second is not None
    check_kinds(op, [("W", first), ("drive", second), (x_name, x)])
    check_rank(op, "drive", second, form)
    for name, tensor in (("drive", second), (x_name, x)):
        if tensor is not None:
            check_tail(op, name, tensor, W.shape[-1:], ("N",), "W", W)
    return first, second, x


def elman_scan(
    W: Tensor, drive: Tensor, x0: Tensor | None = None, *, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """h_t = relu(W h_{t-1} + drive_t).

    W (..., N, N), drive (..., B, L, N), x0 broadcasts to (..., B, N) and is zero where None, lengths to (..., B) ->
    states (..., B, L, N), final (..., B, N). States past the end of a row are zero. W is a parameter: its leading
    dimensions are those before B.

    >>> W, drive = torch.tensor([[-1.0]]), torch.tensor([[[3.0], [1.0], [1.0], [1.0]]])
    >>> states, final = elman_scan(W, drive)
    >>> states.flatten().tolist(), final.tolist()
    ([3.0, 0.0, 1.0, 0.0], [[0.0]])
    """
    op = "elman_scan"
    W, drive, x0 = _checked(op, W, drive, ("B", "L", "N"), x0, "x0")
    check_lengths(op, lengths, "W", W)
    length, size = drive.shape[-2:]
    backend.check_backend(op, W, size)
    check_length_values(op, lengths, length)
    # A parameter has no row dimension: a dimension of size 1 stands in for it while leads are compared.
    lead = broadcast_leads(op, [("drive", drive, 2), ("W", W.unsqueeze(-3), 2), ("x0", x0, 1), ("lengths", lengths, 0)])
    chosen = backend.choose(W)
    with backend.no_autocast(W):
        if plainly(chosen, W) or not math.prod(lead):
            wide = torch.float32 if W.dtype in backend.NARROW else W.dtype
            start = start_state(x0, lead, W, size).to(wide)
            states, final = reference.scan(W.to(wide), drive.to(wide), start, lengths)
            return states.to(W.dtype), final.to(W.dtype)
        outer, replicas, rows = replicas_and_rows([lead_of(W, 2)], lead)
        states, final = OPERATION(
            W.reshape(1, size, size).contiguous() if replicas == 1 else flatten(W, outer, 2, (replicas,)),
            flatten(drive, lead, 2, (replicas, rows)),
            None if x0 is None else flatten(x0, lead, 1, (replicas, rows)),
            None if lengths is None else flatten(lengths.long(), lead, 0, (replicas, rows)),
            chosen,
        )
    return states.reshape(*lead, length, size), final.reshape(*lead, size)


def elman_step(W: Tensor, drive: Tensor, x: Tensor) -> Tensor:
    """One step of `elman_scan`: drive (..., B, N), x (..., B, N) -> the next state (..., B, N).

    >>> elman_step(torch.tensor([[2.0]]), torch.tensor([[1.0], [-9.0]]), torch.ones(2, 1)).tolist()
    [[3.0], [0.0]]
    """
    W, drive, checked = _checked("elman_step", W, drive, ("B", "N"), x, "x")
    assert checked is not None
    with backend.no_autocast(W):
        return reference.step(W, drive, checked)


def torch_reads(u: Tensor) -> bool:
    """Whether torch's own recurrent networks, which map inputs to drives themselves, may read inputs u: on the CPU.

    They are no kernels of ours, so neither `vmap` over replicas nor another backend goes through them.
    """
    ours = torch._C._are_functorch_transforms_active() or plainly(backend.choose(u), u)
    return not ours and u.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


def torch_rnn(u: Tensor, weights: tuple[Tensor, ...], x0: Tensor | None) -> tuple[Tensor, Tensor]:
    """`elman_scan` by torch: u (B, L, D), weights as `nn.RNN` has them -> states (B, L, N), final (B, N)."""
    start = start_state(x0, u.shape[:1], u, weights[1].shape[-1])
    states, final = torch.rnn_relu(u, start[None], weights, True, 1, 0.0, False, False, True)
    return states, final[0]
