"""selective_scan: cases for `test_function_laws`, comparison with the definition, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sdssm import ops
from sdssm.ops import compiled
from sdssm.ops.selective import cpu, selective_scan, selective_step
from tests.ops.differentiable import (
    Function,
    Leaves,
    Operation,
    Tuning,
    compare_with_reference,
    draws,
    fast,
    outputs_and_gradients,
    together,
)


@dataclasses.dataclass(frozen=True)
class SelectiveCase:
    """Sizes and options of one scan; with `shared`, all rows have the same A."""

    lead: tuple[int, ...] = (2,)
    L: int = 5
    D: int = 3
    N: int = 4
    h0: bool = True
    lengths: bool = False
    shared: bool = True


#: All sizes 1, lengths one step past and one before a checkpoint, sizes that need padding, replicas.
CASES = [
    SelectiveCase((1,), 1, 1, 1),
    SelectiveCase((3,), 9, 5, 3, lengths=True),
    SelectiveCase((2,), 8, 2, 8, h0=False),
    SelectiveCase((2, 2), 7, 3, 2, lengths=True, shared=False),
    SelectiveCase((2, 1, 2), 17, 2, 5, h0=False, lengths=True, shared=False),
]
IMPLEMENTATIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "numba": nullcontext,
    "torch alone": compiled.without_numba,
}


def build(case: SelectiveCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    lead, L, D, N = case.lead, case.L, case.D, case.N
    leaves = {
        "x": draw(*lead, L, D),
        "delta": draw(*lead, L, D).abs() * 0.3,
        "A": -draw(*(() if case.shared else lead[:-1]), D, N).abs() * 2,
        "B": draw(*lead, L, N),
        "C": draw(*lead, L, N),
    }
    if case.h0:
        leaves["h0"] = draw(*lead, D, N)
    lengths = None
    if case.lengths:  # at least one row of length 0 and one of length L
        lengths = torch.randint(0, L + 1, lead, generator=torch.Generator().manual_seed(1))
        lengths.view(-1)[0], lengths.view(-1)[-1] = 0, L
        lengths = lengths.to(device)

    def function(inputs: Leaves) -> tuple[Tensor, ...]:
        x, delta, A, B, C = (inputs[name] for name in ("x", "delta", "A", "B", "C"))
        return together(*selective_scan(x, delta, A, B, C, inputs.get("h0"), lengths=lengths))

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


# -- definition --------------------------------------------------------------------------------------------------------


def test_equals_definition_entry_by_entry() -> None:
    draw = draws()
    L, D, N = 4, 2, 3
    x, delta, A, B, C = draw(1, L, D), draw(1, L, D), draw(D, N), draw(1, L, N), draw(1, L, N)
    y, final = selective_scan(x, delta, A, B, C)
    for d in range(D):
        h = [torch.zeros((), dtype=torch.float64)] * N
        for t in range(L):
            time = delta[0, t, d]
            h = [(time * A[d, n]).exp() * h[n] + time * B[0, t, n] * x[0, t, d] for n in range(N)]
            torch.testing.assert_close(y[0, t, d], sum(C[0, t, n] * h[n] for n in range(N)))
        torch.testing.assert_close(final[0, d], torch.stack(h))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_decays_of_any_size_match_reference(implementation: str, device: str) -> None:
    """exp(delta A) ranges from 0 to far above 1, in float32."""
    function, leaves = build(SelectiveCase((1,), 3, 4, 7), device, torch.float32)
    rates = torch.tensor([-1e4, -300, -88, -86.5, -1e-3, 0, 20], device=device)
    leaves |= {"A": rates.expand(4, 7), "delta": torch.ones_like(leaves["delta"])}
    with IMPLEMENTATIONS[implementation]():
        compare_with_reference(function, leaves, fast(device), implementation)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_propagates(dtype: torch.dtype, implementation: str, device: str) -> None:
    with IMPLEMENTATIONS[implementation]():
        check_nan_propagates(device, dtype)


def check_nan_propagates(device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
    """With three steps, the padded fourth step of a group of four must not affect the others."""
    _, leaves = build(SelectiveCase((1,), 3, 4, 2), device, dtype)
    leaves["A"][:, 1] = torch.tensor([float("nan"), 1e4, float("inf"), -float("inf")])
    leaves["delta"].fill_(1)
    result = selective_scan(*leaves.values())
    with ops.use_backend("reference"):
        torch.testing.assert_close(result, selective_scan(*leaves.values()), equal_nan=True)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_inputs_past_the_end_are_ignored(implementation: str, device: str) -> None:
    with IMPLEMENTATIONS[implementation]():
        check_inputs_past_the_end(device)


def check_inputs_past_the_end(device: str = "cpu") -> None:
    draw = draws()
    x, delta, B, C = (draw(2, 11, size).to(device) for size in (3, 3, 2, 2))
    A, lengths = -draw(3, 2).abs().to(device), torch.tensor([3, 9], device=device)
    expected = selective_scan(x, delta, A, B, C, lengths=lengths)
    past_end = torch.arange(11, device=device) >= lengths[:, None]
    arguments = [tensor.masked_fill(past_end[..., None], float("nan")).requires_grad_() for tensor in (x, delta, B, C)]
    y, final = selective_scan(arguments[0], arguments[1], A, arguments[2], arguments[3], lengths=lengths)
    torch.testing.assert_close((y, final), expected, rtol=0, atol=0)
    assert not y[past_end].any()
    for grad in torch.autograd.grad(y.square().sum() + final.square().sum(), arguments):
        assert grad.isfinite().all() and not grad[past_end].any() and grad[~past_end].any()


def test_scan_equals_steps_and_can_be_split(device: str) -> None:
    _, leaves = build(SelectiveCase((2, 3), 9, 3, 4, shared=False), device)
    x, delta, A, B, C, h0 = leaves.values()
    y, final = selective_scan(x, delta, A, B, C, h0)
    h = h0
    for t in range(9):
        output, h = selective_step(x[..., t, :], delta[..., t, :], A, B[..., t, :], C[..., t, :], h)
        torch.testing.assert_close(output, y[..., t, :])
    torch.testing.assert_close(h, final)

    def scan_span(span: slice, start: Tensor) -> tuple[Tensor, Tensor]:
        return selective_scan(x[..., span, :], delta[..., span, :], A, B[..., span, :], C[..., span, :], start)

    first_outputs, middle_state = scan_span(slice(4), h0)
    last_outputs, last_state = scan_span(slice(4, None), middle_state)
    torch.testing.assert_close((torch.cat([first_outputs, last_outputs], -2), last_state), (y, final))


def test_step_without_state_starts_from_zero() -> None:
    _, leaves = build(SelectiveCase((3,), 1), "cpu")
    x, delta, A, B, C = (leaves[name] for name in ("x", "delta", "A", "B", "C"))
    arguments = (x[:, 0], delta[:, 0], A, B[:, 0], C[:, 0])
    torch.testing.assert_close(selective_step(*arguments), selective_step(*arguments, torch.zeros_like(leaves["h0"])))


# -- Triton compilation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "N", "dtype", "lengths"),
    [
        (80, 128, torch.float32, True),
        (90, 128, torch.float32, False),
        (90, 256, torch.float32, True),
        (90, 16, torch.float32, False),
        (90, 100, torch.float64, True),
    ],
)
def test_compiles_for_a_gpu(
    capability: int, N: int, dtype: torch.dtype, lengths: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from triton.runtime import jit

    from sdssm.ops.selective import triton
    from tests.ops.test_triton_compile import compiler

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    R, rows, L, D = 2, 3, 9, 128

    def new(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    x, A, B, h0 = new(R, rows, L, D), new(R, D, N), new(R, rows, L, N), new(R, rows, D, N) if lengths else None
    arguments = (x, x, A, B, B, h0, torch.full((R, rows), L) if lengths else None)
    y, final, checkpoints = triton.forward(*arguments, True)
    assert checkpoints.shape == (R, rows, 2, D, N)
    triton.backward(y, final if lengths else None, *arguments, y, final, checkpoints, True)
    triton.forward(*arguments, False)
    assert launched == ["selective_forward_kernel", "selective_backward_kernel", "selective_forward_kernel"]


# -- transforms and memory ---------------------------------------------------------------------------------------------


def test_vmap_over_lengths(device: str) -> None:
    _, leaves = build(SelectiveCase((3, 2), 6, shared=False), device)
    lengths = torch.tensor([[0, 6], [3, 1], [5, 5]], device=device)
    arguments = (*leaves.values(), lengths)
    mapped = torch.func.vmap(lambda *inputs: selective_scan(*inputs[:6], lengths=inputs[6]))(*arguments)
    for i in range(3):
        alone = selective_scan(*(tensor[i] for tensor in arguments[:6]), lengths=lengths[i])
        torch.testing.assert_close(tuple(tensor[i] for tensor in mapped), alone)


def test_leading_dimensions_broadcast(device: str) -> None:
    draw = draws()
    shapes = {"x": (2, 1, 4, 3), "delta": (3, 4, 3), "A": (2, 3, 5), "B": (4, 5), "C": (1, 3, 4, 5), "h0": (3, 5)}
    leaves = {name: draw(*shape).to(device) for name, shape in shapes.items()}
    compare_with_reference(lambda inputs: selective_scan(*inputs.values()), leaves, fast(device), "broadcast")
    y, final = selective_scan(*leaves.values())
    assert y.shape == (2, 3, 4, 3) and final.shape == (2, 3, 3, 5)


def test_rows_are_independent(device: str) -> None:
    _, leaves = build(SelectiveCase((4,), 6), device)
    x, delta, A, B, C, h0 = leaves.values()
    y, final = selective_scan(x, delta, A, B, C, h0)
    order = torch.tensor([2, 0, 3, 1], device=device)
    permuted = selective_scan(x[order], delta[order], A, B[order], C[order], h0[order])
    torch.testing.assert_close(permuted, (y[order], final[order]), rtol=0, atol=0)


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Record the number of entries of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.numel = max(self.numel, output.numel() if isinstance(output, Tensor) else 0)
        return output


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_all_states_are_never_stored(implementation: str) -> None:
    case = SelectiveCase((5,), 64, 16, 16, h0=False)
    function, leaves = build(case)
    with IMPLEMENTATIONS[implementation](), LargestTensor() as largest:
        outputs_and_gradients(function, leaves)
    states = 5 * 64 * 16 * 16
    assert 0 < largest.numel <= states // cpu.STRIDE + 5 * 16 * 16


def test_no_state_is_stored_without_gradient() -> None:
    function, leaves = build(SelectiveCase((5,), 64, 16, 16, h0=False))
    with compiled.without_numba(), torch.no_grad(), LargestTensor() as largest:
        result = function(leaves)
    assert largest.numel == result[0].numel()
    torch.testing.assert_close(result, tuple(tensor.detach() for tensor in function(leaves)))


# -- errors ------------------------------------------------------------------------------------------------------------

ones = torch.ones
GOOD = (ones(2, 4, 3), ones(2, 4, 3), ones(3, 5), ones(2, 4, 5), ones(2, 4, 5), ones(2, 3, 5))


def call_with(position: int, value: Any, **options: Any) -> Callable[[], Any]:
    arguments: list[Any] = [*GOOD[:position], value, *GOOD[position + 1 :]]
    return lambda: selective_scan(*arguments, **options)


BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"x has shape \(4, 3\); it needs at least 3", call_with(0, ones(4, 3))),
    (r"x is a list", call_with(0, [1.0])),
    (r"delta has shape \(2, 4, 2\).*L=4, D=3", call_with(1, ones(2, 4, 2))),
    (r"delta has dtype torch.float64", call_with(1, ones(2, 4, 3).double())),
    (r"A has shape \(2, 5\).*D=3", call_with(2, ones(2, 5))),
    (r"A has shape \(3,\); it needs", call_with(2, ones(3))),
    (r"B has shape \(2, 4, 3\).*L=4, N=5", call_with(3, ones(2, 4, 3))),
    (r"C has shape \(2, 3, 5\).*L=4, N=5", call_with(4, ones(2, 3, 5))),
    (r"C is on meta", call_with(4, ones(2, 4, 5, device="meta"))),
    (r"h0 has shape \(2, 5, 3\).*D=3, N=5", call_with(5, ones(2, 5, 3))),
    (r"h0 of shape \(7, 3, 5\).*broadcast", call_with(5, ones(7, 3, 5))),
    (r"lengths\[1\] is 5.*0..4", call_with(0, GOOD[0], lengths=torch.tensor([4, 5]))),
    (r"lengths has dtype torch.float32", call_with(0, GOOD[0], lengths=ones(2))),
]


def test_error_names_the_bad_argument_of_a_step() -> None:
    with pytest.raises(ops.OpsError, match=r"selective_step: B has shape \(2, 4\).*N=5"):
        selective_step(ones(2, 3), ones(2, 3), ones(3, 5), ones(2, 4), ones(2, 5), ones(2, 3, 5))
    with pytest.raises(ops.OpsError, match=r"selective_step: h has shape \(2, 5, 3\)"):
        selective_step(ones(2, 3), ones(2, 3), ones(3, 5), ones(2, 5), ones(2, 5), ones(2, 5, 3))


def test_state_above_the_triton_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x, B = ones(1, 1, 1), ones(1, 1, 257)
    with ops.use_backend("triton"), pytest.raises(ops.OpsError, match="257 entries; the triton backend takes at most"):
        selective_scan(x, x, ones(1, 257), B, B)


# -- catalogue entry ---------------------------------------------------------------------------------------------------


def use_several_channel_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.selective import triton

    monkeypatch.setattr(triton, "FORWARD_TILE", (8, 8))
    monkeypatch.setattr(triton, "BACKWARD_TILE", (8, 8))
    monkeypatch.setattr(triton, "MIN_CHANNELS", 4)  # in float64 half as many
    for constants in (triton.forward_constants, triton.backward_constants):
        assert constants(5, 3, torch.float64)["DB"] == 2


SELECTIVE = Operation(
    name="selective",
    build=build,
    cases=CASES,
    alone=[(CASES[1], 1), (CASES[1], 2)],
    wide=[SelectiveCase((2, 2), 19, 6, N, lengths=True, shared=False) for N in (128, 256)],
    small=[SelectiveCase((2,), 4, 2, 2, lengths=True), SelectiveCase((2, 1), 3, 1, 2, shared=False)],
    mapped=CASES[1:4],
    tiny=[SelectiveCase((2,), 3, 2, 2, lengths=True)],
    full=[CASES[1]],
    many=SelectiveCase((2, 5), 20, 16, 8, lengths=True, shared=False),
    bad=BAD,
    slow=CASES[4:],
    tunings=[Tuning("blocks", use_several_channel_blocks, [(SelectiveCase((2,), 6, 5, 3, lengths=True), 0)])],
    own=[check_inputs_past_the_end, check_nan_propagates],
    numba=True,
)
