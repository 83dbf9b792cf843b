"""selective_scan: its cases for the laws, its definition, and what is refused."""

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
    draws,
    face_reference,
    fast,
    outputs_and_gradients,
    together,
)


@dataclasses.dataclass(frozen=True)
class Selective:
    """One scan by its sizes and options; `shared`: one A for all rows."""

    lead: tuple[int, ...] = (2,)
    L: int = 5
    D: int = 3
    N: int = 4
    h0: bool = True
    lengths: bool = False
    shared: bool = True


#: One of everything, one step past a kept state and before the next, sizes that are padded, replicas.
CASES = [
    Selective((1,), 1, 1, 1),
    Selective((3,), 9, 5, 3, lengths=True),
    Selective((2,), 8, 2, 8, h0=False),
    Selective((2, 2), 7, 3, 2, lengths=True, shared=False),
    Selective((2, 1, 2), 17, 2, 5, h0=False, lengths=True, shared=False),
]
WAYS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "numba": nullcontext,
    "torch alone": compiled.without_numba,
}


def build(case: Selective, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
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
    if case.lengths:  # a row without steps, a full one, and others
        lengths = torch.randint(0, L + 1, lead, generator=torch.Generator().manual_seed(1))
        lengths.view(-1)[0], lengths.view(-1)[-1] = 0, L
        lengths = lengths.to(device)

    def function(of: Leaves) -> tuple[Tensor, ...]:
        x, delta, A, B, C = (of[name] for name in ("x", "delta", "A", "B", "C"))
        return together(*selective_scan(x, delta, A, B, C, of.get("h0"), lengths=lengths))

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


# -- what it computes --------------------------------------------------------------------------------------------------


def test_the_definition_entry_by_entry() -> None:
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


@pytest.mark.parametrize("way", WAYS)
def test_decays_of_any_size(way: str, device: str) -> None:
    """exp(delta A) from 0 over 1 to beyond 1, float32."""
    function, leaves = build(Selective((1,), 3, 4, 7), device, torch.float32)
    rates = torch.tensor([-1e4, -300, -88, -86.5, -1e-3, 0, 20], device=device)
    leaves |= {"A": rates.expand(4, 7), "delta": torch.ones_like(leaves["delta"])}
    with WAYS[way]():
        face_reference(function, leaves, fast(device), way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_no_number_stays_none(dtype: torch.dtype, way: str, device: str) -> None:
    with WAYS[way]():
        check_no_number(device, dtype)


def check_no_number(device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
    """Three steps: a kernel that goes by fours must not let the fourth, which there is not, touch them."""
    _, leaves = build(Selective((1,), 3, 4, 2), device, dtype)
    leaves["A"][:, 1] = torch.tensor([float("nan"), 1e4, float("inf"), -float("inf")])
    leaves["delta"].fill_(1)
    found = selective_scan(*leaves.values())
    with ops.use_backend("reference"):
        torch.testing.assert_close(found, selective_scan(*leaves.values()), equal_nan=True)


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_past_an_end_is_not_read(way: str, device: str) -> None:
    with WAYS[way]():
        check_past_the_end(device)


def check_past_the_end(device: str = "cpu") -> None:
    draw = draws()
    x, delta, B, C = (draw(2, 11, size).to(device) for size in (3, 3, 2, 2))
    A, lengths = -draw(3, 2).abs().to(device), torch.tensor([3, 9], device=device)
    wanted = selective_scan(x, delta, A, B, C, lengths=lengths)
    past = torch.arange(11, device=device) >= lengths[:, None]
    given = [one.masked_fill(past[..., None], float("nan")).requires_grad_() for one in (x, delta, B, C)]
    y, final = selective_scan(given[0], given[1], A, given[2], given[3], lengths=lengths)
    torch.testing.assert_close((y, final), wanted, rtol=0, atol=0)
    assert not y[past].any()
    for grad in torch.autograd.grad(y.square().sum() + final.square().sum(), given):
        assert grad.isfinite().all() and not grad[past].any() and grad[~past].any()


def test_steps_and_pieces_are_the_whole(device: str) -> None:
    _, leaves = build(Selective((2, 3), 9, 3, 4, shared=False), device)
    x, delta, A, B, C, h0 = leaves.values()
    y, final = selective_scan(x, delta, A, B, C, h0)
    h = h0
    for t in range(9):
        out, h = selective_step(x[..., t, :], delta[..., t, :], A, B[..., t, :], C[..., t, :], h)
        torch.testing.assert_close(out, y[..., t, :])
    torch.testing.assert_close(h, final)

    def piece(span: slice, start: Tensor) -> tuple[Tensor, Tensor]:
        return selective_scan(x[..., span, :], delta[..., span, :], A, B[..., span, :], C[..., span, :], start)

    first, between = piece(slice(4), h0)
    rest, end = piece(slice(4, None), between)
    torch.testing.assert_close((torch.cat([first, rest], -2), end), (y, final))


def test_a_step_from_nothing_is_a_step_from_zero() -> None:
    _, leaves = build(Selective((3,), 1), "cpu")
    x, delta, A, B, C = (leaves[name] for name in ("x", "delta", "A", "B", "C"))
    given = (x[:, 0], delta[:, 0], A, B[:, 0], C[:, 0])
    torch.testing.assert_close(selective_step(*given), selective_step(*given, torch.zeros_like(leaves["h0"])))


# -- Triton, ahead of time ---------------------------------------------------------------------------------------------


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

    seen: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, seen))
    R, rows, L, D = 2, 3, 9, 128

    def new(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    x, A, B, h0 = new(R, rows, L, D), new(R, D, N), new(R, rows, L, N), new(R, rows, D, N) if lengths else None
    given = (x, x, A, B, B, h0, torch.full((R, rows), L) if lengths else None)
    y, final, kept = triton.forward(*given, True)
    assert kept.shape == (R, rows, 2, D, N)
    triton.backward(y, final if lengths else None, *given, y, final, kept, True)
    triton.forward(*given, False)
    assert seen == ["forward_kernel", "backward_kernel", "forward_kernel"]


# -- what torch asks of it ---------------------------------------------------------------------------------------------


def test_lengths_may_be_mapped(device: str) -> None:
    _, leaves = build(Selective((3, 2), 6, shared=False), device)
    lengths = torch.tensor([[0, 6], [3, 1], [5, 5]], device=device)
    given = (*leaves.values(), lengths)
    mapped = torch.func.vmap(lambda *of: selective_scan(*of[:6], lengths=of[6]))(*given)
    for i in range(3):
        alone = selective_scan(*(one[i] for one in given[:6]), lengths=lengths[i])
        torch.testing.assert_close(tuple(one[i] for one in mapped), alone)


def test_leading_dimensions_broadcast(device: str) -> None:
    draw = draws()
    shapes = {"x": (2, 1, 4, 3), "delta": (3, 4, 3), "A": (2, 3, 5), "B": (4, 5), "C": (1, 3, 4, 5), "h0": (3, 5)}
    leaves = {name: draw(*shape).to(device) for name, shape in shapes.items()}
    face_reference(lambda of: selective_scan(*of.values()), leaves, fast(device), "broadcast")
    y, final = selective_scan(*leaves.values())
    assert y.shape == (2, 3, 4, 3) and final.shape == (2, 3, 3, 5)


def test_rows_do_not_influence_each_other(device: str) -> None:
    _, leaves = build(Selective((4,), 6), device)
    x, delta, A, B, C, h0 = leaves.values()
    y, final = selective_scan(x, delta, A, B, C, h0)
    order = torch.tensor([2, 0, 3, 1], device=device)
    other = selective_scan(x[order], delta[order], A, B[order], C[order], h0[order])
    torch.testing.assert_close(other, (y[order], final[order]), rtol=0, atol=0)


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """The most numbers in any tensor that comes out of an operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.numbers = max(self.numbers, out.numel() if isinstance(out, Tensor) else 0)
        return out


@pytest.mark.parametrize("way", WAYS)
def test_the_states_are_never_written_out(way: str) -> None:
    case = Selective((5,), 64, 16, 16, h0=False)
    function, leaves = build(case)
    with WAYS[way](), Largest() as largest:
        outputs_and_gradients(function, leaves)
    states = 5 * 64 * 16 * 16
    assert 0 < largest.numbers <= states // cpu.STRIDE + 5 * 16 * 16


def test_without_a_gradient_no_state_is_kept() -> None:
    function, leaves = build(Selective((5,), 64, 16, 16, h0=False))
    with compiled.without_numba(), torch.no_grad(), Largest() as largest:
        found = function(leaves)
    assert largest.numbers == found[0].numel()
    torch.testing.assert_close(found, tuple(one.detach() for one in function(leaves)))


# -- what is refused ---------------------------------------------------------------------------------------------------

O = torch.ones  # noqa: E741
GOOD = (O(2, 4, 3), O(2, 4, 3), O(3, 5), O(2, 4, 5), O(2, 4, 5), O(2, 3, 5))


def changed(at: int, value: Any, **options: Any) -> Callable[[], Any]:
    given: list[Any] = [*GOOD[:at], value, *GOOD[at + 1 :]]
    return lambda: selective_scan(*given, **options)


BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"x has shape \(4, 3\); it needs at least 3", changed(0, O(4, 3))),
    (r"x is a list", changed(0, [1.0])),
    (r"delta has shape \(2, 4, 2\).*L=4, D=3", changed(1, O(2, 4, 2))),
    (r"delta has dtype torch.float64", changed(1, O(2, 4, 3).double())),
    (r"A has shape \(2, 5\).*D=3", changed(2, O(2, 5))),
    (r"A has shape \(3,\); it needs", changed(2, O(3))),
    (r"B has shape \(2, 4, 3\).*L=4, N=5", changed(3, O(2, 4, 3))),
    (r"C has shape \(2, 3, 5\).*L=4, N=5", changed(4, O(2, 3, 5))),
    (r"C is on meta", changed(4, O(2, 4, 5, device="meta"))),
    (r"h0 has shape \(2, 5, 3\).*D=3, N=5", changed(5, O(2, 5, 3))),
    (r"h0 of shape \(7, 3, 5\).*broadcast", changed(5, O(7, 3, 5))),
    (r"lengths\[1\] is 5.*0..4", changed(0, GOOD[0], lengths=torch.tensor([4, 5]))),
    (r"lengths has dtype torch.float32", changed(0, GOOD[0], lengths=O(2))),
]


def test_bad_steps_are_named() -> None:
    with pytest.raises(ops.OpsError, match=r"selective_step: B has shape \(2, 4\).*N=5"):
        selective_step(O(2, 3), O(2, 3), O(3, 5), O(2, 4), O(2, 5), O(2, 3, 5))
    with pytest.raises(ops.OpsError, match=r"selective_step: h has shape \(2, 5, 3\)"):
        selective_step(O(2, 3), O(2, 3), O(3, 5), O(2, 5), O(2, 5), O(2, 5, 3))


def test_states_have_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x, B = O(1, 1, 1), O(1, 1, 257)
    with ops.use_backend("triton"), pytest.raises(ops.OpsError, match="257 entries; the triton backend takes at most"):
        selective_scan(x, x, O(1, 257), B, B)


# -- for the laws ------------------------------------------------------------------------------------------------------


def several_blocks_of_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.selective import triton

    monkeypatch.setattr(triton, "TILE_ENTRIES", 8)
    monkeypatch.setattr(triton, "MIN_CHANNELS", 4)  # in float64 half as many
    assert triton.kernel_constants(5, 3, torch.float64)["DB"] == 2


SELECTIVE = Operation(
    name="selective",
    build=build,
    cases=CASES,
    alone=[(CASES[1], 1), (CASES[1], 2)],
    wide=[Selective((2, 2), 19, 6, N, lengths=True, shared=False) for N in (128, 256)],
    small=[Selective((2,), 4, 2, 2, lengths=True), Selective((2, 1), 3, 1, 2, shared=False)],
    mapped=CASES[1:4],
    tiny=[Selective((2,), 3, 2, 2, lengths=True)],
    full=[CASES[1]],
    many=Selective((2, 5), 20, 16, 8, lengths=True, shared=False),
    bad=BAD,
    slow=CASES[4:],
    tunings=[Tuning("blocks", several_blocks_of_channels, [(Selective((2,), 6, 5, 3, lengths=True), 0)])],
    own=[check_past_the_end, check_no_number],
    numba=True,
)
