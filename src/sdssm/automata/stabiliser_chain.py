"""Stabiliser chains (Schreier and Sims): the order of a permutation group, and which elements it has.

Everything in a chain is an element of the group, so "g is contained" is a proof. "g is not contained" may also mean
that the chain is incomplete: it is filled with random elements, and certainly complete only after `complete`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.permutations import (
    CALL_COST,
    Permutation,
    Permutations,
    RandomElements,
    WorkBudget,
    compact,
    inverse,
)

#: A chain counts as full once this many random elements in a row are contained.
TRIALS = 20
#: Array entries processed at once.
CHUNK = 1_000_000
#: The most array entries, of two bytes, in the tables that replace the trees of a chain.
MOST_TABLE_ENTRIES = 50_000_000


class _Level:
    """One base point, generators that fix the base points before it, and the Schreier tree of its orbit.

    `label[q]` is -1 outside the orbit. `undo[label[q]]` moves q one step towards the base point, whose label is 0.
    """

    def __init__(self, point: int, degree: int) -> None:
        self.point = point
        self.generators: list[Permutation] = []
        self.extra: list[Permutation] = []  # random products of the generators, to keep the tree shallow
        self.undo: Permutations = np.arange(degree)[None]
        self.label = np.full(degree, -1)
        self.label[point] = 0
        self.orbit = np.array([point])
        self.table: Permutations | None = None  # row k moves the k-th point of the orbit to the base point

    def add(self, g: Permutation, budget: WorkBudget) -> None:
        """Add a generator, and extend the orbit if needed."""
        self.generators.append(g)
        budget.spend(len(self.orbit))
        if (self.label[g[self.orbit]] < 0).any():
            self.table = None
            while not self._grow(budget):
                elements = RandomElements(self.generators + self.extra, budget)
                self.extra += [elements.draw() for _ in range(3)]

    def _grow(self, budget: WorkBudget) -> bool:
        """Build the tree of the orbit, breadth first.

        Returns False if the tree would be deep and more elements may help.
        """
        moves = np.stack(self.generators + self.extra)
        label = np.full(moves.shape[1], -1)
        label[self.point] = 0
        frontier, depth = np.array([self.point]), 0
        while len(frontier):
            budget.spend(4 * len(moves) * len(frontier) + 2 * CALL_COST)
            images = moves[:, frontier]
            source, column = np.nonzero(label[images] < 0)
            label[images[source, column]] = source + 1  # if several moves reach a point, the last one is kept
            frontier, depth = np.unique(images[source, column]), depth + 1
            if depth > 6 + 2 * log2(len(label)) and len(self.extra) < 12:
                return False
        self.orbit = np.flatnonzero(label >= 0)
        used, self.label[self.orbit] = np.unique(label[self.orbit], return_inverse=True)
        budget.spend(2 * len(used) * len(label))
        self.undo = np.stack([np.arange(len(label)), *(inverse(moves[k - 1]) for k in used[1:])])
        return True

    def move_to_base(self, rows: Permutations, points: NDArray[np.int64], budget: WorkBudget) -> None:
        """Multiply each row in place by the tree element that moves its point to the base point."""
        if self.table is not None:
            budget.spend(2 * rows.size)
            rows[:] = self.table[np.searchsorted(self.orbit, points)[:, None], rows]
            return
        points = points.copy()
        while len(moving := np.flatnonzero(self.label[points])):
            steps = self.label[points[moving]]
            budget.spend(2 * len(moving) * rows.shape[1] + 4 * CALL_COST)
            rows[moving] = self.undo[steps[:, None], rows[moving]]
            points[moving] = self.undo[steps, points[moving]]

    def tabulate(self, budget: WorkBudget) -> None:
        """Fill the table, each row from the row of the point one step nearer to the base point."""
        budget.spend(4 * len(self.orbit) * len(self.label))
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
    """A subset of a group that can be extended, as a chain of levels.

    Each level moves one base point and fixes the base points before it.
    """

    def __init__(self, degree: int, budget: WorkBudget) -> None:
        self.degree, self.budget = degree, budget
        self.levels: list[_Level] = []
        self.generators: list[Permutation] = []

    @property
    def size(self) -> int:
        """The number of elements contained: a lower bound of the order of the group."""
        return prod(len(level.orbit) for level in self.levels)

    def sift(self, rows: Permutations, start: int = 0) -> tuple[Permutations, NDArray[np.int64]]:
        """Return the residue of each row that is not contained, and the level at which sifting stopped.

        The residue is what remains of a row after the chain has undone as much as it can. A contained row has the
        identity as its residue, and is omitted.
        """
        rows = rows[(rows != np.arange(self.degree)).any(axis=1)]
        depth = np.full(len(rows), len(self.levels))
        active = np.arange(len(rows))
        for number, level in enumerate(self.levels[start:], start):
            if not len(active):
                break
            images = rows[active, level.point]
            self.budget.spend(len(active) + 2 * CALL_COST)
            in_orbit = level.label[images] >= 0
            depth[active[~in_orbit]] = number
            active, images = active[in_orbit], images[in_orbit]
            moving = images != level.point
            if moving.any():
                part = rows[active[moving]]
                level.move_to_base(part, images[moving], self.budget)
                rows[active[moving]] = part
        not_contained = (rows != np.arange(self.degree)).any(axis=1)
        return rows[not_contained], depth[not_contained]

    def contains(self, rows: Permutations) -> bool:
        """Whether all rows are contained. True is a proof; False may also mean that the chain is incomplete."""
        return not len(self.sift(rows)[0])

    def absorb(self, rows: Permutations) -> list[Permutation]:
        """Extend the chain until all rows are contained, and return the elements that were added for it."""
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
            level.add(residue, self.budget)

    def add(self, generators: Sequence[Permutation]) -> None:
        """Add generators of a group, and random elements until none of them extends the chain."""
        rows = np.stack(generators)
        while len(rows := self.sift(rows)[0]):  # a few at a time: most of the others are then contained
            self.generators += self.absorb(rows[:5])
            rows, elements = rows[5:], RandomElements(self.generators, self.budget)
            while self.absorb(np.stack([elements.draw() for _ in range(TRIALS)])):
                pass

    def complete(self, budget: WorkBudget) -> None:
        """Extend the chain until it is proved to be the whole group.

        By Schreier's lemma it is, once every Schreier generator of a level is contained in the next levels.
        """
        self.budget = budget
        depth, entries = len(self.levels) - 1, 0
        while depth >= 0:
            level = self.levels[depth]
            if level.table is None and (entries := entries + len(level.orbit) * self.degree) <= MOST_TABLE_ENTRIES:
                level.tabulate(budget)
            for generators in self._schreier_generators(depth):
                residues, stopped = self.sift(generators, depth + 1)
                if len(residues):
                    self._insert(residues[0], int(stopped[0]))
                    depth = len(self.levels)
                    break
            depth -= 1

    def _schreier_generators(self, depth: int) -> Iterator[Permutations]:
        """Yield the Schreier generators of a level: along the tree to a point, by one generator, and back.

        A product that equals that generator is omitted.
        """
        level = self.levels[depth]
        step = max(1, CHUNK // self.degree)
        for points in (level.orbit[i : i + step] for i in range(0, len(level.orbit), step)):
            back = np.tile(np.arange(self.degree), (len(points), 1))
            level.move_to_base(back, points, self.budget)
            forth = np.empty_like(back)
            np.put_along_axis(forth, back, np.arange(self.degree)[None], axis=1)
            for g in level.generators if depth else self.generators:
                self.budget.spend(4 * forth.size)
                products = g[forth]
                level.move_to_base(products, products[:, level.point], self.budget)
                yield products[(products != g).any(axis=1)]
