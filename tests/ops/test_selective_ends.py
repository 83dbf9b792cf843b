"""selective_end: cases for `test_function_laws`, comparison with `selective_scan`, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm.ops.selective import selective_scan
from sdssm.ops.selective_ends import selective_end
from tests.ops.differentiable import Function, Leaves, Operation, Tuning, draws, together


@dataclasses.dataclass(frozen=True)
class EndCase:
    """Sizes and options; with `shared`, all rows have the same A."""

    lead: tuple[int, ...] = (2,)
    L: int = 5
    D: int = 3
    N: int = 4
    lengths: bool = False
    shared: bool = True


#: All sizes 1, lengths one step past and one before a group of steps, sizes that need padding, replicas.
CASES = [
    EndCase((1,), 1, 1, 1),
    EndCase((3,), 9, 5, 3, lengths=True),
    EndCase((2,), 8, 2, 8),
    EndCase((2, 2), 7, 3, 2, lengths=True, shared=False),
    EndCase((2, 1, 2), 17, 2, 5, lengths=True, shared=False),
]


def build(case: EndCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    lead, L, D, N = case.lead, case.L, case.D, case.N
    leaves = {
        "x": draw(*lead, L, D),
        "delta": draw(*lead, L, D).abs() * 0.3,
        "A": -draw(*(() if case.shared else lead[:-1]), D, N).abs() * 2,
        "B": draw(*lead, L, N),
        "C": draw(*lead, N),
    }
    lengths = None
    if case.lengths:  # at least one row of length 0 and one of length L
        lengths = torch.randint(0, L + 1, lead, generator=torch.Generator().manual_seed(1))
        lengths.view(-1)[0], lengths.view(-1)[-1] = 0, L
        lengths = lengths.to(device)

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        return together(selective_end(*inputs.values(), lengths=lengths))

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


@pytest.mark.parametrize("lengths", [None, torch.tensor([[9, 1, 4], [2, 8, 5]])])
def test_equals_the_last_output_of_the_scan(lengths: Tensor | None, device: str) -> None:
    _, leaves = build(EndCase((2, 3), 9, 3, 4, shared=False), device)
    x, delta, A, B, C = leaves.values()
    lengths = None if lengths is None else lengths.to(device)
    last = torch.full((2, 3), 9, device=device) if lengths is None else lengths
    outputs, _ = selective_scan(x, delta, A, B, C[..., None, :].expand_as(B), lengths=lengths)
    expected = outputs.gather(-2, (last - 1)[..., None, None].expand(2, 3, 1, 3))[..., 0, :]
    torch.testing.assert_close(selective_end(x, delta, A, B, C, lengths=lengths), expected)


def check_inputs_past_the_end(device: str = "cpu") -> None:
    draw = draws()
    x, delta, B = (draw(2, 11, size).to(device) for size in (3, 3, 2))
    A, C, lengths = -draw(3, 2).abs().to(device), draw(2, 2).to(device), torch.tensor([3, 9], device=device)
    expected = selective_end(x, delta, A, B, C, lengths=lengths)
    past_end = torch.arange(11, device=device) >= lengths[:, None]
    arguments = [tensor.masked_fill(past_end[..., None], float("nan")).requires_grad_() for tensor in (x, delta, B)]
    y = selective_end(arguments[0], arguments[1], A, arguments[2], C, lengths=lengths)
    torch.testing.assert_close(y, expected, rtol=0, atol=0)
    for grad in torch.autograd.grad(y.square().sum(), arguments):
        assert grad.isfinite().all() and not grad[past_end].any() and grad[~past_end].any()


def test_inputs_past_the_end_are_ignored(device: str) -> None:
    check_inputs_past_the_end(device)


# -- Triton compilation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "N", "dtype", "lengths"),
    [(80, 128, torch.float32, True), (90, 256, torch.float32, False), (90, 100, torch.float64, True)],
)
def test_compiles_for_a_gpu(
    capability: int, N: int, dtype: torch.dtype, lengths: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from triton.runtime import jit

    from sdssm.ops.selective_ends import triton
    from tests.ops.test_triton_compile import compiler

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    R, rows, L, D = 2, 3, 9, 128

    def new(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    x, A, B, C = new(R, rows, L, D), new(R, D, N), new(R, rows, L, N), new(R, rows, N)
    arguments = (x, x, A, B, C, torch.full((R, rows), L) if lengths else None)
    (y,) = triton.forward(*arguments, True)
    assert y.shape == (R, rows, D)
    triton.backward(y, *arguments, y, True)
    triton.forward(*arguments, False)
    assert launched == [
        "selective_ends_forward_kernel",
        "selective_ends_backward_kernel",
        "complete_kernel",
        "selective_ends_forward_kernel",
    ]


# -- errors ------------------------------------------------------------------------------------------------------------

ones = torch.ones
GOOD = (ones(2, 4, 3), ones(2, 4, 3), ones(3, 5), ones(2, 4, 5), ones(2, 5))


def call_with(position: int, value: Any, **options: Any) -> Callable[[], Any]:
    arguments: list[Any] = [*GOOD[:position], value, *GOOD[position + 1 :]]
    return lambda: selective_end(*arguments, **options)


BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"x has shape \(4, 3\); it needs at least 3", call_with(0, ones(4, 3))),
    (r"delta has shape \(2, 4, 2\).*L=4, D=3", call_with(1, ones(2, 4, 2))),
    (r"A has shape \(2, 5\).*D=3", call_with(2, ones(2, 5))),
    (r"B has shape \(2, 4, 3\).*L=4, N=5", call_with(3, ones(2, 4, 3))),
    (r"C has shape \(2, 3\).*N=5", call_with(4, ones(2, 3))),
    (r"lengths\[1\] is 5.*0..4", call_with(0, GOOD[0], lengths=torch.tensor([4, 5]))),
]


# -- catalogue entry ---------------------------------------------------------------------------------------------------


def use_several_channel_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.selective_ends import triton

    monkeypatch.setattr(triton, "FORWARD_ENTRIES", 16)
    monkeypatch.setattr(triton, "BACKWARD_ENTRIES", 16)
    monkeypatch.setattr(triton, "ROWS", 2)
    monkeypatch.setattr(triton, "TILE_STEPS", 4)
    assert triton.backward_constants(5, 3, torch.float64)["DB"] == 2


SELECTIVE_END = Operation(
    name="selective_ends",
    build=build,
    cases=CASES,
    alone=[],
    wide=[EndCase((2, 2), 19, 6, N, lengths=True, shared=False) for N in (128, 256)],
    small=[EndCase((2,), 4, 2, 2, lengths=True), EndCase((2, 1), 3, 1, 2, shared=False)],
    mapped=CASES[1:4],
    tiny=[EndCase((2,), 3, 2, 2, lengths=True)],
    full=[CASES[1]],
    many=EndCase((2, 5), 20, 16, 8, lengths=True, shared=False),
    bad=BAD,
    slow=CASES[4:],
    tunings=[Tuning("blocks", use_several_channel_blocks, [(EndCase((5,), 6, 5, 3, lengths=True), 0)])],
    own=[check_inputs_past_the_end],
    numba=True,
    other_name="selective_end",
)
