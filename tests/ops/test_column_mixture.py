"""column_mixture_scan: cases for `test_function_laws`, comparison with explicit mixtures, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm import ops
from sdssm.ops import backend
from sdssm.ops.column_mixture import column_mixture_scan, column_softmax
from tests.ops.differentiable import Function, Leaves, Operation, Tuning, draws, outputs_and_gradients, together


@dataclasses.dataclass(frozen=True)
class ColumnMixtureCase:
    """Sizes and options of one scan."""

    lead: tuple[int, ...] = (3,)
    L: int = 5
    N: int = 4
    K: int = 2
    b: bool = True
    x0: bool = True
    lengths: bool = False
    shared: bool = False  # one dictionary for all leading dimensions


CASES = [
    ColumnMixtureCase(),
    ColumnMixtureCase((2, 2), 7, 5, 3, b=False, lengths=True),
    ColumnMixtureCase((2, 3), 4, 3, 9, x0=False, lengths=True, shared=True),
    ColumnMixtureCase((1,), 1, 1, 1),
    ColumnMixtureCase((2, 2), 9, 17, 2, lengths=True),
    ColumnMixtureCase((2,), 3, 3, 40),
]


def build(case: ColumnMixtureCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()

    def complex_draw(*shape: int) -> Tensor:
        return torch.view_as_complex(draw(*shape, 2)) * 0.6

    steps = (*case.lead, case.L)
    parameter_lead = () if case.shared else case.lead[:-1]
    leaves = {
        "dictionary": draw(*parameter_lead, case.K, case.N, case.N),
        "weights": draw(*steps, case.K),
        "D": complex_draw(*steps, case.N),
    }
    if case.b:
        leaves["b"] = complex_draw(*steps, case.N)
    if case.x0:
        leaves["x0"] = complex_draw(*case.lead, case.N)
    lengths = None
    if case.lengths:
        lengths = torch.randint(case.L + 1, case.lead, generator=torch.Generator().manual_seed(1))
        lengths.view(-1)[:2] = torch.tensor([0, case.L])  # a row of length 0 and one of length L
        lengths = lengths.to(device)

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        result = column_mixture_scan(
            inputs["dictionary"], inputs["weights"], inputs["D"], inputs.get("b"), inputs.get("x0"), lengths=lengths
        )
        return together(*result)

    return function, {
        name: leaf.to(device, dtype.to_complex() if leaf.is_complex() else dtype) for name, leaf in leaves.items()
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_column_one_hot_scan_over_mixtures(case: ColumnMixtureCase, device: str) -> None:
    """Outputs and gradients equal those of `column_one_hot_scan` over mixtures that are formed first."""
    function, leaves = build(dataclasses.replace(case, lengths=False), device)

    def mix_then_scan(inputs: Leaves) -> tuple[Tensor, ...]:
        P = column_softmax(inputs["dictionary"].unsqueeze(-4), inputs["weights"])
        return together(*ops.column_one_hot_scan(P, inputs["D"], None, inputs.get("b"), inputs.get("x0")))

    torch.testing.assert_close(outputs_and_gradients(function, leaves), outputs_and_gradients(mix_then_scan, leaves))


def test_replica_gives_the_same_result_alone(device: str) -> None:
    """Replicas are bit-identical on a GPU, and equal up to rounding on a CPU.

    On a CPU the rounding of batched and of complex products depends on the batch size.
    """
    function, leaves = build(ColumnMixtureCase((4, 3), 9, 5, 3), device)
    together_results = outputs_and_gradients(lambda inputs: function(inputs)[1:], leaves)
    weights = torch.arange(4 * 3 * 9 * 5 * 2, dtype=torch.float64, device=device).mul(1.7).add(0.3).cos()
    for r in range(4):
        loss_weights = weights.view(4, 3, 9, 5, 2)[r : r + 1]
        replica = {name: leaf[r : r + 1].clone().requires_grad_() for name, leaf in leaves.items()}
        grads = torch.autograd.grad((function(replica)[1] * loss_weights).sum(), list(replica.values()))
        for name, grad in zip(replica, grads, strict=True):
            tolerance = 0.0 if device != "cpu" else 1e-12
            torch.testing.assert_close(grad[0], together_results[f"grad {name}"][r], rtol=tolerance, atol=tolerance)


def check_targets_with_nan() -> None:
    """If a diverged model gives NaN, argmax is undefined; the target must still be a valid row."""
    dictionary, weights = torch.full((1, 2, 5, 5), torch.nan), torch.ones(1, 1, 3, 2)
    D = torch.ones(1, 1, 3, 5, dtype=torch.complex64)
    _, _, targets = backend.implementation("column_mixture", "triton").forward(dictionary, weights, D, None, None, None)
    assert targets.min() >= 0 and targets.max() < 5


def test_empty_batch(device: str) -> None:
    function, leaves = build(ColumnMixtureCase((0, 3)), device)
    result = outputs_and_gradients(function, leaves)
    assert all(not result.pop(f"output {i}").numel() for i in range(3))
    assert all(not grad.any() for grad in result.values())


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("N", "K", "dtype"), [(64, 8, torch.float32), (200, 40, torch.float32), (5, 9, torch.float64)])
def test_kernels_compile(N: int, K: int, dtype: torch.dtype, capability: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels compile ahead of time, without a GPU."""
    pytest.importorskip("triton")
    from tests.ops import test_triton_compile as ahead

    launched: list[str] = []
    monkeypatch.setattr(ahead.jit.JITFunction, "run", ahead.compiler(capability, launched))
    monkeypatch.setitem(ahead.POINTERS, torch.int32, "*i32")
    module = backend.implementation("column_mixture", "triton")
    R, B, L = 2, 3, 9

    def new(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype.to_complex())

    tables = torch.zeros(R, K, N, N, dtype=dtype), torch.zeros(R, B, L, K, dtype=dtype), new(R, B, L, N)
    for arguments in ((*tables, new(R, B, L, N), new(R, B, N), torch.full((R, B), L)), (*tables, None, None, None)):
        states, final, targets = module.forward(*arguments)
        module.backward(states, final, *arguments, states, final, targets.zero_())
        module.backward(None, final, *arguments, states, final, targets)
    assert {
        "targets_kernel",
        "column_mixture_gradients_kernel",
        "column_one_hot_forward_kernel",
        "column_one_hot_backward_kernel",
    } <= set(launched)


