"""The parallel mode: logarithmic-depth thinking, three recurrent passes.

A row is cut into chunks. (1) The product of the matrices of every chunk is formed, all chunks at once; (2) a scan over
the chunks, one step each, gives the state at which every chunk starts; (3) the recurrence runs inside all chunks at
once. Memory is one N x N matrix a chunk: O(L N) for chunks of N steps and more.

With `rescale` the products may grow or shrink without bound, so each is kept divided by its largest entry, with the
logarithm of what was taken out beside it. The forward pass needs only directions; the backward pass puts it back.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.ops.transitions import Transitions, cut, final_state, no_factors


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
    """States (P, L, N), final (P, N) and factors in either mode."""
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
    """The gradients at every A_t x_{t-1} + b_t, (P, L, N), and at x0, (P, N), in either mode."""
    scan = backward if mode == "parallel" else type(transitions).backward
    return scan(transitions, grad_states, grad_final, lengths, states, factors, rescale)


def chunk_length(length: int, block: int) -> int:
    """Steps in a chunk: about the square root of L, since in-chunk steps and chunks come one after the other, but at
    least the block size, so that the products take no more room than the states."""
    return min(length, max(block, math.isqrt(length)))


def inner_lengths(lengths: Tensor | None, rows: int, length: int, chunk: int, device: torch.device) -> Tensor | None:
    """How much of each chunk lies inside its row's length: (P,) -> (P count,)."""
    count = -(-length // chunk)
    if lengths is None:
        if length % chunk == 0:
            return None
        lengths = torch.full((rows,), length, device=device)
    starts = torch.arange(count, device=device) * chunk
    return (lengths[:, None] - starts).clamp(0, chunk).reshape(-1)


def products_of(inner: Transitions, lengths: Tensor | None, rescale: bool) -> tuple[Tensor, Tensor]:
    """The product of every row's matrices, (P, H, S, S) or (P, N), and the logarithm of its scale, (P,)."""
    product = inner.matrix(0)
    if lengths is not None:
        product = select(lengths > 0, product, unit_like(product))
    scale = product.new_zeros(product.shape[0], dtype=product.dtype.to_real())
    if rescale:
        product, scale = take_scale(product, scale)
    for t in range(1, inner.length):
        later = inner.matrix(t)
        longer = later * product if later.dim() == 2 else later @ product
        product = longer if lengths is None else select(lengths > t, longer, product)
        if rescale:
            product, scale = take_scale(product, scale)
    return product, scale


def take_scale(product: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Divide each product by its largest entry and add the logarithm of that to `scale`."""
    largest = product.abs().flatten(1).amax(1)
    safe = torch.where(largest == 0, 1, largest)
    return product / along(safe, product), scale + safe.log()


def along(values: Tensor, matrices: Tensor) -> Tensor:
    """(P,) beside (P, ...): the same number of dimensions."""
    return values.reshape(-1, *[1] * (matrices.dim() - 1))


def select(where: Tensor, chosen: Tensor, other: Tensor) -> Tensor:
    return torch.where(along(where, chosen), chosen, other)


def unit_like(product: Tensor) -> Tensor:
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
    """As `Transitions.forward`, chunk by chunk."""
    rows, length, size = transitions.rows, transitions.length, transitions.size
    chunk = chunk_length(length, transitions.block)
    count = -(-length // chunk)
    if count == 1:
        return transitions.forward(drive, x0, lengths, rescale, like)
    inside = transitions.chunked(chunk)
    inside_lengths = inner_lengths(lengths, rows, length, chunk, like.device)
    products, _ = products_of(inside, inside_lengths, rescale)
    over = transitions.of_products(products.reshape(rows, count, *products.shape[1:]))
    inside_drive = None if drive is None else cut(drive, chunk)
    offsets = None
    if inside_drive is not None:
        alone, _ = inside.forward(inside_drive, None, inside_lengths, False, like)
        offsets = last_of(alone, inside_lengths).reshape(rows, count, size)
    ends, _ = over.forward(offsets, x0, None, rescale, like)  # (P, count, N)
    first = like.new_zeros(rows, 1, size) if x0 is None else x0[:, None]
    starts = torch.cat([first, ends[:, :-1]], 1).reshape(rows * count, size)
    states, factors = inside.forward(inside_drive, starts, inside_lengths, rescale, like)
    states = states.reshape(rows, count, chunk, size)
    if not rescale:
        return states.reshape(rows, count * chunk, size)[:, :length].contiguous(), no_factors(like)
    # A state that vanished inside a chunk stays zero, though rounding left something of it in the product.
    factors = factors.reshape(rows, count, chunk)
    ended = last_of(states.reshape(-1, chunk, size), inside_lengths).reshape(rows, count, size) != 0
    alive = ended.any(-1)
    if inside_lengths is not None:
        alive = alive | (inside_lengths.reshape(rows, count) == 0)
    entered = torch.cat([torch.ones_like(alive[:, :1]), alive[:, :-1]], 1).long().cumprod(1).bool()
    states = torch.where(entered[..., None, None], states, 0).reshape(rows, count * chunk, size)
    factors = torch.where(entered[..., None], factors, 0).reshape(rows, count * chunk)
    return states[:, :length].contiguous(), factors[:, :length].contiguous()


def last_of(states: Tensor, lengths: Tensor | None) -> Tensor:
    """The state at each row's length, zeros at length 0: (P, L, N) -> (P, N)."""
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
    """As `Transitions.backward`, chunk by chunk: the same three passes from the end."""
    rows, length, size = transitions.rows, transitions.length, transitions.size
    chunk = chunk_length(length, transitions.block)
    count = -(-length // chunk)
    if count == 1:
        return transitions.backward(grad_states, grad_final, lengths, states, factors, rescale)
    arriving = with_final(grad_states, grad_final, lengths, states)
    inside = transitions.chunked(chunk)
    inside_lengths = inner_lengths(lengths, rows, length, chunk, states.device)
    inside_states, inside_factors = cut(states, chunk), cut(factors, chunk) if rescale else factors
    inside_arriving = cut(arriving, chunk)
    products, scale = products_of(inside, inside_lengths, rescale)
    if rescale:
        kept = inside_factors.log()
        if inside_lengths is not None:
            steps = torch.arange(chunk, device=states.device)
            kept = torch.where(steps < inside_lengths[:, None], kept, 0)
        products = products * along((scale + kept.sum(1)).exp(), products)
    # Alone, each chunk sends back what arrives inside it; the matrices between are those of the forward pass, adjoint.
    _, offsets = inside.backward(inside_arriving, None, inside_lengths, inside_states, inside_factors, rescale)
    back = products.reshape(rows, count, *products.shape[1:]).flip(1)
    back = back.conj() if back.dim() == 3 else back.mT.conj()
    over = transitions.of_products(back.resolve_conj().contiguous())
    sent, _ = over.forward(offsets.reshape(rows, count, size).flip(1), None, None, False, states)
    sent = sent.flip(1)  # (P, count, N): what chunk c sends to the state before it
    into = torch.cat([sent[:, 1:], torch.zeros_like(sent[:, :1])], 1).reshape(rows * count, size)
    adjoints, starts = inside.backward(inside_arriving, into, inside_lengths, inside_states, inside_factors, rescale)
    grad_x0 = starts.reshape(rows, count, size)[:, 0].contiguous()
    if lengths is not None and grad_final is not None:
        grad_x0 = torch.where((lengths == 0)[:, None], grad_final, grad_x0)
    return adjoints.reshape(rows, count * chunk, size)[:, :length].contiguous(), grad_x0


def with_final(grad_states: Tensor | None, grad_final: Tensor | None, lengths: Tensor | None, states: Tensor) -> Tensor:
    """The gradient at `final` added to the state it is."""
    arriving = torch.zeros_like(states) if grad_states is None else grad_states
    if grad_final is None:
        return arriving
    if lengths is None:
        place = torch.full((states.shape[0],), states.shape[1] - 1, device=states.device)
        given = grad_final
    else:
        place = (lengths - 1).clamp(min=0)
        given = grad_final * (lengths > 0)[:, None]
    return arriving.scatter_add(1, place[:, None, None].expand(-1, 1, states.shape[-1]), given[:, None])
