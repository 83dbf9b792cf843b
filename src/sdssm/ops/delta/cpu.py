"""The delta rule on the CPU: compiled by numba if it is installed, in torch otherwise.

In torch, time is the first dimension and rows and heads together are the second, M, so that a position is contiguous.
The forward pass keeps the errors e = v - S k, whose outer products with the keys are all that is added to S, and a
checkpoint of S every T positions. The backward pass recomputes the states of T positions from a checkpoint. The
compiled kernels keep nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sdssm.ops import compiled
from sdssm.ops.autograd import empty_placeholder
from sdssm.ops.transitions import flush_threshold

#: Dimensions of q, k, v, beta, gate and S0 as the compiled kernels read them: R and B are one.
RANKS = (4, 4, 4, 3, 3, 4)


class TimeMajor(NamedTuple):
    """The arguments of a scan with time first.

    q (L, M, Dk, 1), k (L n, M, 1, Dk), v (L n, M, Dv, 1), beta (L n, M, 1, 1), gate (L, M, 1, 1).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    gate: Tensor | None


def time_first(x: Tensor) -> Tensor:
    """Return x (R, B, L, H, ...) as (L, R B H, ...)."""
    R, B, L, H, *tail = x.shape
    return x.reshape(R * B, L, H, *tail).transpose(0, 1).reshape(L, R * B * H, *tail)


def rows_first(x: Tensor, like: Tensor) -> Tensor:
    """Return x (L, M, ...) in the shape of `like`, (R, B, L, H, ...)."""
    R, B, L, H, *tail = like.shape
    return x.reshape(L, R * B, H, *tail).transpose(0, 1).reshape(like.shape)


def past_end_mask(lengths: Tensor | None, L: int, H: int) -> Tensor | None:
    """Return a mask (L, M) of the positions past the end of their row; lengths is (R, B)."""
    if lengths is None:
        return None
    ends = lengths.reshape(-1, 1).expand(-1, H).reshape(-1)
    return torch.arange(L, device=ends.device)[:, None] >= ends


def to_time_major(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, past_end: Tensor | None, steps: int
) -> TimeMajor:
    """Return the arguments with time first; past the end of a row they are set so that S does not change."""
    queries, keys, values, betas = (time_first(tensor) for tensor in (q, k, v, beta))
    gates = None if gate is None else time_first(gate)
    if past_end is not None:
        steps_past_end = past_end.repeat_interleave(steps, 0)
        queries = queries.masked_fill(past_end[..., None], 0)
        keys, values = (tensor.masked_fill(steps_past_end[..., None], 0) for tensor in (keys, values))
        betas = betas.masked_fill(steps_past_end, 0)
        gates = None if gates is None else gates.masked_fill(past_end, 1)
    return TimeMajor(
        queries[..., None],
        keys[..., None, :],
        values[..., None],
        betas[..., None, None],
        None if gates is None else gates[..., None, None],
    )


