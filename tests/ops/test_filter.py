"""causal_filter: cases for `test_function_laws`, torch's convolution, replicas, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sdssm import ops
from sdssm.ops.filter import causal_filter
from tests.interpreted import interpreted
from tests.ops.differentiable import Function, Leaves, Operation, Tuning, draws, fast, outputs_and_gradients, together


@dataclasses.dataclass(frozen=True)
class FilterCase:
    """Sizes and options of one filter."""

    lead: tuple[int, ...] = (3,)  # (..., B)
    L: int = 6
    C: int = 5
    T: int = 4
    bias: bool = True
    before: bool = True
    vectors: int = 0
    size: int = 1
    replicas: bool = True  # every leading dimension before B has its own filters


CASES = [
    FilterCase(),
    FilterCase(bias=False, before=False),
    FilterCase((2, 3), 5, 13, vectors=3, size=3),
    FilterCase((2, 3), 5, 12, bias=False, before=False, vectors=3, size=4),
    FilterCase((2, 2), 2, 7, 6, vectors=1, size=7),  # shorter than the filter
    FilterCase((2, 2), 2, 7, 6, before=False),
    FilterCase((1,), 1, 1, 2),
    FilterCase((2, 3), 1, 9, 3, bias=False, vectors=2, size=2),
    FilterCase((2, 4), 3, 6, 1, before=False, vectors=6),
    FilterCase((2, 2, 3), 5, 6, 2, vectors=2, size=3, replicas=False),
    FilterCase((2, 2), 4, 5, 11, vectors=2, size=2),  # more taps than are unrolled
]
TINY = FilterCase((2, 2), 3, 5, 3, vectors=2, size=2)


def build(case: FilterCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    parameter_lead = case.lead[:-1] if case.replicas else ()
    leaves = {"x": draw(*case.lead, case.L, case.C), "filters": draw(*parameter_lead, case.T, case.C)}
    if case.bias:
        leaves["bias"] = draw(*parameter_lead, case.C)
    if case.before:
        leaves["before"] = draw(*case.lead, case.T - 1, case.C)

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        y, after = causal_filter(
            inputs["x"],
            inputs["filters"],
            inputs.get("bias"),
            inputs.get("before"),
            vectors=case.vectors,
            size=case.size,
        )
        return together(y, after)

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


def test_agrees_with_torch_convolution(device: str) -> None:
    draw = draws()
    x, filters, bias = (draw(*shape).to(device) for shape in ((3, 9, 5), (4, 5), (5,)))
    expected = functional.conv1d(x.mT, filters.mT[:, None], bias, padding=3, groups=5)[..., :9].mT
    y, after = causal_filter(x, filters, bias, vectors=2, size=2)
    expected = functional.silu(expected)
    torch.testing.assert_close(y[..., 4:], expected[..., 4:])
    pairs = expected[..., :4].reshape(3, 9, 2, 2)
    torch.testing.assert_close(
        y[..., :4].reshape(3, 9, 2, 2), pairs / (pairs.norm(dim=-1) ** 2 + 1e-6).sqrt()[..., None]
    )
    assert torch.equal(after, x[:, 6:])


@pytest.mark.parametrize("cut", [1, 2, 3, 7])
def test_sequence_can_be_split(cut: int, device: str) -> None:
    draw = draws()
    x, filters = draw(3, 9, 6).to(device), draw(4, 6).to(device)
    expected, expected_after = causal_filter(x, filters, vectors=1, size=3)
    first_outputs, after = causal_filter(x[:, :cut], filters, vectors=1, size=3)
    last_outputs, last_after = causal_filter(x[:, cut:], filters, before=after, vectors=1, size=3)
    torch.testing.assert_close(torch.cat([first_outputs, last_outputs], 1), expected)
    assert torch.equal(expected_after, last_after)
    _, broadcast_after = causal_filter(x[:, :cut], filters.expand(2, *filters.shape))  # has the leading dimensions of y
    assert torch.equal(broadcast_after, after.expand(2, *after.shape))


def check_replica_alone(device: str, dtype: torch.dtype) -> None:
    """Replicas in one call give bit-identical results to each replica alone, also under vmap."""
    case = FilterCase((3, 5), 9, 13, vectors=3, size=3)
    function, leaves = build(case, device, dtype)
    expected = [
        outputs_and_gradients(lambda inputs: function(inputs)[1:], {name: leaf[r] for name, leaf in leaves.items()})
        for r in range(3)
    ]
    weights = torch.arange(5 * 9 * 13, dtype=torch.float64, device=device).mul(1.7).add(0.3).cos().to(dtype)

    def loss(inputs: Leaves) -> tuple[Tensor, Tensor]:
        y = function(inputs)[1]
        return (y * weights.reshape(y.shape[-3:])).sum(), y

    mapped, y = torch.func.vmap(torch.func.grad(loss, has_aux=True))(leaves)
    together_grads, _ = torch.func.grad(loss, has_aux=True)(leaves)
    for r, alone_results in enumerate(expected):
        assert torch.equal(y[r], alone_results["output 0"])
        for name in leaves:
            assert torch.equal(mapped[name][r], alone_results[f"grad {name}"]), name
            assert torch.equal(together_grads[name][r], alone_results[f"grad {name}"]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_replica_gives_the_same_result_alone(dtype: torch.dtype, device: str) -> None:
    with ops.use_backend(fast(device)):
        check_replica_alone(device, dtype)


@interpreted
def test_replica_gives_the_same_result_alone_interpreted() -> None:
    with ops.use_backend("triton"):
        check_replica_alone("cpu", torch.float32)


def test_empty_batch_has_zero_gradients(device: str) -> None:
    filters = torch.ones(2, 3, device=device, requires_grad=True)
    y, after = causal_filter(torch.zeros(0, 5, 4, 3, device=device), filters)
    assert y.shape == (0, 5, 4, 3) and after.shape == (0, 5, 1, 3)
    (grad,) = torch.autograd.grad(y.sum(), filters)
    assert not grad.any()


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("C", "T", "dtype", "bias", "vectors", "size"),
    [
        (320, 4, torch.float32, False, 12, 16),
        (192, 4, torch.float32, True, 0, 1),
        (100, 64, torch.float32, True, 2, 24),
        (300, 3, torch.float64, True, 1, 256),
    ],
)
def test_compiles_ahead_of_time(
    capability: int, C: int, T: int, dtype: torch.dtype, bias: bool, vectors: int, size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("triton")
    from sdssm.ops.filter import triton
    from sdssm.ops.filter.short_gradients import MOST_TAPS
    from tests.ops.test_triton_compile import compiler, jit

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    x, filters, before = (torch.zeros(shape, dtype=dtype) for shape in ((2, 9, 40, C), (2, T, C), (2, 9, T - 1, C)))
    for earlier in (None, before):
        tensors = (x, filters, filters[:, 0].contiguous() if bias else None, earlier)
        (y,) = triton.forward(*tensors, vectors, size)
        triton.backward(y, *tensors, y, vectors, size)
    is_short = MOST_TAPS.value >= T
    gradients = ["short_gradients_kernel"] if is_short else ["silu_gradient_kernel", "input_gradient_kernel"]
    assert launched == ["filter_forward_kernel", *gradients, "partial_sums_kernel"] * 2


ones = torch.ones
X = ones(2, 4, 6)
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"x has shape \(4, 6\); it needs at least 3", lambda: causal_filter(ones(4, 6), ones(3, 6))),
    (r"filters has shape \(3, 5\).*C=6", lambda: causal_filter(X, ones(3, 5))),
    (r"filters has shape \(6,\); it needs", lambda: causal_filter(X, ones(6))),
    (r"filters has dtype torch.float64", lambda: causal_filter(X, ones(3, 6).double())),
    (r"bias has shape \(5,\).*C=6", lambda: causal_filter(X, ones(3, 6), ones(5))),
    (r"before has shape \(2, 3, 6\).*T-1=2", lambda: causal_filter(X, ones(3, 6), before=ones(2, 3, 6))),
    (r"before has shape \(2, 1, 6\); one tap needs no", lambda: causal_filter(X, ones(1, 6), before=ones(2, 1, 6))),
    (r"filters is a NoneType", lambda: causal_filter(X, None)),  # type: ignore[arg-type]
    (r"vectors is 3 and size is 3;.*at most 6", lambda: causal_filter(X, ones(3, 6), vectors=3, size=3)),
    (r"vectors is -1 and size is 1", lambda: causal_filter(X, ones(3, 6), vectors=-1)),
    (r"vectors is 2 and size is 0", lambda: causal_filter(X, ones(3, 6), vectors=2, size=0)),
    (r"filters of shape .*broadcast", lambda: causal_filter(ones(3, 2, 4, 6), ones(2, 3, 6))),
    (r"bias is on meta", lambda: causal_filter(X, ones(3, 6), ones(6, device="meta"))),
    (r"x is a list", lambda: causal_filter([1.0], ones(3, 6))),  # type: ignore[arg-type]
]


def use_small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.filter import triton

    monkeypatch.setattr(triton, "TILE_CHANNELS", 4)
    monkeypatch.setattr(triton, "TILE_ENTRIES", 16)
    monkeypatch.setattr(triton, "VECTOR_TILE_ENTRIES", 16)
    monkeypatch.setattr(triton, "MAX_UNROLLED_TAPS", 2)
    monkeypatch.setattr(triton, "STACK", 3)


FILTER = Operation(
    name="filter",
    other_name="causal_filter",
    build=build,
    cases=CASES,
    alone=[(CASES[2], 1), (CASES[4], 2)],
    wide=[FilterCase((2, 5), 20, 100, vectors=4, size=16), FilterCase((2, 5), 20, 130, before=False)],
    small=[TINY, CASES[5]],
    mapped=[CASES[0], CASES[1], CASES[2], CASES[4]],
    tiny=[TINY],
    full=[CASES[2], CASES[4]],
    many=FilterCase((3, 40), 9, 13, vectors=3, size=3),
    bad=BAD,
    tunings=[Tuning("small tiles", use_small_tiles, [(case, 0) for case in CASES])],
)
