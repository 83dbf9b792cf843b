"""Fixtures of the tests of `sdssm.ops`: devices, and new memory filled with NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: test workers share the cores, and waiting threads make small scans a hundred times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _poisoned(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def wrapper(*args: Any, **kwargs: Any) -> Tensor:
        tensor = allocate(*args, **kwargs)
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor.fill_(float("nan"))
        return tensor

    return wrapper


@pytest.fixture
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fill the result of `torch.empty` and similar functions with NaN, so that unwritten entries are detected."""
    monkeypatch.setattr(torch, "empty", _poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", _poisoned(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", _poisoned(torch.Tensor.new_empty))
    yield
