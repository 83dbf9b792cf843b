"""The algebra of a transition table: whether it is commutative, a group, solvable, aperiodic.

All properties are those of the transition monoid: the set of maps state -> state of all strings, the empty string
included. Solvable and aperiodic are properties of the groups inside that monoid; `image_sets.py` finds these groups
without listing the monoid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm

import numpy as np

from sdssm.automata.image_sets import ImageSets
from sdssm.automata.permutation_group import PermutationGroup
from sdssm.automata.permutations import Permutation, WorkBudget, compact, cycle_lengths
from sdssm.automata.refinement import Ints, reachable_states

#: The most elements of a monoid, or image sets, that are listed. Beyond it a property is None, "unknown".
MOST_ELEMENTS = 20_000
#: The most array entries moved (plus a constant for each array), so that large tables take seconds as well.
MOST_WORK = 300_000_000
#: The most bytes of the maps that are listed.
MOST_BYTES = 200_000_000
#: The most bits of a size that is returned: Python does not print integers of more than 4,300 digits.
MOST_BITS = 13_000


@dataclass(frozen=True, eq=False)
class Algebra:
    """The algebra of a minimal transition table.

    All states of the table (states x symbols) are reachable and pairwise distinguishable.

    >>> parity = Algebra(np.array([[0, 1], [1, 0]]))
    >>> parity.is_commutative, parity.is_group, parity.is_solvable, parity.is_aperiodic, parity.monoid_size
    (True, True, True, False, 2)
    """

    table: Ints

    @cached_property
    def maps(self) -> Ints:
        """The distinct maps of the symbols except the identity (maps x states), in order of first appearance."""
        maps: Ints = self.table.T[self._map_symbols]
        return maps

    @cached_property
    def _map_symbols(self) -> list[int]:
        """The first symbol of each of the maps."""
        columns = np.ascontiguousarray(self.table.T)
        first = {column.tobytes(): symbol for symbol, column in reversed(list(enumerate(columns)))}
        first.pop(np.arange(len(self.table), dtype=columns.dtype).tobytes(), None)
        return sorted(first.values())

    @cached_property
    def is_commutative(self) -> bool:
        """Whether the order of the symbols never matters: any two give the same map in either order."""
        return self.non_commuting() is None

    def non_commuting(self) -> tuple[int, int, int] | None:
        """Return a state and two symbols whose order matters there, or None."""
        for i, a in enumerate(self.maps):
            for j, b in enumerate(self.maps[:i]):
                differ = b[a] != a[b]
                if differ.any():
                    return int(differ.argmax()), self._map_symbols[j], self._map_symbols[i]
        return None

    @cached_property
    def is_group(self) -> bool:
        """Whether every symbol permutes the states, so that every string can be undone."""
        return bool((np.sort(self.maps, axis=1) == np.arange(len(self.table))).all())

    @cached_property
    def monoid_size(self) -> int | None:
        """The number of different maps of strings, or None if it is unknown or too large to print."""
        if len(self.maps) < 2:
            return sum(index_and_period(self.maps[0])) if len(self.maps) else 1
        if self.is_commutative and any(reachable_states(self.table, q).all() for q in range(min(8, len(self.table)))):
            return len(self.table)  # the image of q determines the map, as every state is reached from q by some string
        if self.is_group:
            size = self._group.order
            return None if size is None or size.bit_length() > MOST_BITS else size
        return None if self._listing[0] is None else self._listing[1]

    @cached_property
    def is_solvable(self) -> bool | None:
        """Whether every group inside the monoid is solvable; None if unknown."""
        if self.is_commutative:
            return True
        if self.is_group:
            return self._group.is_solvable
        if self._groups is None:
            return None
        budget, all_solvable = WorkBudget(), True
        for generators in sorted(self._groups.values(), key=lambda generators: len(generators[0])):
            is_solvable = PermutationGroup(generators, budget).is_solvable
            if is_solvable is False:
                return False
            all_solvable = all_solvable and is_solvable is True
        return all_solvable or None

    @cached_property
    def is_aperiodic(self) -> bool | None:
        """Whether every group inside the monoid is trivial; None if unknown."""
        if any(map(is_periodic, self.maps)):
            return False
        if len(self.maps) < 2:
            return True
        return None if self._groups is None else not self._groups

    @cached_property
    def group_orders(self) -> tuple[int, ...] | None:
        """The distinct orders of the non-trivial maximal groups inside the monoid; None if unknown."""
        if self.is_aperiodic:
            return ()
        if len(self.maps) < 2:
            return (index_and_period(self.maps[0])[1],)
        if self.is_group:
            return None if self.monoid_size is None else (self.monoid_size,)
        elements, groups = self._listing[0], self._groups
        if elements is None or groups is None:
            return None
        # The maximal group of an idempotent is the group on its image.
        images = {image.tobytes(): image for image in map(np.unique, filter(_is_idempotent, elements))}
        budget = WorkBudget()
        components = {self._image_sets.component_of(image) for image in images.values()} & groups.keys()
        orders = {PermutationGroup(groups[component], budget).order for component in components}
        return None if None in orders else tuple(sorted(order for order in orders if order is not None))

    @cached_property
    def unknown(self) -> str:
        """The text shown for a property that is None.

        It includes a lower bound of the size of the monoid if that size is unknown.
        """
        if self.monoid_size is not None:
            return "unknown"
        powers = max(sum(index_and_period(m)) for m in self.maps[:8])  # the number of different powers of one map
        at_least = max(powers, self._group.order_at_least if self.is_group else self._listing[1])
        return f"unknown (monoid > {min(at_least - 1, MOST_ELEMENTS):,})"

    @cached_property
    def _group(self) -> PermutationGroup:
        return PermutationGroup(self.maps)

    @cached_property
    def _listing(self) -> tuple[list[Ints] | None, int]:
        """All maps of strings, the identity first, or None beyond the limits; and the number of maps seen."""
        states = len(self.table)
        maps = compact(self.maps)
        keys = [np.arange(states, dtype=maps.dtype).tobytes()]
        seen = set(keys)
        for done, key in enumerate(keys, 1):  # `keys` grows in the loop
            element = np.frombuffer(key, dtype=maps.dtype).astype(np.int64)  # indices of another type are slow
            for row in maps.take(element, axis=1):
                product = row.tobytes()
                if product not in seen:
                    seen.add(product)
                    keys.append(product)
            if (
                len(keys) > MOST_ELEMENTS
                or done * len(maps) * (states + 1_000) > MOST_WORK
                or len(keys) * len(key) > MOST_BYTES
            ):
                return None, len(keys)
        return [np.frombuffer(key, dtype=maps.dtype) for key in keys], len(keys)

    @cached_property
    def _image_sets(self) -> ImageSets:
        """The image sets of the transition monoid.

        There are at most as many as elements: if the monoid can be listed, they are complete.
        """
        return ImageSets(self.maps, len(self.table), most_sets=MOST_ELEMENTS, most_work=MOST_WORK)

    @cached_property
    def _groups(self) -> dict[int, list[Permutation]] | None:
        return self._image_sets.groups() if self._image_sets.complete else None


def is_periodic(m: Ints) -> bool:
    """Whether the powers of a map end in a cycle of more than one map: it moves a state on a cycle."""
    power = m
    for _ in range(len(m).bit_length()):
        power = power[power]
    return bool((m[power] != power).any())


def index_and_period(m: Ints) -> tuple[int, int]:
    """Return the smallest i >= 0 and p > 0 with m^(i + p) = m^i.

    The map has i + p different powers, m^0 included.

    >>> index_and_period(np.array([1, 2, 3, 2]))
    (2, 2)
    """
    image, arrivals, height = m.tolist(), np.bincount(m, minlength=len(m)).tolist(), [0] * len(m)
    tails = [q for q, count in enumerate(arrivals) if not count]
    for q in tails:  # `tails` grows by the states that are reached from tails only
        height[image[q]] = max(height[image[q]], height[q] + 1)
        arrivals[image[q]] -= 1
        if not arrivals[image[q]]:
            tails.append(image[q])
    cyclic = np.setdiff1d(np.arange(len(m)), tails)
    return max(height), lcm(*cycle_lengths(np.searchsorted(cyclic, m[cyclic])))


def _is_idempotent(element: Ints) -> bool:
    return bool((element[element] == element).all())
