"""The parallel mode: three recurrent passes over chunks of the sequence.

Each row is cut into chunks. (1) The product of the matrices of every chunk is formed, for all chunks at once; (2) a
scan over the chunks, one step for each, gives the state at which every chunk starts; (3) the recurrence runs inside
all chunks at once. Memory is one N x N matrix per chunk: O(L N) for chunks of N steps and more.

With `rescale` the products may grow or shrink without bound, so each is divided by its largest entry and the logarithm
of the divisor is kept. The forward pass needs only directions; the backward pass multiplies the scale back in.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.ops.transitions import Transitions, cut_into_chunks, final_state, no_factors


def scan_forward(
    transitions: Transitions,
    drive: Tensor | None,
    x0: Tensor | None,
    lengths: Tensor | None,
    rescale: bool,
    mode: str,
    *,
    like: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (P, L, N), final (P, N) and factors (P, L) or empty, in either mode."""
    scan = forward if mode == "parallel" else type(transitions).forward
    states, factors = scan(transitions, drive, x0, lengths, rescale, like)
    return states, final_state(states, x0, lengths), factors


def scan_backward(
    transitions: Transitions,
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    factors: Tensor,
    rescale: bool,
    mode: str,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of every A_t x_{t-1} + b_t, (P, L, N), and of x0, (P, N), in either mode."""
    scan = backward if mode == "parallel" else type(transitions).backward
    return scan(transitions, grad_states, grad_final, lengths, states, factors, rescale)


def chunk_length(length: int, block: int) -> int:
    """Return the number of steps in a chunk, for sequences of `length` and blocks of size `block`.

    About the square root of L, since the steps of a chunk and the chunks are both sequential, but at least the block
    size, so that the products take no more memory than the states.
    """
    return min(length, max(block, math.isqrt(length)))


def inner_lengths(lengths: Tensor | None, rows: int, length: int, chunk: int, device: torch.device) -> Tensor | None:
    """Return how many steps of each chunk lie within the length of its row: (P,) -> (P count,)."""
    count = -(-length // chunk)
    if lengths is None:
        if length % chunk == 0:
            return None
        lengths = torch.full((rows,), length, device=device)
    starts = torch.arange(count, device=device) * chunk
    return (lengths[:, None] - starts).clamp(0, chunk).reshape(-1)


def chunk_products(inner: Transitions, lengths: Tensor | None, rescale: bool) -> tuple[Tensor, Tensor]:
    """Return the product of each row's matrices, (P, H, S, S) or (P, N), and its log-scale, (P,)."""
    product = inner.matrix(0)
    if lengths is not None:
        product = select(lengths > 0, product, identity_like(product))
    log_scale = product.new_zeros(product.shape[0], dtype=product.dtype.to_real())
    if rescale:
        product, log_scale = extract_scale(product, log_scale)
    for t in range(1, inner.length):
        matrix = inner.matrix(t)
        longer = matrix * product if matrix.dim() == 2 else matrix @ product
        product = longer if lengths is None else select(lengths > t, longer, product)
        if rescale:
            product, log_scale = extract_scale(product, log_scale)
    return product, log_scale


def extract_scale(product: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Divide each product by its largest entry and add the logarithm of that entry to `log_scale`."""
    largest = product.abs().flatten(1).amax(1)
    divisor = torch.where(largest == 0, 1, largest)
    return product / per_row(divisor, product), log_scale + divisor.log()


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """Reshape one value for each row, (P,), so that it broadcasts with `like`, (P, ...)."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


def select(condition: Tensor, value: Tensor, other: Tensor) -> Tensor:
    """Take each row from `value` if its condition (P,) holds, else from `other`."""
    return torch.where(per_row(condition, value), value, other)


def identity_like(product: Tensor) -> Tensor:
    """Return identity matrices in the form of `product`: (P, H, S, S), or ones (P, N) for diagonals."""
    if product.dim() == 2:
        return torch.ones_like(product)
    return torch.eye(product.shape[-1], dtype=product.dtype, device=product.device).expand_as(product)


def forward(
    transitions: Transitions,
    drive: Tensor | None,
    x0: Tensor | None,
    lengths: Tensor | None,
    rescale: bool,
    like: Tensor,
) -> tuple[Tensor, Tensor]:
    """Compute the same as `Transitions.forward`, chunk by chunk."""
    rows, length, size = transitions.rows, transitions.length, transitions.size
    chunk = chunk_length(length, transitions.block)
    count = -(-length // chunk)
    if count == 1:
        return transitions.forward(drive, x0, lengths, rescale, like)
    inner = transitions.chunked(chunk)
    steps = inner_lengths(lengths, rows, length, chunk, like.device)
    products, _ = chunk_products(inner, steps, rescale)
    over_chunks = transitions.of_products(products.reshape(rows, count, *products.shape[1:]))
    inner_drive = None if drive is None else cut_into_chunks(drive, chunk)
    offsets = None
    if inner_drive is not None:
        from_zero, _ = inner.forward(inner_drive, None, steps, False, like)
        offsets = last_states(from_zero, steps).reshape(rows, count, size)
    ends, _ = over_chunks.forward(offsets, x0, None, rescale, like)  # (P, count, N)
    first = like.new_zeros(rows, 1, size) if x0 is None else x0[:, None]
    starts = torch.cat([first, ends[:, :-1]], 1).reshape(rows * count, size)
    states, factors = inner.forward(inner_drive, starts, steps, rescale, like)
    states = states.reshape(rows, count, chunk, size)
    if not rescale:
        return states.reshape(rows, count * chunk, size)[:, :length].contiguous(), no_factors(like)
    # A state that became zero inside a chunk stays zero, although rounding left a remainder of it in the product.
    factors = factors.reshape(rows, count, chunk)
    at_end = last_states(states.reshape(-1, chunk, size), steps).reshape(rows, count, size) != 0
    nonzero = at_end.any(-1)
    if steps is not None:
        nonzero = nonzero | (steps.reshape(rows, count) == 0)
    alive = torch.cat([torch.ones_like(nonzero[:, :1]), nonzero[:, :-1]], 1).long().cumprod(1).bool()
    states = torch.where(alive[..., None, None], states, 0).reshape(rows, count * chunk, size)
    factors = torch.where(alive[..., None], factors, 0).reshape(rows, count * chunk)
    return states[:, :length].contiguous(), factors[:, :length].contiguous()


def last_states(states: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the state at each row's length, zeros for length 0: (P, L, N) -> (P, N)."""
    if lengths is None:
        return states[:, -1]
    last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, states.shape[-1])
    return states.gather(1, last)[:, 0] * (lengths > 0)[:, None]


def backward(
    transitions: Transitions,
    grad_states: Tensor | None,
    grad_final: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    factors: Tensor,
    rescale: bool,
) -> tuple[Tensor, Tensor]:
    """Compute the same as `Transitions.backward`, chunk by chunk: the same three passes in reverse order."""
    rows, length, size = transitions.rows, transitions.length, transitions.size
    chunk = chunk_length(length, transitions.block)
    count = -(-length // chunk)
    if count == 1:
        return transitions.backward(grad_states, grad_final, lengths, states, factors, rescale)
    grads = add_final_gradient(grad_states, grad_final, lengths, states)
    inner = transitions.chunked(chunk)
    steps = inner_lengths(lengths, rows, length, chunk, states.device)
    inner_states, inner_factors = (
        cut_into_chunks(states, chunk),
        cut_into_chunks(factors, chunk) if rescale else factors,
    )
    inner_grads = cut_into_chunks(grads, chunk)
    products, log_scale = chunk_products(inner, steps, rescale)
    if rescale:
        log_factors = inner_factors.log()
        if steps is not None:
            times = torch.arange(chunk, device=states.device)
            log_factors = torch.where(times < steps[:, None], log_factors, 0)
        products = products * per_row((log_scale + log_factors.sum(1)).exp(), products)
    # First the gradient that each chunk sends back for its own states only; the chunks are then connected by the
    # adjoint matrices of the forward pass.
    _, offsets = inner.backward(inner_grads, None, steps, inner_states, inner_factors, rescale)
    reversed_products = products.reshape(rows, count, *products.shape[1:]).flip(1)
    adjoint = reversed_products.conj() if reversed_products.dim() == 3 else reversed_products.mT.conj()
    over_chunks = transitions.of_products(adjoint.resolve_conj().contiguous())
    sent, _ = over_chunks.forward(offsets.reshape(rows, count, size).flip(1), None, None, False, states)
    sent = sent.flip(1)  # (P, count, N): the gradient that chunk c sends to the state before it
    entering = torch.cat([sent[:, 1:], torch.zeros_like(sent[:, :1])], 1).reshape(rows * count, size)
    adjoints, at_start = inner.backward(inner_grads, entering, steps, inner_states, inner_factors, rescale)
    grad_x0 = at_start.reshape(rows, count, size)[:, 0].contiguous()
    if lengths is not None and grad_final is not None:
        grad_x0 = torch.where((lengths == 0)[:, None], grad_final, grad_x0)
    return adjoints.reshape(rows, count * chunk, size)[:, :length].contiguous(), grad_x0


def add_final_gradient(
    grad_states: Tensor | None, grad_final: Tensor | None, lengths: Tensor | None, states: Tensor
) -> Tensor:
    """Add the gradient of `final`, (P, N), to that of the state it equals, (P, L, N)."""
    grads = torch.zeros_like(states) if grad_states is None else grad_states
    if grad_final is None:
        return grads
    if lengths is None:
        last = torch.full((states.shape[0],), states.shape[1] - 1, device=states.device)
    else:
        last = (lengths - 1).clamp(min=0)
        grad_final = grad_final * (lengths > 0)[:, None]
    return grads.scatter_add(1, last[:, None, None].expand(-1, 1, states.shape[-1]), grad_final[:, None])
