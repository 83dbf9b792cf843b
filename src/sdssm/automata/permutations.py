"""Groups of permutations by their generators: order and solvability, without listing the elements.

A permutation is an integer array p with i -> p[i]; `then(p, q)` is p first, q second. A `StabiliserChain` is filled
with random elements of the group (Schreier and Sims). Everything in it is an element of the group, so "g is inside" is
a proof, while "g is not inside" may only mean that the chain is not full yet. The two verdicts on solvability rest on
proofs alone: a derived series that ends in the identity, or a subgroup all of whose generators lie inside the group of
its own commutators (or which has more elements than a solvable group can have). An order is given only when a bound
from above meets the chain's bound from below.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, log, prod

import numpy as np
from numpy.typing import NDArray

Permutation = NDArray[np.int64]

#: Steps after which a question is given up, a few seconds of work: array entries moved, and a share for each array.
BUDGET = 400_000_000
CALL = 1_000
#: Random elements that must all be inside before a chain counts as full.
TRIALS = 20


class TooLargeError(Exception):
    """The budget was spent before an answer was found."""


class Purse:
    """Counts the work done on one question."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.left = budget

    def pay(self, entries: int) -> None:
        self.left -= entries + CALL
        if self.left < 0:
            raise TooLargeError


def then(first: Permutation, second: Permutation) -> Permutation:
    """The permutation that applies `first`, then `second`."""
    return second[first]


def inverse(p: Permutation) -> Permutation:
    """The permutation that undoes p."""
    out = np.empty_like(p)
    out[p] = np.arange(len(p))
    return out


def commutator(p: Permutation, q: Permutation) -> Permutation:
    """p^-1 q^-1 p q: the identity exactly when p and q commute."""
    return then(then(inverse(p), inverse(q)), then(p, q))


def is_identity(p: Permutation) -> bool:
    return bool((p == np.arange(len(p))).all())


def is_even(p: Permutation) -> bool:
    """Whether p is a product of an even number of swaps: points less cycles is even."""
    seen = np.zeros(len(p), dtype=bool)
    cycles = 0
    for i in range(len(p)):
        cycles += not seen[i]
        while not seen[i]:
            seen[i] = True
            i = int(p[i])
    return (len(p) - cycles) % 2 == 0


class _Level:
    """One base point, generators that fix the base points before it, and the tree of its orbit."""

    def __init__(self, point: int) -> None:
        self.point = point
        self.generators: list[Permutation] = []
        self.inverses: list[Permutation] = []
        self.label = np.zeros(0, dtype=np.int64)  # -1: outside the orbit; k: reached by generator k; -2: the root
        self.size = 1

    def add(self, g: Permutation) -> None:
        self.generators.append(g)
        self.inverses.append(inverse(g))
        self.grow(len(g))

    def grow(self, degree: int) -> None:
        """The orbit of the base point, breadth first, so that the tree is as shallow as the generators allow."""
        self.label = np.full(degree, -1, dtype=np.int64)
        self.label[self.point] = -2
        frontier = np.array([self.point])
        self.size = 1
        while len(frontier):
            ahead = []
            for k, g in enumerate(self.generators):
                images = g[frontier]
                new = np.unique(images[self.label[images] == -1])
                self.label[new] = k
                ahead.append(new)
            frontier = np.concatenate(ahead) if ahead else frontier[:0]
            self.size += len(frontier)


class StabiliserChain:
    """A growing part of the group that the permutations given to `add` generate."""

    def __init__(self, degree: int, purse: Purse, rng: np.random.Generator) -> None:
        self.degree, self.purse, self.rng = degree, purse, rng
        self.levels: list[_Level] = []
        self.generators: list[Permutation] = []
        self._mixed: list[Permutation] = []
        self._product = np.arange(degree)

    def sift(self, g: Permutation) -> tuple[Permutation, int]:
        """What is left of g when the chain's elements have undone all they can, and the level where that stopped."""
        for depth, level in enumerate(self.levels):
            image = int(g[level.point])
            while (k := int(level.label[image])) != -2:
                if k == -1:
                    return g, depth
                self.purse.pay(self.degree)
                g = then(g, level.inverses[k])
                image = int(level.inverses[k][image])
        return g, len(self.levels)

    def contains(self, g: Permutation) -> bool:
        """True is a proof; False may mean that the chain is not full."""
        return is_identity(self.sift(g)[0])

    def add(self, g: Permutation) -> bool:
        """Take g as a generator, unless it is inside already. Returns whether the chain grew."""
        if not self._insert(g):
            return False
        self.generators.append(g)
        self._mixed = [self.generators[k % len(self.generators)] for k in range(max(10, len(self.generators)))]
        for _ in range(40):
            self._random()
        trials = 0
        while trials < TRIALS:
            trials = 0 if self._insert(self._random()) else trials + 1
        return True

    def _insert(self, g: Permutation) -> bool:
        residue, depth = self.sift(g)
        if is_identity(residue):
            return False
        if depth == len(self.levels):
            self.levels.append(_Level(int(np.flatnonzero(residue != np.arange(self.degree))[0])))
        for level in self.levels[: depth + 1]:  # the residue fixes every base point before this depth
            self.purse.pay(10 * self.degree * (len(level.generators) + 1))  # the orbit is grown anew
            level.add(residue)
        return True

    def _random(self) -> Permutation:
        """Product replacement: overwrite one of a handful of elements by its product with another, and multiply a
        running product by it (the elements alone are too alike from one call to the next)."""
        i, j = self.rng.choice(len(self._mixed), 2, replace=False)
        other = self._mixed[j] if self.rng.random() < 0.5 else inverse(self._mixed[j])
        self.purse.pay(3 * self.degree)
        pair = (self._mixed[i], other) if self.rng.random() < 0.5 else (other, self._mixed[i])
        self._mixed[i] = then(*pair)
        self._product = then(self._product, self._mixed[i])
        return self._product

    @property
    def size(self) -> int:
        """How many elements the chain is known to hold: a lower bound of the group's order."""
        return prod(level.size for level in self.levels)

    def complete(self) -> None:
        """Schreier's lemma to the letter: fill the chain until every loop at a base point is inside the next level."""
        depth = len(self.levels) - 1
        while depth >= 0:
            missing = self._missing_loop(depth)
            if missing is None:
                depth -= 1
            else:
                self._insert(missing)
                depth = len(self.levels) - 1

    def _missing_loop(self, depth: int) -> Permutation | None:
        level = self.levels[depth]
        for point in np.flatnonzero(level.label != -1):
            to_point = self._reach(level, int(point))
            for g in level.generators:
                loop = then(then(to_point, g), inverse(self._reach(level, int(g[point]))))
                if not self.contains(loop):
                    return loop
        return None

    def _reach(self, level: _Level, point: int) -> Permutation:
        """The element of the tree that carries the base point to `point`."""
        out = np.arange(self.degree)
        while (k := int(level.label[point])) != -2:
            self.purse.pay(self.degree)
            out = then(level.generators[k], out)
            point = int(level.inverses[k][point])
        return out


