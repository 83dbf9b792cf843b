"""The delta rule on the CPU: through numba where it is installed, else in torch alone.

In torch, time comes first and rows and heads are one dimension M, so that a position is one contiguous piece. Forward
keeps the errors e = v - S k, whose products with the keys are all that is ever added to S, and S itself every T
positions; backward adds up the states of T positions again from there. The compiled kernels keep nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops import compiled
from sdssm.ops.autograd import absent
from sdssm.ops.transitions import least_kept


class Laid(NamedTuple):
    """q (L, M, Dk, 1), k (L n, M, 1, Dk), v (L n, M, Dv, 1), beta (L n, M, 1, 1), gate (L, M, 1, 1)."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    gate: Tensor | None


def time_first(x: Tensor) -> Tensor:
    """(R, B, L, H, ...) -> (L, R B H, ...)."""
    R, B, L, H, *tail = x.shape
    return x.reshape(R * B, L, H, *tail).transpose(0, 1).reshape(L, R * B * H, *tail)


def rows_first(x: Tensor, like: Tensor) -> Tensor:
    """(L, M, ...) -> the shape of `like`, (R, B, L, H, ...)."""
    R, B, L, H, *tail = like.shape
    return x.reshape(L, R * B, H, *tail).transpose(0, 1).reshape(like.shape)


def past(lengths: Tensor | None, L: int, H: int) -> Tensor | None:
    """Which positions (L, M) lie past the ends of rows, lengths (R, B)."""
    if lengths is None:
        return None
    ends = lengths.reshape(-1, 1).expand(-1, H).reshape(-1)
    return torch.arange(L, device=ends.device)[:, None] >= ends


def lay(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, gone: Tensor | None, steps: int) -> Laid:
    """Time first; past its end a row adds nothing, whatever stands there."""
    x, keys, values, strengths = (time_first(one) for one in (q, k, v, beta))
    gates = None if gate is None else time_first(gate)
    if gone is not None:
        each = gone.repeat_interleave(steps, 0)
        x = x.masked_fill(gone[..., None], 0)
        keys, values = (one.masked_fill(each[..., None], 0) for one in (keys, values))
        strengths = strengths.masked_fill(each, 0)
        gates = None if gates is None else gates.masked_fill(gone, 1)
    return Laid(
        x[..., None],
        keys[..., None, :],
        values[..., None],
        strengths[..., None, None],
        None if gates is None else gates[..., None, None],
    )


