"""elman_scan: cases for `test_function_laws`, comparison with torch's RNN, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sdssm import ops
from sdssm.ops.elman import elman_scan, elman_step
from tests.ops.differentiable import Function, Leaves, Operation, Tuning, draws, together


@dataclasses.dataclass(frozen=True)
class RecurrentCase:
    """Sizes and options of one scan; the tests of lstm_scan use it as well."""

    lead: tuple[int, ...] = (5,)  # (..., B)
    L: int = 6
    N: int = 4
    x0: bool = True
    lengths: bool = False
    replicas: bool = True  # every leading dimension before B has its own W


CASES = [
    RecurrentCase(),
    RecurrentCase(x0=False),
    RecurrentCase((3, 5), 7, 6, lengths=True),
    RecurrentCase((3, 5), 7, 6, x0=False, lengths=True),
    RecurrentCase((2, 2, 3), 5, 3, replicas=False, lengths=True),
    RecurrentCase((1,), 1, 1),
    RecurrentCase((2, 3), 1, 2, x0=False, lengths=True),
]
#: Cases, each with the index of the output that the loss depends on.
ALONE = [(RecurrentCase((2, 17), 3, 17), 1), (RecurrentCase((2, 17), 3, 5, lengths=True), 2)]
MANY = RecurrentCase((3, 40), 9, 7, lengths=True)


def lengths_of(case: RecurrentCase, device: str) -> Tensor | None:
    """Return lengths from 0 to L that differ between neighbouring rows."""
    if not case.lengths:
        return None
    many = torch.Size(case.lead).numel()
    return (torch.arange(many) * 3 % (case.L + 1)).reshape(case.lead).to(device)


def build(case: RecurrentCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    leaves = {
        "W": draw(*(case.lead[:-1] if case.replicas else ()), case.N, case.N) * case.N**-0.5,
        "drive": draw(*case.lead, case.L, case.N),
    }
    if case.x0:
        leaves["x0"] = draw(*case.lead, case.N)
    lengths = lengths_of(case, device)

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        return together(*elman_scan(inputs["W"], inputs["drive"], inputs.get("x0"), lengths=lengths))

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


@pytest.mark.parametrize(
    ("capability", "N", "dtype"),
    [
        (90, 64, torch.float32),
        (90, 128, torch.float32),
        (90, 200, torch.float32),
        (90, 64, torch.float64),
        (90, 128, torch.float64),
        (80, 128, torch.float32),
        (80, 128, torch.float64),
    ],
)
def test_compiles_ahead_of_time(capability: int, N: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from sdssm.ops.elman import triton
    from tests.ops.test_triton_compile import compiler, jit

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    W, drive, x0 = (torch.zeros(shape, dtype=dtype) for shape in ((2, N, N), (2, 20, 9, N), (2, 20, N)))
    lengths = torch.full((2, 20), 9)
    states, final = triton.forward(W, drive, x0, lengths)
    triton.backward(states, final, W, drive, x0, lengths, states, final)
    triton.forward(W, drive, None, None)
    triton.backward(None, final, W, drive, None, None, states, final)
    assert launched == ["elman_forward_kernel", "elman_backward_kernel"] * 2


def test_agrees_with_torch_rnn(device: str) -> None:
    model: Any = nn.RNN(3, 8, nonlinearity="relu", batch_first=True, dtype=torch.float64, device=device)
    u, x0 = (draws()(*shape).to(device) for shape in ((4, 7, 3), (4, 8)))
    drive = u @ model.weight_ih_l0.mT + model.bias_ih_l0 + model.bias_hh_l0
    states, final = elman_scan(model.weight_hh_l0, drive, x0)
    expected, expected_final = model(u, x0[None])
    torch.testing.assert_close((states, final), (expected, expected_final[0]))
    x = x0
    for t in range(7):
        x = elman_step(model.weight_hh_l0, drive[:, t], x)
    torch.testing.assert_close(x, final)


def test_nan_propagates(device: str) -> None:
    drive = torch.zeros(1, 3, 2, device=device)
    drive[0, 1, 0] = torch.nan
    states, _ = elman_scan(torch.eye(2, device=device), drive)
    assert states.isnan().any(-1).tolist() == [[False, True, True]]


def test_empty_batch(device: str) -> None:
    states, final = elman_scan(torch.eye(2, device=device), torch.zeros(0, 3, 4, 2, device=device))
    assert states.shape == (0, 3, 4, 2) and final.shape == (0, 3, 2)


ones = torch.ones
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"W has shape \(2, 3\).*must be equal", lambda: elman_scan(ones(2, 3), ones(1, 1, 2))),
    (r"drive has shape \(4, 3\); it needs at least 3", lambda: elman_scan(ones(3, 3), ones(4, 3))),
    (r"drive has shape \(1, 4, 2\).*N=3", lambda: elman_scan(ones(3, 3), ones(1, 4, 2))),
    (r"drive has dtype torch.float64", lambda: elman_scan(ones(3, 3), ones(1, 4, 3).double())),
    (r"x0 has shape \(2,\).*N=3", lambda: elman_scan(ones(3, 3), ones(1, 4, 3), ones(2))),
    (r"W of shape .*broadcast", lambda: elman_scan(ones(2, 3, 3), ones(3, 5, 4, 3))),
    (r"lengths has dtype torch.float32", lambda: elman_scan(ones(3, 3), ones(1, 4, 3), lengths=ones(1))),
    (r"lengths\[0\] is 5; .*0..4", lambda: elman_scan(ones(3, 3), ones(1, 4, 3), lengths=torch.tensor([5]))),
    (r"W is a list", lambda: elman_scan([1.0], ones(1, 4, 3))),  # type: ignore[arg-type]
]


def test_state_above_the_triton_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with ops.use_backend("triton"), pytest.raises(ops.OpsError, match="257 entries; the triton backend takes at most"):
        elman_scan(ones(257, 257), ones(1, 1, 257))


def stream_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.elman import tiles, triton

    monkeypatch.setattr(triton, "LARGEST_RESIDENT", 0)
    monkeypatch.setattr(tiles, "CHUNK_OUT", 16)
    monkeypatch.setattr(tiles, "CHUNK_IN", 16)


ELMAN = Operation(
    name="elman",
    build=build,
    cases=CASES,
    alone=ALONE,
    wide=[RecurrentCase((2, 33), 9, N, lengths=True) for N in (64, 100, 256)],
    small=[dataclasses.replace(case, N=3) for case in CASES[:4]],
    mapped=[CASES[0], CASES[2], CASES[3]],
    tiny=[RecurrentCase((2, 3), 3, 3, lengths=True)],
    full=[CASES[2]],
    many=MANY,
    bad=BAD,
    tunings=[Tuning("streamed matrix", stream_matrix, [(CASES[2], 0), (CASES[3], 0), *ALONE])],
)
