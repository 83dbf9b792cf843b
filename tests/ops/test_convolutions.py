"""The operations of convolutional layers: kernels compared with plain torch, replicas, layers, and errors."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from sdssm import ops
from sdssm.layers import H3, S4, Hyena, S4d
from sdssm.layers.s4 import hippo_legs
from sdssm.ops import compiled
from sdssm.ops.gated import gated_end
from sdssm.ops.implicit import implicit_taps
from sdssm.ops.low_rank import low_rank_taps
from sdssm.ops.modes import modal_taps
from sdssm.ops.shift import shift_taps
from sdssm.ops.windows import window_end
from tests.interpreted import interpreted
from tests.ops.cases import assert_same
from tests.ops.differentiable import draws

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
R = 2
needs_numba = pytest.mark.skipif(not compiled.is_available(), reason="needs numba")
#: A function of one replica, and its tensors of all replicas (R, ...).
Case = tuple[Callable[..., Tensor], list[Tensor]]


def modal(D: int, M: int, length: int, discretisation: str, has_input: bool) -> Case:
    draw = draws()
    tensors = [draw(R, D) - 4, draw(R, D, M) * 0.3 - 0.7, draw(R, D, M) * 10, draw(R, 2, D, M)]
    tensors += [draw(R, 2, D, M)] if has_input else []
    return partial(modal_taps, length=length, discretisation=discretisation), tensors


def low_rank(D: int, M: int, length: int) -> Case:
    draw = draws()
    eigenvalues, P, B = hippo_legs(2 * M)
    pairs = [torch.stack([z.real, z.imag])[:, None] + 0.1 * draw(R, 2, D, M) for z in (P, B)]
    tensors = [draw(R, D) - 4, draw(R, D, M) * 0.3 - 0.7, eigenvalues.imag + draw(R, D, M), *pairs, draw(R, 2, D, M)]
    return partial(low_rank_taps, length=length), tensors


def shift(D: int, N: int, length: int) -> Case:
    draw = draws()
    return partial(shift_taps, length=length), [draw(R, D, N), draw(R, D, N)]


def implicit(D: int, H: int, F: int, length: int) -> Case:
    draw = draws()
    hidden = [(draw(R, H, inputs) * inputs**-0.5, draw(R, H)) for inputs in (F, H, H)]
    tensors = [draw(R, 70, F), draw(R, H), *(tensor for layer in hidden for tensor in layer), draw(R, D, H)]
    window = draw(65, D)

    def function(features: Tensor, frequency: Tensor, *rest: Tensor) -> Tensor:
        layers = [(rest[0], rest[1]), (rest[2], rest[3]), (rest[4], rest[5])]
        return implicit_taps(features, window.to(features), frequency, layers, rest[6], length=length)

    return function, tensors


def strings(V: int, B: int, length: int, lengths: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(V, (R, B, length), generator=generator)
    return [tokens, *([torch.randint(1, length + 1, (R, B), generator=generator)] if lengths else [])]


def gated(D: int, V: int, B: int, length: int, taps: int, lengths: bool) -> Case:
    draw = draws()
    tensors = [draw(R, V, 3 * D), draw(R, D, taps), draw(R, D), draw(R, D, taps), draw(R, D)]
    return gated_end, tensors + strings(V, B, length, lengths)


def windows(D: int, V: int, B: int, length: int, conv: int, taps: int, lengths: bool) -> Case:
    draw = draws()
    tensors = [draw(R, V, 3 * D), draw(R, 3 * D, conv), draw(R, 3 * D), draw(R, D, taps), draw(R, D)]
    return window_end, tensors + strings(V, B, length, lengths)


#: Smaller than a tile, and several tiles with remainders.
CASES: dict[str, Case] = {
    "modes, zero-order hold": modal(3, 5, 9, "zero-order-hold", False),
    "modes, bilinear": modal(2, 40, 41, "bilinear", True),
    "modes, one tap": modal(1, 1, 1, "zero-order-hold", True),
    "low rank": low_rank(3, 5, 9),
    "low rank, long": low_rank(2, 40, 41),
    "low rank, one tap": low_rank(2, 3, 1),
    "shift": shift(3, 5, 4),
    "shift, long": shift(2, 3, 41),
    "implicit": implicit(3, 5, 3, 9),
    "implicit, wide": implicit(70, 20, 5, 41),
    "gated": gated(2, 3, 5, 9, 9, True),
    "gated, several tiles": gated(2, 2, 70, 17, 16, False),
    "gated, more taps than symbols": gated(1, 3, 4, 5, 9, True),
    "windows": windows(2, 3, 5, 9, 3, 9, True),
    "windows, several tiles": windows(66, 2, 40, 11, 1, 10, False),
    "windows, more taps than symbols": windows(1, 3, 4, 5, 9, 9, True),
}
NAMES = list(CASES)
#: One case of each operation.
FIRST = {name.split(",")[0]: name for name in reversed(NAMES)}
#: Packages with another name than their operation.
KINDS = {"low rank": "low_rank"}
#: Lengths for the compiled kernels: none of several steps, a training string with and without a query, the longest.
LENGTHS = (1, 2, 40, 41, 64)
COMPILED_CASES: dict[str, Case] = CASES | {
    f"{kind}, length {length}": case
    for length in LENGTHS
    for kind, case in {
        "modes": modal(3, 32, length, "zero-order-hold", False),
        "modes, bilinear": modal(3, 7, length, "bilinear", True),
        "low rank": low_rank(3, 32, length),
        "shift": shift(3, 64, length),
        "gated": gated(37, 3, 9, length, length, True),
        "gated, few taps": gated(16, 4, 9, length, min(length, 3), False),
        "implicit": implicit(37, 20, 3, length),
        "windows": windows(37, 3, 9, length, 3, length, True),
        "windows, few taps": windows(3, 1, 9, length, 4, min(length, 3), False),
    }.items()
}
#: A test of the Triton kernels in the interpreter, and of those that numba compiles.
ON_BOTH = pytest.mark.parametrize(
    "backend", [pytest.param("triton", marks=interpreted), pytest.param("cpu", marks=needs_numba)]
)


def prepare(name: str, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Case:
    function, tensors = COMPILED_CASES[name]
    moved = [tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in tensors]
    return function, [tensor.requires_grad_(tensor.is_floating_point()) for tensor in moved]


def results(function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the results of all replicas under vmap, and the gradients of a weighted sum of them."""
    y = vmap(function)(*tensors)
    weights = torch.arange(y[0].numel(), dtype=torch.float64).mul(1.7).cos().reshape(y.shape[1:]).to(y)
    grads = torch.autograd.grad((y * weights).sum(), [tensor for tensor in tensors if tensor.requires_grad])
    return {"y": y.detach(), **{f"grad {i}": grad for i, grad in enumerate(grads)}}


