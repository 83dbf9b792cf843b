"""Constant tensors that are built once for each device and dtype."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps

import torch
from torch import Tensor

from sdssm.ops.backend import is_jit_tracing


def cached_table(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Cache a constant tensor `make(*sizes)` for each device and dtype, for the lifetime of the process.

    The decorated function is called as `table(like, *sizes)` and returns the tensor with the device and dtype of
    `like`. The tensor is never freed, because CUDA graphs refer to its address. It is built on the host, so that it is
    complete for every stream, and outside of the caller's torch.func transforms.
    """

    @cache
    def cached(device: torch.device, dtype: torch.dtype, *sizes: int) -> Tensor:
        with torch.inference_mode(False), torch._C._DisableFuncTorch():
            return make(*sizes).to(device, dtype)

    @wraps(make)
    def table(like: Tensor, *sizes: int) -> Tensor:
        if torch.compiler.is_compiling():  # traced as part of the graph
            return make(*sizes).to(like.device, like.dtype)
        if is_jit_tracing():  # sizes are tensors then, and what is traced must not be cached
            return make(*map(int, sizes)).to(like.device, like.dtype)
        return cached(like.device, like.dtype, *sizes)

    return table
