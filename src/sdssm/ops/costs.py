"""The choice of `mode="auto"`: the mode that was faster where both were measured.

For each kind of device `measured/<name>.json` holds log2(recurrent time / parallel time), forward and backward, for
each scan over a grid of state sizes N, lengths L and rows B, and says where and how it was measured. Between the points
the logarithm is interpolated linearly in the logarithms of N, L and B. Outside the grid the value at its edge is used,
except that a decrease is extrapolated beyond the largest number of rows: more rows keep the device busy in any mode,
and the recurrent mode does less work.

- triton: kernel time. Launching the parallel mode's kernels one by one costs the host two to three times as much, so
  below about half a millisecond of kernel time it only pays off in a CUDA graph or behind other work.
- torch: processor time of one thread. Each step is a few calls into torch, and the parallel mode makes fewer of them.
- numba has no file: on one thread the recurrent mode was faster at every point of the same grid, by 1.2 to 19 times.

A file does not account for dtype, rescale, lengths, more than 2 symbols or 8 matrices, other devices or more threads.
`benchmarks/scan_modes.py` measures a file; `benchmarks/scan.py --sections auto` shows how far "auto" is from the better
mode.
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
from sdssm.ops.padding import next_power_of_two

#: The number of blocks in the block-diagonal matrices that were measured: N = 4 S.
MEASURED_BLOCKS = 4


def measurements_name(backend: str) -> str:
    """Return the name of the measurements for a backend: "triton", "numba" or "torch"."""
    if backend == "triton":
        return "triton"
    return "numba" if compiled.is_available() else "torch"


class Measurements(NamedTuple):
    """The content of a file, with missing points filled in."""

    axes: list[list[float]]  # log2 of every N, L and B
    tables: dict[str, list[list[list[float]]]]  # scan -> log2(recurrent / parallel), N x L x B


@functools.lru_cache(maxsize=4096)
def faster_mode(kind: str, device_name: str, rows: int, length: int, size: int, block: int) -> str:
    """Return the faster mode, "recurrent" or "parallel"; "recurrent" if it was not measured.

    block: the size of the blocks of the matrices, N for dense ones.

    >>> faster_mode("mixture", "triton", rows=1, length=4096, size=64, block=64)
    'parallel'
    >>> faster_mode("token", "triton", rows=128, length=40, size=64, block=64)
    'recurrent'
    """
    ratio = log2_ratio(kind, device_name, rows, length, size, block)
    return "recurrent" if ratio is None or ratio <= 0 else "parallel"


def log2_ratio(kind: str, device_name: str, rows: int, length: int, size: int, block: int) -> float | None:
    """Return the interpolated log2(recurrent / parallel); None if this device or scan was not measured."""
    measured = load_measurements(device_name)
    if measured is None or kind not in measured.tables:
        return None
    if device_name == "triton":
        blocks, block = next_power_of_two(max(1, size // block)), next_power_of_two(block)
        size = blocks * block
    sizes, lengths, row_counts = measured.axes

    def at_table(table: str, n: int) -> float:
        by_length = [
            interpolate(row_counts, row, log2(max(rows, 1)), extrapolate=True) for row in measured.tables[table][n]
        ]
        return interpolate(lengths, by_length, log2(length))

    def at_size(n: int) -> float:
        if kind != "block_diagonal":
            return at_table(kind, n)
        # Block sizes lie between 1 (diagonal) and N (dense); interpolate at the same relative position.
        position = 1.0 if block >= size else log2(block) / log2(size)
        knots = [0.0, max(0.0, 1 - log2(MEASURED_BLOCKS) / sizes[n]), 1.0]
        tables = ("diagonal", kind, "dense")
        return interpolate(knots, [at_table(table, n) for table in tables], position)

    return interpolate(sizes, [at_size(n) for n in range(len(sizes))], log2(size))


def interpolate(axis: Sequence[float], values: Sequence[float], x: float, *, extrapolate: bool = False) -> float:
    """Interpolate linearly between the points of an axis; constant outside.

    extrapolate: continue a decrease beyond the last point.

    >>> interpolate([0, 2, 4], [1, 3, 1], 1), interpolate([0, 2, 4], [1, 3, 1], 6)
    (2.0, 1)
    >>> interpolate([0, 2, 4], [1, 3, 1], 6, extrapolate=True)
    -1.0
    """
    if x <= axis[0] and len(axis) > 1 and axis[0] < axis[1]:
        return values[0]
    at = bisect_right(axis, x)
    if at == len(axis):
        slope = (values[-1] - values[-2]) / (axis[-1] - axis[-2])
        return values[-1] + (min(slope, 0.0) * (x - axis[-1]) if extrapolate else 0)
    share = (x - axis[at - 1]) / (axis[at] - axis[at - 1])
    return values[at - 1] + share * (values[at] - values[at - 1])


@functools.cache
def load_measurements(device_name: str) -> Measurements | None:
    """Return the measurements of a kind of device; None if it has no file."""
    file = importlib.resources.files("sdssm.ops") / "measured" / f"{device_name}.json"
    if not file.is_file():
        return None
    content = json.loads(file.read_text())
    ratios = content["log2_recurrent_over_parallel"]
    tables = {kind: [fill_missing(table) for table in by_size] for kind, by_size in ratios.items()}
    return Measurements([[log2(value) for value in content["axes"][axis]] for axis in ("N", "L", "B")], tables)


def fill_missing(table: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """Return a table L x B with missing values filled in from their neighbours.

    Each takes the value at the next smaller L, else at the next fewer rows, else at the next larger L: with many rows
    the ratio hardly depends on L, and it decreases with the rows.
    """
    values = [list(row) for row in table]
    count = len(values[0])
    for at, b in itertools.product(range(len(values)), range(count)):
        if values[at][b] is None and at > 0:
            values[at][b] = values[at - 1][b]
        if values[at][b] is None and b > 0:
            values[at][b] = values[at][b - 1]
    for at, b in itertools.product(reversed(range(len(values) - 1)), range(count)):
        if values[at][b] is None:
            values[at][b] = values[at + 1][b]
    return [[0.0 if value is None else value for value in row] for row in values]
