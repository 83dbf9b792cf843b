"""The launches of scan kernels: the recurrent scan, and the chunked scan in three launches.

Parallel mode, forward: (1) the products of all chunks at once; (2) the states at the ends of the chunks, by a dense
scan over those products, itself chunked if there are many; (3) the recurrent kernel with (row, chunk) as its batch. The
backward pass is the same with the transposed products and the adjoint. Depth: T log_T L steps for chunks of T.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from sdssm.ops._triton.dot_products import dot_products_kernel
from sdssm.ops._triton.products import products_kernel
from sdssm.ops._triton.recurrence import recurrence_backward_kernel, recurrence_forward_kernel
from sdssm.ops._triton.source import Source, accumulator, has_tensor_cores
from sdssm.ops._triton.tile import DENSE, TOKEN
from sdssm.ops._triton.wide_recurrence import wide_backward_kernel, wide_forward_kernel
from sdssm.ops.padding import next_power_of_two

#: Blocks larger than this have no chunk products, since two of them do not fit one multiprocessor: a row is one chunk.
MAX_PRODUCT = 128
#: The smallest blocks that are multiplied by tl.dot.
LEAST_DOT = 16
#: Warps of a program that computes the product of a block of up to 64, in float32.
PRODUCT_WARPS = 4


def grid(source: Source, chunk: int, constants: dict[str, Any]) -> tuple[int, int]:
    """Return the number of programs: (rows x chunks, groups of blocks)."""
    return source.rows * triton.cdiv(source.length, chunk), triton.cdiv(source.blocks, constants["HB"])


def can_prefetch(source: Source, constants: dict[str, Any]) -> bool:
    """Whether A_t is loaded a step ahead.

    It is if two of them fit the registers, unless it is in the caches anyway.
    """
    entries: int = constants["HB"] * constants["SP"] ** 2 * constants["ACC"].primitive_bitwidth // 32
    return entries <= 16384 and source.kind is not TOKEN


def chunk_length(source: Source, mode: str) -> int:
    """Return the steps per chunk: all in recurrent mode, else a third of as many as make both numbers equal."""
    if mode == "recurrent" or source.size > MAX_PRODUCT:
        return source.length
    return min(64, max(16, next_power_of_two(int((source.rows * source.length) ** 0.5) // 3)))


def scan_forward(
    source: Source, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (rows, L, N), final (rows, N) and factors (rows, L) or empty."""
    A = source.A
    states = A.new_empty(source.rows, source.length, source.state)
    final = A.new_empty(source.rows, source.state)
    factors = A.new_empty((source.rows, source.length) if rescale else (0,), dtype=source.dtype)
    if states.numel() == 0:
        return states, final, factors
    if source.is_wide:
        wide_forward_kernel[(source.rows,)](
            *source.arguments(), b, x0, lengths, states, final, factors if rescale else None,
            source.length, source.rows_per_replica, RESCALE=rescale, **source.wide_tile(),
        )  # fmt: skip
        return states, final, factors
    chunk = chunk_length(source, mode)
    carries = None
    if chunk < source.length:
        carries = forward_carries(source, b, x0, lengths, rescale, chunk)
    constants = source.tile(all_blocks=rescale)
    recurrence_forward_kernel[grid(source, chunk, constants)](
        *source.arguments(), b, x0, carries, lengths, states, final, factors if rescale else None,
        *source.sizes(chunk), PREFETCH=can_prefetch(source, constants), RESCALE=rescale, **constants,
    )  # fmt: skip
    return states, final, factors


def forward_carries(
    source: Source, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, chunk: int
) -> Tensor:
    """Return the state at the end of every chunk, (rows, C, N), from the products of the chunks."""
    products, remainders, scales = chunk_products(source, chunk, b=b, lengths=lengths, rescale=rescale, adjoint=False)
    if rescale:  # the same divisor for all blocks and columns of a chunk
        products *= (scales - scales.amax(dim=(-1, -2), keepdim=True)).exp()[..., None, :]
    over_chunks = chunk_source(source, products)
    start = None if x0 is None else x0.to(source.dtype)
    offsets = None if rescale else remainders
    return scan_forward(over_chunks, offsets, start, None, rescale, carry_mode(over_chunks))[0]


