"""What a scan refuses, and in which words.

Shapes, dtypes and devices are read from the tensors' headers and cost nothing. Values (a token outside the alphabet,
a length past L) must be looked at, which on a GPU makes the host wait; `unchecked()` turns that look off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from sdssm.ops import backend
from sdssm.ops.errors import NonFiniteError, OpsError

#: How the last dimensions of an argument are written in messages: the letters of the house.
Shape = Sequence[str]

FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
COMPLEX = (torch.complex64, torch.complex128)

_look_at_values = True


@contextmanager
def unchecked() -> Iterator[None]:
    """Trust tokens and lengths: inside, they are not looked at, so a GPU never waits for the host.

    A token outside the alphabet then reads memory that is not its own. For loops that drew the tokens themselves.
    """
    global _look_at_values
    before, _look_at_values = _look_at_values, False
    try:
        yield
    finally:
        _look_at_values = before


def values_are_checked(tensor: Tensor) -> bool:
    """Whether values may be read now: asked for, real (not traced or mapped), and no CUDA graph being recorded."""
    if not _look_at_values or torch.compiler.is_compiling() or is_functorch_wrapped_tensor(tensor):
        return False
    return not (backend.is_on_gpu(tensor) and torch.cuda.is_current_stream_capturing())


def shape_of(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def mismatch(op: str, name: str, tensor: Tensor, wanted: str, against: str, other: Tensor) -> OpsError:
    return OpsError(
        f"{op}: {name} has shape {shape_of(tensor)}; it must be {wanted} to fit {against} of shape {shape_of(other)}"
    )


def check_rank(op: str, name: str, tensor: Tensor, form: Shape) -> None:
    """`tensor` has at least the dimensions `form`, none of them empty."""
    if not isinstance(tensor, Tensor):
        raise OpsError(f"{op}: {name} is a {type(tensor).__name__}; it must be a tensor (..., {', '.join(form)})")
    if tensor.dim() < len(form):
        raise OpsError(
            f"{op}: {name} has shape {shape_of(tensor)}; it needs at least {len(form)} dimensions, "
            f"(..., {', '.join(form)})"
        )
    for size, letter in zip(tensor.shape[tensor.dim() - len(form) :], form, strict=True):
        if size == 0:
            raise OpsError(f"{op}: {name} has shape {shape_of(tensor)}; its dimension {letter} must be at least 1")


def check_square(op: str, name: str, tensor: Tensor) -> None:
    if tensor.shape[-1] != tensor.shape[-2]:
        raise OpsError(
            f"{op}: {name} has shape {shape_of(tensor)}; its last two dimensions must be equal, "
            f"got {tensor.shape[-2]} and {tensor.shape[-1]}"
        )


def check_tail(
    op: str, name: str, tensor: Tensor, tail: Sequence[int], form: Shape, against: str, other: Tensor
) -> None:
    """The last dimensions of `tensor` are `tail`."""
    check_rank(op, name, tensor, form)
    if tuple(tensor.shape[tensor.dim() - len(tail) :]) != tuple(tail):
        wanted = "(..., " + ", ".join(f"{letter}={size}" for letter, size in zip(form, tail, strict=True)) + ")"
        raise mismatch(op, name, tensor, wanted, against, other)


def check_complex(op: str, name: str, tensor: Tensor, beside: str, real: Tensor) -> None:
    """One tensor is complex, and the one beside it real and of the same precision."""
    if tensor.dtype not in COMPLEX:
        raise OpsError(
            f"{op}: {name} has dtype {tensor.dtype}; it must be complex, e.g. torch.complex({name}, 0 * {name})"
        )
    wanted = torch.float64 if tensor.dtype == torch.complex128 else torch.float32  # dtype.to_real() is not traced
    if real.dtype != wanted:
        raise OpsError(f"{op}: {beside} has dtype {real.dtype} and {name} {tensor.dtype}; {beside} must be {wanted}")


def check_kinds(op: str, named: Sequence[tuple[str, Tensor | None]], *, complex_too: bool = False) -> None:
    """All floating arguments share one floating dtype and one device."""
    allowed = FLOATING + COMPLEX if complex_too else FLOATING
    first_name, first = named[0]
    assert first is not None
    if first.dtype not in allowed:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        raise OpsError(f"{op}: {first_name} has dtype {first.dtype}; it must be one of {names}")
    for name, tensor in named[1:]:
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
    if tensor.device != first.device:
        raise OpsError(f"{op}: {name} is on {tensor.device} and {first_name} on {first.device}; move one with .to(...)")


def check_integers(op: str, name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise OpsError(f"{op}: {name} is a {type(tensor).__name__}; it must be a tensor of whole numbers")
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise OpsError(f"{op}: {name} has dtype {tensor.dtype}; it must hold whole numbers, e.g. torch.int64")


def check_range(op: str, name: str, values: Tensor, low: int, high: int, rule: str) -> None:
    """Every value lies in low..high. Reads the values: on a GPU the host waits once."""
    if values.numel() == 0 or not values_are_checked(values):
        return
    least, most = (int(v) for v in torch.stack(torch.aminmax(values)).tolist())
    if least < low or most > high:
        worst = least if least < low else most
        where = tuple((values == worst).nonzero()[0].tolist())
        raise OpsError(f"{op}: {name}[{', '.join(map(str, where))}] is {worst}; {rule} {low}..{high}")


def check_states(op: str, states: Tensor, lengths: Tensor | None) -> None:
    """Every state inside its row's length is finite and not exactly zero; says at which step that ends."""
    steps = torch.arange(states.shape[-2], device=states.device)
    inside = torch.ones_like(states[..., 0], dtype=torch.bool) if lengths is None else steps < lengths[..., None]
    finite = torch.isfinite(states).all(-1)
    bad = inside & (~finite | (states == 0).all(-1))
    if not bool(bad.any()):
        return
    step = int(bad.flatten(0, -2).any(0).nonzero()[0])
    row = tuple(bad[..., step].nonzero()[0].tolist())
    what = "exactly zero" if bool(finite[(*row, step)]) else "not finite"
    raise NonFiniteError(
        f"{op}: states are {what} from step {step} on (counted from 0), first in row {row}; "
        "use rescale=True, smaller matrices, or float64"
    )
