"""Dtypes, autocast, determinism and threads of the linear scans."""

from __future__ import annotations

import pytest
import torch

from sdssm import ops
from tests.ops.cases import KINDS, Case, assert_same, build, outputs_and_gradients

REAL_KINDS = [kind for kind in KINDS if "complex" not in kind]


@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_bit_identical_in_every_run(kind: str, mode: str, device: str) -> None:
    for rescale in (False, True):
        problem = build(Case(kind, 70, 12, lengths=True, rescale=rescale, dtype=torch.float32), device)
        first = outputs_and_gradients(problem, mode)
        for _ in range(3):
            again = outputs_and_gradients(problem, mode)
            assert all(torch.equal(again[name], value) for name, value in first.items())


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_the_number_of_threads(kind: str) -> None:
    problem = build(Case(kind, 64, 32, lengths=True, dtype=torch.float32, lead=(16,)))
    alone = outputs_and_gradients(problem, "recurrent")
    torch.set_num_threads(3)
    shared = outputs_and_gradients(problem, "recurrent")
    for name in ("states", "final", "grad x0"):
        assert torch.equal(alone[name], shared[name]), name
    assert_same(shared, alone, torch.float32)


@pytest.mark.parametrize("kind", REAL_KINDS)
def test_autocast_does_not_reduce_precision(kind: str, device: str) -> None:
    problem = build(Case(kind, 20, 8, b=True, dtype=torch.float32), device)
    expected = outputs_and_gradients(problem, "auto")
    with torch.autocast(device, dtype=torch.bfloat16):
        actual = outputs_and_gradients(problem, "auto")
        with ops.use_backend("reference"):
            states, final = problem.scan(problem.leaves)
    assert actual["states"].dtype == torch.float32
    assert_same(actual, expected, torch.float32, kind)
    assert_same({"states": states, "final": final}, {n: expected[n] for n in ("states", "final")}, torch.float32, kind)


def test_autocast_converts_mixed_inputs_to_the_widest_dtype(device: str) -> None:
    with torch.autocast(device, dtype=torch.bfloat16):
        A = torch.randn(4, 3, 3, device=device)
        narrow = torch.randn(4, 3, device=device, dtype=torch.bfloat16)
        assert ops.dense_scan(A, narrow)[0].dtype == torch.float32


@pytest.mark.parametrize("kind", REAL_KINDS)
def test_bfloat16_is_accumulated_in_float32(kind: str, device: str) -> None:
    problem = build(Case(kind, 16, 8, dtype=torch.bfloat16), device)
    with ops.use_backend("reference"):
        expected = outputs_and_gradients(problem, "auto", dtype=torch.float32)
    actual = outputs_and_gradients(problem, "auto")
    assert actual["states"].dtype == torch.bfloat16
    assert_same(actual, expected, torch.bfloat16, kind)


def test_decaying_gradients_are_finite() -> None:
    A = (torch.eye(8) * 0.5).requires_grad_()
    _, final = ops.token_scan(A[None], None, torch.zeros(1, 400, dtype=torch.long), torch.ones(8))
    final.sum().backward()  # type: ignore[no-untyped-call]
    assert A.grad is not None
    assert A.grad.isfinite().all()
