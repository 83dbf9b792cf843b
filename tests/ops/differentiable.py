"""Functions of tensors before the comparison that all implementations face, and what a catalogue says of each."""

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
    """Other constants of the Triton kernels, so that small cases take the ways of large ones.

    `runs`: cases, each with the output its loss sees.
    """

    name: str
    change: Callable[[pytest.MonkeyPatch], None]
    runs: Sequence[tuple[CaseT, int]]
    dtype: torch.dtype = torch.float64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation(Generic[CaseT]):
    """One operation, as `test_function_laws` reads it: how a case becomes a function, and the cases of every law.

    The function's first output is all others in one (`together`), so that one loss sees everything.
    """

    name: str  # as sdssm.ops.backend knows it
    build: Callable[[CaseT, str, torch.dtype], tuple[Function, Leaves]]
    cases: Sequence[CaseT]  # before the reference
    alone: Sequence[tuple[CaseT, int]]  # the same, with a loss through that output only
    wide: Sequence[CaseT]  # in float32
    small: Sequence[CaseT]  # for gradcheck
    mapped: Sequence[CaseT]  # for vmap and its kin
    tiny: Sequence[CaseT]  # the same in Triton's interpreter
    full: Sequence[CaseT]  # all leaves there are: planted mistakes; the first also for whatever needs one case
    many: CaseT  # rows enough to be split among threads or programs
    bad: Sequence[tuple[str, Callable[[], Any]]]  # message, and the call that is refused with it
    slow: Sequence[CaseT] = ()  # of `cases`, those left out of the interpreter
    tunings: Sequence[Tuning[CaseT]] = ()
    own: Sequence[Callable[[], None]] = ()  # further checks for the interpreter
    numba: bool = False  # the CPU has two ways, with numba and without
    fixed: Sequence[str] = ()  # leaves whose gradient is by design not that of the function (straight-through)
    sixteen: bool = True  # takes bfloat16
    other_name: str | None = None  # of the public function; none: the name and _scan

    @property
    def public(self) -> str:
        return self.other_name or f"{self.name}_scan"


def together(*parts: Tensor) -> tuple[Tensor, ...]:
    """All entries of the parts in one, then the parts; real pairs for complex ones.

    >>> [list(one.shape) for one in together(torch.zeros(2, 3), torch.zeros(2, dtype=torch.complex64))]
    [[10], [2, 3], [2, 2]]
    """
    real = [torch.view_as_real(part) if part.is_complex() else part for part in parts]
    return torch.cat([part.flatten() for part in real]), *real


def fast(device: str) -> str:
    """The backend that a device is for."""
    return "cpu" if device == "cpu" else "triton"


def draws(seed: int = 0) -> Callable[..., Tensor]:
    """Normal numbers, drawn in float64 on the CPU, so that every dtype and device sees the same."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def loss_of(outputs: tuple[Tensor, ...], through: int = 0) -> Tensor:
    """A fixed weighting of one output, all entries different (chance is not allowed under vmap)."""
    seen = outputs[through]
    weights = torch.arange(seen.numel(), dtype=torch.float64, device=seen.device).mul(1.7).add(0.3).cos()
    return (seen * weights.reshape(seen.shape).to(seen.dtype)).sum()


def outputs_and_gradients(function: Function, leaves: Leaves, through: int = 0) -> Leaves:
    """All outputs, and the gradients of a loss through one of them; 0 for leaves that it does not depend on."""
    fresh = {name: leaf.detach().clone().requires_grad_() for name, leaf in leaves.items()}
    outputs = function(fresh)
    grads = torch.autograd.grad(
        loss_of(outputs, through), list(fresh.values()), allow_unused=True, materialize_grads=True
    )
    found = {f"output {i}": output.detach() for i, output in enumerate(outputs)}
    return found | {f"grad {name}": grad for name, grad in zip(fresh, grads, strict=True)}


def face_reference(function: Function, leaves: Leaves, backend: str, label: str, through: int = 0) -> None:
    """Compare outputs and gradients of a backend with the reference, in the dtype of the leaves."""
    with ops.use_backend("reference"):
        wanted = outputs_and_gradients(function, leaves, through)
    with ops.use_backend(backend):
        found = outputs_and_gradients(function, leaves, through)
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype, name
    assert_same(found, wanted, next(iter(leaves.values())).dtype, f"{label} {backend}")


def check_transforms(function: Function, leaves: Leaves) -> None:
    """vmap is one more leading dimension; torch.func.grad, its vmap, and the gradient of a vmap agree with autograd."""
    wanted = outputs_and_gradients(function, leaves)
    stacked = {name: torch.stack([leaf * 0.5, leaf], -1) for name, leaf in leaves.items()}  # mapped at the end
    ends = ({name: leaf.dim() for name, leaf in leaves.items()},)

    def loss(given: Leaves) -> Tensor:
        return loss_of(function(given))

    for i, scale in enumerate((0.5, 1)):
        alone = function({name: leaf * scale for name, leaf in leaves.items()})
        mapped = torch.func.vmap(function, in_dims=ends)(stacked)
        torch.testing.assert_close(tuple(out[i] for out in mapped), tuple(alone))
    plain = torch.func.grad(loss)(leaves)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=ends)(stacked)
    summed = torch.func.grad(lambda given: torch.func.vmap(loss, in_dims=ends)(given).sum())(stacked)
    for name in leaves:
        for grad in (plain[name], each[name][1], summed[name][..., 1]):
            torch.testing.assert_close(grad, wanted[f"grad {name}"])


def check_compiled(function: Function, leaves: Leaves) -> None:
    """torch.compile without a graph break gives the same."""
    torch._dynamo.reset()
    wanted = outputs_and_gradients(function, leaves)
    found = outputs_and_gradients(torch.compile(function, fullgraph=True, backend="aot_eager"), leaves)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value)
