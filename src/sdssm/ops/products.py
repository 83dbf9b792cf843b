"""Matrix products whose gradient is a sum over many rows, split into pieces on a GPU.

A linear map of B L inputs is one tall product, and the gradient of its weights a sum over all B L rows. For batches of
such products (`vmap`) cuBLAS gives each small block of weights to one multiprocessor, which adds up thousands of rows
alone while the others are idle. Splitting the rows into pieces that are added afterwards is several times as fast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import merge_mapped, split_mapped

#: Side of the block of a result that one multiprocessor computes, and the number of blocks that a product is split
#: into: enough for a few replicas to fill a GPU. It must not depend on the number of replicas, since a replica must
#: give the same result as when it is trained alone.
SIDE, BLOCKS = 32, 64
#: The fewest rows of a piece.
ROWS = 128


def product(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y, (..., M, K) and (K, N), with the gradients of this module.

    >>> product(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    if not backend.is_on_gpu(x) or torch.compiler.is_compiling():  # a compiler makes its own choice
        return x @ y
    flat: Tensor = Product.apply(x.reshape(1, -1, x.shape[-1]), y[None])  # type: ignore[no-untyped-call]  # torch's own
    return flat.reshape(*x.shape[:-1], y.shape[-1])


class Product(torch.autograd.Function):
    """x @ y for R pairs of matrices, (R, M, K) and (R, K, N)."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return torch.bmm(x, y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        needs_x, needs_y = ctx.needs_input_grad
        return split_bmm(grad, y.mT) if needs_x else None, split_bmm(x.mT, grad) if needs_y else None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, y: Tensor) -> tuple[Tensor, int]:
        merged = Product.apply(*merge_mapped(info, in_dims, (x, y)))  # type: ignore[no-untyped-call]  # torch's own
        (result,), (dim,) = split_mapped(info, [merged])
        return result, dim


def split_bmm(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y for R pairs, with a long sum over K split into pieces if M and N are small.

    x (R, M, K), y (R, K, N) -> (R, M, N).
    """
    R, M, K = x.shape
    N = y.shape[-1]
    pieces = count_pieces(M, K, N)
    if pieces == 1:
        return torch.bmm(x, y)
    left = x.reshape(R, M, pieces, K // pieces).transpose(1, 2).reshape(R * pieces, M, K // pieces)
    right = y.reshape(R * pieces, K // pieces, N)
    return torch.bmm(left, right).reshape(R, pieces, M, N).sum(1)


def count_pieces(M: int, K: int, N: int) -> int:
    """Return the number of pieces into which a sum over K is split, a power of 2.

    >>> count_pieces(64, 5120, 64), count_pieces(64, 5120, 4096), count_pieces(64, 200, 64), count_pieces(2, 5121, 2)
    (16, 1, 1, 1)
    """
    most = min(BLOCKS // (-(-M // SIDE) * -(-N // SIDE)), K // ROWS)
    pieces = 1
    while 2 * pieces <= most and K % (2 * pieces) == 0:
        pieces *= 2
    return pieces
