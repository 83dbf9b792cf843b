"""Random numbers inside someone else's module: where they start, and leaving those of the caller as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from sdssm.tasks.philox import DROPOUT, random_words

#: The purpose of the words that seed a module; the three before it are dropout of our own models.
MODULES = DROPOUT + 3


def module_seeds(seeds: torch.Tensor, first: int, count: int) -> np.ndarray:
    """Return where the random numbers of a module start, (count, R): for seeds (R,) and each of `count` steps."""
    words = random_words(seeds.cpu(), torch.arange(first, first + count), MODULES, 1, 2)[:, :, 0].numpy()
    return np.asarray((words[..., 0] << 31) ^ words[..., 1])


def seed_random_numbers(seed: int, device: torch.device) -> None:
    """Start the random numbers of torch on the CPU and on the device, of numpy and of Python from a seed."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
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
def preserved_random_numbers(device: torch.device) -> Iterator[None]:
    """Restore all random number generators at the end of the block."""
    state, numpy_state, python_state = torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    cuda_state = _cuda_generator(device).get_state() if device.type == "cuda" else None
    try:
        yield
    finally:
        torch.default_generator.set_state(state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        if cuda_state is not None:
            _cuda_generator(device).set_state(cuda_state)


def _cuda_generator(device: torch.device) -> torch.Generator:
    torch.cuda.init()  # type: ignore[no-untyped-call]  # torch's own
    index = torch.cuda.current_device() if device.index is None else device.index
    generator: torch.Generator = torch.cuda.default_generators[index]
    return generator
