"""The power of a float32 number that the mixture kernels compute, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from sdssm.ops.mixture.numba_kernels import power32

#: Rounding to float32, and that of the product of exponent and logarithm, which grows with the logarithm of the result.
RELATIVE_ERROR, PER_BINARY_DIGIT = 2.0**-21, 2.0**-23


@pytest.mark.parametrize("exponent", [0.05, 0.2, 1 / 1.2, 1.2, 2.0, 3.0])
def test_agrees_with_numpy_over_the_range_of_float32(exponent: float) -> None:
    values = np.float32(2) ** np.linspace(-126, 127.9, 3001, dtype=np.float32)
    exact = values.astype(np.float64) ** np.float64(np.float32(exponent))
    usual = (exact > np.finfo(np.float32).tiny) & (exact < 2.0**127)
    assert usual.sum() > 500
    for sign in (1, -1):
        actual = np.array([power32(sign * value, np.float32(exponent)) for value in values[usual]])
        error = np.abs(actual / exact[usual] - 1)
        assert np.all(error <= RELATIVE_ERROR + PER_BINARY_DIGIT * np.abs(np.log2(exact[usual])))


def test_special_values() -> None:
    exponent = np.float32(1.2)
    assert power32(np.float32(0), exponent) == 0
    assert power32(np.float32(-0.0), exponent) == 0
    assert power32(np.float32(1), exponent) == 1
    assert np.isnan(power32(np.float32(np.nan), exponent))
    assert not np.isfinite(power32(np.float32(np.inf), exponent))
    assert np.isinf(power32(np.float32(3e38), np.float32(2)))
    assert power32(np.float32(1e-30), np.float32(3)) == 0
