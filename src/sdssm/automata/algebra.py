"""What kind of algebra a transition table is: commutative, a group, solvable, aperiodic.

All of it is about the transition monoid: the maps state -> state that the strings perform, the empty string included.

Solvable and aperiodic speak of the groups inside that monoid; `images.py` finds them without listing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm

import numpy as np

from sdssm.automata.chains import Permutation, Purse, compact, cycle_lengths
from sdssm.automata.images import Images
from sdssm.automata.permutations import PermutationGroup
from sdssm.automata.refinement import Ints, reachable

#: Elements of a monoid, or image sets, past which a question is answered by None, "unknown".
CAP = 20_000
#: A bound on array entries moved (and a share for each array), so that large tables cost seconds too.
WORK = 300_000_000
#: A bound on the bytes of the maps that are listed.
MEMORY = 200_000_000
#: Python writes no integer of more than 4,300 digits; a size past this many bits is not given.
BITS = 13_000


@dataclass(frozen=True, eq=False)
class Algebra:
    """The algebra of a table whose states are all reachable and pairwise distinguishable (states x symbols).

    >>> parity = Algebra(np.array([[0, 1], [1, 0]]))
    >>> parity.is_commutative, parity.is_group, parity.is_solvable, parity.is_aperiodic, parity.monoid_size
    (True, True, True, False, 2)
    """

    table: Ints

    @cached_property
    def maps(self) -> Ints:
        """The distinct maps of the symbols (maps x states), in order of first appearance, the identity left out."""
        moving: Ints = self.table.T[self._movers]
        return moving

    @cached_property
    def _movers(self) -> list[int]:
        """The first symbol of each of the maps."""
        columns = np.ascontiguousarray(self.table.T)
        first = {column.tobytes(): symbol for symbol, column in reversed(list(enumerate(columns)))}
        first.pop(np.arange(len(self.table), dtype=columns.dtype).tobytes(), None)
        return sorted(first.values())

    @cached_property
    def is_commutative(self) -> bool:
        """The order of the symbols never matters: every two of them do the same in either order."""
        return self.non_commuting() is None

    def non_commuting(self) -> tuple[int, int, int] | None:
        """A state and two symbols whose order matters there, or None."""
        for i, a in enumerate(self.maps):
            for j, b in enumerate(self.maps[:i]):
                differ = b[a] != a[b]
                if differ.any():
                    return int(differ.argmax()), self._movers[j], self._movers[i]
        return None

    @cached_property
    def is_group(self) -> bool:
        """Every symbol permutes the states, so that every string can be undone."""
        return bool((np.sort(self.maps, axis=1) == np.arange(len(self.table))).all())

    @cached_property
    def monoid_size(self) -> int | None:
        """How many different maps the strings perform, or None where that is not known or too long to write."""
        if len(self.maps) < 2:
            return sum(index_and_period(self.maps[0])) if len(self.maps) else 1
        if self.is_commutative and any(reachable(self.table, q).all() for q in range(min(8, len(self.table)))):
            return len(self.table)  # where q goes decides where all states go, as every state is q after some string
        if self.is_group:
            size = self._group.order
            return None if size is None or size.bit_length() > BITS else size
        return None if self._listing[0] is None else self._listing[1]

    @cached_property
    def is_solvable(self) -> bool | None:
        """Every group inside the monoid is solvable; None where that is not known."""
        if self.is_commutative:
            return True
        if self.is_group:
            return self._group.is_solvable
        if self._groups is None:
            return None
        purse, verdict = Purse(), True
        for generators in sorted(self._groups.values(), key=lambda generators: len(generators[0])):
            found = PermutationGroup(generators, purse).is_solvable
            if found is False:
                return False
            verdict = verdict and found is True
        return verdict or None

    @cached_property
    def is_aperiodic(self) -> bool | None:
        """Every group inside the monoid is trivial; None where that is not known."""
        if any(map(is_periodic, self.maps)):
            return False
        if len(self.maps) < 2:
            return True
        return None if self._groups is None else not self._groups

    @cached_property
    def group_orders(self) -> tuple[int, ...] | None:
        """The orders of the non-trivial maximal groups inside the monoid, each once; None where they are not known."""
        if self.is_aperiodic:
            return ()
        if len(self.maps) < 2:
            return (index_and_period(self.maps[0])[1],)
        if self.is_group:
            return None if self.monoid_size is None else (self.monoid_size,)
        elements, groups = self._listing[0], self._groups
        if elements is None or groups is None:
            return None
        # The group of an idempotent is the one on its image.
        images = {image.tobytes(): image for image in map(np.unique, filter(_is_idempotent, elements))}
        purse = Purse()
        wanted = {self._images.component_of(image) for image in images.values()} & groups.keys()
        orders = {PermutationGroup(groups[component], purse).order for component in wanted}
        return None if None in orders else tuple(sorted(order for order in orders if order is not None))

    @cached_property
    def unknown(self) -> str:
        """How a property that is None is shown: with a size that the monoid exceeds, unless its own is known."""
        if self.monoid_size is not None:
            return "unknown"
        powers = max(sum(index_and_period(m)) for m in self.maps[:8])  # the different powers of one map
        floor = max(powers, self._group.floor if self.is_group else self._listing[1])
        return f"unknown (monoid > {min(floor - 1, CAP):,})"

    @cached_property
    def _group(self) -> PermutationGroup:
        return PermutationGroup(self.maps)

    @cached_property
    def _listing(self) -> tuple[list[Ints] | None, int]:
        """All maps of strings, the identity first, or None past the bounds; and how many were met."""
        states = len(self.table)
        maps = compact(self.maps)
        keys = [np.arange(states, dtype=maps.dtype).tobytes()]
        seen = set(keys)
        for done, key in enumerate(keys, 1):  # which grow
            element = np.frombuffer(key, dtype=maps.dtype).astype(np.int64)  # indices of another type are slow
            for row in maps.take(element, axis=1):
                ahead = row.tobytes()
                if ahead not in seen:
                    seen.add(ahead)
                    keys.append(ahead)
            if len(keys) > CAP or done * len(maps) * (states + 1_000) > WORK or len(keys) * len(key) > MEMORY:
                return None, len(keys)
        return [np.frombuffer(key, dtype=maps.dtype) for key in keys], len(keys)

    @cached_property
    def _images(self) -> Images:
        """There are no more image sets than elements, and the bounds are the same: if the listing ends, this does."""
        return Images(self.maps, len(self.table), cap=CAP, work=WORK)

    @cached_property
    def _groups(self) -> dict[int, list[Permutation]] | None:
        return self._images.groups() if self._images.finished else None


def is_periodic(m: Ints) -> bool:
    """Whether the powers of a map end in a cycle of more than one: some state on a cycle is moved."""
    power = m
    for _ in range(len(m).bit_length()):
        power = power[power]
    return bool((m[power] != power).any())


def index_and_period(m: Ints) -> tuple[int, int]:
    """The least i >= 0 and p > 0 with m^(i + p) = m^i: the map has i + p different powers, m^0 among them.

    >>> index_and_period(np.array([1, 2, 3, 2]))
    (2, 2)
    """
    ahead, arrivals, height = m.tolist(), np.bincount(m, minlength=len(m)).tolist(), [0] * len(m)
    tails = [q for q, count in enumerate(arrivals) if not count]
    for q in tails:  # which grows, by the states that only tails lead to
        height[ahead[q]] = max(height[ahead[q]], height[q] + 1)
        arrivals[ahead[q]] -= 1
        if not arrivals[ahead[q]]:
            tails.append(ahead[q])
    cyclic = np.setdiff1d(np.arange(len(m)), tails)
    return max(height), lcm(*cycle_lengths(np.searchsorted(cyclic, m[cyclic])))


def _is_idempotent(element: Ints) -> bool:
    return bool((element[element] == element).all())
