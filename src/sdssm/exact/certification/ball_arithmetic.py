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


def round_up(value: Floats | float, terms: int = 8) -> Floats:
    """At least the number that `terms` rounded operations on numbers that are not negative gave as `value`."""
    return np.asarray(value) * (1 + 2 * gamma(terms + 4)) + TINY


def vector_norm(x: Floats) -> Floats:
    """At least the l2 norm of each row: (..., n) -> (...)."""
    return round_up(np.sqrt(np.square(x).sum(-1)), x.shape[-1] + 4) + ROOT_OF_TINY


def frobenius_norm(x: Floats) -> Floats:
    """At least the Frobenius norm of each matrix: (..., n, m) -> (...)."""
    return round_up(np.sqrt(np.square(x).sum((-2, -1))), x.shape[-2] * x.shape[-1] + 4) + ROOT_OF_TINY


@dataclass(frozen=True, eq=False)
class MatrixBall:
    """Real matrices of which is known: none is further from `mid` (..., n, m) than `rad` (...) in Frobenius norm.

    >>> third = MatrixBall(np.array([[1 / 3]]), np.array(2.0**-53))
    >>> bool(0 < (third @ third).rad < 1e-15)
    True
    """

    mid: Floats
    rad: Floats

    @classmethod
    def exactly(cls, mid: Floats) -> MatrixBall:
        """These very numbers."""
        return cls(mid, np.zeros(mid.shape[:-2]))

    def __matmul__(self, other: MatrixBall) -> MatrixBall:
        left, right, k = frobenius_norm(self.mid), frobenius_norm(other.mid), self.mid.shape[-1]
        rad = left * other.rad + self.rad * (right + other.rad) + gamma(k) * left * right
        return MatrixBall(self.mid @ other.mid, round_up(rad))

    def __add__(self, other: MatrixBall) -> MatrixBall:
        mid = self.mid + other.mid
        return MatrixBall(mid, round_up(self.rad + other.rad + U64 * frobenius_norm(mid)))

    def __neg__(self) -> MatrixBall:
        return MatrixBall(-self.mid, self.rad)

    def __sub__(self, other: MatrixBall) -> MatrixBall:
        return self + (-other)

    def __getitem__(self, at: NDArray[np.int64] | list[int] | tuple[slice, slice, slice]) -> MatrixBall:
        """Some of many; a block of a matrix is no further off than the whole."""
        if isinstance(at, (np.ndarray, list)):
            return MatrixBall(self.mid[at], self.rad[at])
        every, rows, columns = at
        return MatrixBall(self.mid[every, rows, columns], self.rad[every])

    def over(self, least: Floats, near: Floats) -> MatrixBall:
        """Divided by a number that is at least `least` > 0 and no further from `near` than their difference."""
        off = round_up(near - least)
        mid = self.mid / near[..., None, None]
        size = frobenius_norm(self.mid) + self.rad
        return MatrixBall(mid, round_up(self.rad / least + size * off / (least * near) + U64 * frobenius_norm(mid)))

    def size(self) -> Floats:
        """At least the Frobenius norm."""
        return round_up(frobenius_norm(self.mid) + self.rad)

    def norm(self) -> Floats:
        """At least the spectral norm, and hardly more: (...)."""
        return round_up(spectral_norm(self.mid) + self.rad)


def spectral_norm(x: Floats) -> Floats:
    """At least the greatest singular value of each matrix: (..., n, m) -> (...).

    An orthogonal V that nearly diagonalises G = x^T x gives D = V^T G V, whose rows bound its norm; what V lacks in
    orthogonality is measured, not trusted.
    """
    n, m = x.shape[-2:]
    if min(n, m) == 0:
        return np.zeros(x.shape[:-2])
    if min(n, m) == 1:
        return frobenius_norm(x)
    a = MatrixBall.exactly(x if n >= m else np.swapaxes(x, -1, -2))
    turned = MatrixBall.exactly(np.swapaxes(a.mid, -1, -2))
    g = turned @ a
    if not np.isfinite(g.mid).all():
        return np.full(x.shape[:-2], np.inf)
    vectors = np.linalg.eigh((g.mid + np.swapaxes(g.mid, -1, -2)) / 2)[1]
    v, t = MatrixBall.exactly(vectors), MatrixBall.exactly(np.swapaxes(vectors, -1, -2))
    off = (t @ v - MatrixBall.exactly(np.broadcast_to(np.eye(vectors.shape[-1]), vectors.shape))).size()
    d = t @ g @ v
    rows = np.maximum(np.abs(d.mid).sum(-1).max(-1), np.abs(d.mid).sum(-2).max(-1))
    most = round_up(round_up(rows, n) + d.rad)
    found = np.where(off < 0.5, np.sqrt(round_up(most / np.maximum(1 - off, 0.5))), np.inf)
    return round_up(np.minimum(found, frobenius_norm(x)))


def inverse_error(matrix: Floats, inverse: Floats) -> Floats:
    """At least the spectral norm of M K - I, for a K that is nearly the inverse of M: (...)."""
    eye = np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape)
    return (MatrixBall.exactly(matrix) @ MatrixBall.exactly(inverse) - MatrixBall.exactly(eye)).size()
