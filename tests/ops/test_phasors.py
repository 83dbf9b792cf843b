"""unit_phasors: cases for `test_function_laws`, zeros, huge and tiny numbers, sizes of the kernels, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from sdssm.ops.phasors import unit_phasors
from tests.ops.differentiable import Function, Leaves, Operation, draws, together


@dataclasses.dataclass(frozen=True)
class PhasorCase:
    """Shape and radius of some phasors."""

    lead: tuple[int, ...] = (3,)
    N: int = 4
    radius: float = 1.0


CASES = [PhasorCase(), PhasorCase((), 5, 0.9), PhasorCase((2, 3), 1, 0.5), PhasorCase((2, 40), 9)]


def build(case: PhasorCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    leaves = {"raw": draws()(*case.lead, 2 * case.N).to(device, dtype)}
    return lambda inputs: together(unit_phasors(inputs["raw"], case.radius)), leaves


def check_zeros_and_extreme_sizes(device: str = "cpu") -> None:
    """Zero has phase 0 and no gradient; the squares of the other numbers would overflow or vanish."""
    sizes = torch.tensor([0.0, 1e-25, 1e30, 3e38], device=device)
    raw = torch.cat([0.6 * sizes, -0.8 * sizes]).requires_grad_()
    a = unit_phasors(raw, 0.5)
    expected = torch.tensor([[0.5, 0.0]] + 3 * [[0.3, -0.4]], device=device)
    torch.testing.assert_close(a, expected)
    (grad,) = torch.autograd.grad((a * torch.tensor([1.0, 2.0], device=device)).sum(), raw)
    real, imaginary = grad.chunk(2)
    assert real[0] == imaginary[0] == 0
    # The derivative along the circle is 0.5 (2 * 0.6 + 0.8) / |w|, in the direction (0.8, 0.6).
    torch.testing.assert_close(real[1:].double() * sizes[1:].double(), torch.full((3,), 0.8, device=device).double())
    torch.testing.assert_close(imaginary[1:3].double() * sizes[1:3].double(), torch.full((2,), 0.6).double().to(device))


def check_nan_propagates(device: str = "cpu") -> None:
    a = unit_phasors(torch.tensor([torch.nan, 1.0, 1.0, 1.0], device=device))
    assert a[0].isnan().all() and a[1].isfinite().all()


def test_zeros_and_extreme_sizes(device: str) -> None:
    check_zeros_and_extreme_sizes(device)


def test_nan_propagates(device: str) -> None:
    check_nan_propagates(device)


def test_no_numbers(device: str) -> None:
    raw = torch.zeros(0, 6, device=device)
    assert unit_phasors(raw).shape == (0, 3, 2)


@pytest.mark.parametrize(("capability", "dtype"), [(80, torch.float32), (90, torch.float64)])
def test_compiles_for_a_gpu(capability: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from triton.runtime import jit

    from sdssm.ops.phasors import triton
    from tests.ops.test_triton_compile import compiler

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    raw = torch.zeros(2, 300, 128, dtype=dtype)
    (a,) = triton.forward(raw, 0.9)
    triton.backward(a, raw, a, 0.9)
    assert launched == ["phasors_forward_kernel", "phasors_backward_kernel"]


BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"raw has shape \(\); it needs", lambda: unit_phasors(torch.tensor(1.0))),
    (r"raw has shape \(2, 3\); the last dimension must be even", lambda: unit_phasors(torch.ones(2, 3))),
    (r"raw has dtype torch.int64", lambda: unit_phasors(torch.ones(2, dtype=torch.int64))),
]

PHASORS = Operation(
    name="phasors",
    build=build,
    cases=CASES,
    alone=[],
    wide=[PhasorCase((3, 40), 64, 0.99)],
    small=CASES[:3],
    mapped=[CASES[0], CASES[3]],
    tiny=[PhasorCase((2,), 3)],
    full=[CASES[0]],
    many=PhasorCase((2, 100), 64),
    bad=BAD,
    own=[check_zeros_and_extreme_sizes, check_nan_propagates],
    other_name="unit_phasors",
)
