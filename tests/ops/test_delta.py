"""delta_scan: cases for `test_function_laws`, comparison with explicit matrices, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from sdssm.ops import OpsError, backend, compiled, use_backend
from sdssm.ops.delta import delta_scan, delta_step
from tests.ops.differentiable import Function, Leaves, Operation, Tuning, compare_with_reference, draws, fast, together


@dataclasses.dataclass(frozen=True)
class DeltaCase:
    """Sizes and options of one scan."""

    lead: tuple[int, ...] = (3,)
    L: int = 5
    H: int = 2
    Dk: int = 3
    Dv: int = 4
    steps: int = 1
    gate: bool = False
    S0: bool = False
    lengths: bool = False


CASES = [
    DeltaCase(),
    DeltaCase((2, 3), 9, 1, 4, 2, steps=2, gate=True, S0=True, lengths=True),
    DeltaCase((4,), 7, 3, 2, 5, steps=3, S0=True, lengths=True),
    DeltaCase((), 6, 2, 3, 3, steps=2, gate=True),
    DeltaCase((2,), 1, 1, 1, 1, gate=True, S0=True),
]


def unit(x: Tensor) -> Tensor:
    normalised: Tensor = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return normalised


def build(case: DeltaCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    lead, L, H, Dk, Dv, n = case.lead, case.L, case.H, case.Dk, case.Dv, case.steps
    leaves = {
        "q": draw(*lead, L, H, Dk),
        "k": unit(draw(*lead, L * n, H, Dk)),
        "v": draw(*lead, L * n, H, Dv),
        "beta": 2 * draw(*lead, L * n, H).sigmoid(),
    }
    if case.gate:
        leaves["gate"] = draw(*lead, L, H).sigmoid()
    if case.S0:
        leaves["S0"] = draw(*lead, H, Dv, Dk)
    lengths: Tensor | None = None
    if case.lengths:
        lengths = torch.randint(0, L + 1, lead, generator=torch.Generator().manual_seed(1))
        lengths.flatten()[0], lengths.flatten()[-1] = 0, L
        lengths = lengths.to(device)

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        arguments = (inputs["q"], inputs["k"], inputs["v"], inputs["beta"], inputs.get("gate"), inputs.get("S0"))
        return together(*delta_scan(*arguments, steps=n, lengths=lengths))

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


@pytest.fixture(params=["numba", "torch"])
def each_cpu_implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test with both CPU implementations: compiled by numba, and in torch."""
    if request.param == "torch":
        with compiled.without_numba():
            yield
    else:
        pytest.importorskip("numba")
        yield


# -- definition --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_cpu_implementation")
@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("steps", [1, 3])
def test_equals_product_of_explicit_matrices(name: str, steps: int) -> None:
    """S_t = S_{t-1} A_t + b_t, with A_t the product of the gate and all I - beta k k^T of a position."""
    _, leaves = build(DeltaCase((), 6, 2, 4, 3, steps=steps, gate=True, S0=True))
    q, k, v, beta, gate, S0 = leaves.values()
    with use_backend(name):
        outputs, final = delta_scan(q, k, v, beta, gate, S0, steps=steps)
    for h in range(2):
        S = S0[h]
        for t in range(6):
            A, b = gate[t, h] * torch.eye(4, dtype=q.dtype), torch.zeros(3, 4, dtype=q.dtype)
            for s in range(t * steps, (t + 1) * steps):
                reflection = torch.eye(4, dtype=q.dtype) - beta[s, h] * torch.outer(k[s, h], k[s, h])
                A, b = A @ reflection, b @ reflection + beta[s, h] * torch.outer(v[s, h], k[s, h])
            S = S @ A + b
            torch.testing.assert_close(outputs[t, h], S @ q[t, h])
        torch.testing.assert_close(final[h], S)


def test_steps_equal_a_longer_scan(device: str) -> None:
    n = 3
    _, leaves = build(DeltaCase((2,), 4, steps=n, gate=True, S0=True), device)
    q, k, v, beta, gate, S0 = leaves.values()
    outputs, final = delta_scan(q, k, v, beta, gate, S0, steps=n)
    all_queries = torch.zeros_like(k)
    all_queries[:, n - 1 :: n] = q
    all_gates = torch.ones_like(beta)
    all_gates[:, ::n] = gate
    all_outputs, last_S = delta_scan(all_queries, k, v, beta, all_gates, S0)
    torch.testing.assert_close(outputs, all_outputs[:, n - 1 :: n])
    torch.testing.assert_close(final, last_S)


def test_beta_of_two_is_a_reflection(device: str) -> None:
    """A swap of two coordinates is the reflection along their difference: parity, and any permutation."""
    k = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64, device=device)[None, None].expand(7, 1, 3) * 2**-0.5
    S0 = torch.tensor([[[1.0, 2.0, 3.0]]], dtype=torch.float64, device=device)
    zero, two = k.new_zeros(7, 1, 1), k.new_full((7, 1), 2)
    _, final = delta_scan(k, k, zero, two, S0=S0)
    torch.testing.assert_close(final[0, 0], S0[0, 0, [1, 0, 2]])


