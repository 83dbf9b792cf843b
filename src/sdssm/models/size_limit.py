"""A limit on the numbers that a model has: a config may ask for more than a machine can hold.

The tensors of a model are counted while it is built, each before it is allocated: 64 layers with a dictionary of 4,096
matrices are refused at once, in a line, and not by the operating system.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from sdssm.errors import ModelError
from sdssm.files import memory_bytes

#: A model has temporary tensors while it is built: so many times its numbers, and at least so many, are allowed.
TEMPORARY_COPIES, TEMPORARY_NUMBERS = 4, 1 << 24
#: Someone else's module may have tables that are not saved with it.
UNSAVED_NUMBERS = 1 << 28
#: Bytes of a number, and the memory that is assumed where the system does not say how much there is.
BYTES, UNKNOWN_MEMORY = 4, 64 << 30
#: Functions whose first arguments are the shape of a new tensor, and those that return one axis of a given size.
SHAPED = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.eye, torch.full)
COUNTED = (torch.randperm, torch.hann_window)
#: Methods of a tensor whose arguments are the shape of a new one, or how often each axis is repeated.
NEW_METHODS = (Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full)
REPEATING = (Tensor.repeat, Tensor.tile, torch.tile)


class TooManyNumbersError(ModelError):
    """A model with more numbers than are allowed."""


class NumberLimit(TorchFunctionMode):
    """Raises TooManyNumbersError before torch allocates more than `most` numbers in all, while the mode is active.

    >>> with NumberLimit(1_000, "the weights have 1,000 numbers"):
    ...     torch.zeros(1 << 20, 1 << 20)
    Traceback (most recent call last):
    sdssm.models.size_limit.TooManyNumbersError: the model needs at least 1,099,511,627,776 numbers, but the weights ...
    """

    def __init__(self, most: int, reason: str) -> None:
        super().__init__()
        self.most, self.reason, self.count = most, reason, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        self.count += _result_size(func, args, given)
        if self.count > self.most:
            raise TooManyNumbersError(
                f"the model needs at least {self.count:,} numbers, but {self.reason}; use smaller settings"
            )
        return func(*args, **given)


def memory_limit() -> NumberLimit:
    """Return the limit for a new model: the memory of this machine."""
    memory = memory_bytes() or UNKNOWN_MEMORY
    return NumberLimit(memory // BYTES, f"this machine has {memory / 1e9:,.0f} GB of memory")


def weights_limit(shapes: Iterable[tuple[int, ...]], *, is_module: bool) -> NumberLimit:
    """Return the limit for a model whose weights have these shapes."""
    count = sum(map(math.prod, shapes))
    least = UNSAVED_NUMBERS if is_module else TEMPORARY_NUMBERS
    return NumberLimit(TEMPORARY_COPIES * count + least, f"its weights have {count:,}")


def _result_size(func: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any]) -> int:
    """Return about how many numbers a call of torch allocates; 0 if it allocates no more than its arguments have."""
    if func in SHAPED:
        shape = given.get("size", args[:1] if func is torch.full else args)
        return math.prod(_whole_numbers(shape)) * (_first(args) if func is torch.eye and len(args) == 1 else 1)
    if func in NEW_METHODS:
        return math.prod(_whole_numbers(given.get("size", args[1:])))
    if func in REPEATING:
        return int(args[0].numel()) * math.prod(_whole_numbers(args[1:]))
    if func is torch.arange:
        return _range_size(args)
    if func in (torch.linspace, torch.logspace):
        return int(given.get("steps", args[2] if len(args) > 2 else 0))
    if func in COUNTED:
        return _first(args)
    values = (*args, *given.values())
    return _broadcast_size([value for value in values if isinstance(value, Tensor) and not is_lazy(value)])


def _whole_numbers(value: Any) -> list[int]:
    """Return the whole numbers of a shape, which may be nested in a tuple or list."""
    if isinstance(value, tuple | list):
        return [number for item in value for number in _whole_numbers(item)]
    return [value] if isinstance(value, int) else []


def _first(args: tuple[Any, ...]) -> int:
    return next(iter(_whole_numbers(args)), 0)


def _range_size(args: tuple[Any, ...]) -> int:
    numbers = [value for value in args if isinstance(value, int | float)]
    start, end, step = (0, *numbers, 1) if len(numbers) == 1 else (*numbers, 1)[:3] if numbers else (0, 0, 1)
    return max(0, math.ceil((end - start) / step)) if step else 0


def _broadcast_size(tensors: list[Tensor]) -> int:
    """Return the numbers of an elementwise result, if several tensors are broadcast to more than each of them has."""
    if len(tensors) < 2:
        return 0
    axes = max(tensor.dim() for tensor in tensors)
    shapes = [(1,) * (axes - tensor.dim()) + tuple(tensor.shape) for tensor in tensors]
    size = math.prod(max(sizes) for sizes in zip(*shapes, strict=True))
    return size if size > max(tensor.numel() for tensor in tensors) else 0
