"""Column-one-hot scan on the CPU: a step scatters N numbers, and its adjoint gathers them."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.ops import compiled
from sdssm.ops.column_one_hot.gradients import step_gradients, table_gradients
from sdssm.ops.layout import merge_replicas
from sdssm.ops.transitions import final_state, flush_threshold, previous_states


def resolved(x: Tensor | None) -> Tensor | None:
    """Return x contiguous and without a lazy conjugation, as numpy needs it."""
    return None if x is None else x.resolve_conj().contiguous()


def transition_index(D: Tensor, tokens: Tensor | None) -> Tensor:
    """Return the index of the transition of each row and step: (R B, L).

    It counts all R V transitions, or without tokens all R L.
    """
    replicas, count = D.shape[:2]
    if tokens is None:
        return torch.arange(replicas * count, device=D.device).view(replicas, count)
    return (tokens + torch.arange(replicas, device=D.device)[:, None, None] * count).flatten(0, 1)


def forward(
    P: Tensor, D: Tensor, tokens: Tensor | None, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (R, B, L, N), final (R, B, N) and targets (R, V, N).

    The targets are the row of the 1 in each column.

    P (R, V, N, N), D (R, V, N), tokens (R, B, L), b (R, B, L, N), x0 (R, B, N), lengths (R, B). Without tokens V is L
    and B is 1.
    """
    targets = P.argmax(-2)
    index, D_table, targets_table = transition_index(D, tokens), D.resolve_conj().flatten(0, 1), targets.flatten(0, 1)
    b_rows, x0_rows, ends = merge_replicas(b, resolved(x0), lengths)
    rows, length = index.shape
    if compiled.is_available() and rows:
        states = _compiled_forward(D_table, targets_table, index, b_rows, x0_rows, ends)
    else:
        x = D_table.new_zeros(rows, D_table.shape[-1]) if x0_rows is None else x0_rows
        stack = []
        for t in range(length):
            index_t = index[:, t]
            next_x = torch.zeros_like(x) if b_rows is None else b_rows[:, t].resolve_conj()
            x = next_x.scatter_add(1, targets_table[index_t], D_table[index_t] * x)
            stack.append(x)
        states = torch.stack(stack, 1)
        if ends is not None:
            states = states.masked_fill(torch.arange(length)[:, None] >= ends[:, None, None], 0)
    final = final_state(states, x0_rows, ends)
    shape = (len(D), 1 if tokens is None else tokens.shape[1])  # R, B
    return states.view(*shape, *states.shape[1:]), final.view(*shape, *final.shape[1:]), targets


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
    targets: Tensor,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of P, D, b and x0."""
    index, D_table, targets_table = transition_index(D, tokens), D.resolve_conj().flatten(0, 1), targets.flatten(0, 1)
    rows, length = index.shape
    grad_states_rows, grad_final_rows, ends, x0_rows = merge_replicas(
        resolved(grad_states), resolved(grad_final), lengths, resolved(x0)
    )
    if compiled.is_available() and rows:
        adjoints, dx0 = _compiled_backward(D_table, targets_table, index, grad_states_rows, grad_final_rows, ends)
    else:
        ends = torch.full((rows,), length) if ends is None else ends
        dx0 = torch.zeros_like(final).flatten(0, 1)
        if grad_final_rows is not None:  # the final state of a row of length 0 is x0
            dx0 = torch.where((ends == 0)[:, None], grad_final_rows, 0)
        carry, stack = torch.zeros_like(dx0), []
        for t in reversed(range(length)):
            index_t = index[:, t]
            grad = carry if grad_states_rows is None else carry + grad_states_rows[:, t]
            if grad_final_rows is not None:
                grad = torch.where((ends == t + 1)[:, None], grad + grad_final_rows, grad)
            grad = torch.where((t < ends)[:, None], grad, 0)
            stack.append(grad)
            carry = (D_table[index_t].conj() * grad.gather(1, targets_table[index_t])).resolve_conj()
        adjoints, dx0 = torch.stack(stack[::-1], 1), dx0 + carry
    previous_x = previous_states(states.flatten(0, 1), x0_rows)
    if tokens is None:
        dP, dD = step_gradients(adjoints, previous_x, D, targets)
    else:
        dP, dD = table_gradients(sum_by_symbol(index, adjoints, previous_x, len(D_table)).view(P.shape), D, targets)
    shape = states.shape
    return dP, dD, None if b is None else adjoints.view(shape), None if x0 is None else dx0.view(final.shape)


def sum_by_symbol(index: Tensor, adjoints: Tensor, previous_x: Tensor, count: int) -> Tensor:
    """Return the sums of conj(a_i) x_j over all steps with the same transition: (count, N, N).

    Steps are sorted by transition, so that each sum is one matrix product.
    """
    order = index.flatten().argsort(stable=True)
    ends = torch.bincount(index.flatten(), minlength=count).cumsum(0).tolist()
    left = adjoints.flatten(0, 1).index_select(0, order).conj().resolve_conj()
    right = previous_x.flatten(0, 1).index_select(0, order)
    sums, start = left.new_zeros(count, left.shape[-1], left.shape[-1]), 0
    for symbol, end in enumerate(ends):
        if end > start:
            torch.mm(left[start:end].T, right[start:end], out=sums[symbol])
        start = end
    return sums


def _compiled_forward(
    D: Tensor, targets: Tensor, index: Tensor, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None
) -> Tensor:
    """Return the states (R B, L, N), computed by numba."""
    rows, length = index.shape
    states = D.new_empty(rows, length, D.shape[-1])
    tables = [compiled.as_array(tensor, D, tensor.shape) for tensor in (D, targets, index)]
    optional = compiled.as_array(resolved(b), D, (0, 0, 0)), compiled.as_array(x0, D, (0, 0))
    ends, least = compiled.lengths_array(lengths, rows, length), flush_threshold(D.dtype)
    kernel = compiled.import_kernels("column_one_hot").forward
    compiled.run_over_rows(kernel, rows, 8 * states.numel(), *tables, *optional, ends, least, states.numpy())
    return states


def _compiled_backward(
    D: Tensor,
    targets: Tensor,
    index: Tensor,
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the adjoints (R B, L, N) and the gradient of x0 (R B, N), computed by numba."""
    rows, length = index.shape
    adjoints, dx0 = D.new_empty(rows, length, D.shape[-1]), D.new_empty(rows, D.shape[-1])
    tables = [compiled.as_array(tensor, D, tensor.shape) for tensor in (D, targets, index)]
    optional = compiled.as_array(grad_states, D, (0, 0, 0)), compiled.as_array(grad_final, D, (0, 0))
    ends, least = compiled.lengths_array(lengths, rows, length), flush_threshold(D.dtype)
    outputs = adjoints.numpy(), dx0.numpy()
    kernel = compiled.import_kernels("column_one_hot").backward
    compiled.run_over_rows(kernel, rows, 8 * adjoints.numel(), *tables, *optional, ends, least, *outputs)
    return adjoints, dx0
