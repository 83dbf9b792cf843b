"""The order in which tiles of the token scan start, and that results do not depend on it, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sdssm import ops
from sdssm.ops.padding import next_power_of_two
from tests.interpreted import interpreted
from tests.ops.cases import Case, Problem, build, outputs_and_gradients

pytest.importorskip("triton")

ROWS = 4


def random_lengths(*shape: int) -> Tensor:
    return torch.randint(0, 41, shape, generator=torch.Generator().manual_seed(0))


#: One length for each replica, as in a training, and several; ascending, descending, ties, zeros; groups that are full,
#: that are short and of which a replica has several.
LENGTHS = {
    "one replica": random_lengths(1, 8),
    "ascending replicas": torch.arange(3)[:, None].expand(3, 16) * 7,
    "descending replicas": torch.arange(5).flip(0)[:, None].expand(5, 16),
    "a length for each replica": random_lengths(9, 1).expand(9, 16),
    "equal": torch.full((3, 16), 5),
    "zeros": torch.zeros(3, 11, dtype=torch.int64),
    "different": random_lengths(3, 16),
    "fewer rows than a tile": random_lengths(3, 3),
    "short groups": random_lengths(7, 11),
    "several groups": random_lengths(3, 37),
    "few different": random_lengths(5, 35) // 15,
}


def expected_order(lengths: Tensor, group_rows: int, together: int) -> list[list[int]]:
    """Return the rows of all tiles, by two sorts."""
    B = lengths.shape[1]
    size = min(group_rows, max(ROWS, next_power_of_two(B)))
    groups = []
    for replica, own in enumerate(lengths.tolist()):
        for first in range(0, B, size):
            rows = [(-own[b], replica * B + b) for b in range(first, min(first + size, B))]
            groups.append(sorted(rows) + [(1, -1)] * (size - len(rows)))
    order = []
    for first in range(0, len(groups), together):
        tiles = [group[at : at + ROWS] for group in groups[first : first + together] for at in range(0, size, ROWS)]
        order += [[row for _, row in tile] for tile in sorted(tiles, key=lambda tile: tile[0][0])]
    return order


@interpreted
@pytest.mark.parametrize("together", [2, 256])
@pytest.mark.parametrize("case", LENGTHS)
def test_tile_order(case: str, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops._triton import tile_order

    lengths = LENGTHS[case].contiguous()
    monkeypatch.setattr(tile_order, "GROUP_ROWS", 16)
    monkeypatch.setattr(tile_order, "GROUPS_TOGETHER", together)
    monkeypatch.setattr(tile_order, "GROUPS_AT_ONCE", 4)
    order = tile_order.order_tiles(lengths, ROWS)
    assert order.tolist() == expected_order(lengths, 16, together)


def results(problem: Problem) -> dict[str, Tensor]:
    with ops.use_backend("triton"):
        return outputs_and_gradients(problem, "recurrent")


@interpreted
@pytest.mark.parametrize(("lead", "options"), [((1, 16), {"b": True}), ((3, 35), {"rescale": True})], ids=str)
def test_results_do_not_depend_on_the_order_of_tiles(
    options: dict[str, bool], lead: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sdssm.ops._triton import tile_order, token_tiles

    monkeypatch.setattr(token_tiles, "LEAST_ROWS", 1)
    monkeypatch.setattr(token_tiles, "multiprocessors", lambda _: 0)
    monkeypatch.setattr(tile_order, "GROUP_ROWS", 32)
    problem = build(Case("token", 4, 17, lead=lead, lengths=True, dtype=torch.float32, **options))
    orders: list[Tensor] = []

    def sort(lengths: Tensor, tile_rows: int) -> Tensor:
        orders.append(tile_order.order_tiles(lengths, tile_rows))
        return orders[-1]

    monkeypatch.setattr(token_tiles, "order_tiles", sort)
    together = results(problem)
    monkeypatch.setattr(tile_order, "GROUPS_TOGETHER", 1)
    apart = results(problem)
    monkeypatch.setattr(token_tiles, "order_tiles", lambda *args: sort(*args).flip(0))
    flipped = results(problem)
    assert len(orders) == 6
    assert torch.equal(orders[0], orders[2]) == (lead[0] == 1)
    for name, expected in together.items():
        assert torch.equal(apart[name], expected), name
        assert torch.equal(flipped[name], expected), name


@interpreted
def test_replicas_with_one_length_each_need_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting leaves their rows as they are, so the results are those of the rows that are not sorted."""
    from sdssm.ops._triton import token_tiles

    monkeypatch.setattr(token_tiles, "LEAST_ROWS", 1)
    generator = torch.Generator().manual_seed(0)
    A, x0 = torch.randn(3, 2, 17, 17, generator=generator) / 4, torch.randn(3, 35, 17, generator=generator)
    tokens, lengths = (
        torch.randint(0, 2, (3, 35, 6), generator=generator),
        torch.tensor([2, 6, 4])[:, None].expand(3, 35),
    )

    def scan() -> list[Tensor]:
        leaves = [A.clone().requires_grad_(), x0.clone().requires_grad_()]
        with ops.use_backend("triton"):
            states, final = ops.token_scan(leaves[0], None, tokens, leaves[1], lengths=lengths, rescale=True)
            grads = torch.autograd.grad(states.sin().sum() + final.square().sum(), leaves)
        return [states, final, *grads]

    unsorted = scan()
    monkeypatch.setattr(token_tiles, "multiprocessors", lambda _: 0)
    for result, expected in zip(scan(), unsorted, strict=True):
        assert torch.equal(result, expected)


@interpreted
def test_a_row_does_not_depend_on_the_sizes_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The norm of a state near the range of float32 is computed in another way, and only for its own row."""
    from sdssm.ops._triton import token_tiles

    monkeypatch.setattr(token_tiles, "LEAST_ROWS", 1)
    problem = build(Case("token", 3, 17, lead=(1, 48), rescale=True, dtype=torch.float32))
    before = results(problem)["states"]
    problem.leaves["x0"][:, ::3] *= 1e-18
    after = results(problem)["states"]
    others = torch.arange(48) % 3 > 0
    assert torch.equal(after[:, others], before[:, others])
    torch.testing.assert_close(after, before)  # rescaled, so only the first norm differs
