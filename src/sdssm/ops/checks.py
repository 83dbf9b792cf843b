"""Checks of arguments, with the messages of their errors.

Shapes, dtypes and devices are known without reading a tensor, so these checks cost nothing. Values (a token outside the
alphabet, a length above L) must be read, for which the host waits on a GPU; `unchecked()` turns the latter off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from sdssm.ops import backend
from sdssm.ops.errors import NonFiniteError, OpsError

#: The last dimensions of an argument as messages show them, for example ("L", "N").
Shape = Sequence[str]

FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
COMPLEX = (torch.complex64, torch.complex128)

# Open blocks of `unchecked` in all threads: autograd runs the backward pass of a GPU in a thread of its own.
_unchecked_blocks, _lock = 0, Lock()


@contextmanager
def unchecked() -> Iterator[None]:
    """Do not check the values of tokens and lengths inside the block.

    The host then does not wait for the GPU, and a token outside the alphabet reads memory out of bounds. For loops that
    generate the tokens themselves.
    """
    global _unchecked_blocks
    with _lock:
        _unchecked_blocks += 1
    try:
        yield
    finally:
        with _lock:
            _unchecked_blocks -= 1


def can_read_values(tensor: Tensor) -> bool:
    """Whether values are checked and can be read.

    They cannot while the tensor is traced or mapped, or a CUDA graph is captured.
    """
    if _unchecked_blocks or torch.compiler.is_compiling() or is_functorch_wrapped_tensor(tensor):
        return False
    if backend.is_jit_tracing():
        return False
    return not (backend.is_on_gpu(tensor) and torch.cuda.is_current_stream_capturing())


def format_shape(tensor: Tensor) -> str:
    """Return the shape as messages show it: "(2, 3)"."""
    return str(tuple(tensor.shape))


def shape_error(op: str, name: str, tensor: Tensor, expected: str, other_name: str, other: Tensor) -> OpsError:
    """Return the error for a tensor whose shape does not fit another one."""
    return OpsError(
        f"{op}: {name} has shape {format_shape(tensor)}; it must be {expected} to fit {other_name} "
        f"of shape {format_shape(other)}"
    )


def check_rank(op: str, name: str, tensor: Tensor, form: Shape) -> None:
    """Check that `tensor` has at least the dimensions `form`, none of them empty."""
    if not isinstance(tensor, Tensor):
        raise OpsError(f"{op}: {name} is a {type(tensor).__name__}; it must be a tensor (..., {', '.join(form)})")
    if tensor.dim() < len(form):
        raise OpsError(
            f"{op}: {name} has shape {format_shape(tensor)}; it needs at least {len(form)} dimensions, "
            f"(..., {', '.join(form)})"
        )
    for size, letter in zip(tensor.shape[tensor.dim() - len(form) :], form, strict=True):
        if size == 0:
            raise OpsError(f"{op}: {name} has shape {format_shape(tensor)}; its dimension {letter} must be at least 1")


def check_square(op: str, name: str, tensor: Tensor) -> None:
    """Check that the last two dimensions are equal."""
    if tensor.shape[-1] != tensor.shape[-2]:
        raise OpsError(
            f"{op}: {name} has shape {format_shape(tensor)}; its last two dimensions must be equal, "
            f"got {tensor.shape[-2]} and {tensor.shape[-1]}"
        )


def check_last_dimensions(
    op: str, name: str, tensor: Tensor, tail: Sequence[int], form: Shape, other_name: str, other: Tensor
) -> None:
    """Check that the last dimensions of `tensor` are `tail`, as those of `other` require."""
    check_rank(op, name, tensor, form)
    if tuple(tensor.shape[tensor.dim() - len(tail) :]) != tuple(tail):
        expected = "(..., " + ", ".join(f"{letter}={size}" for letter, size in zip(form, tail, strict=True)) + ")"
        raise shape_error(op, name, tensor, expected, other_name, other)


def check_complex(op: str, name: str, tensor: Tensor, real_name: str, real: Tensor) -> None:
    """Check that `tensor` is complex, and `real` is real and of the same precision."""
    if tensor.dtype not in COMPLEX:
        raise OpsError(
            f"{op}: {name} has dtype {tensor.dtype}; it must be complex, e.g. torch.complex({name}, 0 * {name})"
        )
    dtype = torch.float64 if tensor.dtype == torch.complex128 else torch.float32  # dtype.to_real() is not traced
    if real.dtype != dtype:
        raise OpsError(
            f"{op}: {real_name} has dtype {real.dtype} and {name} {tensor.dtype}; {real_name} must be {dtype}"
        )


def check_dtypes(op: str, tensors: Sequence[tuple[str, Tensor | None]], *, complex_too: bool = False) -> None:
    """Check that the tensors of (name, tensor) pairs have the same floating dtype and device."""
    allowed = FLOATING + COMPLEX if complex_too else FLOATING
    first_name, first = tensors[0]
    assert first is not None
    if first.dtype not in allowed:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        raise OpsError(f"{op}: {first_name} has dtype {first.dtype}; it must be one of {names}")
    for name, tensor in tensors[1:]:
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise OpsError(f"{op}: {name} is a {type(tensor).__name__}; it must be a tensor or None")
        if tensor.dtype != first.dtype:
            raise OpsError(
                f"{op}: {name} has dtype {tensor.dtype} and {first_name} {first.dtype}; convert one with .to(...)"
            )
        check_device(op, name, tensor, first_name, first)


def check_device(op: str, name: str, tensor: Tensor, first_name: str, first: Tensor) -> None:
    """Check that both tensors are on the same device."""
    if tensor.device != first.device:
        raise OpsError(f"{op}: {name} is on {tensor.device} and {first_name} on {first.device}; move one with .to(...)")


def check_integers(op: str, name: str, tensor: Tensor) -> None:
    """Check that the tensor has an integer dtype."""
    if not isinstance(tensor, Tensor):
        raise OpsError(f"{op}: {name} is a {type(tensor).__name__}; it must be a tensor of integers")
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise OpsError(f"{op}: {name} has dtype {tensor.dtype}; it must hold integers, e.g. torch.int64")


def check_range(op: str, name: str, values: Tensor, low: int, high: int, rule: str) -> None:
    """Check that every value lies in low..high. Reads the values: on a GPU the host waits once."""
    if values.numel() == 0 or not can_read_values(values):
        return
    # Copied at once, and read one by one: torch 2.6 has no tolist() under torch.func.grad.
    least, most = (int(v) for v in torch.stack(torch.aminmax(values)).cpu())
    if least < low or most > high:
        worst = least if least < low else most
        position = tuple(int(i) for i in (values == worst).nonzero()[0])
        raise OpsError(f"{op}: {name}[{', '.join(map(str, position))}] is {worst}; {rule} {low}..{high}")


def check_states(op: str, states: Tensor, lengths: Tensor | None) -> None:
    """Check that every state within its row's length is finite and not zero.

    The error names the first step at which one is not.
    """
    steps = torch.arange(states.shape[-2], device=states.device)
    inside = torch.ones_like(states[..., 0], dtype=torch.bool) if lengths is None else steps < lengths[..., None]
    finite = torch.isfinite(states).all(-1)
    bad = inside & (~finite | (states == 0).all(-1))
    if not bool(bad.any()):
        return
    step = int(bad.flatten(0, -2).any(0).nonzero()[0])
    row = tuple(bad[..., step].nonzero()[0].tolist())
    problem = "exactly zero" if bool(finite[(*row, step)]) else "not finite"
    raise NonFiniteError(
        f"{op}: states are {problem} from step {step} on (counted from 0), first in row {row}; "
        "use rescale=True, smaller matrices, or float64"
    )