def chain(generators: Sequence[Permutation], purse: Purse) -> StabiliserChain:
    """The chain of the group that `generators` (at least one) generate, with the superfluous ones left out."""
    out = StabiliserChain(len(generators[0]), purse, np.random.default_rng(0))
    for g in generators:
        out.add(g)
    return out


def order(generators: Sequence[Permutation], budget: int = BUDGET) -> int | None:
    """The number of elements, or None where the budget does not suffice to prove it.

    >>> order([np.array([1, 0, 2, 3]), np.array([1, 2, 3, 0])])
    24
    """
    try:
        group = chain(generators, Purse(budget))
        ceiling = factorial(group.degree) // (1 if not all(is_even(g) for g in generators) or group.degree < 2 else 2)
        if group.size != ceiling and not (group.size == group.degree and is_regular(generators)):
            group.complete()
        return group.size
    except TooLargeError:
        return None


def order_floor(generators: Sequence[Permutation], budget: int = BUDGET) -> int:
    """A number that the order is at least: what the chain holds when it is full or the budget is spent."""
    group = StabiliserChain(len(generators[0]), Purse(budget), np.random.default_rng(0))
    try:
        for g in generators:
            group.add(g)
    except TooLargeError:
        pass
    return group.size


def is_regular(generators: Sequence[Permutation]) -> bool:
    """Whether the group moves every point to every other in exactly one way (then its order is the degree).

    That is so when for each generator g some permutation that commutes with all of them sends 0 to g[0]: such
    permutations then send 0 everywhere, and an element that fixes one point fixes all.
    """
    moves = np.stack(generators)
    parents = _spanning_tree(moves)
    if parents is None:
        return False
    for g in generators:
        partner = np.full(len(g), -1)
        partner[0] = g[0]
        for layer, (source, label) in parents:
            partner[layer] = moves[label, partner[source]]
        if any((partner[m] != m[partner]).any() for m in moves):
            return False
    return True


def _spanning_tree(moves: NDArray[np.int64]) -> list[tuple[Permutation, tuple[Permutation, Permutation]]] | None:
    """Breadth-first layers from point 0: (points, (where from, by which generator)); None if not all are met."""
    seen = np.zeros(moves.shape[1], dtype=bool)
    seen[0] = True
    frontier, layers = np.array([0]), []
    while len(frontier):
        images = moves[:, frontier].ravel()
        points, first = np.unique(images, return_index=True)
        new = ~seen[points]
        points, first = points[new], first[new]
        layers.append((points, (frontier[first % len(frontier)], first // len(frontier))))
        seen[points] = True
        frontier = points
    return layers if seen.all() else None


def is_solvable(generators: Sequence[Permutation], budget: int = BUDGET) -> bool | None:
    """Whether the derived series ends in the identity, or None where the budget does not suffice to prove either.

    >>> is_solvable([np.array([1, 0, 2, 3]), np.array([1, 2, 3, 0])])
    True
    >>> is_solvable([np.array([1, 0, 2, 3, 4]), np.array([1, 2, 3, 4, 0])])
    False
    """
    degree = len(generators[0])
    if degree < 5:  # the symmetric group of four points is solvable, and with it all its subgroups
        return True
    group = StabiliserChain(degree, Purse(budget), np.random.default_rng(0))
    try:
        for g in generators:
            group.add(g)
        current = group.generators
        while current and not _too_many(group):
            derived = _derived(current, group.purse)
            if all(derived.contains(g) for g in current):
                return False
            current = derived.generators
    except TooLargeError:
        return False if _too_many(group) else None
    return not _too_many(group)


def _too_many(group: StabiliserChain) -> bool:
    """A solvable group of n points has at most 24^((n - 1) / 3) elements (Dixon, 1967); does this one have more?"""
    return 3 * sum(log(level.size) for level in group.levels) > (group.degree - 1) * log(24) + 1e-6


def _derived(generators: list[Permutation], purse: Purse) -> StabiliserChain:
    """The group of all commutators: the normal closure of the generators' own."""
    out = StabiliserChain(len(generators[0]), purse, np.random.default_rng(0))
    waiting = [commutator(p, q) for i, p in enumerate(generators) for q in generators[:i]]
    while waiting:
        c = waiting.pop()
        if out.add(c):
            waiting += [then(then(inverse(g), c), g) for g in generators]
    return out
