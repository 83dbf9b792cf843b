"""column_one_hot_scan: cases for `test_function_laws`, comparison with dense matrices, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm import ops
from sdssm.ops import backend
from sdssm.ops.column_one_hot import column_one_hot_scan, column_one_hot_step
from tests.ops.differentiable import (
    Function,
    Leaves,
    Operation,
    compare_with_reference,
    draws,
    fast,
    outputs_and_gradients,
    together,
)


@dataclasses.dataclass(frozen=True)
class ColumnOneHotCase:
    """Sizes and options of one scan; V symbols, or 0 if every step has its own transition."""

    lead: tuple[int, ...] = (3,)
    L: int = 5
    N: int = 4
    V: int = 0
    b: bool = True
    x0: bool = True
    lengths: bool = False


CASES = [
    ColumnOneHotCase(),
    ColumnOneHotCase((2, 2), 7, 5, b=False, lengths=True),
    ColumnOneHotCase((), 6, 3, x0=False),
    ColumnOneHotCase((1,), 1, 1),
    ColumnOneHotCase(V=3),
    ColumnOneHotCase((2, 3), 6, 5, V=2, lengths=True),
    ColumnOneHotCase((2, 2, 2), 4, 3, V=14, b=False, lengths=True),
    ColumnOneHotCase((2,), 9, 17, V=1, x0=False, lengths=True),
]


def build(case: ColumnOneHotCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    count, lead = (case.V, case.lead[:-1]) if case.V else (case.L, case.lead)

    def complex_draw(*shape: int) -> Tensor:
        return torch.view_as_complex(draw(*shape, 2)) * 0.6

    leaves = {"P": draw(*lead, count, case.N, case.N), "D": complex_draw(*lead, count, case.N)}
    if case.b:
        leaves["b"] = complex_draw(*case.lead, case.L, case.N)
    if case.x0:
        leaves["x0"] = complex_draw(*case.lead, case.N)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(case.V, (*case.lead, case.L), generator=generator).to(device) if case.V else None
    lengths = None
    if case.lengths:
        lengths = torch.randint(case.L + 1, case.lead, generator=generator)
        lengths.view(-1)[:2] = torch.tensor([0, case.L])  # a row of length 0 and one of length L
        lengths = lengths.to(device)

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        return together(
            *column_one_hot_scan(inputs["P"], inputs["D"], tokens, inputs.get("b"), inputs.get("x0"), lengths=lengths)
        )

    return function, {
        name: leaf.to(device, dtype.to_complex() if leaf.is_complex() else dtype) for name, leaf in leaves.items()
    }


def test_loss_on_final_state_alone(device: str) -> None:
    _, leaves = build(ColumnOneHotCase(b=False), device)
    x0 = leaves["x0"].requires_grad_()
    _, final = column_one_hot_scan(leaves["P"], leaves["D"], None, None, x0)
    (grad,) = torch.autograd.grad(final.abs().square().sum(), x0)
    with ops.use_backend("reference"):
        _, expected_final = column_one_hot_scan(leaves["P"], leaves["D"], None, None, x0)
        (expected,) = torch.autograd.grad(expected_final.abs().square().sum(), x0)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("V", [0, 3])
def test_equals_dense_scan(V: int, device: str) -> None:
    """Results equal those of `dense_scan` over real matrices (2N, 2N) that contain P and D."""
    case = ColumnOneHotCase((3,), 6, 4, V=V)
    _, leaves = build(case, device)
    tokens = torch.randint(3, (3, 6), generator=torch.Generator().manual_seed(2)).to(device) if V else None
    hard = torch.zeros_like(leaves["P"])
    hard.scatter_(-2, leaves["P"].argmax(-2, keepdim=True), 1.0)

    def dense_states(matrices: Tensor, D: Tensor) -> Tensor:
        rotation = torch.stack([torch.stack([D.real, -D.imag], -1), torch.stack([D.imag, D.real], -1)], -2)
        blocks = matrices[..., :, None, :, None] * rotation.movedim(-3, -2)[..., None, :, :, :]
        A = blocks.reshape(*D.shape[:-1], 2 * case.N, 2 * case.N)
        pairs = [torch.view_as_real(leaves[name]).flatten(-2) for name in ("b", "x0")]
        states, _ = ops.dense_scan(A if tokens is None else A[tokens], *pairs)
        return states

    arguments = hard.requires_grad_(), leaves["D"].requires_grad_()
    expected = dense_states(*arguments)
    result, _ = column_one_hot_scan(*arguments, tokens, leaves["b"], leaves["x0"])
    result = torch.view_as_real(result).flatten(-2)
    torch.testing.assert_close(result, expected)
    for actual_grad, expected_grad in zip(
        torch.autograd.grad(result.sin().sum(), arguments),
        torch.autograd.grad(expected.sin().sum(), arguments),
        strict=True,
    ):
        torch.testing.assert_close(actual_grad, expected_grad)


def test_vmap_over_all_arguments(device: str) -> None:
    draw = draws()
    P, D, b, x0 = (draw(2, *shape).to(device) for shape in ((3, 4, 4), (3, 4), (5, 6, 4), (5, 4)))
    D, b, x0 = (x * (0.5 + 0.5j) for x in (D, b, x0))
    leaves = P.requires_grad_(), D.requires_grad_(), b.requires_grad_(), x0.requires_grad_()
    tokens, lengths = torch.randint(3, (2, 5, 6)).to(device), torch.randint(7, (2, 5)).to(device)

    def run(P: Tensor, D: Tensor, b: Tensor, x0: Tensor, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return column_one_hot_scan(P, D, tokens, b, x0, lengths=lengths)

    result, expected = torch.func.vmap(run)(*leaves, tokens, lengths), run(*leaves, tokens, lengths)
    torch.testing.assert_close(result, expected)
    for actual_grad, expected_grad in zip(
        torch.autograd.grad(result[0].abs().sum(), leaves),
        torch.autograd.grad(expected[0].abs().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(actual_grad, expected_grad)


def test_step_equals_scan_of_length_one(device: str) -> None:
    _, leaves = build(ColumnOneHotCase((2, 3), 1, 4), device)
    states, final = column_one_hot_scan(leaves["P"], leaves["D"], None, leaves["b"], leaves["x0"])
    result = column_one_hot_step(
        leaves["P"][..., 0, :, :], leaves["D"][..., 0, :], leaves["x0"], leaves["b"][..., 0, :]
    )
    torch.testing.assert_close((result, result), (states[..., 0, :], final))


def test_table_can_be_shared(device: str) -> None:
    draw = draws()
    tokens = torch.randint(3, (2, 3, 5), generator=torch.Generator().manual_seed(1)).to(device)
    leaves = {"P": draw(3, 4, 4), "D": draw(2, 1, 3, 4)[:, 0] * 1j, "x0": draw(4) * (1 + 1j)}

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        return (torch.view_as_real(column_one_hot_scan(inputs["P"], inputs["D"], tokens, x0=inputs["x0"])[0]),)

    compare_with_reference(function, {name: leaf.to(device) for name, leaf in leaves.items()}, fast(device), "shared")


def test_conjugate_views(device: str) -> None:
    _, leaves = build(CASES[4], device)
    P, *rest = leaves.values()
    conjugated = [x.conj() for x in rest]
    tokens = torch.zeros(3, 5, dtype=torch.int64, device=device)
    result = column_one_hot_scan(P, conjugated[0], tokens, conjugated[1], conjugated[2])
    D, b, x0 = (x.resolve_conj() for x in conjugated)
    expected = column_one_hot_scan(P, D, tokens, b, x0)
    torch.testing.assert_close(result, expected)


def test_empty_batch(device: str) -> None:
    for V in (0, 2):
        function, leaves = build(ColumnOneHotCase((0, 3), V=V), device)
        result = outputs_and_gradients(function, leaves)
        assert all(not result.pop(f"output {i}").numel() for i in range(3))
        assert all(not grad.any() for grad in result.values())


@pytest.mark.parametrize(
    ("N", "V", "dtype"),
    [(64, 0, torch.float32), (64, 2, torch.float32), (128, 20, torch.float32), (5, 0, torch.float64)],
)
def test_kernels_compile(N: int, V: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels compile ahead of time for sm_90, without a GPU."""
    pytest.importorskip("triton")
    from tests.ops import test_triton_compile as ahead

    launched: list[str] = []
    monkeypatch.setattr(ahead.jit.JITFunction, "run", ahead.compiler(90, launched))
    monkeypatch.setitem(ahead.POINTERS, torch.int32, "*i32")
    module = backend.implementation("column_one_hot", "triton")
    R, B, L = 2, 3, 9
    if not V:
        R, B = R * B, 1

    def new(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype.to_complex())

    tables = new(R, V or L, N, N).real.contiguous(), new(R, V or L, N)
    tokens = torch.zeros(R, B, L, dtype=torch.int64) if V else None
    for arguments in (
        (*tables, tokens, new(R, B, L, N), new(R, B, N), torch.full((R, B), L)),
        (*tables, tokens, None, None, None),
    ):
        states, final, targets = module.forward(*arguments)
        module.backward(states, final, *arguments, states, final, targets)
        module.backward(None, final, *arguments, states, final, targets)
    assert {"column_one_hot_forward_kernel", "column_one_hot_backward_kernel"} <= set(launched)


