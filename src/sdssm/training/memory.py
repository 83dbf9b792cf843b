"""Memory of the training: keep what a step frees on a CPU, return what a group frees on a GPU."""

from __future__ import annotations

import ctypes
import gc
from functools import cache

import torch

#: Two options of glibc's mallopt, as (number, value). Blocks of up to 32 MiB, the largest value that glibc accepts,
#: come from its own heap instead of a system call each, and up to 1 GiB of that heap may stay free.
MMAP_THRESHOLD, TRIM_THRESHOLD = (-3, 1 << 25), (-1, 1 << 30)


@cache
def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for the next allocation; return whether it can (glibc does).

    By default glibc returns large blocks to the system at once, and training on a CPU allocates and frees the same
    blocks at every step: with five replicas the system had to supply 4,800 new pages a step, a sixth of the time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    accepted = [mallopt(*option) for option in (MMAP_THRESHOLD, TRIM_THRESHOLD)]
    return all(accepted)


def empty_device_cache(device: torch.device) -> None:
    """Return unused GPU memory to the device, for the group that starts next; on a CPU do nothing.

    An engine and its CUDA graphs refer to each other, so only the garbage collector frees them. On a CPU an engine has
    no graphs and is freed together with its group.
    """
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def device_memory(device: torch.device) -> tuple[int, int]:
    """Return the bytes that this process has reserved on a GPU, and the bytes that are free there."""
    return torch.cuda.memory_reserved(device), torch.cuda.mem_get_info(device)[0]
