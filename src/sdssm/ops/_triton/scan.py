"""The launches of scan kernels: the recurrent scan, and the chunked scan in three launches.

Parallel mode, forward: (1) the products of all chunks at once; (2) the states at the ends of the chunks, by a dense
scan over those products, itself chunked if there are many; (3) the recurrent kernel with (row, chunk) as its batch. The
backward pass is the same with the transposed products and the adjoint. Depth: T log_T L steps for chunks of T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops._triton.products import products_kernel
from sdssm.ops._triton.recurrence import backward_kernel, forward_kernel
from sdssm.ops._triton.tile import DENSE, MIXTURE, TOKEN
from sdssm.ops.backend import is_on_gpu
from sdssm.ops.padding import next_power_of_two

#: Blocks larger than this have no chunk products, since two of them do not fit one multiprocessor: a row is one chunk.
MAX_PRODUCT = 128
#: A dictionary of at most this many bytes stays in registers during the scan.
RESIDENT_BYTES = 128 * 1024
#: Compute capabilities whose tensor cores multiply float64 as fast as plain float32 is multiplied.
FLOAT64_TENSOR_CORES = ((8, 0), (9, 0), (10, 0))


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class Source:
    """The source of A_t (see tile.py), for states of `blocks` x `size` entries."""

    kind: tl.constexpr
    A: Tensor
    rows: int
    length: int
    blocks: int
    size: int
    tokens: Tensor | None = None
    weights: Tensor | None = None
    norms: Tensor | None = None
    count: int = 1  # V symbols or K matrices
    rows_per_replica: int = 1

    @property
    def state(self) -> int:
        """The number of entries of a state, N."""
        return self.blocks * self.size

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of sums."""
        return accumulator(self.A.dtype)

    def tile(self, all_blocks: bool, adjoint: bool = False) -> dict[str, Any]:
        """Return the constants of a kernel: sizes padded to powers of two, and the number of warps.

        all_blocks: a program holds all blocks of a state, as its norm requires; otherwise they are split over programs.
        """
        padded = next_power_of_two(self.size)
        most = max(1, 256 // (padded * padded)) if self.size < 16 else 1
        padded_blocks = next_power_of_two(self.blocks)
        blocks = padded_blocks if all_blocks else min(padded_blocks, most)
        bytes_each = self.dtype.itemsize
        entries = blocks * padded * padded
        matrices = next_power_of_two(self.count)
        resident = self.kind is MIXTURE and matrices * entries * bytes_each <= RESIDENT_BYTES
        registers = entries * bytes_each // 4
        if resident:
            registers *= max(1, matrices // 4)
        if adjoint and not resident:  # sums down the columns cross warps, so fewer warps are faster
            registers //= 2
        return {
            "count": self.count,
            "SOURCE": self.kind,
            "H": self.blocks,
            "S": self.size,
            "HB": blocks,
            "SP": padded,
            "KP": matrices,
            "RESIDENT": resident,
            "ACC": tl.float64 if bytes_each == 8 else tl.float32,
            "num_warps": min(max(next_power_of_two(registers // 1024), 1), 8 if registers <= 16384 else 16),
        }

    def arguments(self) -> tuple[Tensor | None, ...]:
        """Return the tensors that all scan kernels take first."""
        return self.A, self.tokens, self.weights, self.norms

    def sizes(self, chunk: int) -> tuple[int, ...]:
        """Return the sizes that all scan kernels take: L, T, C and the rows of a replica."""
        return self.length, chunk, triton.cdiv(self.length, chunk), self.rows_per_replica


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
    """Return the steps per chunk: all in recurrent mode, else about as many as there are chunks."""
    if mode == "recurrent" or source.size > MAX_PRODUCT:
        return source.length
    return min(64, max(16, next_power_of_two(int((source.rows * source.length) ** 0.5) // 2)))


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
    chunk = chunk_length(source, mode)
    carries = None
    if chunk < source.length:
        carries = forward_carries(source, b, x0, lengths, rescale, chunk)
    constants = source.tile(all_blocks=rescale)
    forward_kernel[grid(source, chunk, constants)](
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

    See backward_kernel.
    """
    adjoints = source.A.new_empty(states.shape, dtype=source.dtype)
    dx0 = source.A.new_empty((source.rows, source.state), dtype=source.dtype)
    sent = torch.empty_like(adjoints) if pullbacks else None
    if adjoints.numel() == 0:
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
    backward_kernel[grid(source, chunk, constants)](
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

    See products_kernel.
    """
    constants = source.tile(all_blocks=False)
    columns = product_columns(source, constants)
    chunks = triton.cdiv(source.length, chunk)
    size, blocks, dtype = source.size, source.blocks, source.dtype
    products = source.A.new_empty((source.rows, chunks, blocks, size, size), dtype=dtype)
    remainders = source.A.new_empty((source.rows, chunks, source.state), dtype=dtype)
    groups = triton.cdiv(size, columns)
    scales = source.A.new_empty((source.rows, chunks, blocks, groups), dtype=dtype)
    if size >= 16:
        constants["num_warps"] = min(constants["num_warps"] * 2, 8)
    products_kernel[(*grid(source, chunk, constants), groups)](
        *source.arguments(), b, grad_states, grad_final, lengths, factors if rescale else None,
        products, remainders, scales, *source.sizes(chunk),
        RESCALE=rescale, ADJOINT=adjoint, JB=columns, DOT=size >= 16, WIDE=needs_wide_products(source),
        num_stages=1, **constants,
    )  # fmt: skip
    if groups > 1:
        scales = scales.repeat_interleave(columns, dim=-1)[..., :size]
    return products, remainders, scales


def needs_wide_products(source: Source) -> bool:
    """Whether float32 blocks are multiplied in float64, which is faster with tensor cores for it."""
    if not is_on_gpu(source.A):
        return True
    return torch.cuda.get_device_capability(source.A.device) in FLOAT64_TENSOR_CORES


def product_columns(source: Source, constants: dict[str, Any]) -> int:
    """Return the columns of a chunk product per program: all of a small block, 32 of a large one."""
    padded: int = constants["SP"]
    if padded * source.dtype.itemsize <= 256:
        return padded
    return 32


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