def test_step_equals_scan(device: str) -> None:
    _, leaves = build(DeltaCase((2,), 4, steps=2, gate=True, S0=True), device)
    q, k, v, beta, gate, S = leaves.values()
    outputs, final = delta_scan(q, k, v, beta, gate, S, steps=2)
    for t in range(4):
        position = slice(2 * t, 2 * t + 2)
        o, S = delta_step(q[:, t], k[:, position], v[:, position], beta[:, position], S, gate[:, t])
        torch.testing.assert_close(o, outputs[:, t])
    torch.testing.assert_close(S, final)


@pytest.mark.usefixtures("each_cpu_implementation")
def test_scan_can_be_split(device: str) -> None:
    _, leaves = build(DeltaCase((2,), 7, steps=2, gate=True), device)
    q, k, v, beta, gate = leaves.values()
    expected, final = delta_scan(q, k, v, beta, gate, steps=2)
    first_outputs, S = delta_scan(q[:, :3], k[:, :6], v[:, :6], beta[:, :6], gate[:, :3], steps=2)
    last_outputs, S = delta_scan(q[:, 3:], k[:, 6:], v[:, 6:], beta[:, 6:], gate[:, 3:], S, steps=2)
    torch.testing.assert_close(torch.cat([first_outputs, last_outputs], 1), expected)
    torch.testing.assert_close(S, final)


@pytest.mark.usefixtures("each_cpu_implementation")
def test_inputs_past_the_end_are_ignored(device: str) -> None:
    case = DeltaCase((3,), 6, steps=2, gate=True, S0=True)
    _, leaves = build(case, device)
    lengths = torch.tensor([0, 4, 6], device=device)
    corrupted = {name: leaf.clone() for name, leaf in leaves.items()}
    for name in ("q", "k", "v", "beta", "gate"):
        count = 6 if name in ("q", "gate") else 12
        for row, length in enumerate(lengths.tolist()):
            corrupted[name][row, length * count // 6 :] = float("nan")
    q, k, v, beta, gate, S0 = arguments = [leaf.requires_grad_() for leaf in corrupted.values()]
    outputs, final = delta_scan(q, k, v, beta, gate, S0, steps=2, lengths=lengths)
    grads = torch.autograd.grad(outputs.sum() + final.sum(), arguments)
    assert outputs.isfinite().all() and final.isfinite().all() and all(grad.isfinite().all() for grad in grads)
    assert not outputs[1, 4:].any() and not grads[1][1, 8:].any() and not grads[0][0].any()
    torch.testing.assert_close(final[0], leaves["S0"][0])
    q, k, v, beta, gate = (leaf[1, : {6: 4, 12: 8}.get(leaf.shape[1])] for leaf in list(leaves.values())[:5])
    torch.testing.assert_close(delta_scan(q, k, v, beta, gate, leaves["S0"][1], steps=2)[1], final[1])


# -- Triton and broadcasting -------------------------------------------------------------------------------------------


def test_head_above_the_triton_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with use_backend("triton"), pytest.raises(OpsError, match="Dk=129.*at most 128.*more heads"):
        delta_scan(ones(1, 1, 129), ones(1, 1, 129), ones(1, 1, 2), ones(1, 1))


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("Dk", "Dv", "dtype", "options"),
    [
        (16, 16, torch.float32, (True, False)),
        (64, 64, torch.float32, (True, True)),
        (64, 64, torch.float32, (False, True)),
        (128, 100, torch.float32, (True, False)),
        (20, 12, torch.float64, (True, True)),
    ],
)
def test_compiles_ahead_of_time(
    capability: int,
    Dk: int,
    Dv: int,
    dtype: torch.dtype,
    options: tuple[bool, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton")
    from tests.ops import test_triton_compile as ahead

    launched: list[str] = []
    monkeypatch.setattr(ahead.jit.JITFunction, "run", ahead.compiler(capability, launched))
    module = backend.implementation("delta", "triton")
    gated, has_state = options
    R, B, L, H, n = 1, 2, 9, 2, 2
    shapes = [(R, B, L, H, Dk), (R, B, L * n, H, Dk), (R, B, L * n, H, Dv), (R, B, L * n, H)]
    q, k, v, beta = (torch.zeros(shape, dtype=dtype) for shape in shapes)
    gate = torch.zeros(R, B, L, H, dtype=dtype) if gated else None
    S0 = torch.zeros(R, B, H, Dv, Dk, dtype=dtype) if has_state else None
    lengths = torch.full((R, B), L) if has_state else None
    arguments = (q, k, v, beta, gate, S0, lengths)
    results = module.forward(*arguments, n, True)
    module.backward(results[0], results[1] if has_state else None, *arguments, *results, n, True)
    assert launched == ["delta_forward_kernel", "delta_backward_kernel"]


@pytest.mark.usefixtures("each_cpu_implementation")
def test_leading_dimensions_broadcast(device: str) -> None:
    _, leaves = build(DeltaCase((2, 3), 4, gate=True, S0=True), device)
    shared = {name: leaf[0, 0] if name in ("S0", "gate") else leaf[:, :1] for name, leaf in leaves.items()}
    shared["q"] = leaves["q"]
    compare_with_reference(
        lambda inputs: delta_scan(inputs["q"], inputs["k"], inputs["v"], inputs["beta"], inputs["gate"], inputs["S0"]),
        shared,
        fast(device),
        "shared",
    )


# -- errors ------------------------------------------------------------------------------------------------------------

ones = torch.ones
K, BETA = ones(5, 2, 3), ones(5, 2)
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"q has shape \(2, 3\); it needs at least 3", lambda: delta_scan(ones(2, 3), K, K, BETA)),
    (r"k has shape \(5, 2, 4\).*Dk=3", lambda: delta_scan(K, ones(5, 2, 4), K, BETA)),
    (r"k has shape \(5, 2, 3\).*L\*2=10", lambda: delta_scan(K, K, K, BETA, steps=2)),
    (r"v has shape \(4, 2, 3\).*L=5", lambda: delta_scan(K, K, ones(4, 2, 3), BETA)),
    (r"v has dtype torch.float64", lambda: delta_scan(K, K, K.double(), BETA)),
    (r"beta has shape \(5, 1\).*H=2", lambda: delta_scan(K, K, K, ones(5, 1))),
    (r"gate has shape \(4, 2\).*L=5", lambda: delta_scan(K, K, K, BETA, ones(4, 2))),
    (r"S0 has shape \(2, 3, 4\).*Dv=3", lambda: delta_scan(K, K, K, BETA, S0=ones(2, 3, 4))),
    (r"beta is on meta", lambda: delta_scan(K, K, K, ones(5, 2, device="meta"))),
    (r"steps is 0", lambda: delta_scan(K, K, K, BETA, steps=0)),
    (r"lengths.* is 6; .*0..5", lambda: delta_scan(K, K, K, BETA, lengths=torch.tensor(6))),
    (r"lengths has dtype torch.float32", lambda: delta_scan(K, K, K, BETA, lengths=ones(()))),
    (r"v of shape.*broadcast", lambda: delta_scan(ones(2, 5, 2, 3), K, ones(3, 5, 2, 3), BETA)),
    (r"q is a list", lambda: delta_scan([1.0], K, K, BETA)),  # type: ignore[arg-type]
]