def spacing(L: int) -> int:
    """T, positions between the states that are kept: as many as there are of those."""
    return max(1, math.isqrt(L))


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None,
    S0: Tensor | None,
    lengths: Tensor | None,
    steps: int,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """outputs (R, B, L, H, Dv), final (R, B, H, Dv, Dk), and where `wanted` S every T positions (R, C, B H, Dv, Dk) and
    the errors (R, L n, B H, Dv, 1).
    """
    if compiled.available():
        return *_compiled_forward(q, k, v, beta, gate, S0, lengths, steps), absent(q), absent(q)
    R, B, L, H, Dk = q.shape
    Dv, M = v.shape[-1], R * B * H
    gone = past(lengths, L, H)
    laid = lay(q, k, v, beta, gate, gone, steps)
    S = q.new_zeros(M, Dv, Dk) if S0 is None else S0.reshape(M, Dv, Dk).clone()
    outputs = q.new_empty(L, M, Dv)
    T = spacing(L)
    marks = q.new_empty(-(-L // T) if wanted else 0, M, Dv, Dk)
    errors = q.new_empty(L * steps if wanted else 0, M, Dv, 1)
    for t in range(L):
        if wanted and t % T == 0:
            marks[t // T] = S
        if laid.gate is not None:
            S.mul_(laid.gate[t])
        for s in range(t * steps, (t + 1) * steps):
            e = laid.v[s] - torch.bmm(S, laid.k[s].mT)
            if wanted:
                errors[s] = e
            S.addcmul_(laid.beta[s] * e, laid.k[s])
        torch.bmm(S, laid.q[t], out=outputs[t][..., None])
    if gone is not None:
        outputs.masked_fill_(gone[..., None], 0)
    found = outputs.view(L, R * B, H, Dv).transpose(0, 1).reshape(R, B, L, H, Dv)
    if not wanted:
        return found, S.view(R, B, H, Dv, Dk), absent(q), absent(q)
    # What is kept has R first, as vmap splits it: the rows of each replica lie together.
    marks, errors = (one.view(len(one), R, B * H, *one.shape[2:]).transpose(0, 1) for one in (marks, errors))
    return found, S.view(R, B, H, Dv, Dk), marks, errors


def backward(
    grad_outputs: Tensor | None,
    grad_final: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None,
    S0: Tensor | None,
    lengths: Tensor | None,
    outputs: Tensor,
    final: Tensor,
    marks: Tensor,
    errors: Tensor,
    steps: int,
    wanted: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v, beta, gate and S0. D is that of S, carried backwards."""
    if marks.dim() == 2:  # nothing was kept
        return _compiled_backward(grad_outputs, grad_final, q, k, v, beta, gate, S0, lengths, steps)
    R, B, L, H, Dk = q.shape
    Dv, M = v.shape[-1], R * B * H
    gone = past(lengths, L, H)
    laid = lay(q, k, v, beta, gate, gone, steps)
    marks, errors = (one.transpose(0, 1).flatten(1, 2) for one in (marks, errors))
    added = laid.beta * errors  # (L n, M, Dv, 1)
    arriving = None if grad_outputs is None else time_first(grad_outputs)[..., None]
    if arriving is not None and gone is not None:
        arriving = arriving.masked_fill(gone[..., None, None], 0)
    dq, dk, dv = torch.zeros_like(laid.q), torch.empty_like(laid.k), torch.empty_like(laid.v)
    dbeta, dgate = torch.empty_like(laid.beta), None if laid.gate is None else torch.empty_like(laid.gate)
    D = q.new_zeros(M, Dv, Dk) if grad_final is None else grad_final.reshape(M, Dv, Dk).clone()
    T = spacing(L)

    def advanced(S: Tensor, t: int) -> Tensor:
        after = S.clone() if laid.gate is None else S * laid.gate[t]
        for s in range(t * steps, (t + 1) * steps):
            after.addcmul_(added[s], laid.k[s])
        return after

    for first in reversed(range(0, L, T)):
        states = [marks[first // T]]  # before each position of the chunk, and after its last
        for t in range(first, min(first + T, L)):
            states.append(advanced(states[-1], t))
        for t in reversed(range(first, min(first + T, L))):
            S = states.pop()
            if arriving is not None:
                torch.bmm(S.mT, arriving[t], out=dq[t])
                D.addcmul_(arriving[t], laid.q[t].mT)
            for s in reversed(range(t * steps, (t + 1) * steps)):
                S.addcmul_(added[s], laid.k[s], value=-1)  # before step s
                de = torch.bmm(D, laid.k[s].mT)  # times beta, (M, Dv, 1)
                dbeta[s] = (de * errors[s]).sum(1, keepdim=True)
                de.mul_(laid.beta[s])
                dv[s] = de
                dk[s] = torch.bmm(added[s].mT, D) - torch.bmm(de.mT, S)
                D.addcmul_(de, laid.k[s], value=-1)
            if laid.gate is not None and dgate is not None:
                dgate[t] = (D * states[-1]).sum((1, 2), keepdim=True)
                D = functional.hardshrink(D.mul_(laid.gate[t]), least_kept(D.dtype))  # denormal numbers are slow
    if gone is not None:
        dbeta.masked_fill_(gone.repeat_interleave(steps, 0)[..., None, None], 0)
        if dgate is not None:
            dgate.masked_fill_(gone[..., None, None], 0)
    return (
        rows_first(dq, q),
        rows_first(dk, k),
        rows_first(dv, v),
        rows_first(dbeta, beta),
        None if gate is None or dgate is None else rows_first(dgate, gate),
        None if S0 is None else D.view(S0.shape),
    )


def _compiled_forward(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, S0: Tensor | None, lengths: Tensor | None,
    steps: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    from sdssm.ops.delta import numba_kernels

    R, B, L, H, Dk = q.shape
    outputs, final = q.new_empty(R, B, L, H, v.shape[-1]), q.new_empty(R, B, H, v.shape[-1], Dk)
    compiled._share(
        numba_kernels.forward, R * B, 2 * L * steps * final.numel(),
        *_arrays(q, k, v, beta, gate, S0, lengths), steps, least_kept(q.dtype),
        outputs.flatten(0, 1).numpy(), final.flatten(0, 1).numpy(),
    )  # fmt: skip
    return outputs, final


def _compiled_backward(
    grad_outputs: Tensor | None, grad_final: Tensor | None,
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, S0: Tensor | None, lengths: Tensor | None,
    steps: int,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    from sdssm.ops.delta import numba_kernels

    R, B, L = q.shape[:3]
    found = [None if one is None else torch.empty_like(one) for one in (q, k, v, beta, gate, S0)]
    compiled._share(
        numba_kernels.backward, R * B, 8 * k.numel() * v.shape[-1],
        _array(grad_outputs, q, 4), _array(grad_final, q, 4),
        *_arrays(q, k, v, beta, gate, S0, lengths), steps, spacing(L), least_kept(q.dtype),
        *(_array(one, q, rank) for one, rank in zip(found, (4, 4, 4, 3, 3, 4), strict=True)),
    )  # fmt: skip
    return tuple(found)


def _array(tensor: Tensor | None, like: Tensor, rank: int) -> np.ndarray[Any, Any]:
    """As the kernels read it: R and B are one dimension, and what was not given is empty."""
    return compiled._array(None if tensor is None else tensor.flatten(0, 1), like, (0,) * rank)


def _arrays(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, S0: Tensor | None, lengths: Tensor | None
) -> list[np.ndarray[Any, Any]]:
    ranks = (4, 4, 4, 3, 3, 4)
    return [
        *(_array(one, q, rank) for one, rank in zip((q, k, v, beta, gate, S0), ranks, strict=True)),
        compiled._lengths(None if lengths is None else lengths.flatten(), q.shape[0] * q.shape[1], q.shape[2]),
    ]