@interpreted
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_reference_in_the_interpreter(name: str, dtype: torch.dtype) -> None:
    function, tensors = prepare(name, dtype)
    with ops.use_backend("reference"):
        expected = results(function, prepare(name)[1])
    with ops.use_backend("triton"):
        actual = results(function, tensors)
    assert_same(actual, {key: value.to(dtype) for key, value in expected.items()}, dtype, name)


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_reference_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    with ops.use_backend("reference"):
        expected = results(*prepare(name, device="cuda"))
    actual = results(*prepare(name, dtype, "cuda"))
    assert_same(actual, {key: value.to(dtype) for key, value in expected.items()}, dtype, name)


@needs_numba
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", COMPILED_CASES)
def test_compiled_kernels_agree_with_the_reference(name: str, dtype: torch.dtype) -> None:
    with ops.use_backend("reference"):
        expected = results(*prepare(name))
    actual = results(*prepare(name, dtype))
    assert_same(actual, {key: value.to(dtype) for key, value in expected.items()}, dtype, name)


@needs_numba
@pytest.mark.parametrize("name", FIRST.values())
def test_compiled_kernels_pass_gradcheck(name: str) -> None:
    function, tensors = prepare(name)
    one = [tensor[1].detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    assert torch.autograd.gradcheck(function, one)


@needs_numba
@pytest.mark.parametrize("name", FIRST.values())
def test_the_number_of_threads_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS.get(name, name.split(",")[0])
    module = importlib.import_module(f"sdssm.ops.{kind}.cpu")
    monkeypatch.setattr(module, "run_over_rows", partial(compiled.run_over_rows, least=1), raising=False)
    both = []
    for threads in (1, 3):
        with compiled.kernel_threads(threads):
            both.append(results(*prepare(name, torch.float32)))
    assert all(torch.equal(both[1][key], value) for key, value in both[0].items())


@needs_numba
@pytest.mark.parametrize("kind", [S4, S4d, H3])
def test_compiled_taps_are_at_least_as_precise(kind: type[Any]) -> None:
    """Their error against taps in float64 is at most that of plain torch in float32."""
    layer = kind(16, generator=torch.Generator().manual_seed(0))
    system = layer.diagonal if kind is H3 else layer.system
    with torch.no_grad():
        taps = system.kernel(64)
        with compiled.without_numba():
            plain, exact = system.kernel(64), copy.deepcopy(system).double().kernel(64)
    assert (taps - exact).abs().max() <= (plain - exact).abs().max()


@ON_BOTH
@pytest.mark.parametrize("name", FIRST.values())
def test_a_replica_has_the_results_that_it_has_alone(name: str, backend: str) -> None:
    function, tensors = prepare(name, torch.float32)
    with ops.use_backend(backend):
        together = results(function, tensors)
        for replica in range(R):
            one = [tensor[replica : replica + 1].detach() for tensor in tensors]
            alone = results(function, [tensor.requires_grad_(tensor.is_floating_point()) for tensor in one])
            assert all(torch.equal(alone[key][0], together[key][replica]) for key in together)


@ON_BOTH
@pytest.mark.parametrize("name", FIRST.values())
def test_a_wrong_gradient_is_detected(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, tensors = prepare(name)
    kind = KINDS.get(name, name.split(",")[0])
    module = importlib.import_module(f"sdssm.ops.{kind}.{backend}")
    with ops.use_backend("reference"):
        expected = results(function, tensors)
    backward = module.backward
    for which in range(len(expected) - 1):

        def wrong(*args: Any, which: int = which) -> tuple[Tensor | None, ...]:
            grads = list(backward(*args))
            grads[which] = grads[which] * (1 + 1e-8)
            return tuple(grads)

        monkeypatch.setattr(module, "backward", wrong)
        with ops.use_backend(backend), pytest.raises(AssertionError, match=f"grad {which}"):
            assert_same(results(function, tensors), expected, torch.float64)


@ON_BOTH
@pytest.mark.parametrize("lengths", [False, True], ids=["whole strings", "lengths"])
@pytest.mark.parametrize("kind", [S4, S4d, H3, Hyena])
def test_layers_have_the_same_outputs_and_gradients(kind: type[Any], lengths: bool, backend: str) -> None:
    settings = {"longest": 20, "filter_width": 7} if kind is Hyena else {"state": 6}
    layer = kind(5, kind.Settings(**settings), generator=torch.Generator().manual_seed(0)).double()
    tokens, *cut = (tensor[0] for tensor in strings(3, 6, 9, lengths))
    table, parameters = draws()(3, 5), list(layer.parameters())

    def outputs() -> list[Tensor]:
        y = layer.mix_symbols_end(layer.symbol_parts(table), tokens, lengths=cut[0] if cut else None)
        return [y, *torch.autograd.grad(y.square().sum(), parameters)]

    with compiled.without_numba():
        expected = outputs()
    with ops.use_backend(backend):
        for actual, value in zip(outputs(), expected, strict=True):
            torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-11)


@ON_BOTH
@pytest.mark.parametrize(("function", "tensors"), [gated(2, 3, 0, 5, 5, True), windows(2, 3, 0, 5, 3, 5, False)])
def test_no_strings_have_zero_gradients(function: Callable[..., Tensor], tensors: list[Tensor], backend: str) -> None:
    tensors = [tensor.requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    with ops.use_backend(backend):
        assert not any(value.any() for value in results(function, tensors).values())


@needs_numba
@pytest.mark.parametrize(("function", "tensors"), [gated(2, 3, 4, 5, 5, True), windows(2, 3, 4, 5, 3, 5, True)])
def test_empty_strings(function: Callable[..., Tensor], tensors: list[Tensor]) -> None:
    """Strings of length 0 among others have the output 0 and add nothing to a gradient."""
    tensors = [tensor.requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    tensors[-1][:, ::2] = 0
    actual = results(function, tensors)
    with ops.use_backend("reference"):
        expected = results(function, tensors)
    assert not actual["y"][:, ::2].any() and actual["y"].any()
    assert_same(actual, expected, torch.float64)


@needs_numba
@pytest.mark.parametrize(("function", "tensors"), [gated(2, 3, 4, 5, 5, True), windows(2, 3, 4, 5, 3, 5, True)])
def test_compiled_kernels_check_symbols_and_lengths(function: Callable[..., Tensor], tensors: list[Tensor]) -> None:
    alone = [tensor[0] for tensor in tensors]
    for which, value, message in ((-2, 3, "tokens.* is 3; the table has 3 rows"), (-1, 6, "lengths.* is 6")):
        wrong = [tensor.clone() for tensor in alone]
        wrong[which].view(-1)[0] = value
        with pytest.raises(ops.OpsError, match=message):
            function(*wrong)


@ON_BOTH
@pytest.mark.parametrize(
    "case",
    [modal(1, 2, 65, "bilinear", True), shift(1, 3, 65), implicit(2, 65, 3, 4), windows(2, 9, 3, 5, 3, 5, True)],
    ids=["modes", "shift", "implicit", "windows"],
)
def test_sizes_beyond_those_of_the_kernels(case: Case, backend: str) -> None:
    function, tensors = case
    with ops.use_backend("reference"):
        expected = vmap(function)(*tensors)
    with ops.use_backend(backend):
        torch.testing.assert_close(vmap(function)(*tensors), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("capability", [80, 90])
def test_compiles_ahead_of_time(capability: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from tests.ops.test_triton_compile import compiler, jit

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    D, L, V, B, H = (64, 41, 3, 128, 64) if dtype == torch.float32 else (20, 9, 2, 20, 20)
    taps = torch.zeros(R, D, L, dtype=dtype)

    def run(kind: str, case: Case, *settings: Any, window: Tensor | None = None) -> None:
        module = importlib.import_module(f"sdssm.ops.{kind}.triton")
        tensors = [tensor.detach().to(dtype) if tensor.is_floating_point() else tensor for tensor in case[1]]
        if window is not None:
            tensors.insert(1, window)
        arguments = [*tensors, *([None] if kind in ("gated", "windows") else []), *settings]
        y, *saved = module.forward(*arguments)
        tensors_and_saved = [*arguments[: len(arguments) - len(settings)], *saved, *settings]
        module.backward(y, *tensors_and_saved)

    run("modes", modal(D, 32, L, "bilinear", True), L, "bilinear")
    run("low_rank", low_rank(D, 32, L), L)
    run("shift", shift(D, 64, L), L)
    run("implicit", implicit(D, H, 3, L), L, window=taps.new_zeros(R, 70, D))
    run("implicit", implicit(70, 20, 5, L), L, window=taps.new_zeros(R, 70, 70))  # several tiles of channels
    run("gated", gated(D, V, B, L, L, False))
    run("windows", windows(D, V, B, L, 3, L, False))
    # Both gated operations reverse the strings, and the three kernels of implicit run twice.
    assert len(launched) == 19 and len(set(launched)) == 15


def test_the_taps_of_a_real_mode_are_a_geometric_sequence() -> None:
    """K_l = 2 Re(C Abar^l Bbar) with A = -2/3 and dt = 1: Abar = 1/2 and Bbar = 3/4 by the bilinear rule."""
    decay = torch.tensor([[2 / 3]]).log()
    C = torch.tensor([[[0.5]], [[0.0]]])
    taps = modal_taps(torch.zeros(1), decay, torch.zeros(1, 1), C, length=4, discretisation="bilinear")
    torch.testing.assert_close(taps, 0.75 * 0.5 ** torch.arange(4.0)[None])


ones = torch.ones
TOKENS = torch.zeros(4, 5, dtype=torch.int64)
BAD: list[tuple[str, Callable[[], Any]]] = [
    (
        "discretisation is 'bilinaer'; did you mean 'bilinear'",
        lambda: modal_taps(ones(2), ones(2, 3), ones(2, 3), ones(2, 2, 3), length=4, discretisation="bilinaer"),
    ),
    ("modal_taps: the shapes", lambda: modal_taps(ones(3), ones(2, 3), ones(2, 3), ones(2, 2, 3), length=4)),
    (
        "low_rank_taps: the shapes",
        lambda: low_rank_taps(ones(2), ones(2, 3), ones(2, 3), *[ones(2, 3)] * 3, length=4),
    ),
    ("shift_taps: the shapes", lambda: shift_taps(ones(2, 3), ones(2, 4), length=4)),
    (
        "implicit_taps: the shapes",
        lambda: implicit_taps(ones(2, 3), ones(9, 2), ones(1), [(ones(1, 3), ones(1))] * 3, ones(2, 1), length=4),
    ),
    ("gated_end: the shapes", lambda: gated_end(ones(2, 7), ones(2, 3), ones(2), ones(2, 3), ones(2), TOKENS)),
    (
        "gated_end: tokens has dtype torch.float32",
        lambda: gated_end(ones(2, 6), ones(2, 3), ones(2), ones(2, 3), ones(2), TOKENS.float()),
    ),
    ("window_end: the shapes", lambda: window_end(ones(2, 6), ones(5, 3), ones(6), ones(2, 3), ones(2), TOKENS)),
]


@pytest.mark.parametrize(("message", "call"), BAD, ids=[message for message, _ in BAD])
def test_bad_input(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ops.OpsError, match=message):
        call()
