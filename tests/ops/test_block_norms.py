"""normalised_blocks: cases for `test_function_laws`, zeros, ties, sizes of the kernels, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from sdssm import ops
from sdssm.ops import block_norms as package
from sdssm.ops.block_norms import normalised_blocks
from tests.interpreted import interpreted
from tests.ops.differentiable import Function, Leaves, Operation, draws, together


@dataclasses.dataclass(frozen=True)
class BlockCase:
    """Shape of the blocks, the norm, and what they are divided by."""

    lead: tuple[int, ...] = (3,)
    S: int = 3
    p: float = 1.2
    by: str = "largest"


CASES = [
    BlockCase(),
    BlockCase(by="columns"),
    BlockCase((), 5, 2.5),
    BlockCase((2, 3), 2, 1.0, "columns"),
    BlockCase((2, 2), 4, 1.0),
    BlockCase((3,), 1, 2.0, "columns"),
    BlockCase((2, 40), 8, 2.0),
]


def build(case: BlockCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    # Some columns have a norm above 1, and some do not.
    leaves = {"A": draws()(*case.lead, case.S, case.S).mul(case.S ** (-1 / case.p)).to(device, dtype)}
    return lambda inputs: together(normalised_blocks(inputs["A"], case.p, case.by)), leaves


def check_zeros(device: str = "cpu") -> None:
    """A block or a column of zeros stays zero, and its gradient is finite."""
    A = torch.zeros(2, 3, 3, device=device, dtype=torch.float64)
    A[1, :, 0] = torch.tensor([1.0, -3.0, 2.0])
    for by in ("largest", "columns"):
        for p in (1.0, 1.2):
            leaf = A.clone().requires_grad_()
            normal = normalised_blocks(leaf, p, by)
            weights = torch.arange(18.0, device=device).reshape(A.shape)
            (grad,) = torch.autograd.grad((normal * weights).sum(), leaf)
            assert not normal[0].any() and not normal[1, :, 1:].any() and normal[1].any()
            centred = weights[0] - weights[0].mean(0) if by == "largest" else weights[0]
            torch.testing.assert_close(grad[0], centred.double())
            assert grad.isfinite().all()


def check_ties_share_the_gradient(device: str = "cpu") -> None:
    """Columns with the same largest norm have the same gradient, as in torch's maximum."""
    A = torch.tensor([[1.0, 1.0, 0.5], [-1.0, -1.0, -0.5], [0.0, 0.0, 0.0]], device=device, dtype=torch.float64)
    leaf = A.requires_grad_()
    weights = torch.tensor([[1.0, 1.0, 2.0], [0.0, 0.0, 3.0], [1.0, 1.0, 0.0]], device=device).double()

    def gradient() -> torch.Tensor:
        (grad,) = torch.autograd.grad((normalised_blocks(leaf, 2.0) * weights).sum(), leaf)
        return grad

    with ops.use_backend("reference"):
        expected = gradient()
    torch.testing.assert_close(gradient(), expected)


def test_zeros(device: str) -> None:
    check_zeros(device)


def test_ties_share_the_gradient(device: str) -> None:
    check_ties_share_the_gradient(device)


@interpreted
def test_blocks_that_are_too_large_for_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    function, leaves = build(CASES[0])
    expected = function(leaves)
    monkeypatch.setattr(package, "LARGEST_BLOCK", 2)
    with ops.use_backend("triton"):
        torch.testing.assert_close(function(leaves), expected)


@pytest.mark.parametrize(("capability", "dtype"), [(80, torch.float32), (90, torch.float64)])
@pytest.mark.parametrize(("S", "p", "by"), [(8, 1.2, "largest"), (5, 1.0, "columns"), (64, 2.0, "largest")])
def test_compiles_for_a_gpu(
    capability: int, dtype: torch.dtype, S: int, p: float, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from triton.runtime import jit

    from sdssm.ops.block_norms import triton
    from tests.ops.test_triton_compile import compiler

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    A = torch.zeros(2, 30, S, S, dtype=dtype)
    (normal,) = triton.forward(A, p, by)
    triton.backward(normal, A, normal, p, by)
    assert launched == ["blocks_forward_kernel", "blocks_backward_kernel"]


ones = torch.ones
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"A has shape \(2,\); it needs", lambda: normalised_blocks(ones(2), 2.0)),
    (r"A has shape \(2, 3\); its last two dimensions", lambda: normalised_blocks(ones(2, 3), 2.0)),
    (r"by is 'column'; did you mean 'columns'", lambda: normalised_blocks(ones(2, 2), 2.0, "column")),
    (r"p is 0.5; it must be finite and at least 1", lambda: normalised_blocks(ones(2, 2), 0.5)),
]

BLOCK_NORMS = Operation(
    name="block_norms",
    build=build,
    cases=CASES,
    alone=[],
    wide=[BlockCase((3, 20), 8), BlockCase((3, 20), 8, by="columns")],
    small=CASES[:4],
    mapped=[CASES[0], CASES[1], CASES[6]],
    tiny=[BlockCase((2,), 2), BlockCase((2,), 2, by="columns")],
    full=CASES[:2],
    many=BlockCase((2, 100), 8),
    bad=BAD,
    own=[check_zeros, check_ties_share_the_gradient],
    other_name="normalised_blocks",
)