def scan_backward(
    source: Source, grad_states: Tensor | None, grad_final: Tensor | None, lengths: Tensor | None,
    states: Tensor, factors: Tensor, rescale: bool, mode: str, pullbacks: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return adjoints dz (rows, L, N), dx0 (rows, N) and pullbacks h (rows, L, N) or None.

    See recurrence_backward_kernel.
    """
    adjoints = source.A.new_empty(states.shape, dtype=source.dtype)
    dx0 = source.A.new_empty((source.rows, source.state), dtype=source.dtype)
    sent = torch.empty_like(adjoints) if pullbacks else None
    if adjoints.numel() == 0:
        return adjoints, dx0, sent
    if source.is_wide:
        if rescale:
            grad_states, grad_final = projected(grad_states, grad_final, states, lengths)
        wide_backward_kernel[(source.rows,)](
            *source.arguments(), grad_states, grad_final, lengths, factors if rescale else None, adjoints, sent, dx0,
            source.length, source.rows_per_replica, RESCALE=rescale, **source.wide_tile(),
        )  # fmt: skip
        return adjoints, dx0, sent
    chunk = chunk_length(source, mode)
    all_blocks = rescale and source.tile(all_blocks=True)["HB"] <= 64
    constants = source.tile(all_blocks, adjoint=True)
    project = rescale
    if rescale and (chunk < source.length or not all_blocks):
        # The blocks of a state are in several programs, and the projection needs all of them.
        grad_states, grad_final = projected(grad_states, grad_final, states, lengths)
        project = False
    carries = None
    if chunk < source.length:
        carries = backward_carries(source, grad_states, grad_final, lengths, factors, rescale, chunk)
    recurrence_backward_kernel[grid(source, chunk, constants)](
        *source.arguments(), grad_states, grad_final, carries, lengths, states, factors if rescale else None,
        adjoints, sent, dx0, *source.sizes(chunk),
        PREFETCH=can_prefetch(source, constants), RESCALE=rescale, PROJECT=project, **constants,
    )  # fmt: skip
    return adjoints, dx0, sent


def backward_carries(
    source: Source, grad_states: Tensor | None, grad_final: Tensor | None, lengths: Tensor | None,
    factors: Tensor, rescale: bool, chunk: int,
) -> Tensor:  # fmt: skip
    """Return the gradient that enters each chunk from the next one, (rows, C, N)."""
    products, remainders, _ = chunk_products(
        source, chunk, grad_states=grad_states, grad_final=grad_final, lengths=lengths,
        factors=factors, rescale=rescale, adjoint=True,
    )  # fmt: skip
    over_chunks = chunk_source(source, products)
    # The adjoint of the scan over chunks: chunk c+1 passes its gradient to the state at the end of chunk c.
    arriving = torch.cat([remainders[:, 1:], torch.zeros_like(remainders[:, :1])], dim=1)
    mode = carry_mode(over_chunks)
    return scan_backward(over_chunks, arriving, None, None, arriving, factors, False, mode)[0]


def chunk_products(
    source: Source, chunk: int, *, rescale: bool, adjoint: bool, b: Tensor | None = None,
    grad_states: Tensor | None = None, grad_final: Tensor | None = None, lengths: Tensor | None = None,
    factors: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return P (rows, C, H, S, S), r (rows, C, N) and the log-scale of the columns of P (rows, C, H, S).

    See products_kernel and dot_products_kernel.
    """
    constants = source.tile(all_blocks=False)
    columns = product_columns(source, constants)
    chunks = triton.cdiv(source.length, chunk)
    size, blocks, dtype = source.size, source.blocks, source.dtype
    products = source.A.new_empty((source.rows, chunks, blocks, size, size), dtype=dtype)
    remainders = source.A.new_empty((source.rows, chunks, source.state), dtype=dtype)
    groups = triton.cdiv(size, columns)
    scales = source.A.new_empty((source.rows, chunks, blocks, groups), dtype=dtype)
    arguments = (
        *source.arguments(), b, grad_states, grad_final, lengths, factors if rescale else None,
        products, remainders, scales, *source.sizes(chunk),
    )  # fmt: skip
    fixed = {
        **constants, "PREFETCH": source.kind is DENSE and constants["SP"] == 64, "RESCALE": rescale,
        "ADJOINT": adjoint, "JB": columns, "num_stages": 1,
    }  # fmt: skip
    launched = (*grid(source, chunk, constants), groups)
    if size < LEAST_DOT:
        products_kernel[launched](*arguments, **fixed)
    else:
        # Four warps are the group that multiplies 64 x 64 blocks by tensor cores; eight would do part of it twice.
        uses_tensor_cores = dtype == torch.float32 and has_tensor_cores(source.A)
        most = PRODUCT_WARPS if uses_tensor_cores and constants["SP"] <= 64 else 8
        fixed["num_warps"] = min(constants["num_warps"] * 2, most)
        dot_products_kernel[launched](*arguments, NVIDIA=uses_tensor_cores, **fixed)
    if groups > 1:
        scales = scales.repeat_interleave(columns, dim=-1)[..., :size]
    return products, remainders, scales


def product_columns(source: Source, constants: dict[str, Any]) -> int:
    """Return the columns of a chunk product per program: all of a small block, 32 of a large one."""
    padded: int = constants["SP"]
    return padded if padded * source.dtype.itemsize <= 256 else 32


def chunk_source(source: Source, products: Tensor) -> Source:
    """Return the source of the scan over chunks, whose matrices are the chunk products."""
    return Source(DENSE, products, source.rows, products.shape[1], source.blocks, source.size)


def carry_mode(over_chunks: Source) -> str:
    """Return the mode of the scan over chunks: recurrent for few chunks, parallel for many."""
    return "parallel" if over_chunks.length > 256 else "recurrent"


def projected(
    grad_states: Tensor | None, grad_final: Tensor | None, states: Tensor, lengths: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return the outside gradients without their component along the state.

    The gradient of a final state that is x0 is unchanged.
    """
    x = states.to(accumulator(states.dtype))
    if grad_states is not None:
        g = grad_states.to(x.dtype)
        grad_states = g - x * (x * g).sum(-1, keepdim=True)
    if grad_final is not None:
        if lengths is None:
            last = x[:, -1]
        else:
            at = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, x.shape[-1])
            last = x.gather(1, at)[:, 0].masked_fill((lengths == 0)[:, None], 0)
        g = grad_final.to(x.dtype)
        grad_final = g - last * (last * g).sum(-1, keepdim=True)
    return grad_states, grad_final
