"""Random numbers that depend only on a seed and on what they are used for."""

from __future__ import annotations

import numpy as np
import torch

#: What a generator is used for. Each purpose has its own random numbers, which depend on its place in this list.
PREFIX_TOKENS, FRESH_TOKENS, START_STATES, DATASET, STREAMED_TOKENS = range(5)


def make_generator(*key: int) -> torch.Generator:
    """Return a generator that depends only on the key: a seed, a purpose, and further numbers."""
    return torch.Generator().manual_seed(mix_key(*key))


def mix_key(*key: int) -> int:
    """Return 64 bits that depend on all numbers of a key.

    >>> mix_key(0, DATASET, 1) == mix_key(0, DATASET, 1) != mix_key(0, DATASET, 2)
    True
    """
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
