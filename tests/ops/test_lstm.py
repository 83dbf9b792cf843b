"""lstm_scan: cases for `test_function_laws`, comparison with torch's LSTM, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sdssm import ops
from sdssm.ops.lstm import lstm_scan, lstm_step
from tests.ops.differentiable import Function, Leaves, Operation, Tuning, compare_with_reference, draws, fast, together
from tests.ops.test_elman import ALONE as ELMAN_ALONE
from tests.ops.test_elman import CASES, MANY, RecurrentCase, lengths_of

CELL_CASE = RecurrentCase((2, 3), 5, 4, lengths=True)
#: Cases, each with the index of the output that the loss depends on.
ALONE = [*ELMAN_ALONE, (CELL_CASE, 3), (RecurrentCase((3,), 4, 3), 3)]


def build(case: RecurrentCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    scale = case.N**-0.5 if case.N >= 64 else 1.0  # without it the gates of wide states would saturate
    leaves = {
        "W": draw(*(case.lead[:-1] if case.replicas else ()), 4 * case.N, case.N) * scale,
        "drive": draw(*case.lead, case.L, 4 * case.N),
    }
    if case.x0:
        leaves |= {"x0": draw(*case.lead, case.N), "c0": draw(*case.lead, case.N)}
    lengths = lengths_of(case, device)

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        return together(*lstm_scan(inputs["W"], inputs["drive"], inputs.get("x0"), inputs.get("c0"), lengths=lengths))

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


@pytest.mark.parametrize(
    ("capability", "R", "N", "dtype"),
    [
        (90, 2, 64, torch.float32),
        (90, 21, 64, torch.float32),
        (90, 2, 128, torch.float32),
        (90, 2, 64, torch.float64),
        (90, 2, 128, torch.float64),
        (80, 21, 64, torch.float32),
        (80, 2, 32, torch.float64),
    ],
)
def test_compiles_ahead_of_time(
    capability: int, R: int, N: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from sdssm.ops.lstm import triton
    from tests.ops.test_triton_compile import compiler, jit

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    W, drive, x0 = (torch.zeros(shape, dtype=dtype) for shape in ((R, 4 * N, N), (R, 120, 3, 4 * N), (R, 120, N)))
    lengths = torch.full((R, 120), 3)
    outputs = triton.forward(W, drive, x0, x0, lengths, True)
    triton.backward(*outputs[:3], W, drive, x0, x0, lengths, *outputs, True)
    triton.backward(None, outputs[1], None, W, drive, None, None, None, *outputs, True)
    triton.forward(W, drive, None, None, None, False)
    assert launched == ["lstm_forward_kernel", "lstm_backward_kernel", "lstm_backward_kernel", "lstm_forward_kernel"]


def test_agrees_with_torch_lstm(device: str) -> None:
    model: Any = nn.LSTM(3, 8, batch_first=True, dtype=torch.float64, device=device)
    u, x0, c0 = (draws()(*shape).to(device) for shape in ((4, 7, 3), (4, 8), (4, 8)))
    drive = u @ model.weight_ih_l0.mT + model.bias_ih_l0 + model.bias_hh_l0
    result = lstm_scan(model.weight_hh_l0, drive, x0, c0)
    expected, (expected_final, expected_cell) = model(u, (x0[None], c0[None]))
    torch.testing.assert_close(result, (expected, expected_final[0], expected_cell[0]))
    x, c = x0, c0
    for t in range(7):
        x, c = lstm_step(model.weight_hh_l0, drive[:, t], x, c)
    torch.testing.assert_close((x, c), result[1:])


def test_saturated_gates_do_not_overflow(device: str) -> None:
    """Large drives saturate the gates; results and gradients still match the reference."""
    function, leaves = build(CASES[0], device, torch.float32)
    leaves["drive"] = leaves["drive"] * 1e4
    compare_with_reference(function, leaves, fast(device), "large")


ones = torch.ones
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"W has shape \(3, 3\); it must be \(..., 4N, N\)", lambda: lstm_scan(ones(3, 3), ones(1, 1, 12))),
    (r"drive has shape \(4, 12\); it needs at least 3", lambda: lstm_scan(ones(12, 3), ones(4, 12))),
    (r"drive has shape \(1, 4, 3\).*4N=12", lambda: lstm_scan(ones(12, 3), ones(1, 4, 3))),
    (r"drive has dtype torch.float64", lambda: lstm_scan(ones(12, 3), ones(1, 4, 12).double())),
    (r"x0 has shape \(2,\).*N=3", lambda: lstm_scan(ones(12, 3), ones(1, 4, 12), ones(2))),
    (r"c0 has shape \(2,\).*N=3", lambda: lstm_scan(ones(12, 3), ones(1, 4, 12), ones(3), ones(2))),
    (r"c0 of shape \(2, 3\).*broadcast", lambda: lstm_scan(ones(12, 3), ones(3, 4, 12), c0=ones(2, 3))),
    (r"lengths\[0\] is -1; .*0..4", lambda: lstm_scan(ones(12, 3), ones(1, 4, 12), lengths=torch.tensor([-1]))),
    (r"W is a list", lambda: lstm_scan([1.0], ones(1, 4, 12))),  # type: ignore[arg-type]
]


def stream_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.elman import tiles
    from sdssm.ops.lstm import triton

    monkeypatch.setitem(triton.LARGEST_RESIDENT, torch.float64, 0)
    monkeypatch.setattr(tiles, "CHUNK_OUT", 16)
    monkeypatch.setattr(tiles, "CHUNK_IN", 16)


def double_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.lstm import triton

    monkeypatch.setattr(triton, "PROGRAMS", 1)


def check_wide_state_without_gradient() -> None:
    function, leaves = build(RecurrentCase((1,), 2, 33, lengths=True))
    with torch.no_grad():
        result = function(leaves)
    with ops.use_backend("reference"):
        torch.testing.assert_close(result, function(leaves))


def shrink(case: RecurrentCase) -> RecurrentCase:
    return dataclasses.replace(case, lead=tuple(min(size, 2) for size in case.lead), L=4, N=2)


LSTM = Operation(
    name="lstm",
    build=build,
    cases=CASES,
    alone=ALONE,
    wide=[
        RecurrentCase((R, 240 if R > 2 else 33), 5, N, lengths=True) for R, N in ((2, 64), (9, 64), (2, 100), (2, 256))
    ],
    small=[shrink(case) for case in (*CASES[:4], CELL_CASE)],
    mapped=[CASES[0], CASES[2], CASES[3]],
    tiny=[RecurrentCase((2, 3), 3, 3, lengths=True)],
    full=[CASES[2]],
    many=MANY,
    bad=BAD,
    tunings=[
        Tuning("streamed matrices", stream_matrices, [(CASES[2], 0), (CASES[3], 0), *ALONE[:3]]),
        Tuning("more rows per program", double_rows, [(RecurrentCase((2, 35), 3, 5, lengths=True), 0)], torch.float32),
    ],
    own=[check_wide_state_without_gradient],
)
