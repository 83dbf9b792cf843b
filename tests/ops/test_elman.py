"""elman_scan: every implementation against the plain loop, torch's own RNN, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sdssm import ops
from sdssm.ops import backend
from sdssm.ops.elman import elman_scan, elman_step
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


@dataclasses.dataclass(frozen=True)
class Scan:
    """One scan by its sizes and options; `through`: which outputs the loss sees."""

    lead: tuple[int, ...] = (5,)  # (..., B)
    L: int = 6
    N: int = 4
    x0: bool = True
    lengths: bool = False
    through: str = "both"  # or states, or final
    replicas: bool = True  # W of their own for those before B


CASES = [
    Scan(),
    Scan(x0=False),
    Scan((3, 5), 7, 6, lengths=True),
    Scan((3, 5), 7, 6, x0=False, lengths=True),
    Scan((2, 2, 3), 5, 3, replicas=False, lengths=True),
    Scan((2, 17), 3, 17, through="states"),
    Scan((2, 17), 3, 5, through="final", lengths=True),
    Scan((1,), 1, 1),
    Scan((2, 3), 1, 2, x0=False, lengths=True),
]


def lengths_of(case: Scan, device: str) -> Tensor | None:
    """From 0 to L, different in neighbouring rows."""
    if not case.lengths:
        return None
    many = torch.Size(case.lead).numel()
    return (torch.arange(many) * 3 % (case.L + 1)).reshape(case.lead).to(device)


def build(case: Scan, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    leaves = {
        "W": draw(*(case.lead[:-1] if case.replicas else ()), case.N, case.N) * case.N**-0.5,
        "drive": draw(*case.lead, case.L, case.N),
    }
    if case.x0:
        leaves["x0"] = draw(*case.lead, case.N)
    lengths = lengths_of(case, device)

    def function(of: Leaves) -> tuple[Tensor, ...]:
        states, final = elman_scan(of["W"], of["drive"], of.get("x0"), lengths=lengths)
        if case.through == "states":
            return states, final
        if case.through == "final":
            return final, states
        return (torch.cat([states, final[..., None, :]], dim=-2),)

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


def fast(device: str) -> str:
    return "cpu" if device == "cpu" else "triton"


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_faces_the_reference(case: Scan, device: str) -> None:
    face_reference(*build(case, device), fast(device), str(case))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("N", [64, 100, 256])
def test_float32_is_close(N: int, device: str) -> None:
    case = Scan((2, 33), 9, N, lengths=True)
    face_reference(*build(case, device, torch.float32), fast(device), str(case))


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
@pytest.mark.parametrize("case", [CASES[2], CASES[3], CASES[5], CASES[6]], ids=str)
def test_interpreted_with_a_streamed_matrix(case: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.elman import triton

    monkeypatch.setattr(triton, "LARGEST_RESIDENT", 0)
    monkeypatch.setattr(triton, "CHUNK_OUT", 16)
    monkeypatch.setattr(triton, "CHUNK_IN", 16)
    face_reference(*build(case), "triton", str(case))


@inside
def test_interpreted_transforms() -> None:
    with ops.use_backend("triton"):
        check_transforms(*build(CASES[2]))


@pytest.mark.skipif(INTERPRETED, reason="interpreted kernels are not compiled")
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

    seen: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, seen))
    W, drive, x0 = (torch.zeros(shape, dtype=dtype) for shape in ((2, N, N), (2, 20, 9, N), (2, 20, N)))
    lengths = torch.full((2, 20), 9)
    states, final = triton.forward(W, drive, x0, lengths)
    triton.backward(states, final, W, drive, x0, lengths, states, final)
    triton.forward(W, drive, None, None)
    triton.backward(None, final, W, drive, None, None, states, final)
    assert seen == ["forward_kernel", "backward_kernel"] * 2


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_gradcheck(case: Scan, name: str) -> None:
    function, leaves = build(dataclasses.replace(case, N=3))
    inputs = [leaf.requires_grad_() for leaf in leaves.values()]
    with ops.use_backend(name):
        assert torch.autograd.gradcheck(lambda *given: function(dict(zip(leaves, given, strict=True))), inputs)


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[3]], ids=str)
def test_transforms(case: Scan, device: str) -> None:
    check_transforms(*build(case, device))
    with ops.use_backend("reference"):
        check_transforms(*build(case, device))


def test_is_torch_s_rnn(device: str) -> None:
    model: Any = nn.RNN(3, 8, nonlinearity="relu", batch_first=True, dtype=torch.float64, device=device)
    u, x0 = (draws()(*shape).to(device) for shape in ((4, 7, 3), (4, 8)))
    drive = u @ model.weight_ih_l0.mT + model.bias_ih_l0 + model.bias_hh_l0
    states, final = elman_scan(model.weight_hh_l0, drive, x0)
    wanted, last = model(u, x0[None])
    torch.testing.assert_close((states, final), (wanted, last[0]))
    x = x0
    for t in range(7):
        x = elman_step(model.weight_hh_l0, drive[:, t], x)
    torch.testing.assert_close(x, final)


def test_what_is_not_a_number_stays_so(device: str) -> None:
    drive = torch.zeros(1, 3, 2, device=device)
    drive[0, 1, 0] = torch.nan
    states, _ = elman_scan(torch.eye(2, device=device), drive)
    assert states.isnan().any(-1).tolist() == [[False, True, True]]


def test_no_rows_give_no_states(device: str) -> None:
    states, final = elman_scan(torch.eye(2, device=device), torch.zeros(0, 3, 4, 2, device=device))
    assert states.shape == (0, 3, 4, 2) and final.shape == (0, 3, 2)


def test_sixteen_bits_are_computed_in_float32(device: str) -> None:
    function, leaves = build(CASES[0], device, torch.bfloat16)
    (found,) = function(leaves)
    wide = function({name: leaf.float() for name, leaf in leaves.items()})[0]
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wide, atol=1e-2, rtol=2**-7)


@pytest.mark.parametrize("which", range(3))
def test_a_planted_wrong_gradient_fails(which: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = backend.implementation("elman", fast(device))
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
    with pytest.raises(ops.OpsError, match=r"elman_scan: .*reference"):
        torch.autograd.grad(grad.sum(), W)


def test_the_same_bits_every_time(device: str) -> None:
    function, leaves = build(Scan((3, 40), 9, 7, lengths=True), device)
    first, second = (outputs_and_gradients(function, leaves) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


D = torch.ones
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"W has shape \(2, 3\).*must be equal", lambda: elman_scan(D(2, 3), D(1, 1, 2))),
    (r"drive has shape \(4, 3\); it needs at least 3", lambda: elman_scan(D(3, 3), D(4, 3))),
    (r"drive has shape \(1, 4, 2\).*N=3", lambda: elman_scan(D(3, 3), D(1, 4, 2))),
    (r"drive has dtype torch.float64", lambda: elman_scan(D(3, 3), D(1, 4, 3).double())),
    (r"x0 has shape \(2,\).*N=3", lambda: elman_scan(D(3, 3), D(1, 4, 3), D(2))),
    (r"W of shape .*broadcast", lambda: elman_scan(D(2, 3, 3), D(3, 5, 4, 3))),
    (r"lengths has dtype torch.float32", lambda: elman_scan(D(3, 3), D(1, 4, 3), lengths=D(1))),
    (r"lengths\[0\] is 5; .*0..4", lambda: elman_scan(D(3, 3), D(1, 4, 3), lengths=torch.tensor([5]))),
    (r"W is a list", lambda: elman_scan([1.0], D(1, 4, 3))),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message[:30] for message, _ in BAD])
@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_bad_input_is_named(message: str, call: Callable[[], Any], name: str) -> None:
    with ops.use_backend(name), pytest.raises(ops.OpsError, match=f"elman_scan: .*{message}"):
        call()


def test_a_state_past_the_kernels_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with ops.use_backend("triton"), pytest.raises(ops.OpsError, match="257 entries; the triton backend takes at most"):
        elman_scan(D(257, 257), D(1, 1, 257))
