"""The Triton kernels of the linear scans compared with the reference, in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sdssm import ops
from tests.interpreted import interpreted
from tests.ops.cases import KINDS, Case, compare_with_reference

pytest.importorskip("triton")

#: Recurrent mode works with any length; in parallel mode there are one chunk of 16 steps, a chunk and a step, and two
#: chunks and a step. Sizes with and without padding. Rows: one of length 0, one of full length and one or two between.
OPTIONS: list[tuple[int, dict[str, Any]]] = [
    (4, {"b": True, "x0": False, "lengths": True}),
    (3, {"rescale": True, "lengths": True}),
    (6, {"b": True, "lengths": True}),
]
LENGTHS = {"recurrent": (6, 7, 8), "parallel": (16, 33, 17)}
CASES = [
    (Case(kind, L, N, lead=(2, 2) if N == 6 and kind in ("token", "mixture") else (3,), **options), mode)
    for kind in KINDS
    for mode, lengths in LENGTHS.items()
    for L, (N, options) in zip(lengths, OPTIONS, strict=True)
] + [(Case(kind, 1, 1, b=True), mode) for kind in KINDS for mode in LENGTHS]


@interpreted
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize(("case", "mode"), CASES, ids=str)
def test_agrees_with_the_reference(case: Case, mode: str) -> None:
    compare_with_reference(case, "triton", mode)


@interpreted
@pytest.mark.parametrize("head", [None, 5])
@pytest.mark.parametrize("count", [1, 3, 40, 100])  # one iteration of a program, and several
def test_partial_sums(count: int, head: int | None) -> None:
    """Each group is summed in the same order as when it is alone, so the results are bit-identical."""
    from sdssm.ops._triton.partial_sums import sum_parts

    parts = torch.randn(count, 3, 70, generator=torch.Generator().manual_seed(0))
    out, rest = sum_parts(parts, torch.float32, head)
    total = out if rest is None else torch.cat([out, rest], 1)
    torch.testing.assert_close(total, parts.sum(0))
    for group in range(3):
        alone, alone_rest = sum_parts(parts[:, group : group + 1].contiguous(), torch.float32, head)
        assert torch.equal(alone[0], out[group])
        assert (
            alone_rest is None if rest is None else alone_rest is not None and torch.equal(alone_rest[0], rest[group])
        )


@interpreted
@pytest.mark.parametrize("through", ["states", "final"])
@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
def test_gradient_through_a_single_output(mode: str, through: str) -> None:
    compare_with_reference(Case("token", 17, 3, b=True, lengths=True, lead=(3,)), "triton", mode, through=through)


@interpreted
@pytest.mark.parametrize("mode", ["recurrent", "parallel"])
def test_a_block_large_enough_for_tl_dot(mode: str) -> None:
    compare_with_reference(Case("dense", 18, 17, rescale=True, lead=(1,)), "triton", mode)
    compare_with_reference(Case("dense", 18, 65, b=True, lead=(1,)), "triton", mode)


@interpreted
@pytest.mark.parametrize("rescale", [False, True])
def test_the_largest_complex_state_in_parallel_mode(rescale: bool) -> None:
    """A complex state has two real entries for each of its own: 256 of them are allowed in both modes."""
    case = Case("diagonal_complex", 17, 256, b=not rescale, rescale=rescale, lead=(1,))
    compare_with_reference(case, "triton", "parallel")


@interpreted
@pytest.mark.parametrize("kind", ["token", "mixture"])
@pytest.mark.parametrize("N", [16, 17])
def test_a_dictionary_of_which_warps_have_columns(kind: str, N: int) -> None:
    compare_with_reference(Case(kind, 4, N, b=True, lengths=True, lead=(2, 2)), "triton", "recurrent")


@interpreted
@pytest.mark.parametrize("p", [1.0, 2.0, 9.0, None])
def test_mixture_for_every_p(p: float | None) -> None:
    compare_with_reference(Case("mixture", 4, 3, p=p, lead=(1, 2)), "triton", "recurrent")


@interpreted
def test_many_symbols() -> None:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(20, 3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    tokens = torch.randint(20, (2, 9), generator=generator)

    def gradient(backend: str) -> Any:
        with ops.use_backend(backend):
            states, _ = ops.token_scan(A, None, tokens, x0=torch.ones(3, dtype=torch.float64))
            return torch.autograd.grad(states.square().sum(), A)[0]

    torch.testing.assert_close(gradient("triton"), gradient("reference"))


@interpreted
@pytest.mark.parametrize("symbols", [1, 2, 3, 4])
@pytest.mark.parametrize("options", [{"b": True, "x0": False}, {"rescale": True}], ids=str)
def test_token_tiles(symbols: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels for many rows, sorted in two groups, of which the last is short; not sorted with two symbols."""
    from sdssm.ops._triton import tile_order, token_tiles

    used: list[bool] = []
    is_faster = token_tiles.is_faster
    monkeypatch.setattr(token_tiles, "is_faster", lambda *args: used.append(is_faster(*args)) or used[-1])  # type: ignore[func-returns-value]
    monkeypatch.setattr(token_tiles, "LEAST_ROWS", 1)
    monkeypatch.setattr(tile_order, "GROUP_ROWS", 32)
    monkeypatch.setattr(token_tiles, "multiprocessors", lambda _: 1000 if symbols == 2 else 0)
    case = Case("token", 4, 17, lead=(2, 35), lengths=symbols > 1, dtype=torch.float32, symbols=symbols, **options)
    for through in ("states", "final"):
        compare_with_reference(case, "triton", "recurrent", through=through)
    assert used == [True] * 4


