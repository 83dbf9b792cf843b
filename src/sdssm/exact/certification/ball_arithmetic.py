"""Ball arithmetic: float64 matrices, each with a radius that bounds its error rigorously.

In float64 a sum of k products has an error of at most gamma(k) times the sum of their absolute values, in any order of
summation (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). All bounds in this module follow from
that and from the triangle inequality. The radii themselves are rounded upwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Floats

#: Unit roundoff: half the distance from 1 to the next larger number.
U64, U32 = 2.0**-53, 2.0**-24
#: Upper bounds on the effect of underflow on a sum, and on the square root of a sum of squares.
TINY, ROOT_OF_TINY = 1e-290, 1e-150


def gamma(terms: int, unit: float = U64) -> float:
    """Return the relative error bound of a sum of `terms` products: k u / (1 - k u), rounded upwards."""
    return terms * unit / (1 - terms * unit) * (1 + 1e-10)


def round_up(value: Floats | float, terms: int = 8) -> Floats:
    """Enlarge a value to at least the exact result of the `terms` non-negative operations behind it."""
    return np.asarray(value) * (1 + 2 * gamma(terms + 4)) + TINY


def vector_norm(x: Floats) -> Floats:
    """Return an upper bound on the l2 norm of each row: (..., n) -> (...)."""
    return round_up(np.sqrt(np.square(x).sum(-1)), x.shape[-1] + 4) + ROOT_OF_TINY


def frobenius_norm(x: Floats) -> Floats:
    """Return an upper bound on the Frobenius norm of each matrix: (..., n, m) -> (...)."""
    return round_up(np.sqrt(np.square(x).sum((-2, -1))), x.shape[-2] * x.shape[-1] + 4) + ROOT_OF_TINY


@dataclass(frozen=True, eq=False)
class MatrixBall:
    """Real matrices that are within `radius` (...) of `centre` (..., n, m) in Frobenius norm.

    >>> third = MatrixBall(np.array([[1 / 3]]), np.array(2.0**-53))
    >>> bool(0 < (third @ third).radius < 1e-15)
    True
    """

    centre: Floats
    radius: Floats

    @classmethod
    def exact(cls, centre: Floats) -> MatrixBall:
        """Return a ball of radius 0."""
        return cls(centre, np.zeros(centre.shape[:-2]))

    def __matmul__(self, other: MatrixBall) -> MatrixBall:
        left, right, k = frobenius_norm(self.centre), frobenius_norm(other.centre), self.centre.shape[-1]
        radius = left * other.radius + self.radius * (right + other.radius) + gamma(k) * left * right
        return MatrixBall(self.centre @ other.centre, round_up(radius))

    def __add__(self, other: MatrixBall) -> MatrixBall:
        centre = self.centre + other.centre
        return MatrixBall(centre, round_up(self.radius + other.radius + U64 * frobenius_norm(centre)))

    def __neg__(self) -> MatrixBall:
        return MatrixBall(-self.centre, self.radius)

    def __sub__(self, other: MatrixBall) -> MatrixBall:
        return self + (-other)

    def __getitem__(self, index: NDArray[np.int64] | list[int] | tuple[slice, slice, slice]) -> MatrixBall:
        """Return some matrices, or a block of each; the radius of a matrix also bounds a block."""
        if isinstance(index, (np.ndarray, list)):
            return MatrixBall(self.centre[index], self.radius[index])
        batch, rows, columns = index
        return MatrixBall(self.centre[batch, rows, columns], self.radius[batch])

    def divide(self, lower: Floats, approximate: Floats) -> MatrixBall:
        """Divide by a number that is at least `lower` > 0 and within `approximate - lower` of `approximate`."""
        error = round_up(approximate - lower)
        centre = self.centre / approximate[..., None, None]
        norm = frobenius_norm(self.centre) + self.radius
        radius = self.radius / lower + norm * error / (lower * approximate) + U64 * frobenius_norm(centre)
        return MatrixBall(centre, round_up(radius))

    def frobenius_norm(self) -> Floats:
        """Return an upper bound on the Frobenius norm of every matrix in the ball: (...)."""
        return round_up(frobenius_norm(self.centre) + self.radius)

    def spectral_norm(self) -> Floats:
        """Return a tight upper bound on the spectral norm of every matrix in the ball: (...)."""
        return round_up(spectral_norm(self.centre) + self.radius)


def spectral_norm(x: Floats) -> Floats:
    """Return an upper bound on the largest singular value of each matrix: (..., n, m) -> (...).

    A nearly orthogonal V that nearly diagonalises G = x^T x gives D = V^T G V, and the row sums of D bound its norm.
    The deviation of V from orthogonality is bounded too, so the result does not rely on the accuracy of `eigh`.
    """
    n, m = x.shape[-2:]
    if min(n, m) == 0:
        return np.zeros(x.shape[:-2])
    if min(n, m) == 1:
        return frobenius_norm(x)
    tall = MatrixBall.exact(x if n >= m else np.swapaxes(x, -1, -2))
    transposed = MatrixBall.exact(np.swapaxes(tall.centre, -1, -2))
    g = transposed @ tall
    if not np.isfinite(g.centre).all():
        return np.full(x.shape[:-2], np.inf)
    vectors = np.linalg.eigh((g.centre + np.swapaxes(g.centre, -1, -2)) / 2)[1]
    v, v_transposed = MatrixBall.exact(vectors), MatrixBall.exact(np.swapaxes(vectors, -1, -2))
    identity = MatrixBall.exact(np.broadcast_to(np.eye(vectors.shape[-1]), vectors.shape))
    deviation = (v_transposed @ v - identity).frobenius_norm()
    d = v_transposed @ g @ v
    row_sums = np.maximum(np.abs(d.centre).sum(-1).max(-1), np.abs(d.centre).sum(-2).max(-1))
    largest = round_up(round_up(row_sums, n) + d.radius)
    bound = np.where(deviation < 0.5, np.sqrt(round_up(largest / np.maximum(1 - deviation, 0.5))), np.inf)
    return round_up(np.minimum(bound, frobenius_norm(x)))


def inverse_error(matrix: Floats, inverse: Floats) -> Floats:
    """Return an upper bound on the spectral norm of M K - I, for an approximate inverse K of M: (...)."""
    identity = np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape)
    return (MatrixBall.exact(matrix) @ MatrixBall.exact(inverse) - MatrixBall.exact(identity)).frobenius_norm()
