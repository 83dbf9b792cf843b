"""Memory that tensors free, for the tensors of the next step."""

from __future__ import annotations

import ctypes
from functools import cache

#: glibc's numbers of two settings, and values: blocks up to 32 MiB, the most that it takes, come from its own heap and
#: not each from the system, and up to 1 GiB of that heap may stay free.
MMAP_THRESHOLD, TRIM_THRESHOLD = (-3, 1 << 25), (-1, 1 << 30)


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep what is freed. By itself it gives large blocks back at once, and a training on the CPU
    takes and frees the same ones at every step: with five replicas 4,800 pages a step came anew from the system, a
    sixth of the time. Whether it could be asked: only glibc can.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    done = [mallopt(*setting) for setting in (MMAP_THRESHOLD, TRIM_THRESHOLD)]
    return all(done)