D, P = torch.ones(2, 3, dtype=torch.complex64), torch.ones(2, 3, 3)
Y = torch.zeros(4, 5, dtype=torch.int64)
C = torch.complex64
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"P has shape \(3, 3\); it needs at least 3", lambda: column_one_hot_scan(P[0], D, Y)),
    (r"P has shape \(2, 3, 2\); its last two", lambda: column_one_hot_scan(P[..., :2], D, Y)),
    (r"D has shape \(2, 2\).*N=3", lambda: column_one_hot_scan(P, D[:, :2], Y)),
    (r"D has dtype torch.float32; it must be complex", lambda: column_one_hot_scan(P, D.real, Y)),
    (r"P has dtype torch.float64 and D torch.complex64", lambda: column_one_hot_scan(P.double(), D, Y)),
    (r"P has dtype torch.complex64", lambda: column_one_hot_scan(P.to(C), D, Y)),
    (r"D is on meta", lambda: column_one_hot_scan(P, D.to("meta"), Y)),
    (r"tokens has dtype torch.float32", lambda: column_one_hot_scan(P, D, Y.float())),
    (r"tokens has shape \(5,\); it needs", lambda: column_one_hot_scan(P, D, Y[0])),
    (r"tokens\[0, 0\] is 2; P has 2 matrices.*0..1", lambda: column_one_hot_scan(P, D, Y + 2)),
    (r"b has shape \(4, 2, 3\).*L=5", lambda: column_one_hot_scan(P, D, Y, torch.ones(4, 2, 3, dtype=C))),
    (r"b has shape \(5, 3\).*L=2", lambda: column_one_hot_scan(P, D, None, torch.ones(5, 3, dtype=C))),
    (r"x0 has shape \(2,\).*N=3", lambda: column_one_hot_scan(P, D, Y, x0=torch.ones(2, dtype=C))),
    (r"x0 has dtype torch.float32", lambda: column_one_hot_scan(P, D, Y, x0=torch.ones(3))),
    (r"x0 of shape \(3, 3\).*broadcast", lambda: column_one_hot_scan(P, D, Y, x0=torch.ones(3, 3, dtype=C))),
    (r"lengths\[0\] is 6", lambda: column_one_hot_scan(P, D, Y, lengths=torch.full((4,), 6))),
    (r"P is a list", lambda: column_one_hot_scan([1.0], D, Y)),  # type: ignore[arg-type]
]


def test_error_names_the_bad_argument_of_a_step() -> None:
    with pytest.raises(ops.OpsError, match=r"column_one_hot_step: x has shape \(2,\).*N=3"):
        column_one_hot_step(P[0], D[0], torch.ones(2, dtype=C))


COLUMN_ONE_HOT = Operation(
    name="column_one_hot",
    build=build,
    cases=CASES,
    alone=[(case, output) for case in CASES[4:6] for output in (1, 2)],
    wide=[ColumnOneHotCase((4,), 40, 64, V=V) for V in (0, 3, 40)],
    small=[dataclasses.replace(case, L=4, N=3) for case in (CASES[1], CASES[5])],
    mapped=[CASES[0], CASES[1], CASES[5]],
    tiny=[ColumnOneHotCase((2,), 3, 3, lengths=True), ColumnOneHotCase((2,), 3, 3, V=2)],
    full=[CASES[5], ColumnOneHotCase()],
    many=ColumnOneHotCase((40,), 30, 7, V=3),
    bad=BAD,
    numba=True,
    fixed=["P"],  # the gradient of argmax is straight-through
    sixteen=False,  # torch has no complex bfloat16
)
