"""Launches: the recurrent scan, and the chunked one made of three of them.

Parallel mode, forward: (1) the products of all chunks at once; (2) the states at the chunks' ends, which is a dense
scan over those products, itself chunked when there are many; (3) the recurrent kernel with (row, chunk) as its batch.
Backward the same with the transposed products and the adjoint. Depth: T log_T L steps for chunks of T.
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
from sdssm.ops.padding import power_of_two

#: Blocks larger than this have no chunk products (two of them do not fit one multiprocessor): the row is one chunk.
MAX_PRODUCT = 128
#: A dictionary of at most this many bytes stays in registers for the whole scan.
RESIDENT_BYTES = 128 * 1024
#: Compute capabilities whose tensor cores multiply float64 as fast as plain float32 is multiplied.
FLOAT64_TENSOR_CORES = ((8, 0), (9, 0), (10, 0))


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The type sums are kept in: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class Source:
    """Where A_t comes from (see tile.py), for `rows` rows of length `length` and states of `blocks` x `size`."""

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
        return self.blocks * self.size

    @property
    def dtype(self) -> torch.dtype:
        return accumulator(self.A.dtype)

    def tile(self, whole: bool, adjoint: bool = False) -> dict[str, Any]:
        """The constants of a kernel: block and dictionary sizes padded to powers of two, warps for that many entries.

        whole: one program holds all blocks, as the norm of the whole state needs; otherwise programs share them.
        """
        padded = power_of_two(self.size)
        most = max(1, 256 // (padded * padded)) if self.size < 16 else 1
        together = power_of_two(self.blocks)
        blocks = together if whole else min(together, most)
        bytes_each = self.dtype.itemsize
        entries = blocks * padded * padded
        matrices = power_of_two(self.count)
        resident = self.kind is MIXTURE and matrices * entries * bytes_each <= RESIDENT_BYTES
        held = entries * bytes_each // 4
        if resident:
            held *= max(1, matrices // 4)
        if adjoint and not resident:  # sums down the columns cross warps: fewer are faster
            held //= 2
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
            "num_warps": min(max(power_of_two(held // 1024), 1), 8 if held <= 16384 else 16),
        }

    def arguments(self) -> tuple[Tensor | None, ...]:
        return self.A, self.tokens, self.weights, self.norms

    def sizes(self, chunk: int) -> tuple[int, ...]:
        return self.length, chunk, triton.cdiv(self.length, chunk), self.rows_per_replica


def grid(source: Source, chunk: int, constants: dict[str, Any]) -> tuple[int, int]:
    return source.rows * triton.cdiv(source.length, chunk), triton.cdiv(source.blocks, constants["HB"])


def prefetches(source: Source, constants: dict[str, Any]) -> bool:
    """Fetch A_t a step ahead: where two of them fit the registers, and unless it comes from the caches anyway."""
    entries: int = constants["HB"] * constants["SP"] ** 2 * constants["ACC"].primitive_bitwidth // 32
    return entries <= 16384 and source.kind is not TOKEN


def chunk_length(source: Source, mode: str) -> int:
    """Steps per chunk: the whole row in recurrent mode, else about as many as there are chunks to carry over."""
    if mode == "recurrent" or source.size > MAX_PRODUCT:
        return source.length
    return min(64, max(16, power_of_two(int((source.rows * source.length) ** 0.5) // 2)))


def scan_forward(
    source: Source, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """states (rows, L, N), final (rows, N) and factors (rows, L; empty without rescale)."""
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
    constants = source.tile(whole=rescale)
    forward_kernel[grid(source, chunk, constants)](
        *source.arguments(), b, x0, carries, lengths, states, final, factors if rescale else None,
        *source.sizes(chunk), PREFETCH=prefetches(source, constants), RESCALE=rescale, **constants,
    )  # fmt: skip
    return states, final, factors


def forward_carries(
    source: Source, b: Tensor | None, x0: Tensor | None, lengths: Tensor | None, rescale: bool, chunk: int
) -> Tensor:
    """The state at the end of every chunk, (rows, C, N), from the products of the chunks."""
    products, remainders, scales = chunk_products(source, chunk, b=b, lengths=lengths, rescale=rescale, adjoint=False)
    if rescale:  # one common divisor for all blocks and columns of a chunk
        products *= (scales - scales.amax(dim=(-1, -2), keepdim=True)).exp()[..., None, :]
    over = chunk_source(source, products)
    start = None if x0 is None else x0.to(source.dtype)
    return scan_forward(over, None if rescale else remainders, start, None, rescale, carry_mode(over))[0]


def scan_backward(
    source: Source, grad_states: Tensor | None, grad_final: Tensor | None, lengths: Tensor | None,
    states: Tensor, factors: Tensor, rescale: bool, mode: str, pullbacks: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """adjoints dz (rows, L, N), dx0 (rows, N) and, where wanted, the pullbacks h (rows, L, N): see backward_kernel."""
    adjoints = source.A.new_empty(states.shape, dtype=source.dtype)
    dx0 = source.A.new_empty((source.rows, source.state), dtype=source.dtype)
    sent = torch.empty_like(adjoints) if pullbacks else None
    if adjoints.numel() == 0:
        return adjoints, dx0, sent
    chunk = chunk_length(source, mode)
    whole = rescale and source.tile(whole=True)["HB"] <= 64
    constants = source.tile(whole, adjoint=True)
    project = rescale
    if rescale and (chunk < source.length or not whole):
        # Blocks of one state lie in several programs, and the projection needs all of them.
        grad_states, grad_final = projected(grad_states, grad_final, states, lengths)
        project = False
    carries = None
    if chunk < source.length:
        carries = backward_carries(source, grad_states, grad_final, lengths, factors, rescale, chunk)
    backward_kernel[grid(source, chunk, constants)](
        *source.arguments(), grad_states, grad_final, carries, lengths, states, factors if rescale else None,
        adjoints, sent, dx0, *source.sizes(chunk),
        PREFETCH=prefetches(source, constants), RESCALE=rescale, PROJECT=project, **constants,
    )  # fmt: skip
    return adjoints, dx0, sent


def backward_carries(
    source: Source, grad_states: Tensor | None, grad_final: Tensor | None, lengths: Tensor | None,
    factors: Tensor, rescale: bool, chunk: int,
) -> Tensor:  # fmt: skip
    """What enters each chunk from the one after it, (rows, C, N)."""
    products, remainders, _ = chunk_products(
        source, chunk, grad_states=grad_states, grad_final=grad_final, lengths=lengths,
        factors=factors, rescale=rescale, adjoint=True,
    )  # fmt: skip
    over = chunk_source(source, products)
    # The adjoint of the scan over chunks: what chunk c+1 sends back arrives at the state at the end of chunk c.
    arriving = torch.cat([remainders[:, 1:], torch.zeros_like(remainders[:, :1])], dim=1)
    return scan_backward(over, arriving, None, None, arriving, factors, False, carry_mode(over))[0]


def chunk_products(
    source: Source, chunk: int, *, rescale: bool, adjoint: bool, b: Tensor | None = None,
    grad_states: Tensor | None = None, grad_final: Tensor | None = None, lengths: Tensor | None = None,
    factors: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """P (rows, C, H, S, S), r (rows, C, N), the log-scale of each column of P (rows, C, H, S): see products_kernel."""
    constants = source.tile(whole=False)
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
        RESCALE=rescale, ADJOINT=adjoint, JB=columns, DOT=size >= 16, WIDE=wide_products(source),
        num_stages=1, **constants,
    )  # fmt: skip
    if groups > 1:
        scales = scales.repeat_interleave(columns, dim=-1)[..., :size]
    return products, remainders, scales


def wide_products(source: Source) -> bool:
    """Whether float32 blocks are multiplied in float64: more exact, and faster where tensor cores do it."""
    if not is_on_gpu(source.A):
        return True
    return torch.cuda.get_device_capability(source.A.device) in FLOAT64_TENSOR_CORES


def product_columns(source: Source, constants: dict[str, Any]) -> int:
    """Columns of a chunk product per program: all of a small block, fewer where the block would not fit on chip."""
    padded: int = constants["SP"]
    if padded * source.dtype.itemsize <= 256:
        return padded
    return 32


def chunk_source(source: Source, products: Tensor) -> Source:
    """The scan over chunks: a dense scan whose matrices are the chunk products."""
    return Source(DENSE, products, source.rows, products.shape[1], source.blocks, source.size)


def carry_mode(over: Source) -> str:
    """Few chunks are carried over step by step; many are a scan worth chunking again."""
    return "parallel" if over.length > 256 else "recurrent"


def projected(
    grad_states: Tensor | None, grad_final: Tensor | None, states: Tensor, lengths: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The outside gradients without their part along the state they arrive at; a final x0 keeps all of it."""
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


def previous_states(states: Tensor, x0: Tensor | None) -> Tensor:
    """x_{t-1} at every t, (rows, L, N)."""
    first = torch.zeros_like(states[:, :1]) if x0 is None else x0[:, None].to(states.dtype)
    return torch.cat([first, states[:, :-1]], dim=1)
