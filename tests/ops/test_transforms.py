"""The linear scans under torch.compile and torch.func, and their registration as operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm import ops
from sdssm.ops.errors import OpsError
from tests.ops.cases import KINDS, Case, Problem, assert_same, build, cotangents, outputs_and_gradients

REAL_KINDS = [kind for kind in KINDS if "complex" not in kind]
CASES = [
    Case(kind, 9, 4, b=not rescale, rescale=rescale, lengths=rescale) for kind in KINDS for rescale in (False, True)
]


def loss_of(problem: Problem, leaves: dict[str, Tensor], weights: tuple[Tensor, Tensor], through: str) -> Tensor:
    states, final = problem.scan(leaves)
    parts = {"states": (states * weights[0].conj()).real.sum(), "final": (final * weights[1].conj()).real.sum()}
    return parts["states"] + parts["final"] if through == "both" else parts[through]


@pytest.mark.parametrize("through", ["both", "final"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiles_without_graph_breaks(case: Case, through: str, device: str) -> None:
    torch._dynamo.reset()
    problem = build(case, device)
    expected = outputs_and_gradients(problem, "auto", through=through)
    weights = cotangents(expected["states"], expected["final"])
    leaves = problem.fresh()

    def loss(leaves: dict[str, Tensor]) -> Tensor:
        return loss_of(problem, leaves, weights, through)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    grads = torch.autograd.grad(compiled(leaves), list(leaves.values()))
    actual = {f"grad {name}": grad for name, grad in zip(leaves, grads, strict=True)}
    assert_same(actual, {name: expected[name] for name in actual}, case.dtype, f"compiled {case}")


def test_compiles_with_inductor_and_dynamic_length() -> None:
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, dynamic=True)
    def run(A: Tensor, tokens: Tensor, x0: Tensor) -> Tensor:
        return ops.token_scan(A, None, tokens, x0, rescale=True)[0].square().cumsum(-1)

    generator = torch.Generator().manual_seed(0)
    A = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    x0 = torch.randn(3, generator=generator, dtype=torch.float64)
    for length in (4, 7):
        tokens = torch.randint(0, 2, (2, length), generator=generator)
        expected = ops.token_scan(A, None, tokens, x0, rescale=True)[0].square().cumsum(-1)
        actual = run(A, tokens, x0)
        torch.testing.assert_close(actual, expected)
        (gradient,) = torch.autograd.grad(actual.sum(), A)
        torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), A)[0])


def test_compiled_code_rejects_a_bad_token() -> None:
    torch._dynamo.reset()
    run = torch.compile(lambda tokens: ops.token_scan(torch.ones(2, 1, 1), None, tokens)[1], backend="aot_eager")
    with pytest.raises(OpsError, match="tokens"):
        run(torch.tensor([[0, 5]]))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_vmap_equals_a_leading_dimension(case: Case, device: str) -> None:
    problem = build(case, device)
    stacked = {name: torch.stack([leaf, leaf * 0.5]) for name, leaf in problem.leaves.items()}
    states, final = torch.func.vmap(problem.scan)(stacked)
    for i, scale in enumerate((1, 0.5)):
        expected = problem.scan({name: leaf * scale for name, leaf in problem.leaves.items()})
        torch.testing.assert_close((states[i], final[i]), expected)


@pytest.mark.parametrize("kind", REAL_KINDS)
def test_func_grad_and_its_vmap(kind: str, device: str) -> None:
    problem = build(Case(kind, 7, 3, b=True, lengths=True), device)
    expected = outputs_and_gradients(problem, "auto")
    weights = cotangents(expected["states"], expected["final"])

    def loss(leaves: dict[str, Tensor]) -> Tensor:
        return loss_of(problem, leaves, weights, "both")

    stacked = {name: torch.stack([leaf * 0.5, leaf]) for name, leaf in problem.leaves.items()}
    alone = torch.func.grad(loss)(problem.leaves)
    inside = torch.func.vmap(torch.func.grad(loss))(stacked)
    outside = torch.func.grad(lambda leaves: torch.func.vmap(loss)(leaves).sum())(stacked)
    for name in problem.leaves:
        for grad in (alone[name], inside[name][1], outside[name][1]):
            torch.testing.assert_close(grad, expected[f"grad {name}"])


def test_gradient_of_each_row_with_shared_parameters(device: str) -> None:
    problem = build(Case("token", 6, 3, lead=(4,)), device)
    A, x0 = problem.leaves["A"], problem.leaves["x0"]
    tokens = torch.randint(0, 3, (4, 6)).to(device)

    def loss(table: Tensor, row: Tensor, start: Tensor) -> Tensor:
        return ops.token_scan(table, None, row[None], start[None])[1].square().sum()

    per_row = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(A, tokens, x0)
    for i in range(4):
        torch.testing.assert_close(per_row[i], torch.func.grad(loss)(A, tokens[i], x0[i]))


@pytest.mark.parametrize("kind", REAL_KINDS)
def test_only_the_reference_has_a_second_gradient(kind: str, device: str) -> None:
    problem = build(Case(kind, 3, 2, lead=(1,)), device)

    def twice() -> Any:
        leaves = problem.fresh()
        (grad,) = torch.autograd.grad(problem.scan(leaves)[1].square().sum(), leaves["x0"], create_graph=True)
        return torch.autograd.grad(grad.sum(), leaves["x0"])

    with pytest.raises(OpsError, match="reference"):
        twice()
    with ops.use_backend("reference"):
        twice()


@pytest.mark.parametrize("kind", ["dense", "token", "mixture", "block_diagonal", "diagonal"])
def test_opcheck(kind: str) -> None:
    double = torch.float64
    x0 = torch.randn(1, 2, 3, dtype=double, requires_grad=True)
    tensors: dict[str, tuple[Any, ...]] = {
        "dense": (torch.randn(2, 4, 3, 3, dtype=double, requires_grad=True), None, x0[0], None),
        "block_diagonal": (torch.randn(2, 4, 1, 3, 3, dtype=double, requires_grad=True), None, x0[0], None),
        "diagonal": (torch.randn(2, 4, 3, dtype=double, requires_grad=True), None, x0[0], None),
        "token": (
            torch.randn(1, 2, 3, 3, dtype=double, requires_grad=True),
            None,
            torch.randint(0, 2, (1, 2, 4)),
            x0,
            torch.tensor([[4, 2]]),
        ),
        "mixture": (
            torch.randn(1, 2, 3, 3, dtype=double, requires_grad=True),
            torch.rand(1, 2, 4, 2, dtype=double, requires_grad=True),
            None,
            x0,
            torch.tensor([1.2], dtype=double),
            None,
        ),
    }
    operator = getattr(torch.ops.sdssm, f"{kind}_scan").default
    for rescale in (False, True):
        torch.library.opcheck(operator, (*tensors[kind], rescale, "auto", "cpu", False))
