"""Matrices that do not fit one multiprocessor: read in tiles by Triton, on the CPU as any other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sdssm import ops
from tests.interpreted import interpreted
from tests.ops.cases import Case, compare_with_reference

pytest.importorskip("triton")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

#: Rows of length 0, of full length and between.
OPTIONS: list[dict[str, Any]] = [
    {"b": True, "x0": False, "lengths": True},
    {"rescale": True, "lengths": True},
    {"rescale": True},
    {"b": True},
]


@pytest.fixture
def small_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat blocks of more than 4 x 4 as too large for a multiprocessor, and read them in tiles of 4."""
    from sdssm.ops._triton import source

    monkeypatch.setattr(source, "MAX_ON_CHIP", 4)
    monkeypatch.setattr(source, "WIDE_TILE", 4 * 16 * 8)  # for N from 9 to 16 in float64


@interpreted
@pytest.mark.usefixtures("small_chip", "poisoned_memory")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("kind", "N"), [("token", 8), ("token", 11), ("mixture", 7)])  # full tiles, and a short one
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_agrees_with_the_reference_in_small_tiles(kind: str, N: int, options: dict[str, Any]) -> None:
    case = Case(kind, 5 if kind == "token" else 3, N, lead=(2, 2), **options)
    compare_with_reference(case, "triton", "parallel")  # a row is one chunk


@interpreted
@pytest.mark.usefixtures("small_chip")
@pytest.mark.parametrize("through", ["states", "final"])
def test_gradient_through_a_single_output_in_small_tiles(through: str) -> None:
    case = Case("token", 4, 9, lengths=True, rescale=True, lead=(3,), dtype=torch.float32)
    compare_with_reference(case, "triton", "recurrent", through=through)


@interpreted
@pytest.mark.usefixtures("small_chip")
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_a_zero_state_stays_zero() -> None:
    A = torch.zeros(1, 6, 6)
    with ops.use_backend("triton"):
        states, final = ops.token_scan(A, None, torch.zeros(2, 3, dtype=torch.long), torch.ones(6), rescale=True)
    assert not states.any() and not final.any()


@interpreted
@pytest.mark.parametrize(("N", "V"), [(270, 2), (513, 1)])
def test_the_largest_matrix(N: int, V: int) -> None:
    """The sizes themselves: one step of the token scan with its gradients, and an error beyond 512."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(V, N, N, generator=generator) / N**0.5
    tokens, x0 = torch.randint(V, (1, 1), generator=generator), torch.randn(N, generator=generator)

    def run(backend: str) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = A.clone().requires_grad_()
        with ops.use_backend(backend):
            states, _ = ops.token_scan(leaf, None, tokens, x0, rescale=True)
            return states, torch.autograd.grad(states.sum(), leaf)[0]

    if N > 512:
        with pytest.raises(ops.OpsError, match="513 entries; the triton backend takes at most 512"):
            run("triton")
        return
    for actual, expected in zip(run("triton"), run("reference"), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@gpu
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("N", [257, 384, 512])
@pytest.mark.parametrize("kind", ["token", "mixture"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_the_reference_on_a_gpu(kind: str, N: int, dtype: torch.dtype, options: dict[str, Any]) -> None:
    case = Case(kind, 12, N, lead=(2, 5), dtype=dtype, symbols=3, **options)
    compare_with_reference(case, "triton", "auto", device="cuda")


@gpu
@pytest.mark.parametrize("symbols", [2, 13, 64])
@pytest.mark.parametrize("N", [384, 512])
def test_many_rows_and_symbols_on_a_gpu(N: int, symbols: int) -> None:
    case = Case("token", 40, N, lead=(2, 128), rescale=True, dtype=torch.float32, symbols=symbols)
    compare_with_reference(case, "triton", "auto", device="cuda", through="final")


@gpu
@pytest.mark.parametrize("p", [1.2, None])
@pytest.mark.parametrize("N", [96, 192, 384, 512])
def test_mixed_matrices_on_a_gpu(N: int, p: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    dictionary, weights = torch.randn(2, 16, N, N, generator=generator), torch.rand(2, 5, 16, generator=generator)

    def run(device: str) -> list[torch.Tensor]:
        leaves = [leaf.to(device).requires_grad_() for leaf in (dictionary.clone(), weights.clone())]
        A = ops.mixed_matrices(leaves[0], leaves[1], p)
        gradients = torch.autograd.grad(A.square().mul(torch.arange(N, device=device)).sum(), leaves)
        return [A.detach().cpu(), *(gradient.cpu() for gradient in gradients)]

    for actual, expected in zip(run("cuda"), run("cpu"), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
