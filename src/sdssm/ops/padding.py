"""Sizes padded for Triton, whose tiles have powers of two as sides."""

from __future__ import annotations


def next_power_of_two(n: int) -> int:
    """Return the least power of two that is at least n.

    >>> [next_power_of_two(n) for n in (0, 1, 2, 3, 64, 65)]
    [1, 1, 2, 4, 64, 128]
    """
    return 1 << max(n - 1, 0).bit_length()
