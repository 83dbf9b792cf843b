"""Matrix products whose gradient is split into pieces."""

from __future__ import annotations

import pytest
import torch

from sdssm.ops import products
from sdssm.ops.products import Product, count_pieces, product, split_bmm

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def numbers(*shape: int, device: str = "cpu") -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(device)


@pytest.mark.parametrize(("M", "K", "N"), [(3, 1024, 5), (64, 5120, 64), (40, 300, 2), (1, 129, 1), (2, 0, 3)])
@pytest.mark.parametrize("transposed", [False, True])
def test_split_product_equals_the_product(M: int, K: int, N: int, transposed: bool) -> None:
    x, y = numbers(2, K, M).mT if transposed else numbers(2, M, K), numbers(2, K, N)
    torch.testing.assert_close(split_bmm(x, y), x @ y)


def test_pieces_have_equal_and_sufficient_length() -> None:
    for M, K, N in ((1, 5120, 1), (64, 5120, 64), (64, 5120, 4096), (7, 130, 9), (5, 384, 5)):
        pieces = count_pieces(M, K, N)
        assert K % pieces == 0 and (pieces == 1 or K // pieces >= products.ROWS)


@pytest.mark.parametrize("maps", [(0, 0), (0, None), (None, 0)])
def test_gradients_equal_those_of_a_plain_product_under_vmap(maps: tuple[int | None, int | None]) -> None:
    lead = [() if dim is None else (3,) for dim in maps]
    x, y = numbers(*lead[0], 1, 512, 4).requires_grad_(), numbers(*lead[1], 1, 4, 6).requires_grad_()
    ours = torch.func.vmap(Product.apply, in_dims=maps)(x, y)
    plain = x @ y
    torch.testing.assert_close(ours, plain)
    weights = numbers(*plain.shape)
    gradients = [torch.autograd.grad((out * weights).sum(), (x, y)) for out in (ours, plain)]
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_product_with_a_matrix_on_the_left(device: str) -> None:
    weight, u = numbers(5, 6, device=device).requires_grad_(), numbers(6, 1024, device=device).requires_grad_()
    ours, plain = product(weight, u), weight @ u
    gradients = [torch.autograd.grad(out.square().sum(), (weight, u)) for out in (ours, plain)]
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected)
