"""Permutations as integer arrays, random elements of their group, and a budget for computations.

A permutation is an integer array p that sends i to p[i].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Permutation = NDArray[np.int64]
Permutations = NDArray[np.int64]  # permutations x points

#: The work of one step of a computation, about a second: array entries moved, plus CALL_COST for each array operation.
BUDGET = 300_000_000
CALL_COST = 1_000


class BudgetExceededError(Exception):
    """The budget was spent before the computation was finished."""


class WorkBudget:
    """Counts the work of a computation, and stops it at the limit."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.remaining = budget

    def spend(self, entries: int) -> None:
        """Count one array operation on this many entries, or raise BudgetExceededError."""
        self.remaining -= entries + CALL_COST
        if self.remaining < 0:
            raise BudgetExceededError


def compose(first: Permutation, second: Permutation) -> Permutation:
    """Return the permutation that applies `first`, then `second`."""
    return second[first]


def inverse(p: Permutation) -> Permutation:
    """Return the permutation that undoes p."""
    out = np.empty_like(p)
    out[p] = np.arange(len(p))
    return out


def commutator(p: Permutation, q: Permutation) -> Permutation:
    """Return p^-1 q^-1 p q, which is the identity exactly if p and q commute."""
    return compose(compose(inverse(p), inverse(q)), compose(p, q))


def conjugate(p: Permutation, q: Permutation) -> Permutation:
    """Return q^-1 p q."""
    return compose(compose(inverse(q), p), q)


def is_identity(p: Permutation) -> bool:
    """Whether p moves no point."""
    return bool((p == np.arange(len(p))).all())


def compact(maps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the same maps (maps x points) with two bytes per entry if they fit, else four."""
    return maps.astype(np.uint16 if maps.shape[1] <= 2**16 else np.int32)


def cycle_lengths(p: Permutation) -> list[int]:
    """Return the lengths of the cycles of p, fixed points included."""
    image, seen, lengths = p.tolist(), bytearray(len(p)), []
    for start in range(len(image)):
        length, i = 0, start
        while not seen[i]:
            seen[i] = 1
            length += 1
            i = image[i]
        if length:
            lengths.append(length)
    return lengths


def is_even(p: Permutation) -> bool:
    """Whether p is a product of an even number of swaps, that is, points minus cycles is even."""
    return (len(p) - len(cycle_lengths(p))) % 2 == 0


def orbit(generators: Sequence[Permutation], point: int) -> NDArray[np.bool_]:
    """Return which points the group of the generators moves this point to."""
    seen = np.zeros(len(generators[0]), dtype=bool)
    seen[point] = True
    frontier, moves = np.array([point]), np.stack(generators)
    while len(frontier):
        images = moves[:, frontier].ravel()
        frontier = np.unique(images[~seen[images]])
        seen[frontier] = True
    return seen


class RandomElements:
    """Random elements of a group, by product replacement.

    Each step replaces one of a few elements by its product with another, and multiplies a running product by it. The
    elements themselves are too similar from one step to the next.
    """

    def __init__(self, generators: Sequence[Permutation], budget: WorkBudget) -> None:
        self.budget, self.rng = budget, np.random.default_rng(0)
        self.elements = [generators[k % len(generators)] for k in range(max(10, len(generators)))]
        self.product = np.arange(len(generators[0]))
        for _ in range(40 + len(generators)):
            self.draw()

    def draw(self) -> Permutation:
        """Return the next random element."""
        i, j = (int(k) for k in self.rng.choice(len(self.elements), 2, replace=False))
        first, second = self.elements[i], self.elements[j]
        self.budget.spend(4 * len(first) + 2 * CALL_COST)
        second = second if self.rng.random() < 0.5 else inverse(second)
        self.elements[i] = compose(first, second) if self.rng.random() < 0.5 else compose(second, first)
        self.product = compose(self.product, self.elements[i])
        return self.product
