"""What `mode="auto"` knows: the time of either mode, forward and backward together, from measured constants.

The model counts what each mode does one after the other (steps) and what it does in all (multiplications), and a
`Device` says what each costs. `benchmarks/scan.py --sections auto` shows how far "auto" is from the better mode; a new
kind of device is a new row.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from sdssm.ops import compiled
from sdssm.ops.chunks import chunk_length


@dataclasses.dataclass(frozen=True)
class Device:
    """Times in microseconds, forward and backward together."""

    call: float  # entering a pass
    step: float  # one step of all rows, whatever their number
    row_step: float  # one step of one row
    multiply: float  # one multiplication of a matrix with a vector
    product_step: float  # one step of the products of chunks
    product: float  # one multiplication of a matrix with a matrix
    workers: int = 0  # rows that run at the same time; 0: the threads of torch


#: numba, torch: fitted to passes over 256 steps, N 4 to 64, 1 and 8 rows, rescaled, float32, on one thread of a Xeon at
#: 2.8 GHz (AVX-512) with torch 2.13 and numba 0.68, shared with other work.
#: triton: estimated for an H200 (132 multiprocessors, several rows each), not yet fitted to measurements.
DEVICES = {
    "numba": Device(call=40, step=0, row_step=0.17, multiply=1.6e-4, product_step=100, product=3e-4),
    "torch": Device(call=40, step=120, row_step=0, multiply=3e-3, product_step=100, product=3e-4),
    "triton": Device(call=20, step=0.6, row_step=0, multiply=1.5e-4, product_step=2, product=1.2e-5, workers=528),
}
#: Mixing and normalising a matrix entry, which the mixture scan does once in recurrent mode and twice in parallel.
MIX = {"numba": 3e-3, "torch": 3e-3, "triton": 1e-4}


def device_kind(backend: str) -> str:
    """The row of the table for a backend."""
    if backend == "triton":
        return "triton"
    return "numba" if compiled.available() else "torch"


def recurrent(device: Device, rows: int, length: int, size: int, block: int) -> float:
    """Rows share the workers; each goes through its steps one after the other."""
    waves = math.ceil(rows / (device.workers or torch.get_num_threads()))
    return device.call + length * (device.step + waves * (device.row_step + size * block * device.multiply))


def parallel(device: Device, rows: int, length: int, size: int, block: int) -> float:
    """Products of chunks, a scan over the chunks, and the passes inside them (one forward, two backward)."""
    chunk = chunk_length(length, block)
    count = math.ceil(length / chunk)
    if count == 1:
        return recurrent(device, rows, length, size, block)
    waves = math.ceil(rows * count / (device.workers or torch.get_num_threads()))
    products = chunk * (device.product_step + waves * size * block**2 * device.product)
    over = recurrent(device, rows, count, size, block)
    inside = recurrent(device, rows * count, chunk, size, block)
    return products + over + 1.5 * inside


def faster(kind: str, device_name: str, rows: int, length: int, size: int, block: int) -> str:
    """ "recurrent" or "parallel".

    >>> faster("diagonal", "torch", rows=1, length=4096, size=64, block=1)
    'parallel'
    >>> faster("token", "numba", rows=128, length=40, size=64, block=64)
    'recurrent'
    """
    device = DEVICES[device_name]
    one, other = recurrent(device, rows, length, size, block), parallel(device, rows, length, size, block)
    if kind == "mixture":
        workers = device.workers or torch.get_num_threads()
        mixing = MIX[device_name] * size**2
        one += mixing * length * math.ceil(rows / workers)
        other += 2 * mixing * math.ceil(rows * length / workers)
    return "parallel" if other < one else "recurrent"
