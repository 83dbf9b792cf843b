"""Permutations, and the part of a group that a stabiliser chain holds (Schreier and Sims).

A permutation is an integer array p with i -> p[i]; `then(p, q)` is p first, q second. Everything in a chain is an
element of the group, so "g is inside" is a proof, while "g is not inside" may mean that the chain is not full yet: it
is filled with random elements, and full for certain only after `complete`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

Permutation = NDArray[np.int64]
Permutations = NDArray[np.int64]  # permutations x points

#: Work after which one step of a question is given up, about a second: array entries moved, and a share for each array.
BUDGET = 300_000_000
CALL = 1_000
#: Random elements that must all be inside before a chain counts as full.
TRIALS = 20
#: Array entries handled at once.
CHUNK = 1_000_000


#: Array entries, of two bytes, in the tables that spare a completed chain the way along its trees.
TABLES = 50_000_000


class TooLargeError(Exception):
    """The budget was spent before an answer was found."""


class Purse:
    """Counts the work done on one step of a question."""

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


def conjugate(p: Permutation, q: Permutation) -> Permutation:
    """q^-1 p q."""
    return then(then(inverse(q), p), q)


def is_identity(p: Permutation) -> bool:
    return bool((p == np.arange(len(p))).all())


def compact(maps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same maps (maps x points) in two bytes an entry, if they fit."""
    return maps.astype(np.uint16 if maps.shape[1] <= 2**16 else np.int32)


def cycle_lengths(p: Permutation) -> list[int]:
    """The lengths of the cycles of p, fixed points included."""
    ahead, seen, lengths = p.tolist(), bytearray(len(p)), []
    for start in range(len(ahead)):
        length, i = 0, start
        while not seen[i]:
            seen[i] = 1
            length += 1
            i = ahead[i]
        if length:
            lengths.append(length)
    return lengths


def is_even(p: Permutation) -> bool:
    """Whether p is a product of an even number of swaps: points less cycles is even."""
    return (len(p) - len(cycle_lengths(p))) % 2 == 0


def orbit(generators: Sequence[Permutation], point: int) -> NDArray[np.bool_]:
    """Which points the generators lead to from this one."""
    seen = np.zeros(len(generators[0]), dtype=bool)
    seen[point] = True
    frontier, moves = np.array([point]), np.stack(generators)
    while len(frontier):
        images = moves[:, frontier].ravel()
        frontier = np.unique(images[~seen[images]])
        seen[frontier] = True
    return seen


class Mixer:
    """Random elements of a group by product replacement: overwrite one of a handful of elements by its product with
    another, and multiply a running product by it (the elements alone are too alike from one call to the next)."""

    def __init__(self, generators: Sequence[Permutation], purse: Purse) -> None:
        self.purse, self.rng = purse, np.random.default_rng(0)
        self.elements = [generators[k % len(generators)] for k in range(max(10, len(generators)))]
        self.product = np.arange(len(generators[0]))
        for _ in range(40 + len(generators)):
            self.random()

    def random(self) -> Permutation:
        i, j = (int(k) for k in self.rng.choice(len(self.elements), 2, replace=False))
        first, second = self.elements[i], self.elements[j]
        self.purse.pay(4 * len(first) + 2 * CALL)
        second = second if self.rng.random() < 0.5 else inverse(second)
        self.elements[i] = then(first, second) if self.rng.random() < 0.5 else then(second, first)
        self.product = then(self.product, self.elements[i])
        return self.product

    def batch(self, count: int = TRIALS) -> Permutations:
        return np.stack([self.random() for _ in range(count)])


