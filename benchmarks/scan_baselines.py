"""Baselines of `benchmarks/scan.py`: the same recurrence computed differently, in plain torch."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor


def published_loop(dictionary: Tensor, weights: Tensor, b: Tensor, p: float) -> Tensor:
    """Return the last state, computed as published: mix, normalise and multiply at each step.

    dictionary (K, N, N), weights (B, L, K), b (B, L, N) -> (B, N).
    """
    x = b.new_zeros(b.shape[0], b.shape[-1])
    for t in range(weights.shape[1]):
        A = torch.einsum("bk,kij->bij", weights[:, t], dictionary)
        A = A / A.abs().pow(p).sum(-2, keepdim=True).pow(1 / p)
        x = torch.einsum("bij,bj->bi", A, x) + b[:, t]
    return x


def dense_loop(A: Tensor, b: Tensor) -> Tensor:
    """Return all states of an eager loop over dense matrices: (B, L, N, N), (B, L, N) -> (B, L, N)."""
    x, states = torch.zeros_like(b[:, 0]), []
    for t in range(A.shape[1]):
        x = (A[:, t] @ x[..., None])[..., 0] + b[:, t]
        states.append(x)
    return torch.stack(states, 1)


def sklansky(A: Tensor, b: Tensor) -> Tensor:
    """Return all states by the divide-and-conquer scan of the paper's runtime table.

    A (B, L, N, N), b (B, L, N) -> (B, L, N).

    The start is prepended as element 0 and the length padded with zeros to a power of two. In each round groups are
    merged in pairs: every element of the right half receives its prefix product times the last state of the left half.
    Prefix products are kept for the groups that become a right half later: all but the first.
    """
    batch, length, size, _ = A.shape
    padded_length = 1 << length.bit_length()  # the start and `length` elements, rounded up
    x = torch.cat([b.new_zeros(batch, 1, size), b, b.new_zeros(batch, padded_length - length - 1, size)], 1)
    M = torch.cat([A.new_zeros(batch, 1, size, size), A, A.new_zeros(batch, padded_length - length - 1, size, size)], 1)
    width = 1
    x, M = x.reshape(batch, padded_length, 1, size), M.reshape(batch, padded_length, 1, size, size)[:, 1:]
    while width < padded_length:
        left, right = x[:, 0::2], x[:, 1::2]  # (B, groups / 2, width, N)
        M_right = M[:, 0::2]  # M lacks the first group, so the right halves come first
        updated = right + (M_right @ left[:, :, -1:, :, None])[..., 0]
        x = torch.cat([left, updated], 2)
        M_left = M[:, 1::2]  # left halves of every pair but the first
        M = torch.cat([M_left, M_right[:, 1:] @ M_left[:, :, -1:]], 2)
        width *= 2
    return x[:, 0, 1 : length + 1]


def associative(A: Tensor, b: Tensor) -> Tensor:
    """Return all states by torch's prototype associative_scan over pairs (matrix, vector).

    A (B, L, N, N), b (B, L, N) -> (B, L, N).
    """
    scan: Any = importlib.import_module("torch._higher_order_ops.associative_scan").associative_scan

    def combine(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return second[0] @ first[0], (second[0] @ first[1][..., None])[..., 0] + second[1]

    states: Tensor = scan(combine, (A, b), dim=1, combine_mode="generic")[1]
    return states


def torch_slices(size: int, parallel: bool) -> torch.nn.Module:
    """Return a dense SLiCE layer of torch-slices, x (B, L, N) -> (B, L, N); it is imported as `slices`."""
    module: Any = importlib.import_module("slices")
    layer: torch.nn.Module = module.SLiCE(input_dim=size, hidden_dim=size, block_size=size, use_parallel=parallel)
    return layer
