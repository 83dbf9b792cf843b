"""The delta rule of DeltaNet: each step replaces the value stored under its key in a matrix S."""

from __future__ import annotations

import math

from torch import Tensor

from sdssm.devices import TRITON_LARGEST_HEAD
from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation, needs_gradient
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import check_dtypes, check_last_dimensions, check_rank
from sdssm.ops.delta import reference
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading
from sdssm.ops.precision import call_in_float32
from sdssm.ops.prepare import check_length_values, check_lengths, promote_under_autocast

OPERATION = DifferentiableOperation(
    "delta_scan",
    "delta",
    tensors=("q", "k", "v", "beta", "gate", "S0", "lengths"),
    differentiable=("q", "k", "v", "beta", "gate", "S0"),
    results=("outputs", "final"),
)


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
    """Compute the delta rule for each of H heads.

        S_t = gate_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T
        o_t = S_t q_t

    With keys of length 1 the matrix I - beta k k^T has the eigenvalue 1 - beta along k, and 1 across it.

    Args:
        q: Queries (..., L, H, Dk).
        k: Keys (..., L, H, Dk).
        v: Values (..., L, H, Dv).
        beta: Step sizes (..., L, H).
        gate: Decay of S before each position (..., L, H); None is 1.
        S0: The matrix before the first position (..., H, Dv, Dk); None is zero.
        steps: With n > 1 this is DeltaProduct: k, v and beta have L n entries, those of position t from t n on. They
            are applied one after the other, the gate before the first; the output is read after the last.
        lengths: Number of positions of each row (...); None is L.

    Returns:
        The outputs o (..., L, H, Dv), zero past the end of a row, and S at the end of each row (..., H, Dv, Dk).

    >>> import torch
    >>> k = v = torch.eye(2)[:, None]  # two positions, one head: each unit vector is stored under itself
    >>> outputs, final = delta_scan(k, k, v, torch.ones(2, 1))
    >>> final.tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    return _scan("delta_scan", q, k, v, beta, gate, S0, steps, lengths, outputs_needed=True)


def delta_final(
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None = None,
    S0: Tensor | None = None,
    *,
    steps: int = 1,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return only the S at the end of each row that `delta_scan` returns, (..., H, Dv, Dk), without any output.

    >>> import torch
    >>> k = v = torch.eye(2)[:, None]
    >>> delta_final(k, v, torch.ones(2, 1)).tolist()
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    op = "delta_final"
    check_rank(op, "k", k, ("L", "H", "Dk"))
    _check_steps(op, steps)
    # Keys have the shape of queries. Where queries cannot be left out their outputs are ignored.
    queries = k[..., ::steps, :, :].detach()
    return _scan(op, queries, k, v, beta, gate, S0, steps, lengths, outputs_needed=False)[1]


def _check_steps(op: str, steps: int) -> None:
    """Raise `OpsError` unless `steps` is a positive integer."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise OpsError(f"{op}: steps is {steps!r}; it must be an integer of at least 1")


