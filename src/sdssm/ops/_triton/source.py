"""The source of the matrices of a scan, and the sizes of the tiles in which kernels read them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.devices import has_capability
from sdssm.ops._triton.tile import MIXTURE, TOKEN
from sdssm.ops.backend import is_on_gpu
from sdssm.ops.padding import next_power_of_two

#: A dictionary of at most this many bytes stays in registers during the scan.
RESIDENT_BYTES = 128 * 1024
#: The same for the matrices of all symbols of a token scan.
RESIDENT_SYMBOLS = 32 * 1024
#: Blocks larger than this do not fit the registers of a program twice, which then reads them in tiles.
MAX_ON_CHIP = 128
#: Bytes of such a tile, the tiles that are on their way at once, and the warps that share one.
WIDE_TILE, WIDE_STAGES, WIDE_WARPS = 32 * 1024, 4, 8


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def has_tensor_cores(tensor: Tensor) -> bool:
    """Whether the device of a tensor is an NVIDIA GPU with tensor cores for float32.

    Without a GPU, kernels are either interpreted or compiled for such a GPU.
    """
    if not is_on_gpu(tensor):
        return os.environ.get("TRITON_INTERPRET") != "1"
    return has_capability(tensor.device, (8, 0))


def register_limit(dtype: torch.dtype, most: int) -> dict[str, int]:
    """Return the option by which a thread has at most so many registers.

    Only Triton's backend for NVIDIA knows it. float64 needs twice as many registers and gets no limit.
    """
    return {} if dtype == torch.float64 or torch.version.hip is not None else {"maxnreg": most}


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
        has_few_symbols = self.kind is TOKEN and matrices * entries * bytes_each <= RESIDENT_SYMBOLS
        resident = self.kind is MIXTURE or has_few_symbols
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

    @property
    def is_resident(self) -> bool:
        """Whether the registers of a program hold the dictionary of a mixture."""
        entries = next_power_of_two(self.count) * next_power_of_two(self.size) ** 2
        return entries * self.dtype.itemsize <= RESIDENT_BYTES

    @property
    def is_wide(self) -> bool:
        """Whether the only block does not fit the registers of a program."""
        return self.blocks == 1 and self.size > MAX_ON_CHIP

    def wide_tile(self) -> dict[str, Any]:
        """Return the constants of the kernels in wide_recurrence.py."""
        padded = next_power_of_two(self.size)
        return {
            "count": self.count,
            "SOURCE": self.kind,
            "S": self.size,
            "SP": padded,
            "TILE": min(padded, WIDE_TILE // (padded * self.dtype.itemsize)),
            "STAGES": WIDE_STAGES,
            "ACC": tl.float64 if self.dtype == torch.float64 else tl.float32,
            "num_warps": WIDE_WARPS,
        }

    def arguments(self) -> tuple[Tensor | None, ...]:
        """Return the tensors that all scan kernels take first."""
        return self.A, self.tokens, self.weights, self.norms

    def sizes(self, chunk: int) -> tuple[int, ...]:
        """Return the sizes that all scan kernels take: L, T, C and the rows of a replica."""
        return self.length, chunk, triton.cdiv(self.length, chunk), self.rows_per_replica
