"""Column-one-hot scan on the CPU: a step scatters N numbers, its adjoint gathers them; no N x N matrix is touched."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops import compiled
from sdssm.ops.column_one_hot.gradients import of_places, of_sums
from sdssm.ops.transitions import final_state, least_kept, previous


def dense(x: Tensor | None) -> Tensor | None:
    """Complex numbers as they lie in memory."""
    return None if x is None else x.resolve_conj().contiguous()


def places(D: Tensor, tokens: Tensor | None) -> Tensor:
    """Which transition of all R V (or, without tokens, all R L) every row and step takes: (R B, L)."""
    replicas, many = D.shape[:2]
    if tokens is None:
        return torch.arange(replicas * many, device=D.device).view(replicas, many)
    return (tokens + torch.arange(replicas, device=D.device)[:, None, None] * many).flatten(0, 1)


def forward(
    P: Tensor, D: Tensor, tokens: Tensor | None, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """States (R, B, L, N), final (R, B, N), and the row of each column's 1, (R, V, N).

    P (R, V, N, N), D (R, V, N), tokens (R, B, L), b (R, B, L, N), x0 (R, B, N), lengths (R, B). Without tokens V is L
    and B is 1.
    """
    to = P.argmax(-2)
    index, pool, targets = places(D, tokens), D.resolve_conj().flatten(0, 1), to.flatten(0, 1)
    flat = [None if given is None else given.flatten(0, 1) for given in (b, dense(x0), lengths)]
    drive, start, steps = flat
    rows, length = index.shape
    if compiled.available() and rows:
        states = run_forward(pool, targets, index, drive, start, steps)
    else:
        x = pool.new_zeros(rows, pool.shape[-1]) if start is None else start
        stack = []
        for t in range(length):
            here = index[:, t]
            into = torch.zeros_like(x) if drive is None else drive[:, t].resolve_conj()
            x = into.scatter_add(1, targets[here], pool[here] * x)
            stack.append(x)
        states = torch.stack(stack, 1)
        if steps is not None:
            states = states.masked_fill(torch.arange(length)[:, None] >= steps[:, None, None], 0)
    final = final_state(states, start, steps)
    shape = (len(D), 1 if tokens is None else tokens.shape[1])  # R, B
    return states.view(*shape, *states.shape[1:]), final.view(*shape, *final.shape[1:]), to


def backward(
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    P: Tensor,
    D: Tensor,
    tokens: Tensor | None,
    b: Tensor | None,
    x0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    final: Tensor,
    to: Tensor,
) -> tuple[Tensor | None, ...]:
    """Gradients of P, D, b and x0."""
    index, pool, targets = places(D, tokens), D.resolve_conj().flatten(0, 1), to.flatten(0, 1)
    rows, length = index.shape
    flat = [None if g is None else g.flatten(0, 1) for g in (dense(grad_states), dense(grad_final), lengths, dense(x0))]
    outer, last, steps, start = flat
    if compiled.available() and rows:
        adjoints, dx0 = run_backward(pool, targets, index, outer, last, steps)
    else:
        ends = torch.full((rows,), length) if steps is None else steps
        dx0 = torch.zeros_like(final).flatten(0, 1)
        if last is not None:  # the final state of an empty row is x0
            dx0 = torch.where((ends == 0)[:, None], last, 0)
        carry, stack = torch.zeros_like(dx0), []
        for t in reversed(range(length)):
            here = index[:, t]
            arrived = carry if outer is None else carry + outer[:, t]
            if last is not None:
                arrived = torch.where((ends == t + 1)[:, None], arrived + last, arrived)
            arrived = torch.where((t < ends)[:, None], arrived, 0)
            stack.append(arrived)
            carry = (pool[here].conj() * arrived.gather(1, targets[here])).resolve_conj()
        adjoints, dx0 = torch.stack(stack[::-1], 1), dx0 + carry
    before = previous(states.flatten(0, 1), start)
    if tokens is None:
        dP, dD = of_places(adjoints, before, D, to)
    else:
        dP, dD = of_sums(by_symbol(index, adjoints, before, len(pool)).view(P.shape), D, to)
    shape = states.shape
    return dP, dD, None if b is None else adjoints.view(shape), None if x0 is None else dx0.view(final.shape)


def by_symbol(index: Tensor, adjoints: Tensor, before: Tensor, count: int) -> Tensor:
    """Sums over the places of each symbol of conj(a_i) x_j: (count, N, N), one product over a sorted stretch each."""
    order = index.flatten().argsort(stable=True)
    ends = torch.bincount(index.flatten(), minlength=count).cumsum(0).tolist()
    left = adjoints.flatten(0, 1).index_select(0, order).conj().resolve_conj()
    right = before.flatten(0, 1).index_select(0, order)
    sums, begin = left.new_zeros(count, left.shape[-1], left.shape[-1]), 0
    for symbol, end in enumerate(ends):
        if end > begin:
            torch.mm(left[begin:end].T, right[begin:end], out=sums[symbol])
        begin = end
    return sums


def run_forward(
    D: Tensor, to: Tensor, index: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> Tensor:
    from sdssm.ops.column_one_hot import numba_kernels

    rows, length = index.shape
    states = D.new_empty(rows, length, D.shape[-1])
    tables = [compiled._array(tensor, D, tensor.shape) for tensor in (D, to, index)]
    given = compiled._array(dense(b), D, (0, 0, 0)), compiled._array(x0, D, (0, 0))
    steps, least = compiled._lengths(lengths, rows, length), least_kept(D.dtype)
    compiled._share(numba_kernels.forward, rows, 8 * states.numel(), *tables, *given, steps, least, states.numpy())
    return states


def run_backward(
    D: Tensor,
    to: Tensor,
    index: Tensor,
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor]:
    from sdssm.ops.column_one_hot import numba_kernels

    rows, length = index.shape
    adjoints, dx0 = D.new_empty(rows, length, D.shape[-1]), D.new_empty(rows, D.shape[-1])
    tables = [compiled._array(tensor, D, tensor.shape) for tensor in (D, to, index)]
    given = compiled._array(grad_states, D, (0, 0, 0)), compiled._array(grad_final, D, (0, 0))
    steps, least = compiled._lengths(lengths, rows, length), least_kept(D.dtype)
    out = adjoints.numpy(), dx0.numpy()
    compiled._share(numba_kernels.backward, rows, 8 * adjoints.numel(), *tables, *given, steps, least, *out)
    return adjoints, dx0
