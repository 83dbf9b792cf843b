"""16-bit numbers in the reference implementations: computed in float32, returned in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from sdssm.ops import backend

Results = TypeVar("Results", bound=tuple[Tensor, ...])


def call_in_float32(function: Callable[..., Results], *args: Any) -> Results:
    """Return function(*args), computed in float32 where the first argument is a tensor of 16-bit numbers.

    All 16-bit tensors are converted to float32 for the call, and the results back to the dtype of the first argument.

    >>> import torch
    >>> x = torch.ones(2, dtype=torch.bfloat16)
    >>> call_in_float32(lambda x, scale: (x * scale,), x, 0.5)
    (tensor([0.5000, 0.5000], dtype=torch.bfloat16),)
    """
    dtype = args[0].dtype
    if dtype not in backend.NARROW:
        return function(*args)
    wide = [arg.float() if isinstance(arg, Tensor) and arg.dtype == dtype else arg for arg in args]
    return tuple(result.to(dtype) for result in function(*wide))  # type: ignore[return-value]  # as many as came
