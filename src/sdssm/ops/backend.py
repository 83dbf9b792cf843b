"""Which implementation runs, and in which mode: the only place that asks.

By default tensors on an NVIDIA GPU go to Triton and all others to the CPU implementation. `SDSSM_BACKEND=reference`
in the environment, or `with use_backend("reference"):` in the program, overrides that.
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

from sdssm.errors import did_you_mean
from sdssm.extras import import_extra
from sdssm.ops import costs
from sdssm.ops.checks import OpsError

BACKENDS = ("reference", "cpu", "triton")
MODES = ("auto", "recurrent", "parallel")
TRITON_LARGEST_STATE = 256
NARROW = (torch.bfloat16, torch.float16)  # the CPU computes these in float32; on a GPU the kernels do so themselves


def _known(name: str, source: str) -> str:
    if name not in BACKENDS:
        raise OpsError(f"{source} is {name!r}; {did_you_mean(name, BACKENDS)}")
    return name


_override: str | None = os.environ.get("SDSSM_BACKEND") or None
if _override is not None:
    _known(_override, "SDSSM_BACKEND")


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Inside, every scan runs on the backend `name`: "reference", "cpu" or "triton".

    >>> from sdssm import ops
    >>> with ops.use_backend("reference"):
    ...     states, final = ops.diagonal_scan(torch.full((3, 1), 2.0), x0=torch.ones(1))
    >>> final
    tensor([8.])
    """
    global _override
    before, _override = _override, _known(name, "the backend")
    try:
        yield
    finally:
        _override = before


def choose(tensor: Tensor) -> str:
    """The backend for `tensor`: what was asked for, else by its device."""
    if _override is not None:
        return _override
    return "triton" if tensor.is_cuda else "cpu"


def check_mode(op: str, mode: str) -> None:
    if mode not in MODES:
        raise OpsError(f"{op}: mode is {mode!r}; {did_you_mean(str(mode), MODES)}")


@functools.cache
def implementation(kind: str, backend: str) -> ModuleType:
    """The module with `forward` and `backward` for canonical tensors; Triton is imported only when it is chosen."""
    if backend == "triton":
        import_extra("triton", "the Triton backend")
    return importlib.import_module(f"sdssm.ops.{kind}.{backend}")


def check_backend(op: str, tensor: Tensor, state: int) -> None:
    """The chosen backend can take tensors on this device and states of this size."""
    chosen = choose(tensor)
    if chosen == "cpu" and tensor.device.type != "cpu":
        raise OpsError(
            f"{op}: the cpu backend was asked for tensors on {tensor.device}; move them or change the backend"
        )
    if chosen != "triton":
        return
    if tensor.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise OpsError(f"{op}: the triton backend was asked for tensors on cpu; move them or set TRITON_INTERPRET=1")
    if state > TRITON_LARGEST_STATE:
        raise OpsError(
            f"{op}: the state has {state} entries; the triton backend takes at most {TRITON_LARGEST_STATE}, "
            'use_backend("reference") any number'
        )


def no_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Scans compute in the precision of what they are given, inside an autocast region too."""
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
    """Call `direction` ("forward" or "backward") of the implementation; `sizes` (rows, L, N, S) resolve mode "auto".

    Autocast is off inside: the kernels compute in the precision of what they were given.
    """
    module = implementation(kind, backend)
    if mode == "auto":
        mode = costs.faster(kind, costs.device_kind(backend), *sizes)
    function = getattr(module, direction)
    given = [tensor for tensor in tensors if tensor is not None]
    narrow = backend == "cpu" and any(tensor.dtype in NARROW for tensor in given)
    with no_autocast(given[0]):
        if not narrow:
            return function(*tensors, rescale=rescale, mode=mode)  # type: ignore[no-any-return]  # a module's
        dtype = next(tensor.dtype for tensor in given if tensor.dtype in NARROW)
        wide = [tensor.float() if tensor is not None and tensor.dtype in NARROW else tensor for tensor in tensors]
        found = function(*wide, rescale=rescale, mode=mode)
        keep = 2 if direction == "forward" else len(found)  # factors and norms stay wide
        return tuple(out.to(dtype) if i < keep and out is not None else out for i, out in enumerate(found))
