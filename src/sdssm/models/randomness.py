"""Random numbers inside someone else's module: where they start, and leaving those of the caller as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed_random_numbers(seed: int, device: torch.device | None = None) -> None:
    """Start the random numbers of torch on the CPU and on the device, of numpy and of Python from a seed.

    Without a device those of all GPUs are started, if a GPU was used before.
    """
    torch.default_generator.manual_seed(seed)
    if device is None:
        for generator in _used_cuda_generators():
            generator.manual_seed(seed)
    elif device.type == "cuda":
        _cuda_generator(device).manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002  # the one that a module may use
    random.seed(seed)


def random_states(device: torch.device) -> list[Any]:
    """Return the states of all random number generators that a module may use, as values that can be compared."""
    states = [torch.default_generator.get_state()]
    if device.type == "cuda":
        states.append(_cuda_generator(device).get_state())
    words = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return [*(state.tolist() for state in states), words["pos"], words["key"].tolist(), random.getstate()]


@contextmanager
def preserved_random_numbers() -> Iterator[None]:
    """Restore all random number generators at the end of the block, also those of the GPUs if any was used before."""
    generators = [torch.default_generator, *_used_cuda_generators()]
    states = [generator.get_state() for generator in generators]
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


def _used_cuda_generators() -> list[torch.Generator]:
    """Return the generators of all GPUs; none if no GPU was used yet, because using one takes time and memory."""
    is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's own
    return list(torch.cuda.default_generators[: torch.cuda.device_count()]) if is_used else []


def _cuda_generator(device: torch.device) -> torch.Generator:
    torch.cuda.init()  # type: ignore[no-untyped-call]  # torch's own
    index = torch.cuda.current_device() if device.index is None else device.index
    generator: torch.Generator = torch.cuda.default_generators[index]
    return generator
