"""What kind of algebra a transition table is: commutative, a group, solvable, aperiodic.

All of it is about the transition monoid: the maps state -> state that the strings perform, the empty string included.

Solvable and aperiodic speak of the groups inside that monoid; `images.py` finds them without listing it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sdssm.automata import permutations
from sdssm.automata.images import image_groups
from sdssm.automata.refinement import Ints

#: Elements of a monoid, or image sets, past which a question is answered by None, "unknown".
CAP = 20_000
#: A bound on array entries moved (and a share for each array), so that large tables cost seconds too.
WORK = 300_000_000


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
        columns = self.table.T
        _, first = np.unique(columns, axis=0, return_index=True)
        distinct = columns[np.sort(first)]
        moving: Ints = distinct[(distinct != np.arange(len(self.table))).any(axis=1)]
        return moving

    @cached_property
    def is_commutative(self) -> bool:
        """The order of the symbols never matters: every two of them do the same in either order."""
        return all((b[a] == a[b]).all() for i, a in enumerate(self.maps) for b in self.maps[:i])

    def non_commuting(self) -> tuple[int, int, int] | None:
        """A state and two symbols whose order matters there, or None."""
        columns = self.table.T
        for i, a in enumerate(columns):
            for j in range(i):
                differ = np.flatnonzero(columns[j][a] != a[columns[j]])
                if len(differ):
                    return int(differ[0]), j, i
        return None

    @cached_property
    def is_group(self) -> bool:
        """Every symbol permutes the states, so that every string can be undone."""
        return bool((np.sort(self.maps, axis=1) == np.arange(len(self.table))).all())

    @cached_property
    def monoid_size(self) -> int | None:
        """How many different maps the strings perform, or None past the cap."""
        if self.is_group:
            return permutations.order(list(self.maps)) if len(self.maps) else 1
        return None if self._listing[0] is None else self._listing[1]

    @cached_property
    def is_solvable(self) -> bool | None:
        """Every group inside the monoid is solvable; None past the cap."""
        if self.is_group and self.is_commutative:
            return True
        return self._every_group(permutations.is_solvable)

    @cached_property
    def is_aperiodic(self) -> bool | None:
        """Every group inside the monoid is trivial; None past the cap."""
        return self._every_group(lambda generators: False)

    @cached_property
    def group_orders(self) -> tuple[int, ...] | None:
        """The orders of the non-trivial maximal groups inside the monoid, each once; None past the cap."""
        if self.is_group:
            return None if self.monoid_size is None else ((self.monoid_size,) if self.monoid_size > 1 else ())
        elements = self._listing[0]
        if elements is None:
            return None
        idempotent = (np.take_along_axis(elements, elements, axis=1) == elements).all(axis=1)
        images = {tuple(np.unique(e)) for e in elements[idempotent]}
        orders = set()
        for image in images:  # the group of an idempotent e: what strings do to its image, where they permute it
            restricted = elements[:, image]
            permuting = (np.sort(restricted, axis=1) == np.array(image)).all(axis=1)
            orders.add(len(np.unique(restricted[permuting], axis=0)))
        return tuple(sorted(orders - {1}))

    @property
    def unknown(self) -> str:
        """How a property that is None is shown, with a size that the monoid is known to exceed."""
        floor = permutations.order_floor(list(self.maps)) if self.is_group else self._listing[1]
        return f"unknown (monoid > {min(floor - 1, CAP):,})"

    @cached_property
    def _listing(self) -> tuple[Ints | None, int]:
        """All maps of strings (elements x states), the identity first, or None past the cap; and how many were met."""
        states = len(self.table)
        seen = {np.arange(states).tobytes()}
        layers = [np.arange(states)[None]]
        while len(layers[-1]) and len(self.maps):
            fresh = []
            for row in (m[element] for element in layers[-1] for m in self.maps):
                key = row.tobytes()
                if key not in seen:
                    seen.add(key)
                    fresh.append(row)
                    if len(seen) > CAP or len(seen) * len(self.maps) * (states + 1_000) > WORK:
                        return None, len(seen)
            layers.append(np.array(fresh, dtype=np.int64).reshape(-1, states))
        return np.concatenate(layers), len(seen)

    def _every_group(self, holds: Callable[[list[Ints]], bool | None]) -> bool | None:
        """Whether `holds` for each non-trivial group inside the monoid; None where that stays open."""
        if self._groups is None:
            return None
        verdicts = [holds(generators) for generators in self._groups]
        if False in verdicts:
            return False
        return None if None in verdicts else True

    @cached_property
    def _groups(self) -> list[list[Ints]] | None:
        return image_groups(self.maps, len(self.table), cap=CAP, work=WORK)