def _scan(
    op: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None,
    S0: Tensor | None,
    steps: int,
    lengths: Tensor | None,
    *,
    outputs_needed: bool,
) -> tuple[Tensor, Tensor]:
    """Check the arguments and run the scan; unless outputs are needed, those returned are undefined."""
    _check_steps(op, steps)
    check_rank(op, "q", q, ("L", "H", "Dk"))
    q, k, v, beta, gate, S0 = promote_under_autocast(q, k, v, beta, gate, S0)
    check_dtypes(op, [("q", q), ("k", k), ("v", v), ("beta", beta), ("gate", gate), ("S0", S0)])
    L, H, Dk = q.shape[-3:]
    all_steps = "L" if steps == 1 else f"L*{steps}"
    check_last_dimensions(op, "k", k, (L * steps, H, Dk), (all_steps, "H", "Dk"), "q", q)
    check_rank(op, "v", v, (all_steps, "H", "Dv"))
    Dv = v.shape[-1]
    check_last_dimensions(op, "v", v, (L * steps, H, Dv), (all_steps, "H", "Dv"), "q", q)
    check_last_dimensions(op, "beta", beta, (L * steps, H), (all_steps, "H"), "q", q)
    if gate is not None:
        check_last_dimensions(op, "gate", gate, (L, H), ("L", "H"), "q", q)
    if S0 is not None:
        check_last_dimensions(op, "S0", S0, (H, Dv, Dk), ("H", "Dv", "Dk"), "q", q)
    check_lengths(op, lengths, "q", q)
    arguments = [("q", q, 3), ("k", k, 3), ("v", v, 3), ("beta", beta, 2), ("gate", gate, 2), ("S0", S0, 3)]
    lead = broadcast_leads(op, [*arguments, ("lengths", lengths, 0)])
    check_length_values(op, lengths, L)
    chosen = backend.choose(q)
    backend.check_backend(op, q, 1)
    if chosen == "triton" and max(Dk, Dv) > TRITON_LARGEST_HEAD:
        raise OpsError(
            f"{op}: heads have Dk={Dk} and Dv={Dv}; the triton backend takes at most {TRITON_LARGEST_HEAD} of each, "
            'use more heads or use_backend("reference")'
        )
    with backend.no_autocast(q):
        if uses_reference(chosen, q):
            start = q.new_zeros(H, Dv, Dk) if S0 is None else S0
            start = start.expand(*lead, *start.shape[-3:])
            queries = q.expand(*lead, *q.shape[-3:])
            return call_in_float32(reference.scan, queries, k, v, beta, gate, start, lengths, steps)
        rows = (1, math.prod(lead))
        needs_outputs = outputs_needed or chosen != "triton"
        tensors = [
            flatten_leading(tensor, lead, tail, rows)
            for _, tensor, tail in (arguments if needs_outputs else [("q", None, 3), *arguments[1:]])
        ]
        ends = flatten_integers(lengths, lead, 0, rows)
        needs_grad = needs_gradient(tensors)
        outputs, final = OPERATION(*tensors, ends, steps, needs_grad, chosen)
    final = final.reshape(*lead, H, Dv, Dk)
    return outputs.reshape(*lead, L, H, Dv) if needs_outputs else q, final


def delta_step(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, S: Tensor, gate: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute one position of `delta_scan`: its output (..., H, Dv) and the next S (..., H, Dv, Dk).

    q (..., H, Dk), k (..., n, H, Dk), v (..., n, H, Dv), beta (..., n, H), S (..., H, Dv, Dk), gate (..., H); n is the
    number of steps, 1 for the delta rule itself.

    >>> import torch
    >>> k = torch.tensor([[[0.6, 0.8]]])  # one step, one head
    >>> _, S = delta_step(k[0], k, torch.zeros(1, 1, 2), torch.full((1, 1), 2.0), torch.eye(2)[None])
    >>> [[round(x, 2) for x in row] for row in S[0].tolist()]  # beta = 2: a reflection
    [[0.28, -0.96], [-0.96, -0.28]]
    """
    op = "delta_step"
    check_rank(op, "q", q, ("H", "Dk"))
    q, k, v, beta, gate, S = promote_under_autocast(q, k, v, beta, gate, S)
    check_dtypes(op, [("q", q), ("k", k), ("v", v), ("beta", beta), ("S", S), ("gate", gate)])
    H, Dk = q.shape[-2:]
    check_rank(op, "k", k, ("n", "H", "Dk"))
    n = k.shape[-3]
    check_last_dimensions(op, "k", k, (n, H, Dk), ("n", "H", "Dk"), "q", q)
    check_rank(op, "v", v, ("n", "H", "Dv"))
    Dv = v.shape[-1]
    check_last_dimensions(op, "v", v, (n, H, Dv), ("n", "H", "Dv"), "k", k)
    check_last_dimensions(op, "beta", beta, (n, H), ("n", "H"), "k", k)
    check_last_dimensions(op, "S", S, (H, Dv, Dk), ("H", "Dv", "Dk"), "q", q)
    if gate is not None:
        check_last_dimensions(op, "gate", gate, (H,), ("H",), "q", q)
    broadcast_leads(op, [("q", q, 2), ("k", k, 3), ("v", v, 3), ("beta", beta, 2), ("S", S, 3), ("gate", gate, 1)])
    with backend.no_autocast(q):
        return reference.step(q, k, v, beta, gate, S)