class _Level:
    """One base point, generators that fix the base points before it, and the tree of its orbit.

    `label[q]` is -1 outside the orbit; `undo[label[q]]` leads from q one step towards the base point, whose label is 0.
    """

    def __init__(self, point: int, degree: int) -> None:
        self.point = point
        self.generators: list[Permutation] = []
        self.extra: list[Permutation] = []  # random products of the generators, which keep the tree shallow
        self.undo: Permutations = np.arange(degree)[None]
        self.label = np.full(degree, -1)
        self.label[point] = 0
        self.orbit = np.array([point])
        self.table: Permutations | None = None  # row q leads from point q to the base point, for q in the orbit

    def add(self, g: Permutation, purse: Purse) -> None:
        self.generators.append(g)
        purse.pay(len(self.orbit))
        if (self.label[g[self.orbit]] < 0).any():
            self.table = None
            while not self._grow(purse):
                mixer = Mixer(self.generators + self.extra, purse)
                self.extra += [mixer.random() for _ in range(3)]

    def _grow(self, purse: Purse) -> bool:
        """Grow the orbit, breadth first; False where the tree would be deep and more elements may help."""
        moves = np.stack(self.generators + self.extra)
        label = np.full(moves.shape[1], -1)
        label[self.point] = 0
        frontier, depth = np.array([self.point]), 0
        while len(frontier):
            purse.pay(4 * len(moves) * len(frontier) + 2 * CALL)
            images = moves[:, frontier]
            source, place = np.nonzero(label[images] < 0)
            label[images[source, place]] = source + 1  # of several ways to a point the last one written counts
            frontier, depth = np.unique(images[source, place]), depth + 1
            if depth > 6 + 2 * log2(len(label)) and len(self.extra) < 12:
                return False
        self.orbit = np.flatnonzero(label >= 0)
        used, self.label[self.orbit] = np.unique(label[self.orbit], return_inverse=True)
        purse.pay(2 * len(used) * len(label))
        self.undo = np.stack([np.arange(len(label)), *(inverse(moves[k - 1]) for k in used[1:])])
        return True

    def back(self, rows: Permutations, at: NDArray[np.int64], purse: Purse) -> None:
        """Multiply each row by the tree's element that carries the point `at` to the base point, in place."""
        if self.table is not None:
            purse.pay(2 * rows.size)
            rows[:] = self.table[np.searchsorted(self.orbit, at)[:, None], rows]
            return
        at = at.copy()
        while len(going := np.flatnonzero(self.label[at])):
            steps = self.label[at[going]]
            purse.pay(2 * len(going) * rows.shape[1] + 4 * CALL)
            rows[going] = self.undo[steps[:, None], rows[going]]
            at[going] = self.undo[steps, at[going]]

    def spell_out(self, purse: Purse) -> None:
        """Fill the table, each row from the one a step nearer to the base point."""
        purse.pay(4 * len(self.orbit) * len(self.label))
        table = np.empty((len(self.orbit), len(self.label)), dtype=compact(self.undo).dtype)
        table[np.searchsorted(self.orbit, self.point)] = np.arange(len(self.label))
        label = self.label[self.orbit]
        parent = np.searchsorted(self.orbit, self.undo[label, self.orbit])
        done = label == 0
        while len(ready := np.flatnonzero(~done & done[parent])):
            for rows in np.array_split(ready, 1 + ready.size * len(self.label) // CHUNK):
                table[rows] = table[parent[rows, None], self.undo[label[rows]]]
            done[ready] = True
        self.table = table


class StabiliserChain:
    """A growing part of a group: each level moves one base point and fixes those before it."""

    def __init__(self, degree: int, purse: Purse) -> None:
        self.degree, self.purse = degree, purse
        self.levels: list[_Level] = []
        self.generators: list[Permutation] = []

    @property
    def size(self) -> int:
        """How many elements the chain is known to hold: a lower bound of the group's order."""
        return prod(len(level.orbit) for level in self.levels)

    def sift(self, rows: Permutations, start: int = 0) -> tuple[Permutations, NDArray[np.int64]]:
        """What is left of each row when the chain has undone all it can, and the level where that stopped.

        Rows that end as the identity, and so are inside, are left out.
        """
        rows = rows[(rows != np.arange(self.degree)).any(axis=1)]
        depth = np.full(len(rows), len(self.levels))
        active = np.arange(len(rows))
        for number, level in enumerate(self.levels[start:], start):
            if not len(active):
                break
            at = rows[active, level.point]
            self.purse.pay(len(active) + 2 * CALL)
            inside = level.label[at] >= 0
            depth[active[~inside]] = number
            active, at = active[inside], at[inside]
            moving = at != level.point
            if moving.any():
                part = rows[active[moving]]
                level.back(part, at[moving], self.purse)
                rows[active[moving]] = part
        left = (rows != np.arange(self.degree)).any(axis=1)
        return rows[left], depth[left]

    def contains(self, rows: Permutations) -> bool:
        """Whether all are inside: True is a proof; False may mean that the chain is not full."""
        return not len(self.sift(rows)[0])

    def absorb(self, rows: Permutations) -> list[Permutation]:
        """Enlarge the chain until all rows are inside. Returns what was added; with the old elements it generates
        the rows."""
        added = []
        rows, depth = self.sift(rows)
        while len(rows):
            added.append(rows[0])
            self._insert(rows[0], int(depth[0]))
            rows, depth = self.sift(rows[1:])
        return added

    def _insert(self, residue: Permutation, depth: int) -> None:
        if depth == len(self.levels):
            self.levels.append(_Level(int(np.flatnonzero(residue != np.arange(self.degree))[0]), self.degree))
        for level in self.levels[: depth + 1]:  # the residue fixes every base point before this depth
            level.add(residue, self.purse)

    def add(self, generators: Sequence[Permutation]) -> None:
        """Take in the generators of a group, and random elements until they are all inside."""
        rows = np.stack(generators)
        while len(rows := self.sift(rows)[0]):  # few at a time: most are inside by then
            self.generators += self.absorb(rows[:5])
            rows, mixer = rows[5:], Mixer(self.generators, self.purse)
            while self.absorb(mixer.batch()):
                pass

    def complete(self, purse: Purse) -> None:
        """Schreier's lemma to the letter: fill the chain until every loop at a base point is inside the next level."""
        self.purse = purse
        depth, spelt = len(self.levels) - 1, 0
        while depth >= 0:
            level = self.levels[depth]
            if level.table is None and (spelt := spelt + len(level.orbit) * self.degree) <= TABLES:
                level.spell_out(purse)
            for loops in self._loops(depth):
                left, stopped = self.sift(loops, depth + 1)
                if len(left):
                    self._insert(left[0], int(stopped[0]))
                    depth = len(self.levels)
                    break
            depth -= 1

    def _loops(self, depth: int) -> Iterable[Permutations]:
        """Along the tree to each point, over each generator, and back; a loop that is that generator is left out."""
        level = self.levels[depth]
        step = max(1, CHUNK // self.degree)
        for points in (level.orbit[i : i + step] for i in range(0, len(level.orbit), step)):
            back = np.tile(np.arange(self.degree), (len(points), 1))
            level.back(back, points, self.purse)
            reach = np.empty_like(back)
            np.put_along_axis(reach, back, np.arange(self.degree)[None], axis=1)
            for g in level.generators if depth else self.generators:
                self.purse.pay(4 * reach.size)
                loops = g[reach]
                level.back(loops, loops[:, level.point], self.purse)
                yield loops[(loops != g).any(axis=1)]
