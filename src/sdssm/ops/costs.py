"""What `mode="auto"` knows: which mode was faster where both were measured.

For each kind of device `measured/<name>.json` holds log2(recurrent time / parallel time), forward and backward, for
each scan over a grid of state sizes N, lengths L and rows B, and says where and how it was measured. Between the points
the choice follows a straight line in the logarithms of N, L and B, and outside the grid its edge, except that past the
most rows a fall is continued: with more rows the device is busy anyway, and the recurrent mode does less work.

- triton: kernel time. Launching the parallel mode's kernels one by one costs the host two to three times as much, so
  that below about half a millisecond of kernel time it pays off in a CUDA graph or behind other work only.
- torch: processor time of one thread. Each step is a few calls into torch, and the parallel mode makes fewer of them.
- numba has no file: on one thread the recurrent mode was faster at every point of the same grid, 1.2 to 19 times.

What a file does not know it leaves out of account: dtype, rescale, lengths, more than 2 symbols or 8 matrices, other
devices, more threads. `benchmarks/scan_modes.py` measures a file; `benchmarks/scan.py --sections auto` shows how far
"auto" is from the better mode.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
import json
from bisect import bisect_right
from collections.abc import Sequence
from math import log2
from typing import NamedTuple

from sdssm.ops import compiled
from sdssm.ops.padding import power_of_two

#: The blocks of the block-diagonal matrices that were measured: N = 4 S.
MEASURED_BLOCKS = 4


def device_kind(backend: str) -> str:
    """The name of the measurements for a backend."""
    if backend == "triton":
        return "triton"
    return "numba" if compiled.available() else "torch"


class Measurements(NamedTuple):
    """A file, with what was not measured filled in."""

    axes: list[list[float]]  # log2 of every N, L and B
    tables: dict[str, list[list[list[float]]]]  # scan -> log2(recurrent / parallel), N x L x B


@functools.lru_cache(maxsize=4096)
def faster(kind: str, device_name: str, rows: int, length: int, size: int, block: int) -> str:
    """ "recurrent" or "parallel" for a scan over matrices of blocks of size `block`; recurrent if nobody measured it.

    >>> faster("mixture", "triton", rows=1, length=4096, size=64, block=64)
    'parallel'
    >>> faster("token", "triton", rows=128, length=40, size=64, block=64)
    'recurrent'
    """
    found = advantage(kind, device_name, rows, length, size, block)
    return "recurrent" if found is None or found <= 0 else "parallel"


def advantage(kind: str, device_name: str, rows: int, length: int, size: int, block: int) -> float | None:
    """log2(recurrent / parallel) between the measured points; None if this device or scan was not measured."""
    measured = measurements(device_name)
    if measured is None or kind not in measured.tables:
        return None
    if device_name == "triton":
        blocks, block = power_of_two(max(1, size // block)), power_of_two(block)
        size = blocks * block
    sizes, lengths, many = measured.axes

    def at(table: str, n: int) -> float:
        by_length = [along(many, row, log2(max(rows, 1)), onward=True) for row in measured.tables[table][n]]
        return along(lengths, by_length, log2(length))

    def at_size(n: int) -> float:
        if kind != "block_diagonal":
            return at(kind, n)
        # Between blocks of size 1 and of size N, as far along as in the scan asked for.
        share = 1.0 if block >= size else log2(block) / log2(size)
        knots = [0.0, max(0.0, 1 - log2(MEASURED_BLOCKS) / sizes[n]), 1.0]
        tables = ("diagonal", kind, "dense")
        return along(knots, [at(table, n) for table in tables], share)

    return along(sizes, [at_size(n) for n in range(len(sizes))], log2(size))


def along(axis: Sequence[float], values: Sequence[float], x: float, *, onward: bool = False) -> float:
    """Linear between the points of an axis and constant outside; `onward` continues a fall past the last point.

    >>> along([0, 2, 4], [1, 3, 1], 1), along([0, 2, 4], [1, 3, 1], 6), along([0, 2, 4], [1, 3, 1], 6, onward=True)
    (2.0, 1, -1.0)
    """
    if x <= axis[0] and len(axis) > 1 and axis[0] < axis[1]:
        return values[0]
    at = bisect_right(axis, x)
    if at == len(axis):
        slope = (values[-1] - values[-2]) / (axis[-1] - axis[-2])
        return values[-1] + (min(slope, 0.0) * (x - axis[-1]) if onward else 0)
    share = (x - axis[at - 1]) / (axis[at] - axis[at - 1])
    return values[at - 1] + share * (values[at] - values[at - 1])


@functools.cache
def measurements(device_name: str) -> Measurements | None:
    """What was measured on a kind of device; None for one that has no file."""
    file = importlib.resources.files("sdssm.ops") / "measured" / f"{device_name}.json"
    if not file.is_file():
        return None
    read = json.loads(file.read_text())
    tables = {kind: [filled(table) for table in sizes] for kind, sizes in read["log2_recurrent_over_parallel"].items()}
    return Measurements([[log2(value) for value in read["axes"][axis]] for axis in ("N", "L", "B")], tables)


def filled(table: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """L x B with what was not measured put in: as at the next smaller L, else at the next fewer rows, else at larger L.

    With many rows the ratio hardly depends on L, and it falls with the rows.
    """
    found = [list(row) for row in table]
    count = len(found[0])
    for place, b in itertools.product(range(len(found)), range(count)):
        if found[place][b] is None and place > 0:
            found[place][b] = found[place - 1][b]
        if found[place][b] is None and b > 0:
            found[place][b] = found[place][b - 1]
    for place, b in itertools.product(reversed(range(len(found) - 1)), range(count)):
        if found[place][b] is None:
            found[place][b] = found[place + 1][b]
    return [[0.0 if value is None else value for value in row] for row in found]
