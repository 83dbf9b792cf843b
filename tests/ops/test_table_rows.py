"""table_rows: Triton kernels compared with torch, and replicas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from sdssm import ops
from sdssm.ops.table_rows import table_rows
from tests.interpreted import interpreted
from tests.ops.cases import assert_same
from tests.ops.differentiable import draws

#: Symbols, entries and positions: smaller than a tile, and several tiles and pieces with remainders.
SIZES = [(2, 3, (5,)), (3, 150, (3, 9)), (16, 20, (40, 41))]


def leaves(R: int, V: int, F: int, shape: tuple[int, ...], dtype: Any = torch.float64) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(-1, V + 1, (R, *shape), generator=torch.Generator().manual_seed(1))
    return draws()(R, V, F).to(dtype).requires_grad_(), tokens


def results(table: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """Return the rows of all replicas under vmap, and the gradient of a weighted sum of them."""
    rows = vmap(table_rows)(table, tokens)
    weights = torch.arange(rows[0].numel(), dtype=torch.float64).mul(1.7).cos().reshape(rows.shape[1:]).to(rows)
    (grad,) = torch.autograd.grad((rows * weights).sum(), table)
    return {"rows": rows.detach(), "grad": grad}


@interpreted
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_agrees_with_torch_in_the_interpreter(sizes: tuple[int, int, tuple[int, ...]]) -> None:
    table, tokens = leaves(2, *sizes)
    expected = results(table, tokens)
    with ops.use_backend("triton"):
        assert_same(results(table, tokens), expected, torch.float64)


@interpreted
def test_a_replica_has_the_results_that_it_has_alone() -> None:
    table, tokens = leaves(3, 4, 20, (700,), torch.float32)
    with ops.use_backend("triton"):
        together = results(table, tokens)
        for replica in range(3):
            part = slice(replica, replica + 1)
            alone = results(table[part].detach().requires_grad_(), tokens[part])
            assert all(torch.equal(alone[name][0], together[name][replica]) for name in together)


@interpreted
def test_rows_without_entries_or_positions() -> None:
    for V, F, count in [(2, 0, 5), (2, 3, 0)]:
        table, tokens = leaves(1, V, F, (count,))
        with ops.use_backend("triton"):
            assert results(table, tokens)["rows"].shape == (1, count, F)


@pytest.mark.parametrize(("V", "F", "dtype"), [(2, 128, torch.float32), (16, 300, torch.float64)])
@pytest.mark.parametrize("capability", [80, 90])
def test_compiles_for_a_gpu(V: int, F: int, dtype: Any, capability: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from triton.runtime import jit

    from sdssm.ops.table_rows import triton
    from tests.ops.test_triton_compile import compiler

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    table, tokens = torch.zeros(2, V, F, dtype=dtype), torch.zeros(2, 500, dtype=torch.int64)
    (rows,) = triton.forward(table, tokens)
    triton.backward(rows, table, tokens)
    assert launched == ["table_rows_forward_kernel", "table_rows_backward_kernel", "partial_sums_kernel"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_agrees_with_torch_on_a_gpu(sizes: tuple[int, int, tuple[int, ...]]) -> None:
    table, tokens = leaves(2, *sizes)
    expected = results(table, tokens)
    actual = results(table.detach().cuda().requires_grad_(), tokens.cuda())
    assert_same({name: value.cpu() for name, value in actual.items()}, expected, torch.float64)
