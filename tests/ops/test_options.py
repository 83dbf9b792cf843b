"""The options of the linear scans: lengths, start states, rescaling, leading dimensions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sdssm import ops
from tests.ops.cases import KINDS, Case, build

MODES = ["recurrent", "parallel"]


def doubles(*shape: int, seed: int = 0, device: str = "cpu") -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_states_past_the_length_are_zero_and_have_no_gradient(kind: str, mode: str, device: str) -> None:
    problem = build(Case(kind, 12, 3, lengths=True, lead=(4,)), device)
    leaves = problem.fresh()
    states, final = problem.scan(leaves, mode)
    assert (states[0] == 0).all()
    assert torch.equal(final[0], leaves["x0"][0])  # the first row has length 0
    assert torch.equal(final[-1], states[-1, -1])  # the last is full
    inside = (states != 0).any(-1)
    (states * ~inside[..., None]).abs().sum().backward()  # type: ignore[no-untyped-call]
    assert all(leaf.grad is None or (leaf.grad == 0).all() for leaf in leaves.values())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_two_segments_joined_by_the_final_state_equal_one_scan(kind: str, mode: str, device: str) -> None:
    problem = build(Case(kind, 10, 3, lengths=False, lead=(2,)), device)
    leaves = problem.leaves
    states, final = problem.scan(leaves, mode)
    if kind == "token":
        pytest.skip("the tokens are fixed in the problem; see test_laws")
    name = "weights" if kind == "mixture" else "A"
    head = {**leaves, name: leaves[name][:, :4]}
    tail = {**leaves, name: leaves[name][:, 4:]}
    first, carried = problem.scan(head, mode)
    second, last = problem.scan({**tail, "x0": carried}, mode)
    torch.testing.assert_close(torch.cat([first, second], 1), states)
    torch.testing.assert_close(last, final)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_rescaled_products_neither_underflow_nor_overflow(scale: float, mode: str, device: str) -> None:
    A, x0 = doubles(2, 300, 4, 4, device=device), doubles(2, 4, seed=1, device=device)
    plain, _ = ops.dense_scan(A, x0=x0, rescale=True, mode=mode)
    scaled, _ = ops.dense_scan(A * scale, x0=x0, rescale=True, mode=mode)
    torch.testing.assert_close(scaled, plain)
    torch.testing.assert_close(plain.norm(dim=-1), torch.ones_like(plain[..., 0]))


@pytest.mark.parametrize("mode", MODES)
def test_a_state_that_becomes_zero_stays_zero(mode: str, device: str) -> None:
    A = doubles(1, 40, 3, 3, device=device)
    A[:, 17] = 0
    A.requires_grad_()
    x0 = torch.ones(3, dtype=torch.float64, device=device)
    states, final = ops.dense_scan(A, x0=x0, rescale=True, mode=mode)
    assert (states[:, 17:] == 0).all()
    assert (final == 0).all()
    assert (states[:, :17] != 0).any(-1).all()
    states.sum().backward()  # type: ignore[no-untyped-call]
    assert A.grad is not None
    assert A.grad.isfinite().all()
    assert (A.grad[:, 18:] == 0).all()


@pytest.mark.parametrize("mode", MODES)
def test_a_nilpotent_matrix_reaches_zero_in_both_modes(mode: str, device: str) -> None:
    shift = torch.diag(torch.ones(4, dtype=torch.float64, device=device), -1)  # N = 5, shift^5 = 0
    states, _ = ops.dense_scan(
        shift.expand(60, 5, 5), x0=torch.ones(5, dtype=torch.float64, device=device), rescale=True, mode=mode
    )
    assert (states[4:] == 0).all()
    assert (states[:4] != 0).any(-1).all()


def test_leading_dimensions_broadcast(device: str) -> None:
    A, x0 = doubles(4, 1, 6, 3, 3, device=device), doubles(5, 3, seed=1, device=device)
    states, final = ops.dense_scan(A, x0=x0)
    assert states.shape == (4, 5, 6, 3)
    assert final.shape == (4, 5, 3)
    torch.testing.assert_close(states[2, 3], ops.dense_scan(A[2, 0], x0=x0[3])[0])

    table, tokens = doubles(4, 1, 2, 3, 3, device=device), torch.randint(0, 2, (7, 5, 6)).to(device)
    states, final = ops.token_scan(table, None, tokens, x0[:, None, :1].expand(5, 1, 3)[:, 0])
    assert states.shape == (4, 7, 5, 6, 3)
    assert final.shape == (4, 7, 5, 3)
    with ops.use_backend("reference"):
        expected, _ = ops.token_scan(table, None, tokens, x0[:, None, :1].expand(5, 1, 3)[:, 0])
    torch.testing.assert_close(states, expected)

    shared, _ = ops.token_scan(table[0, 0], None, tokens, x0[0])  # one table for all rows
    torch.testing.assert_close(shared[3, 2], ops.token_scan(table[0, 0], None, tokens[3, 2:3], x0[0])[0][0])


def test_an_empty_batch_gives_an_empty_result() -> None:
    states, final = ops.dense_scan(torch.zeros(0, 4, 3, 3))
    assert states.shape == (0, 4, 3)
    assert final.shape == (0, 3)


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_equal_the_scan(kind: str, rescale: bool, device: str) -> None:
    problem = build(Case(kind, 6, 4, rescale=rescale, lead=(3,)), device)
    leaves = problem.leaves
    states, final = problem.scan(leaves)
    x = leaves["x0"]
    if kind == "token":
        tokens = torch.randint(0, 3, (3, 6)).to(device)
        states, final = ops.token_scan(leaves["A"], None, tokens, x, rescale=rescale)
    for t in range(6):
        if kind == "token":
            x = ops.token_step(leaves["A"], None, tokens[:, t], x, rescale=rescale)
        elif kind == "mixture":
            x = ops.mixture_step(leaves["dictionary"], leaves["weights"][:, t], None, x, p=1.2, rescale=rescale)
        else:
            step = getattr(ops, f"{kind.removesuffix('_complex')}_step")
            x = step(leaves["A"][:, t], x, rescale=rescale)
        torch.testing.assert_close(x, states[:, t])
    torch.testing.assert_close(x, final)
