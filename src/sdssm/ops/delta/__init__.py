"""The delta rule: a matrix per head, in which each input replaces what stands under its key."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation, gradient_is_wanted
from sdssm.ops.backend import plainly
from sdssm.ops.checks import check_kinds, check_rank, check_tail
from sdssm.ops.delta import reference
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import broadcast_leads, flatten
from sdssm.ops.prepare import check_length_values, check_lengths, one_dtype

OPERATION = DifferentiableOperation(
    "delta_scan",
    "delta",
    tensors=("q", "k", "v", "beta", "gate", "S0", "lengths"),
    differentiable=("q", "k", "v", "beta", "gate", "S0"),
    results=("outputs", "final"),
)
#: Heads larger than this the Triton kernels refuse: three matrices of a head would not fit the registers.
LARGEST_HEAD = 128


def delta_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None = None,
    S0: Tensor | None = None,
    *,
    steps: int = 1,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """S_t = gate_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, read as o_t = S_t q_t, for each of H heads.

    q (..., L, H, Dk), k (..., L, H, Dk), v (..., L, H, Dv), beta (..., L, H), gate (..., L, H), 1 where None,
    S0 (..., H, Dv, Dk), zeros where None -> outputs (..., L, H, Dv) and the final S (..., H, Dv, Dk). With k of
    length 1 the matrix I - beta k k^T has the eigenvalue 1 - beta along k, and 1 across it.

    `steps` n above 1 is DeltaProduct: k, v and beta have n entries for each position, L n in all, those of position t
    from t n on. They are applied one after the other, the gate before the first, and the last is read.

    Rows end after their `lengths` (...): outputs past the end are zero, and the final S is the one at the end.

    >>> k = v = torch.eye(2)[:, None]  # two positions, one head: under each unit vector itself
    >>> outputs, final = delta_scan(k, k, v, torch.ones(2, 1))
    >>> final.tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    op = "delta_scan"
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise OpsError(f"{op}: steps is {steps!r}; it must be a whole number of at least 1")
    check_rank(op, "q", q, ("L", "H", "Dk"))
    q, k, v, beta, gate, S0 = _one_dtype(q, k, v, beta, gate, S0)
    check_kinds(op, [("q", q), ("k", k), ("v", v), ("beta", beta), ("gate", gate), ("S0", S0)])
    L, H, Dk = q.shape[-3:]
    count = "L" if steps == 1 else f"L*{steps}"
    check_tail(op, "k", k, (L * steps, H, Dk), (count, "H", "Dk"), "q", q)
    check_rank(op, "v", v, (count, "H", "Dv"))
    Dv = v.shape[-1]
    check_tail(op, "v", v, (L * steps, H, Dv), (count, "H", "Dv"), "q", q)
    check_tail(op, "beta", beta, (L * steps, H), (count, "H"), "q", q)
    if gate is not None:
        check_tail(op, "gate", gate, (L, H), ("L", "H"), "q", q)
    if S0 is not None:
        check_tail(op, "S0", S0, (H, Dv, Dk), ("H", "Dv", "Dk"), "q", q)
    check_lengths(op, lengths, "q", q)
    named = [("q", q, 3), ("k", k, 3), ("v", v, 3), ("beta", beta, 2), ("gate", gate, 2), ("S0", S0, 3)]
    lead = broadcast_leads(op, [*named, ("lengths", lengths, 0)])
    check_length_values(op, lengths, L)
    chosen = backend.choose(q)
    backend.check_backend(op, q, 1)
    if chosen == "triton" and max(Dk, Dv) > LARGEST_HEAD:
        raise OpsError(
            f"{op}: heads have Dk={Dk} and Dv={Dv}; the triton backend takes at most {LARGEST_HEAD} of each, "
            'use more heads or use_backend("reference")'
        )
    with backend.no_autocast(q):
        if plainly(chosen, q):
            return _plain(q, k, v, beta, gate, S0, lengths, lead, steps)
        rows = (1, math.prod(lead))
        tensors = [None if tensor is None else flatten(tensor, lead, tail, rows) for _, tensor, tail in named]
        ends = None if lengths is None else flatten(lengths.long(), lead, 0, rows)
        wanted = gradient_is_wanted(tensors)
        outputs, final = OPERATION(*tensors, ends, steps, wanted, chosen)
    return outputs.reshape(*lead, L, H, Dv), final.reshape(*lead, H, Dv, Dk)


def delta_step(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, S: Tensor, gate: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One position of `delta_scan`: its output (..., H, Dv) and the next S (..., H, Dv, Dk).

    q (..., H, Dk), k (..., n, H, Dk), v (..., n, H, Dv), beta (..., n, H), S (..., H, Dv, Dk), gate (..., H); n is the
    number of steps, 1 for the delta rule itself.

    >>> k = torch.tensor([[[0.6, 0.8]]])  # one step, one head
    >>> _, S = delta_step(k[0], k, torch.zeros(1, 1, 2), torch.full((1, 1), 2.0), torch.eye(2)[None])
    >>> [[round(x, 2) for x in row] for row in S[0].tolist()]  # beta = 2: a reflection
    [[0.28, -0.96], [-0.96, -0.28]]
    """
    op = "delta_step"
    check_rank(op, "q", q, ("H", "Dk"))
    q, k, v, beta, gate, start = _one_dtype(q, k, v, beta, gate, S)
    assert start is not None
    check_kinds(op, [("q", q), ("k", k), ("v", v), ("beta", beta), ("S", start), ("gate", gate)])
    H, Dk = q.shape[-2:]
    check_rank(op, "k", k, ("n", "H", "Dk"))
    n = k.shape[-3]
    check_tail(op, "k", k, (n, H, Dk), ("n", "H", "Dk"), "q", q)
    check_rank(op, "v", v, ("n", "H", "Dv"))
    Dv = v.shape[-1]
    check_tail(op, "v", v, (n, H, Dv), ("n", "H", "Dv"), "k", k)
    check_tail(op, "beta", beta, (n, H), ("n", "H"), "k", k)
    check_tail(op, "S", start, (H, Dv, Dk), ("H", "Dv", "Dk"), "q", q)
    if gate is not None:
        check_tail(op, "gate", gate, (H,), ("H",), "q", q)
    broadcast_leads(op, [("q", q, 2), ("k", k, 3), ("v", v, 3), ("beta", beta, 2), ("S", start, 3), ("gate", gate, 1)])
    with backend.no_autocast(q):
        return reference.step(q, k, v, beta, gate, start)


def _one_dtype(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, S: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    first, second, third, fourth, gate, S = one_dtype((q, k, v, beta, gate, S))
    assert first is not None and second is not None and third is not None and fourth is not None
    return first, second, third, fourth, gate, S


def _plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None,
    S0: Tensor | None,
    lengths: Tensor | None,
    lead: tuple[int, ...],
    steps: int,
) -> tuple[Tensor, Tensor]:
    """The reference, 16-bit numbers in float32."""
    dtype = q.dtype
    wide = torch.float32 if dtype in backend.NARROW else dtype
    S = q.new_zeros(q.shape[-2], v.shape[-1], q.shape[-1]) if S0 is None else S0
    outputs, final = reference.scan(
        q.to(wide).expand(*lead, *q.shape[-3:]),
        k.to(wide),
        v.to(wide),
        beta.to(wide),
        None if gate is None else gate.to(wide),
        S.to(wide).expand(*lead, *S.shape[-3:]),
        lengths,
        steps,
    )
    return outputs.to(dtype), final.to(dtype)