@interpreted
@pytest.mark.parametrize("options", [{"b": True, "lengths": True}, {"x0": False, "lengths": True}, {}], ids=str)
def test_gradient_from_lists_of_positions(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A program has several groups of the listed positions, and there are symbols without a position."""
    from sdssm.ops._triton import symbol_lists
    from sdssm.ops.token import triton as token

    monkeypatch.setattr(token, "LEAST_LISTED", 0)
    monkeypatch.setattr(token, "PROGRAMS", 1)
    monkeypatch.setattr(symbol_lists, "BLOCK", 32)
    compare_with_reference(Case("token", 50, 5, lead=(2, 3), symbols=7, **options), "triton", "recurrent")
    compare_with_reference(Case("token", 3, 5, lead=(2, 1), symbols=7, **options), "triton", "recurrent")


@interpreted
@pytest.mark.parametrize("has_lengths", [False, True])
def test_symbol_order(has_lengths: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops._triton import symbol_lists

    monkeypatch.setattr(symbol_lists, "BLOCK", 16)
    tokens = torch.randint(0, 3, (2, 4, 9), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([[0, 9, 3, 5], [1, 2, 9, 0]])
    order, counts = symbol_lists.symbol_order(tokens, lengths if has_lengths else None, 3)
    inside = torch.arange(9) < (lengths[..., None] if has_lengths else 9)
    for replica in range(2):
        for symbol in range(3):
            expected = ((tokens[replica] == symbol) & inside[replica if has_lengths else 0]).flatten().nonzero()[:, 0]
            assert order[replica, symbol, : counts[replica, symbol]].tolist() == expected.tolist()


@interpreted
@pytest.mark.parametrize("rescale", [False, True])
def test_products_of_several_large_blocks(rescale: bool) -> None:
    """Two blocks that are multiplied by tl.dot, in chunks."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(2, 20, 2, 17, 17, generator=generator, dtype=torch.float64) / 5
    b = None if rescale else torch.randn(2, 20, 34, generator=generator, dtype=torch.float64)
    x0 = torch.randn(2, 34, generator=generator, dtype=torch.float64)
    weight = torch.randn(2, 20, 34, generator=generator, dtype=torch.float64)

    def results(backend: str) -> list[torch.Tensor]:
        leaf = A.clone().requires_grad_()
        with ops.use_backend(backend):
            states, _ = ops.block_diagonal_scan(leaf, b, x0, rescale=rescale, mode="parallel")
        return [states.detach(), *torch.autograd.grad((states * weight).sum(), leaf)]

    for actual, expected in zip(results("triton"), results("reference"), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)