def checkpoint_interval(L: int) -> int:
    """Return T, the positions between two checkpoints of S: about as many as there are checkpoints."""
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
    needs_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return outputs (R, B, L, H, Dv), final (R, B, H, Dv, Dk), and what `backward` needs.

    That is S every T positions, (R, C, B H, Dv, Dk), and the errors (R, L n, B H, Dv, 1); both are empty unless
    `needs_grad`, or if the compiled kernels ran.
    """
    if compiled.is_available():
        return *_compiled_forward(q, k, v, beta, gate, S0, lengths, steps), empty_placeholder(q), empty_placeholder(q)
    R, B, L, H, Dk = q.shape
    Dv, M = v.shape[-1], R * B * H
    past_end = past_end_mask(lengths, L, H)
    inputs = to_time_major(q, k, v, beta, gate, past_end, steps)
    S = q.new_zeros(M, Dv, Dk) if S0 is None else S0.reshape(M, Dv, Dk).clone()
    outputs = q.new_empty(L, M, Dv)
    T = checkpoint_interval(L)
    checkpoints = q.new_empty(-(-L // T) if needs_grad else 0, M, Dv, Dk)
    errors = q.new_empty(L * steps if needs_grad else 0, M, Dv, 1)
    for t in range(L):
        if needs_grad and t % T == 0:
            checkpoints[t // T] = S
        if inputs.gate is not None:
            S.mul_(inputs.gate[t])
        for s in range(t * steps, (t + 1) * steps):
            error = inputs.v[s] - torch.bmm(S, inputs.k[s].mT)
            if needs_grad:
                errors[s] = error
            S.addcmul_(inputs.beta[s] * error, inputs.k[s])
        torch.bmm(S, inputs.q[t], out=outputs[t][..., None])
    if past_end is not None:
        outputs.masked_fill_(past_end[..., None], 0)
    rows_outputs = outputs.view(L, R * B, H, Dv).transpose(0, 1).reshape(R, B, L, H, Dv)
    if not needs_grad:
        return rows_outputs, S.view(R, B, H, Dv, Dk), empty_placeholder(q), empty_placeholder(q)
    # vmap splits saved tensors along R, so R comes first.
    checkpoints, errors = (
        saved.view(len(saved), R, B * H, *saved.shape[2:]).transpose(0, 1) for saved in (checkpoints, errors)
    )
    return rows_outputs, S.view(R, B, H, Dv, Dk), checkpoints, errors


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
    checkpoints: Tensor,
    errors: Tensor,
    steps: int,
    needs_grad: bool,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of q, k, v, beta, gate and S0.

    dS is the gradient of S, carried backward in time.
    """
    if checkpoints.dim() == 2:  # nothing was saved: the compiled kernels ran
        return _compiled_backward(grad_outputs, grad_final, q, k, v, beta, gate, S0, lengths, steps)
    R, B, L, H, Dk = q.shape
    Dv, M = v.shape[-1], R * B * H
    past_end = past_end_mask(lengths, L, H)
    inputs = to_time_major(q, k, v, beta, gate, past_end, steps)
    checkpoints, errors = (saved.transpose(0, 1).flatten(1, 2) for saved in (checkpoints, errors))
    updates = inputs.beta * errors  # (L n, M, Dv, 1)
    incoming = None if grad_outputs is None else time_first(grad_outputs)[..., None]
    if incoming is not None and past_end is not None:
        incoming = incoming.masked_fill(past_end[..., None, None], 0)
    dq, dk, dv = torch.zeros_like(inputs.q), torch.empty_like(inputs.k), torch.empty_like(inputs.v)
    dbeta, dgate = torch.empty_like(inputs.beta), None if inputs.gate is None else torch.empty_like(inputs.gate)
    dS = q.new_zeros(M, Dv, Dk) if grad_final is None else grad_final.reshape(M, Dv, Dk).clone()
    T = checkpoint_interval(L)

    def next_state(S: Tensor, t: int) -> Tensor:
        S = S.clone() if inputs.gate is None else S * inputs.gate[t]
        for s in range(t * steps, (t + 1) * steps):
            S.addcmul_(updates[s], inputs.k[s])
        return S

    for start in reversed(range(0, L, T)):
        states = [checkpoints[start // T]]  # before each position of the chunk, and after its last
        for t in range(start, min(start + T, L)):
            states.append(next_state(states[-1], t))
        for t in reversed(range(start, min(start + T, L))):
            S = states.pop()
            if incoming is not None:
                torch.bmm(S.mT, incoming[t], out=dq[t])
                dS.addcmul_(incoming[t], inputs.q[t].mT)
            for s in reversed(range(t * steps, (t + 1) * steps)):
                S.addcmul_(updates[s], inputs.k[s], value=-1)  # S before step s
                de = torch.bmm(dS, inputs.k[s].mT)  # gradient of beta times the error, (M, Dv, 1)
                dbeta[s] = (de * errors[s]).sum(1, keepdim=True)
                de.mul_(inputs.beta[s])
                dv[s] = de
                dk[s] = torch.bmm(updates[s].mT, dS) - torch.bmm(de.mT, S)
                dS.addcmul_(de, inputs.k[s], value=-1)
            if inputs.gate is not None and dgate is not None:
                dgate[t] = (dS * states[-1]).sum((1, 2), keepdim=True)
                dS = functional.hardshrink(dS.mul_(inputs.gate[t]), flush_threshold(dS.dtype))  # denormals are slow
    if past_end is not None:
        dbeta.masked_fill_(past_end.repeat_interleave(steps, 0)[..., None, None], 0)
        if dgate is not None:
            dgate.masked_fill_(past_end[..., None, None], 0)
    return (
        rows_first(dq, q),
        rows_first(dk, k),
        rows_first(dv, v),
        rows_first(dbeta, beta),
        None if gate is None or dgate is None else rows_first(dgate, gate),
        None if S0 is None else dS.view(S0.shape),
    )


def _compiled_forward(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, S0: Tensor | None, lengths: Tensor | None,
    steps: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return outputs and final, computed by numba."""
    R, B, L, H, Dk = q.shape
    outputs, final = q.new_empty(R, B, L, H, v.shape[-1]), q.new_empty(R, B, H, v.shape[-1], Dk)
    compiled.run_over_rows(
        compiled.import_kernels("delta").forward, R * B, 2 * L * steps * final.numel(),
        *_input_arrays(q, k, v, beta, gate, S0, lengths), steps, flush_threshold(q.dtype),
        outputs.flatten(0, 1).numpy(), final.flatten(0, 1).numpy(),
    )  # fmt: skip
    return outputs, final


def _compiled_backward(
    grad_outputs: Tensor | None, grad_final: Tensor | None,
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, S0: Tensor | None, lengths: Tensor | None,
    steps: int,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients, computed by numba."""
    R, B, L = q.shape[:3]
    grads = [None if tensor is None else torch.empty_like(tensor) for tensor in (q, k, v, beta, gate, S0)]
    compiled.run_over_rows(
        compiled.import_kernels("delta").backward, R * B, 8 * k.numel() * v.shape[-1],
        _array(grad_outputs, q, 4), _array(grad_final, q, 4),
        *_input_arrays(q, k, v, beta, gate, S0, lengths), steps, checkpoint_interval(L), flush_threshold(q.dtype),
        *(_array(grad, q, rank) for grad, rank in zip(grads, RANKS, strict=True)),
    )  # fmt: skip
    return tuple(grads)


def _array(tensor: Tensor | None, like: Tensor, rank: int) -> np.ndarray[Any, Any]:
    """Return a view with R and B as one dimension; None becomes an empty array."""
    return compiled.as_array(None if tensor is None else tensor.flatten(0, 1), like, (0,) * rank)


def _input_arrays(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor | None, S0: Tensor | None, lengths: Tensor | None
) -> list[np.ndarray[Any, Any]]:
    """Return the arguments as the compiled kernels read them."""
    return [
        *(_array(tensor, q, rank) for tensor, rank in zip((q, k, v, beta, gate, S0), RANKS, strict=True)),
        compiled.lengths_array(None if lengths is None else lengths.flatten(), q.shape[0] * q.shape[1], q.shape[2]),
    ]
