"""Philox 4x32-10, a counter-based random number generator.

Its numbers are a function of a counter and a key.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The four 32-bit words of the
counter are mixed ten times with the two words of the key. There is no state: the numbers of any counter can be computed
at any time, in any order, on any device. Words are stored as int64, which every device supports: a product of two words
overflows, but its 64 bits are correct.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from sdssm.automata.refinement import Ints

ROUNDS = 10
WORD = 0xFFFFFFFF
FACTORS = 0xD2511F53, 0xCD9E8D57
INCREMENTS = 0x9E3779B9, 0xBB67AE85

#: The last word of a counter says what the numbers are used for; values from 3 on, except ENDS, are for noise.
STRINGS, LENGTHS, STARTS, DROPOUT = 0, 1, 2, 3
#: The choice of the last state or transition of a string.
ENDS = 1 << 16

Words = TypeVar("Words", Ints, Tensor)


def philox4x32(
    counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]
) -> tuple[Words, Words, Words, Words]:
    """Return four random 32-bit words for each counter and key.

    All words are int64 arrays or tensors, broadcast together.

    >>> zero = torch.tensor(0)
    >>> [hex(int(word)) for word in philox4x32((zero, zero, zero, zero), (zero, zero))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        left, right = c0 * FACTORS[0], c2 * FACTORS[1]
        # The right shift of a negative product fills with ones; the mask removes them.
        c0, c1 = (right >> 32 & WORD) ^ c1 ^ k0, right & WORD
        c2, c3 = (left >> 32 & WORD) ^ c3 ^ k1, left & WORD
        k0, k1 = k0 + INCREMENTS[0] & WORD, k1 + INCREMENTS[1] & WORD
    return c0, c1, c2, c3


def random_words(seeds: Tensor, steps: Tensor, purpose: int, rows: int, width: int) -> Tensor:
    """Return random 32-bit words as int64 (M, R, rows, width) for seeds (R,) and steps (M,).

    Word t of a row has the counter (t // 4, row, step, purpose) and the seed as key, so it does not depend on which
    other seeds, steps, rows and words are computed with it.
    """
    blocks = torch.arange(-(-width // 4), device=seeds.device)
    row = torch.arange(rows, device=seeds.device)[:, None]
    step = (steps & WORD)[:, None, None, None]
    seed = seeds[:, None, None]
    use = torch.full_like(blocks, purpose)
    low, high = seed & WORD, seed >> 32
    if seeds.device.type == "cpu":  # numpy multiplies 64-bit integers twice as fast as torch
        counter = blocks.numpy(), row.numpy(), step.numpy(), use.numpy()
        four = torch.from_numpy(np.stack(philox4x32(counter, (low.numpy(), high.numpy())), axis=-1))
    else:
        four = torch.stack(philox4x32((blocks, row, step, use), (low, high)), dim=-1)
    return four.flatten(-2)[..., :width]