C = torch.complex64
A, W, D = torch.ones(2, 3, 3), torch.ones(4, 5, 2), torch.ones(4, 5, 3, dtype=C)
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"dictionary has shape \(3, 3\); it needs at least 3", lambda: column_mixture_scan(A[0], W, D)),
    (r"dictionary has shape \(2, 3, 2\); its last two", lambda: column_mixture_scan(A[..., :2], W, D)),
    (r"weights has shape \(4, 5, 1\).*K=2", lambda: column_mixture_scan(A, W[..., :1], D)),
    (r"weights has shape \(5, 2\); it needs", lambda: column_mixture_scan(A, W[0], D)),
    (r"weights has dtype torch.float64", lambda: column_mixture_scan(A, W.double(), D)),
    (r"D has shape \(4, 4, 3\).*L=5", lambda: column_mixture_scan(A, W, D[:, :4])),
    (r"D has dtype torch.float32; it must be complex", lambda: column_mixture_scan(A, W, D.real)),
    (r"dictionary has dtype torch.float64 and D torch.complex64", lambda: column_mixture_scan(A.double(), W, D)),
    (r"D is on meta", lambda: column_mixture_scan(A, W, D.to("meta"))),
    (r"b has shape \(4, 5, 2\).*N=3", lambda: column_mixture_scan(A, W, D, D[..., :2])),
    (r"x0 has shape \(2,\).*N=3", lambda: column_mixture_scan(A, W, D, x0=torch.ones(2, dtype=C))),
    (r"x0 has dtype torch.float32", lambda: column_mixture_scan(A, W, D, x0=torch.ones(3))),
    (r"x0 of shape \(3, 3\).*broadcast", lambda: column_mixture_scan(A, W, D, x0=torch.ones(3, 3, dtype=C))),
    (r"lengths\[0\] is 6", lambda: column_mixture_scan(A, W, D, lengths=torch.full((4,), 6))),
    (r"dictionary is a list", lambda: column_mixture_scan([1.0], W, D)),  # type: ignore[arg-type]
]


def use_small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    module = backend.implementation("column_mixture", "triton")
    for name in ("MIN_TILE", "MAX_STEPS", "MAX_MATRICES", "MIN_PROGRAMS", "MAX_PARTIAL_ENTRIES"):
        monkeypatch.setattr(module, name, 2)  # few programs, so that each has several tiles


COLUMN_MIXTURE = Operation(
    name="column_mixture",
    build=build,
    cases=CASES,
    alone=[(CASES[1], output) for output in (1, 2)],
    wide=[ColumnMixtureCase((2, 4), 40, 64, 8)],
    small=[dataclasses.replace(CASES[1], L=4, N=3)],
    mapped=[CASES[0], CASES[1]],
    tiny=[ColumnMixtureCase((2,), 3, 3, lengths=True)],
    full=[ColumnMixtureCase((2, 2), 6, 5, 3, lengths=True)],
    many=ColumnMixtureCase((2, 20), 30, 7, 3),
    bad=BAD,
    own=[check_targets_with_nan],
    tunings=[Tuning("several programs", use_small_tiles, [(CASES[1], 0), (CASES[2], 0)])],
    numba=True,
    fixed=["dictionary", "weights"],  # the gradient of argmax is straight-through
    sixteen=False,  # torch has no complex bfloat16
)
