"""softplus_map: cases for `test_function_laws`, accuracy of small values, sizes of the kernels, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm import ops
from sdssm.ops import softplus as package
from sdssm.ops.softplus import softplus_map
from tests.interpreted import interpreted
from tests.ops.differentiable import Function, Leaves, Operation, draws, fast, together


@dataclasses.dataclass(frozen=True)
class MapCase:
    """Sizes of one map; with `replicas`, every leading dimension before B has its own weight."""

    lead: tuple[int, ...] = (3,)  # (..., B)
    K: int = 2
    D: int = 5
    replicas: bool = True


CASES = [MapCase(), MapCase((2, 3), 1, 1), MapCase((2, 2, 3), 4, 6, replicas=False), MapCase((2, 20), 3, 8)]


def build(case: MapCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    parameters = case.lead[:-1] if case.replicas else ()
    leaves = {
        "r": draw(*case.lead, case.K),
        "weight": draw(*parameters, case.D, case.K),
        "bias": draw(*parameters, case.D),
    }
    return lambda inputs: together(softplus_map(*inputs.values())), {
        name: leaf.to(device, dtype) for name, leaf in leaves.items()
    }


def check_small_values(device: str = "cpu") -> None:
    """In float32 a result near exp(-30) is accurate to rounding, and one of a large argument is that argument."""
    z = torch.linspace(-30, 30, 241, device=device)
    y = softplus_map(z[:, None], torch.ones(1, 1, device=device), torch.zeros(1, device=device))[:, 0]
    torch.testing.assert_close(y.double(), torch.nn.functional.softplus(z.double(), threshold=100), rtol=2e-6, atol=0)


def test_small_values_are_accurate(device: str) -> None:
    check_small_values(device)


def check_nan_propagates(device: str = "cpu") -> None:
    r = torch.tensor([[float("nan")], [1.0]], device=device)
    y = softplus_map(r, torch.ones(3, 1, device=device), torch.zeros(3, device=device))
    assert y[0].isnan().all() and y[1].isfinite().all()


@interpreted
def test_sizes_beyond_those_of_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    function, leaves = build(CASES[0])
    expected = function(leaves)
    monkeypatch.setattr(package, "MOST_INPUTS", 1)
    with ops.use_backend("triton"):
        torch.testing.assert_close(function(leaves), expected)


def test_empty_batch_has_zero_gradients(device: str) -> None:
    weight, bias = torch.ones(3, 2, device=device, requires_grad=True), torch.ones(3, device=device, requires_grad=True)
    with ops.use_backend(fast(device)):
        y = softplus_map(torch.zeros(0, 4, 2, device=device), weight, bias)
    for grad in torch.autograd.grad(y.sum(), (weight, bias)):
        assert not grad.any()


@pytest.mark.parametrize(("capability", "dtype"), [(80, torch.float32), (90, torch.float64)])
def test_compiles_for_a_gpu(capability: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from triton.runtime import jit

    from sdssm.ops.softplus import triton
    from tests.ops.test_triton_compile import compiler

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))

    def new(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    r, weight, bias = new(2, 300, 4), new(2, 128, 4), new(2, 128)
    (y,) = triton.forward(r, weight, bias)
    triton.backward(y, r, weight, bias)
    assert launched == ["softplus_forward_kernel", "softplus_backward_kernel", "partial_sums_kernel"]


ones = torch.ones
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"r has shape \(2,\); it needs", lambda: softplus_map(ones(2), ones(3, 2), ones(3))),
    (r"weight has shape \(3, 4\).*K=2", lambda: softplus_map(ones(5, 2), ones(3, 4), ones(3))),
    (r"bias has shape \(2,\).*D=3", lambda: softplus_map(ones(5, 2), ones(3, 2), ones(2))),
    (r"bias has dtype torch.float64", lambda: softplus_map(ones(5, 2), ones(3, 2), ones(3).double())),
]

SOFTPLUS_MAP = Operation(
    name="softplus",
    build=build,
    cases=CASES,
    alone=[],
    wide=[MapCase((2, 40), 4, 128)],
    small=CASES[:1],
    mapped=[CASES[0], CASES[3]],
    tiny=[MapCase((2, 3), 2, 3)],
    full=[CASES[0]],
    many=MapCase((2, 70), 4, 32),
    bad=BAD,
    own=[check_small_values, check_nan_propagates],
    other_name="softplus_map",
)
