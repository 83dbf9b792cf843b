"""Arrays as text: little endian, in row-major order, in base64."""

from __future__ import annotations

from base64 import b64encode

import numpy as np

from sdssm.report.page.page_types import Packed

#: The types of numbers that the page reads.
PACKED_TYPES = {"float32": "<f4", "int32": "<i4"}
#: The value of a byte that stands for 0, and the largest distance from it.
ZERO, LARGEST = 128, 127


def pack_array(array: np.ndarray, dtype: str) -> Packed:
    """Pack an array as "float32" or "int32".

    >>> pack_array(np.array([1, 2]), "int32")
    {'dtype': 'int32', 'shape': [2], 'data': 'AQAAAAIAAAA='}
    """
    data = np.ascontiguousarray(array, dtype=PACKED_TYPES[dtype]).tobytes()
    return {"dtype": dtype, "shape": list(array.shape), "data": b64encode(data).decode("ascii")}


def pack_bytes(array: np.ndarray) -> Packed:
    """Pack finite numbers in one byte each: a byte stands for `scale * (byte - 128)`.

    >>> pack_bytes(np.array([-1.0, 0.0, 0.5]))["data"], round(1 / pack_bytes(np.array([-1.0, 0.5]))["scale"])
    ('AYDA', 127)
    """
    largest = float(np.abs(array).max(initial=0.0))
    scale = largest / LARGEST if largest > 0 else 1.0
    data = (np.round(np.asarray(array, dtype=np.float64) / scale) + ZERO).astype(np.uint8).tobytes()
    return {
        "dtype": "uint8",
        "shape": list(array.shape),
        "data": b64encode(data).decode("ascii"),
        "scale": float(f"{scale:.6g}"),
    }
