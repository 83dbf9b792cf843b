"""Every implementation and mode of the linear scans compared with the reference, in float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from sdssm import ops
from sdssm.ops import compiled
from tests.ops.cases import KINDS, Case, assert_same, build, compare_with_reference, outputs_and_gradients

OPTIONS: list[dict[str, Any]] = [
    {"b": True, "x0": False},
    {"x0": True},
    {"b": True, "lengths": True},
    {"rescale": True},
    {"rescale": True, "lengths": True},
    {"b": True, "x0": False, "lengths": True},
    {"x0": False, "rescale": True},
]

#: Pairs of length and state size; the options are assigned in turn, so that all of them are combined.
SIZES = [
    (1, 1),
    (2, 5),
    (3, 16),
    (63, 5),
    (64, 16),
    (65, 60),
    (500, 5),
    (63, 1),
    (64, 64),
    (3, 128),
    (500, 16),
    (65, 128),
]
CASES = [
    Case(kind, L, N, lead=(2,) if L * N > 4000 else (2, 3), **options)
    for k, kind in enumerate(KINDS)
    for i, (L, N) in enumerate(SIZES)
    for options in [OPTIONS[(i + k + more) % len(OPTIONS)] for more in ((0, 3) if L * N <= 1000 else (0,))]
]
#: All combinations of options except b with rescale, at a length with a short last chunk.
ALL_OPTIONS = [
    Case(kind, 11, 3, b=b, x0=x0, lengths=lengths, rescale=rescale, lead=(2, 2))
    for kind in KINDS
    for b, x0, lengths, rescale in itertools.product([False, True], repeat=4)
    if not (b and rescale)
]


def implementations(device: str, modes: tuple[str, ...] = ("recurrent", "parallel")) -> list[tuple[str, str, bool]]:
    """Return (backend, mode, numba) of all implementations for a device."""
    if device != "cpu":
        return [("triton", mode, True) for mode in modes]
    with_numba = [True, False] if compiled.is_available() else [False]
    return [("cpu", mode, numba) for mode in modes for numba in with_numba]


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("case", CASES + ALL_OPTIONS, ids=str)
def test_agrees_with_the_reference(case: Case, device: str) -> None:
    problem = build(case, device)
    with ops.use_backend("reference"):
        expected = outputs_and_gradients(problem, "auto")
    for backend, mode, numba in implementations(device):
        with ops.use_backend(backend):
            if numba:
                actual = outputs_and_gradients(problem, mode)
            else:
                with compiled.without_numba():
                    actual = outputs_and_gradients(problem, mode)
        assert_same(actual, expected, case.dtype, f"{case} {backend} {mode} numba={numba}")


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("through", ["states", "final"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_through_a_single_output(kind: str, through: str, device: str) -> None:
    for options in (OPTIONS[0], OPTIONS[4]):
        for backend, mode, numba in implementations(device, ("recurrent", "parallel", "auto")):
            compare_with_reference(
                Case(kind, 13, 4, **options), backend, mode, device=device, through=through, numba=numba
            )


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_in_float32(kind: str, device: str) -> None:
    for options in (OPTIONS[0], OPTIONS[3]):
        for backend, mode, numba in implementations(device):
            case = Case(kind, 40, 12, dtype=torch.float32, **options)
            compare_with_reference(case, backend, mode, device=device, numba=numba)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("symbols", [1, 2, 4, 5, 13])
@pytest.mark.parametrize("options", [OPTIONS[2], OPTIONS[4]], ids=str)
def test_alphabet_sizes(symbols: int, options: dict[str, Any], device: str) -> None:
    """On a GPU there are different kernels for few and many symbols, and for few and many rows."""
    for lead in ((3,), (5, 411)):
        case = Case("token", 7, 33, lead=lead, dtype=torch.float32, symbols=symbols, **options)
        for through in ("final", "both"):
            compare_with_reference(
                case, "cpu" if device == "cpu" else "triton", "recurrent", device=device, through=through
            )


@pytest.mark.parametrize("p", [1.0, 1.2, 2.0, 3.5, None])
def test_mixture_for_every_p(p: float | None, device: str) -> None:
    for backend, mode, numba in implementations(device):
        compare_with_reference(Case("mixture", 9, 5, p=p), backend, mode, device=device, numba=numba)


@pytest.mark.parametrize("block", [1, 2, 3, 6])
def test_block_sizes(block: int, device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(2, 7, 6 // block, block, block, generator=generator, dtype=torch.float64).to(device)
    x0 = torch.randn(2, 6, generator=generator, dtype=torch.float64).to(device)
    matrices = [torch.block_diag(*blocks) for blocks in A.flatten(0, 1)]  # type: ignore[no-untyped-call]
    dense = torch.stack(matrices).reshape(2, 7, 6, 6)
    expected = ops.dense_scan(dense, x0=x0)[0]
    torch.testing.assert_close(ops.block_diagonal_scan(A, x0=x0)[0], expected)


def test_replicas_with_their_own_p(device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    dictionary = torch.randn(3, 4, 5, 5, generator=generator, dtype=torch.float64).to(device)
    weights = torch.rand(3, 2, 6, 4, generator=generator, dtype=torch.float64).to(device)
    x0 = torch.randn(5, generator=generator, dtype=torch.float64).to(device)
    p = torch.tensor([1.0, 1.5, 2.0], dtype=torch.float64, device=device)
    states, _ = ops.mixture_scan(dictionary, weights, x0=x0, p=p)
    for replica, exponent in enumerate(p.tolist()):
        alone, _ = ops.mixture_scan(dictionary[replica], weights[replica], x0=x0, p=exponent)
        torch.testing.assert_close(states[replica], alone)


@pytest.mark.skipif(not compiled.is_available(), reason="needs numba")
@pytest.mark.parametrize("kind", ["token", "block_diagonal", "diagonal", "diagonal_complex"])
def test_a_numba_kernel_is_compiled_once_per_dtype(kind: str) -> None:
    """The options and the mode must not cause a new compilation, which takes seconds."""
    from sdssm.ops import numba_kernels
    from sdssm.ops.token import numba_kernels as token_kernels

    for rescale, mode in itertools.product([False, True], ["recurrent", "parallel"]):
        with ops.use_backend("cpu"):
            outputs_and_gradients(build(Case(kind, 33, 4, rescale=rescale, lengths=True)), mode)
    for direction in ("forward", "backward"):
        kernels = token_kernels if kind == "token" else numba_kernels
        kernel = getattr(kernels, f"{kind.partition('_')[0]}_{direction}")
        matrices = [signature[2].dtype for signature in kernel.signatures]
        assert matrices and len(set(matrices)) == len(matrices)
