"""Choose the implementation and the mode; the only module that looks at the device of a tensor.

By default tensors on an NVIDIA GPU are computed by Triton kernels and all others by the CPU implementation.
`SDSSM_BACKEND=reference` in the environment, or `with use_backend("reference"):` in the program, overrides that.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sdssm.devices import TRITON_LARGEST_STATE
from sdssm.errors import did_you_mean
from sdssm.extras import import_extra
from sdssm.ops import compiled, costs
from sdssm.ops.errors import OpsError

BACKENDS = ("reference", "cpu", "triton")
MODES = ("auto", "recurrent", "parallel")
#: The 16-bit dtypes. The CPU computes them in float32; on a GPU the kernels convert them themselves.
NARROW = (torch.bfloat16, torch.float16)
#: The dtypes of operations that have no other implementation for the CPU than one compiled by numba.
COMPILED = (torch.float32, torch.float64)


def _check_name(name: str, source: str) -> str:
    if name not in BACKENDS:
        raise OpsError(f"{source} is {name!r}; {did_you_mean(name, BACKENDS)}")
    return name


_override: str | None = os.environ.get("SDSSM_BACKEND") or None
if _override is not None:
    _check_name(_override, "SDSSM_BACKEND")


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run every operation inside the block on the backend `name`: "reference", "cpu" or "triton".

    >>> from sdssm import ops
    >>> with ops.use_backend("reference"):
    ...     states, final = ops.diagonal_scan(torch.full((3, 1), 2.0), x0=torch.ones(1))
    >>> final
    tensor([8.])
    """
    global _override
    before, _override = _override, _check_name(name, "the backend")
    try:
        yield
    finally:
        _override = before


def is_on_gpu(tensor: Tensor) -> bool:
    """Whether the tensor is on an NVIDIA GPU."""
    return tensor.is_cuda


def is_jit_tracing() -> bool:
    """Whether `torch.jit.trace` is recording; sizes of tensors are tensors then."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]  # torch's own


def choose(tensor: Tensor) -> str:
    """Return the backend for `tensor`: the one set by the user, else the one for its device.

    `torch.jit.trace` records torch's own operations only, so there it is the reference.
    """
    if _override is not None:
        return _override
    if is_jit_tracing():
        return "reference"
    return "triton" if tensor.is_cuda else "cpu"


def uses_reference(chosen: str, first: Tensor) -> bool:
    """Whether the reference computes the operation, for tensors like `first` and the backend `chosen`.

    It does if the user chose it, for 16-bit dtypes, and in compiled code, where the compiler fuses it.
    """
    return chosen == "reference" or first.dtype in NARROW or torch.compiler.is_compiling()


def has_kernels(tensor: Tensor) -> bool:
    """Whether the Triton kernels compute operations on tensors like this one."""
    chosen = choose(tensor)
    return chosen == "triton" and not uses_reference(chosen, tensor) and not is_autocast_enabled(tensor)


def has_compiled_kernels(tensor: Tensor) -> bool:
    """Whether the CPU kernels that numba compiles compute operations on tensors like this one."""
    chosen = choose(tensor)
    is_possible = (
        chosen == "cpu" and compiled.is_available() and tensor.dtype in COMPILED and tensor.device.type == "cpu"
    )
    return is_possible and not uses_reference(chosen, tensor) and not is_autocast_enabled(tensor)


def has_fast_kernels(tensor: Tensor) -> bool:
    """Whether the Triton kernels or those that numba compiles compute operations on tensors like this one."""
    return has_kernels(tensor) or has_compiled_kernels(tensor)


def check_mode(op: str, mode: str) -> None:
    """Raise `OpsError` for an unknown mode."""
    if mode not in MODES:
        raise OpsError(f"{op}: mode is {mode!r}; {did_you_mean(str(mode), MODES)}")


@functools.cache
def implementation(kind: str, backend: str) -> ModuleType:
    """Return the module with `forward` and `backward` for canonical tensors.

    Triton is imported only if it is chosen.
    """
    if backend == "triton":
        import_extra("triton", "the Triton backend")
    return importlib.import_module(f"sdssm.ops.{kind}.{backend}")


def check_backend(op: str, tensor: Tensor, state: int, most: int = TRITON_LARGEST_STATE) -> None:
    """Raise `OpsError` if the backend does not support the device of the tensor or the size of the state.

    `most` is the largest state of the Triton kernels of the operation.
    """
    chosen = choose(tensor)
    if chosen == "cpu" and tensor.device.type != "cpu":
        raise OpsError(f"{op}: the backend is cpu and the tensors are on {tensor.device}; move them or use another one")
    if chosen != "triton":
        return
    if tensor.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise OpsError(f"{op}: the backend is triton and the tensors are on cpu; move them or set TRITON_INTERPRET=1")
    if state > most:
        raise OpsError(
            f"{op}: the state has {state} entries; the triton backend takes at most {most}, "
            'use_backend("reference") any number'
        )


def is_autocast_enabled(tensor: Tensor) -> bool:
    """Whether autocast is on for the device of the tensor."""
    return torch.is_autocast_enabled(tensor.device.type)


def no_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast is off: operations compute in the precision of their arguments."""
    device = tensor.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def run(
    direction: str,
    kind: str,
    backend: str,
    mode: str,
    sizes: tuple[int, int, int, int],
    tensors: Sequence[Any],
    *,
    rescale: bool,
) -> tuple[Any, ...]:
    """Call `direction` ("forward" or "backward") of a scan's implementation, with autocast off.

    `sizes` are (rows, L, N, S), by which mode "auto" is resolved. On the CPU 16-bit tensors are converted to float32
    and the results back; the factors and norms of the forward pass stay in float32.
    """
    module = implementation(kind, backend)
    if mode == "auto":
        mode = costs.faster_mode(kind, costs.measurements_name(backend), *sizes)
    function = getattr(module, direction)
    present = [tensor for tensor in tensors if tensor is not None]
    narrow = backend == "cpu" and any(tensor.dtype in NARROW for tensor in present)
    with no_autocast(present[0]):
        if not narrow:
            return function(*tensors, rescale=rescale, mode=mode)  # type: ignore[no-any-return]  # a module's
        dtype = next(tensor.dtype for tensor in present if tensor.dtype in NARROW)
        wide = [tensor.float() if tensor is not None and tensor.dtype in NARROW else tensor for tensor in tensors]
        outputs = function(*wide, rescale=rescale, mode=mode)
        count = 2 if direction == "forward" else len(outputs)  # factors and norms stay wide
        return tuple(out.to(dtype) if i < count and out is not None else out for i, out in enumerate(outputs))
