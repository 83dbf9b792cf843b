"""lstm_scan: its cases for the laws, torch's own LSTM, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sdssm import ops
from sdssm.ops.lstm import lstm_scan, lstm_step
from tests.ops.differentiable import Function, Leaves, Operation, Tuning, draws, face_reference, fast, together
from tests.ops.test_elman import ALONE as ELMAN_ALONE
from tests.ops.test_elman import CASES, MANY, Scan, lengths_of

CELL = Scan((2, 3), 5, 4, lengths=True)
#: Cases, and the output that the loss sees.
ALONE = [*ELMAN_ALONE, (CELL, 3), (Scan((3,), 4, 3), 3)]


def build(case: Scan, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    size = case.N**-0.5 if case.N >= 64 else 1.0  # gates of wide states would all be open or shut
    leaves = {
        "W": draw(*(case.lead[:-1] if case.replicas else ()), 4 * case.N, case.N) * size,
        "drive": draw(*case.lead, case.L, 4 * case.N),
    }
    if case.x0:
        leaves |= {"x0": draw(*case.lead, case.N), "c0": draw(*case.lead, case.N)}
    lengths = lengths_of(case, device)

    def function(of: Leaves) -> tuple[Tensor, ...]:
        return together(*lstm_scan(of["W"], of["drive"], of.get("x0"), of.get("c0"), lengths=lengths))

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

    seen: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, seen))
    W, drive, x0 = (torch.zeros(shape, dtype=dtype) for shape in ((R, 4 * N, N), (R, 120, 3, 4 * N), (R, 120, N)))
    lengths = torch.full((R, 120), 3)
    kept = triton.forward(W, drive, x0, x0, lengths, True)
    triton.backward(*kept[:3], W, drive, x0, x0, lengths, *kept, True)
    triton.backward(None, kept[1], None, W, drive, None, None, None, *kept, True)
    triton.forward(W, drive, None, None, None, False)
    assert seen == ["forward_kernel", "backward_kernel", "backward_kernel", "forward_kernel"]


def test_is_torch_s_lstm(device: str) -> None:
    model: Any = nn.LSTM(3, 8, batch_first=True, dtype=torch.float64, device=device)
    u, x0, c0 = (draws()(*shape).to(device) for shape in ((4, 7, 3), (4, 8), (4, 8)))
    drive = u @ model.weight_ih_l0.mT + model.bias_ih_l0 + model.bias_hh_l0
    found = lstm_scan(model.weight_hh_l0, drive, x0, c0)
    wanted, (last, cell) = model(u, (x0[None], c0[None]))
    torch.testing.assert_close(found, (wanted, last[0], cell[0]))
    x, c = x0, c0
    for t in range(7):
        x, c = lstm_step(model.weight_hh_l0, drive[:, t], x, c)
    torch.testing.assert_close((x, c), found[1:])


def test_gates_of_any_size(device: str) -> None:
    """Nothing overflows where gates are open or shut."""
    function, leaves = build(CASES[0], device, torch.float32)
    leaves["drive"] = leaves["drive"] * 1e4
    face_reference(function, leaves, fast(device), "large")


D = torch.ones
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"W has shape \(3, 3\); it must be \(..., 4N, N\)", lambda: lstm_scan(D(3, 3), D(1, 1, 12))),
    (r"drive has shape \(4, 12\); it needs at least 3", lambda: lstm_scan(D(12, 3), D(4, 12))),
    (r"drive has shape \(1, 4, 3\).*4N=12", lambda: lstm_scan(D(12, 3), D(1, 4, 3))),
    (r"drive has dtype torch.float64", lambda: lstm_scan(D(12, 3), D(1, 4, 12).double())),
    (r"x0 has shape \(2,\).*N=3", lambda: lstm_scan(D(12, 3), D(1, 4, 12), D(2))),
    (r"c0 has shape \(2,\).*N=3", lambda: lstm_scan(D(12, 3), D(1, 4, 12), D(3), D(2))),
    (r"c0 of shape \(2, 3\).*broadcast", lambda: lstm_scan(D(12, 3), D(3, 4, 12), c0=D(2, 3))),
    (r"lengths\[0\] is -1; .*0..4", lambda: lstm_scan(D(12, 3), D(1, 4, 12), lengths=torch.tensor([-1]))),
    (r"W is a list", lambda: lstm_scan([1.0], D(1, 4, 12))),  # type: ignore[arg-type]
]


def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.elman import tiles
    from sdssm.ops.lstm import triton

    monkeypatch.setitem(triton.LARGEST_RESIDENT, torch.float64, 0)
    monkeypatch.setattr(tiles, "CHUNK_OUT", 16)
    monkeypatch.setattr(tiles, "CHUNK_IN", 16)


def more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.lstm import triton

    monkeypatch.setattr(triton, "PROGRAMS", 1)


def wide_without_a_gradient() -> None:
    function, leaves = build(Scan((1,), 2, 33, lengths=True))
    with torch.no_grad():
        found = function(leaves)
    with ops.use_backend("reference"):
        torch.testing.assert_close(found, function(leaves))


def smaller(case: Scan) -> Scan:
    return dataclasses.replace(case, lead=tuple(min(size, 2) for size in case.lead), L=4, N=2)


LSTM = Operation(
    name="lstm",
    build=build,
    cases=CASES,
    alone=ALONE,
    wide=[Scan((R, 240 if R > 2 else 33), 5, N, lengths=True) for R, N in ((2, 64), (9, 64), (2, 100), (2, 256))],
    small=[smaller(case) for case in (*CASES[:4], CELL)],
    mapped=[CASES[0], CASES[2], CASES[3]],
    tiny=[Scan((2, 3), 3, 3, lengths=True)],
    full=[CASES[2]],
    many=MANY,
    bad=BAD,
    tunings=[
        Tuning("streamed matrices", streamed, [(CASES[2], 0), (CASES[3], 0), *ALONE[:3]]),
        Tuning("more rows a program", more_rows, [(Scan((2, 35), 3, 5, lengths=True), 0)], torch.float32),
    ],
    own=[wide_without_a_gradient],
)
