"""Numbers with a proved bound on their error: float64 matrices, each with a radius that no rounding can exceed.

A sum of k products has in float64 an error of at most gamma(k) times the sum of their absolute values, whatever the
order in which it is added up (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Everything here
follows from that and from the triangle inequality; radii themselves are rounded upwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: Half the distance from 1 to the next number.
U64, U32 = 2.0**-53, 2.0**-24
#: More than all that underflow can do to a sum, and to the root of a sum of squares.
TINY, ROOT_OF_TINY = 1e-290, 1e-150


def gamma(terms: int, unit: float = U64) -> float:
    """The relative error of a sum of so many products: k u / (1 - k u), rounded upwards."""
    return terms * unit / (1 - terms * unit) * (1 + 1e-10)


def up(value: Floats | float, terms: int = 8) -> Floats:
    """At least the number that `terms` rounded operations on numbers that are not negative gave as `value`."""
    return np.asarray(value) * (1 + 2 * gamma(terms + 4)) + TINY


def length(x: Floats) -> Floats:
    """At least the l2 norm of each row: (..., n) -> (...)."""
    return up(np.sqrt(np.square(x).sum(-1)), x.shape[-1] + 4) + ROOT_OF_TINY


def frobenius(x: Floats) -> Floats:
    """At least the Frobenius norm of each matrix: (..., n, m) -> (...)."""
    return up(np.sqrt(np.square(x).sum((-2, -1))), x.shape[-2] * x.shape[-1] + 4) + ROOT_OF_TINY


@dataclass(frozen=True, eq=False)
class Near:
    """Real matrices of which is known: none is further from `mid` (..., n, m) than `rad` (...) in Frobenius norm.

    >>> third = Near(np.array([[1 / 3]]), np.array(2.0**-53))
    >>> bool(0 < (third @ third).rad < 1e-15)
    True
    """

    mid: Floats
    rad: Floats

    @classmethod
    def exactly(cls, mid: Floats) -> Near:
        """These very numbers."""
        return cls(mid, np.zeros(mid.shape[:-2]))

    def __matmul__(self, other: Near) -> Near:
        left, right, k = frobenius(self.mid), frobenius(other.mid), self.mid.shape[-1]
        rad = left * other.rad + self.rad * (right + other.rad) + gamma(k) * left * right
        return Near(self.mid @ other.mid, up(rad))

    def __add__(self, other: Near) -> Near:
        mid = self.mid + other.mid
        return Near(mid, up(self.rad + other.rad + U64 * frobenius(mid)))

    def __neg__(self) -> Near:
        return Near(-self.mid, self.rad)

    def __sub__(self, other: Near) -> Near:
        return self + (-other)

    def __getitem__(self, at: NDArray[np.int64] | list[int] | tuple[slice, slice, slice]) -> Near:
        """Some of many; a block of a matrix is no further off than the whole."""
        if isinstance(at, (np.ndarray, list)):
            return Near(self.mid[at], self.rad[at])
        every, rows, columns = at
        return Near(self.mid[every, rows, columns], self.rad[every])

    def over(self, least: Floats, near: Floats) -> Near:
        """Divided by a number that is at least `least` > 0 and no further from `near` than their difference."""
        off = up(near - least)
        mid = self.mid / near[..., None, None]
        size = frobenius(self.mid) + self.rad
        return Near(mid, up(self.rad / least + size * off / (least * near) + U64 * frobenius(mid)))

    def size(self) -> Floats:
        """At least the Frobenius norm."""
        return up(frobenius(self.mid) + self.rad)

    def norm(self) -> Floats:
        """At least the spectral norm, and hardly more: (...)."""
        return up(spectral(self.mid) + self.rad)


def spectral(x: Floats) -> Floats:
    """At least the greatest singular value of each matrix: (..., n, m) -> (...).

    An orthogonal V that nearly diagonalises G = x^T x gives D = V^T G V, whose rows bound its norm; what V lacks in
    orthogonality is measured, not trusted.
    """
    n, m = x.shape[-2:]
    if min(n, m) == 0:
        return np.zeros(x.shape[:-2])
    if min(n, m) == 1:
        return frobenius(x)
    a = Near.exactly(x if n >= m else np.swapaxes(x, -1, -2))
    turned = Near.exactly(np.swapaxes(a.mid, -1, -2))
    g = turned @ a
    if not np.isfinite(g.mid).all():
        return np.full(x.shape[:-2], np.inf)
    vectors = np.linalg.eigh((g.mid + np.swapaxes(g.mid, -1, -2)) / 2)[1]
    v, t = Near.exactly(vectors), Near.exactly(np.swapaxes(vectors, -1, -2))
    off = (t @ v - Near.exactly(np.broadcast_to(np.eye(vectors.shape[-1]), vectors.shape))).size()
    d = t @ g @ v
    rows = np.maximum(np.abs(d.mid).sum(-1).max(-1), np.abs(d.mid).sum(-2).max(-1))
    most = up(up(rows, n) + d.rad)
    found = np.where(off < 0.5, np.sqrt(up(most / np.maximum(1 - off, 0.5))), np.inf)
    return up(np.minimum(found, frobenius(x)))


def inverse_error(matrix: Floats, inverse: Floats) -> Floats:
    """At least the spectral norm of M K - I, for a K that is nearly the inverse of M: (...)."""
    eye = np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape)
    return (Near.exactly(matrix) @ Near.exactly(inverse) - Near.exactly(eye)).size()
