"""The groups inside a transition monoid, computed from image sets, without listing the monoid.

Strings map the set of all states to image sets, which get smaller. The strings that map an image set I onto itself act
on it as a group of permutations. If an idempotent e of the monoid has the image I, this group is the maximal group that
contains e. If no idempotent has it, the group is still a quotient of a group inside the monoid: the strings that map I
onto itself form a submonoid that maps onto the group, and so does the group in the minimal ideal of that submonoid.
Hence all groups inside the monoid are solvable (or trivial) exactly if all groups computed here are.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.permutations import BudgetExceededError, Permutation, WorkBudget, compact, is_identity
from sdssm.automata.refinement import Ints

#: The most array entries of generators in memory, of eight bytes each.
MOST_ENTRIES = 10_000_000


class ImageSets:
    """The image sets of all strings, numbered, and the image set that each symbol maps them to.

    Args:
        maps: the maps of the symbols (maps x states).
        states: the number of states.
        most_sets, most_work: limits; `complete` is False if they were exceeded.
    """

    def __init__(self, maps: Ints, states: int, *, most_sets: int, most_work: int) -> None:
        self.maps, self.states = compact(maps), states
        flat_maps = maps + np.arange(len(maps))[:, None] * states
        self.number = {_key(np.ones(states, dtype=bool)): 0}
        self.keys = list(self.number)
        self.arrows: list[list[int]] = []
        self.complete = True
        work = 0
        for key in self.keys:  # `keys` grows in the loop
            image = self._states(key)
            members = np.zeros(len(maps) * states, dtype=bool)
            members[flat_maps.take(image, axis=1)] = True
            packed = np.packbits(members.reshape(-1, states), axis=1)
            self.arrows.append([self._number(row.tobytes()) for row in packed])
            work += len(maps) * (states + 1_000)
            if len(self.keys) > most_sets or work > most_work:
                self.complete = False
                break

    def _states(self, key: bytes) -> Ints:
        return np.flatnonzero(np.unpackbits(np.frombuffer(key, dtype=np.uint8), count=self.states).view(bool))

    def _number(self, key: bytes) -> int:
        if key not in self.number:
            self.number[key] = len(self.keys)
            self.keys.append(key)
        return self.number[key]

    @cached_property
    def component(self) -> list[int]:
        """The strong component of each image set; all of them must be known."""
        return strong_components(self.arrows)

    def groups(self) -> dict[int, list[Permutation]] | None:
        """Return generators of the non-trivial groups, one for each strong component of image sets.

        The keys are components. The permutations act on the states of the image set, numbered in ascending order. The
        result is None if the computation exceeds its budget.
        """
        budget, entries = WorkBudget(), 0
        groups: dict[int, list[Permutation]] = {}
        try:
            for component, root in {c: i for i, c in enumerate(self.component)}.items():
                generators = self._schreier_generators(root, budget)
                entries += sum(map(len, generators))
                if entries > MOST_ENTRIES:
                    return None
                if generators:
                    groups[component] = generators
        except BudgetExceededError:
            return None
        return groups

    def component_of(self, image: Ints) -> int:
        """Return the strong component of an image set, given by its states."""
        members = np.zeros(self.states, dtype=bool)
        members[image] = True
        return self.component[self.number[_key(members)]]

    def _schreier_generators(self, root: int, budget: WorkBudget) -> list[Permutation]:
        """Return the Schreier generators of the group on an image set.

        A generator goes along a tree to an image set J, by an arrow to K, and back.

        `reach[J]` holds the states of J in the order in which the states of the root arrive there.
        """
        start = self._states(self.keys[root])
        if len(start) == 1:
            return []
        reach, pending = {root: start.astype(self.maps.dtype)}, [root]
        generators: dict[bytes, Permutation] = {}
        position = np.zeros(self.states, dtype=np.int64)
        for source in pending:  # `pending` grows in the loop
            for m, target in zip(self.maps, self.arrows[source], strict=True):
                if self.component[target] != self.component[root]:
                    continue
                budget.spend(4 * len(start))
                arrived = m[reach[source]]
                if target not in reach:
                    reach[target] = arrived
                    pending.append(target)
                    if len(reach) * len(start) > 10 * MOST_ENTRIES:
                        raise BudgetExceededError
                    continue
                position[reach[target]] = np.arange(len(start))
                generator = position[arrived]
                if not is_identity(generator):
                    generators[generator.tobytes()] = generator
                    if len(generators) * len(start) > MOST_ENTRIES:
                        raise BudgetExceededError
        return list(generators.values())


def _key(members: NDArray[np.bool_]) -> bytes:
    return np.packbits(members).tobytes()


def strong_components(arrows: list[list[int]]) -> list[int]:
    """Return the strong component of each node, by Tarjan's algorithm without recursion."""
    component = [-1] * len(arrows)
    low, number, count = [0] * len(arrows), [-1] * len(arrows), 0
    stack: list[int] = []
    for root in range(len(arrows)):
        if number[root] != -1:
            continue
        path = [(root, iter(arrows[root]))]
        low[root] = number[root] = count
        count += 1
        stack.append(root)
        while path:
            node, targets = path[-1]
            for target in targets:
                if number[target] == -1:
                    low[target] = number[target] = count
                    count += 1
                    stack.append(target)
                    path.append((target, iter(arrows[target])))
                    break
                if component[target] == -1:
                    low[node] = min(low[node], number[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    while True:
                        member = stack.pop()
                        component[member] = node
                        if member == node:
                            break
    return component
