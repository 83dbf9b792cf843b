"""Operations as the catalogue of `test_function_laws` describes them, and the comparisons of their implementations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import pytest
import torch
from torch import Tensor

from sdssm import ops
from tests.ops.cases import assert_same

Leaves = dict[str, Tensor]
Function = Callable[[Leaves], tuple[Tensor, ...]]
CaseT = TypeVar("CaseT")


@dataclasses.dataclass(frozen=True)
class Tuning(Generic[CaseT]):
    """Other constants of the Triton kernels, so that small cases run the code for large ones.

    `runs`: cases, each with the index of the output that the loss depends on.
    """

    name: str
    change: Callable[[pytest.MonkeyPatch], None]
    runs: Sequence[tuple[CaseT, int]]
    dtype: torch.dtype = torch.float64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation(Generic[CaseT]):
    """One operation in the catalogue: how a case becomes a function, and the cases of every law.

    The first output of the function contains all others (`together`), so that one loss depends on all of them.
    """

    name: str  # of its package in sdssm.ops
    build: Callable[[CaseT, str, torch.dtype], tuple[Function, Leaves]]
    cases: Sequence[CaseT]  # compared with the reference in float64
    alone: Sequence[tuple[CaseT, int]]  # the same, with a loss through the output with that index only
    wide: Sequence[CaseT]  # compared with the reference in float32
    small: Sequence[CaseT]  # for gradcheck
    mapped: Sequence[CaseT]  # for vmap and torch.func.grad
    tiny: Sequence[CaseT]  # the same in Triton's interpreter
    full: Sequence[CaseT]  # with all leaves, for wrong gradients; the first is used wherever one case is enough
    many: CaseT  # with enough rows to be split among threads or programs
    bad: Sequence[tuple[str, Callable[[], Any]]]  # an error message, and a call that raises it
    slow: Sequence[CaseT] = ()  # those of `cases` that are skipped in the interpreter
    tunings: Sequence[Tuning[CaseT]] = ()
    own: Sequence[Callable[[], None]] = ()  # further checks for the interpreter
    numba: bool = False  # the CPU has two implementations, with numba and without
    fixed: Sequence[str] = ()  # leaves whose gradient is not that of the function by design (straight-through)
    sixteen: bool = True  # test it with bfloat16
    other_name: str | None = None  # the public function; None: <name>_scan

    @property
    def public(self) -> str:
        """The name of the public function."""
        return self.other_name or f"{self.name}_scan"


def together(*parts: Tensor) -> tuple[Tensor, ...]:
    """Return all entries of the parts in one tensor, then the parts; complex ones as real pairs.

    >>> [list(tensor.shape) for tensor in together(torch.zeros(2, 3), torch.zeros(2, dtype=torch.complex64))]
    [[10], [2, 3], [2, 2]]
    """
    real = [torch.view_as_real(part) if part.is_complex() else part for part in parts]
    return torch.cat([part.flatten() for part in real]), *real


def fast(device: str) -> str:
    """Return the fast backend of a device."""
    return "cpu" if device == "cpu" else "triton"


def draws(seed: int = 0) -> Callable[..., Tensor]:
    """Return a function that draws normal numbers in float64 on the CPU, the same for every dtype and device."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def loss_of(outputs: tuple[Tensor, ...], through: int = 0) -> Tensor:
    """Return a weighted sum of one output, with fixed and different weights (vmap allows no random numbers)."""
    output = outputs[through]
    weights = torch.arange(output.numel(), dtype=torch.float64, device=output.device).mul(1.7).add(0.3).cos()
    return (output * weights.reshape(output.shape).to(output.dtype)).sum()


def outputs_and_gradients(function: Function, leaves: Leaves, through: int = 0) -> Leaves:
    """Return all outputs and the gradients of a loss through one of them; zeros for unused leaves."""
    fresh = {name: leaf.detach().clone().requires_grad_() for name, leaf in leaves.items()}
    outputs = function(fresh)
    grads = torch.autograd.grad(
        loss_of(outputs, through), list(fresh.values()), allow_unused=True, materialize_grads=True
    )
    results = {f"output {i}": output.detach() for i, output in enumerate(outputs)}
    return results | {f"grad {name}": grad for name, grad in zip(fresh, grads, strict=True)}


def compare_with_reference(function: Function, leaves: Leaves, backend: str, label: str, through: int = 0) -> None:
    """Compare outputs and gradients of a backend with the reference, in the dtype of the leaves."""
    with ops.use_backend("reference"):
        expected = outputs_and_gradients(function, leaves, through)
    with ops.use_backend(backend):
        actual = outputs_and_gradients(function, leaves, through)
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype, name
    assert_same(actual, expected, next(iter(leaves.values())).dtype, f"{label} {backend}")


def check_transforms(function: Function, leaves: Leaves) -> None:
    """Check that vmap equals a leading dimension, and that torch.func.grad with and without vmap equals autograd."""
    expected = outputs_and_gradients(function, leaves)
    stacked = {name: torch.stack([leaf * 0.5, leaf], -1) for name, leaf in leaves.items()}  # mapped at the end
    ends = ({name: leaf.dim() for name, leaf in leaves.items()},)

    def loss(leaves: Leaves) -> Tensor:
        return loss_of(function(leaves))

    for i, scale in enumerate((0.5, 1)):
        alone = function({name: leaf * scale for name, leaf in leaves.items()})
        mapped = torch.func.vmap(function, in_dims=ends)(stacked)
        torch.testing.assert_close(tuple(out[i] for out in mapped), tuple(alone))
    plain = torch.func.grad(loss)(leaves)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=ends)(stacked)
    summed = torch.func.grad(lambda leaves: torch.func.vmap(loss, in_dims=ends)(leaves).sum())(stacked)
    for name in leaves:
        for grad in (plain[name], each[name][1], summed[name][..., 1]):
            torch.testing.assert_close(grad, expected[f"grad {name}"])


def check_compiled(function: Function, leaves: Leaves) -> None:
    """Check that torch.compile gives the same results, without a graph break."""
    torch._dynamo.reset()
    expected = outputs_and_gradients(function, leaves)
    actual = outputs_and_gradients(torch.compile(function, fullgraph=True, backend="aot_eager"), leaves)
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value)