def test_error_names_the_bad_argument_of_a_step() -> None:
    S = ones(2, 3, 3)
    with pytest.raises(OpsError, match=r"delta_step: k has shape \(1, 2, 4\)"):
        delta_step(ones(2, 3), ones(1, 2, 4), ones(1, 2, 3), ones(1, 2), S)
    with pytest.raises(OpsError, match=r"delta_step: v has shape \(2, 2, 3\).*n=1"):
        delta_step(ones(2, 3), ones(1, 2, 3), ones(2, 2, 3), ones(1, 2), S)
    with pytest.raises(OpsError, match=r"delta_step: S has shape \(3, 3, 3\)"):
        delta_step(ones(2, 3), ones(1, 2, 3), ones(1, 2, 3), ones(1, 2), ones(3, 3, 3))


# -- catalogue entry ---------------------------------------------------------------------------------------------------


def share_heads_among_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.delta import triton

    monkeypatch.setattr(triton, "FORWARD_ENTRIES", 32)
    monkeypatch.setattr(triton, "BACKWARD_ROWS", 2)
    monkeypatch.setattr(triton, "UNGATED_INTERVAL", 2)


SHARED_HEADS = [(DeltaCase((2,), 5, 2, 3, 5, steps=2, gate=gate, S0=True, lengths=True), 0) for gate in (False, True)]
DELTA = Operation(
    name="delta",
    build=build,
    cases=CASES,
    alone=[(DeltaCase((3,), 12, 2, 5, 3, gate=True, lengths=True), 1), (DeltaCase((2,), 3, 1, 2, 3, S0=True), 2)],
    wide=[DeltaCase((4,), 70, 2, 16, 16, steps=2, gate=True), DeltaCase((4,), 70, 2, 32, 20)],
    small=[DeltaCase((2,), 3, 1, 2, 2), DeltaCase((2,), 5, 1, 2, 2, steps=2, gate=True, S0=True, lengths=True)],
    mapped=CASES[:2],
    tiny=[DeltaCase((2,), 3, 1, 2, 3, gate=True, S0=True)],
    full=[CASES[1]],
    many=DeltaCase((8,), 20, 2, 8, 8, steps=2, gate=True),
    bad=BAD,
    tunings=[Tuning("shared heads", share_heads_among_programs, SHARED_HEADS)],
    numba=True,
)
