"""lstm_scan: every implementation against the plain loop, torch's own LSTM, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sdssm import ops
from sdssm.ops import backend
from sdssm.ops.lstm import lstm_scan, lstm_step
from tests.interpreted import INTERPRETED, assert_passes_interpreted, inside, outside
from tests.ops.differentiable import (
    Function,
    Leaves,
    check_compiled,
    check_transforms,
    draws,
    face_reference,
    outputs_and_gradients,
)
from tests.ops.test_elman import CASES as ELMAN_CASES
from tests.ops.test_elman import Scan, fast, lengths_of

CASES = [*ELMAN_CASES, Scan((2, 3), 5, 4, lengths=True, through="cell"), Scan((3,), 4, 3, through="cell")]


def build(case: Scan, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    leaves = {
        "W": draw(*(case.lead[:-1] if case.replicas else ()), 4 * case.N, case.N),
        "drive": draw(*case.lead, case.L, 4 * case.N),
    }
    if case.x0:
        leaves |= {"x0": draw(*case.lead, case.N), "c0": draw(*case.lead, case.N)}
    lengths = lengths_of(case, device)

    def function(of: Leaves) -> tuple[Tensor, ...]:
        states, final, cell = lstm_scan(of["W"], of["drive"], of.get("x0"), of.get("c0"), lengths=lengths)
        if case.through == "both":
            return (torch.cat([states, final[..., None, :], cell[..., None, :]], dim=-2),)
        order = {"states": (states, final, cell), "final": (final, states, cell), "cell": (cell, states, final)}
        return order[case.through]

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_faces_the_reference(case: Scan, device: str) -> None:
    face_reference(*build(case, device), fast(device), str(case))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize(("R", "N"), [(2, 64), (9, 64), (2, 100), (2, 256)])
def test_float32_is_close(R: int, N: int, device: str) -> None:
    case = Scan((R, 240 if R > 2 else 33), 5, N, lengths=True)
    function, leaves = build(case, device, torch.float32)
    leaves["W"] = leaves["W"] * N**-0.5
    face_reference(function, leaves, fast(device), str(case))


@outside
@pytest.mark.timeout(600)
def test_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    assert_passes_interpreted(__file__, "interpreted")


@inside
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreted(case: Scan) -> None:
    face_reference(*build(case), "triton", str(case))


@inside
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("case", [CASES[2], CASES[3], CASES[5], CASES[6], CASES[9]], ids=str)
def test_interpreted_with_streamed_matrices(case: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.elman import triton as elman
    from sdssm.ops.lstm import triton

    monkeypatch.setitem(triton.LARGEST_RESIDENT, torch.float64, 0)
    monkeypatch.setattr(elman, "CHUNK_OUT", 16)
    monkeypatch.setattr(elman, "CHUNK_IN", 16)
    face_reference(*build(case), "triton", str(case))


@inside
@pytest.mark.usefixtures("poisoned_memory")
def test_interpreted_with_more_rows_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.lstm import triton

    monkeypatch.setattr(triton, "PROGRAMS", 1)
    case = Scan((2, 35), 3, 5, lengths=True)
    face_reference(*build(case, dtype=torch.float32), "triton", str(case))


@inside
def test_interpreted_transforms() -> None:
    with ops.use_backend("triton"):
        check_transforms(*build(CASES[2]))


@inside
def test_interpreted_without_a_gradient() -> None:
    for case in (CASES[2], Scan((1,), 2, 33, lengths=True)):
        function, leaves = build(case)
        with torch.no_grad(), ops.use_backend("triton"):
            found = function(leaves)
        with ops.use_backend("reference"):
            torch.testing.assert_close(found, function(leaves))


@pytest.mark.skipif(INTERPRETED, reason="interpreted kernels are not compiled")
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


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("case", [*CASES[:4], CASES[9]], ids=str)
def test_gradcheck(case: Scan, name: str) -> None:
    small = tuple(min(size, 2) for size in case.lead)
    function, leaves = build(dataclasses.replace(case, lead=small, L=4, N=2))
    inputs = [leaf.requires_grad_() for leaf in leaves.values()]
    with ops.use_backend(name):
        assert torch.autograd.gradcheck(lambda *given: function(dict(zip(leaves, given, strict=True)))[0], inputs)


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[3]], ids=str)
def test_transforms(case: Scan, device: str) -> None:
    check_transforms(*build(case, device))
    with ops.use_backend("reference"):
        check_transforms(*build(case, device))


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


def test_without_a_gradient_the_same(device: str) -> None:
    function, leaves = build(CASES[2], device)
    wanted = function({name: leaf.requires_grad_() for name, leaf in leaves.items()})
    with torch.no_grad():
        found = function(leaves)
    assert found[0].grad_fn is None and wanted[0].grad_fn is not None
    torch.testing.assert_close(found, tuple(one.detach() for one in wanted))


def test_sixteen_bits_are_computed_in_float32(device: str) -> None:
    function, leaves = build(CASES[0], device, torch.bfloat16)
    (found,) = function(leaves)
    wide = function({name: leaf.float() for name, leaf in leaves.items()})[0]
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wide, atol=1e-2, rtol=2**-7)


@pytest.mark.parametrize("which", range(4))
def test_a_planted_wrong_gradient_fails(which: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = backend.implementation("lstm", fast(device))
    right = module.backward

    def wrong(*args: Any) -> tuple[Tensor | None, ...]:
        return tuple(g if g is None else g * (1 + 1e-8 * (i == which)) for i, g in enumerate(right(*args)))

    monkeypatch.setattr(module, "backward", wrong)
    with pytest.raises(AssertionError, match="grad"):
        face_reference(*build(CASES[2], device), fast(device), "planted")


def test_compiles_without_graph_break(device: str) -> None:
    check_compiled(*build(CASES[2], device))


def test_a_second_gradient_is_refused(device: str) -> None:
    function, leaves = build(CASES[0], device)
    W = leaves["W"].requires_grad_()
    (grad,) = torch.autograd.grad(function(leaves)[0].square().sum(), W, create_graph=True)
    with pytest.raises(ops.OpsError, match=r"lstm_scan: .*reference"):
        torch.autograd.grad(grad.sum(), W)


def test_the_same_bits_every_time(device: str) -> None:
    function, leaves = build(Scan((3, 40), 9, 7, lengths=True), device)
    first, second = (outputs_and_gradients(function, leaves) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


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


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message[:30] for message, _ in BAD])
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_bad_input_is_named(message: str, call: Callable[[], Any], name: str) -> None:
    with ops.use_backend(name), pytest.raises(ops.OpsError, match=f"lstm_scan: .*{message}"):
        call()
