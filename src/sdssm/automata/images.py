"""The groups inside a transition monoid, found through image sets, without listing the monoid.

Strings send the set of all states to smaller and smaller image sets. On an image set I, the strings that return I to
itself act as a group of permutations. If an idempotent e of the monoid has the image I, this group is the largest group
around e. If none has, the group is still a quotient of a group inside the monoid, because the strings that return I to
itself form a submonoid that maps onto it, and so does the group in that submonoid's smallest ideal. Hence all groups
inside the monoid are solvable (or trivial) exactly when all the groups found here are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.chains import Permutation, Purse, TooLargeError, compact, is_identity
from sdssm.automata.refinement import Ints

#: Array entries of generators that are kept at most, eight bytes each.
KEPT = 10_000_000


class Images:
    """The image sets of all strings, numbered, and where each symbol sends them; `finished` unless past the cap.

    `maps` (maps x states) are the maps of the symbols.
    """

    def __init__(self, maps: Ints, states: int, *, cap: int, work: int) -> None:
        self.maps, self.states = compact(maps), states
        places = maps + np.arange(len(maps))[:, None] * states
        self.number = {_key(np.ones(states, dtype=bool)): 0}
        self.keys = list(self.number)
        self.arrows: list[list[int]] = []
        self.finished = True
        for key in self.keys:  # which grows
            image = self._states(key)
            ahead = np.zeros(len(maps) * states, dtype=bool)
            ahead[places.take(image, axis=1)] = True
            packed = np.packbits(ahead.reshape(-1, states), axis=1)
            self.arrows.append([self._number(row.tobytes()) for row in packed])
            work -= len(maps) * (states + 1_000)
            if len(self.keys) > cap or work < 0:
                self.finished = False
                break

    def __len__(self) -> int:
        return len(self.keys)

    def _states(self, key: bytes) -> Ints:
        return np.flatnonzero(np.unpackbits(np.frombuffer(key, dtype=np.uint8), count=self.states).view(bool))

    def _number(self, key: bytes) -> int:
        if key not in self.number:
            self.number[key] = len(self.keys)
            self.keys.append(key)
        return self.number[key]

    def groups(self) -> dict[int, list[Permutation]] | None:
        """Strong component -> generators of the group on one of its image sets, trivial groups left out.

        The permutations act on the places 0..|I|-1 of the image set I in order. None past the budget (of `Purse`).
        """
        self.component = strong_components(self.arrows)
        purse, kept = Purse(), 0
        out: dict[int, list[Permutation]] = {}
        try:
            for component, root in {c: i for i, c in enumerate(self.component)}.items():
                group = self._loops(root, purse)
                kept += sum(map(len, group))
                if kept > KEPT:
                    return None
                if group:
                    out[component] = group
        except TooLargeError:
            return None
        return out

    def component_of(self, image: Ints) -> int:
        """The strong component of an image set, given by its states."""
        members = np.zeros(self.states, dtype=bool)
        members[image] = True
        return self.component[self.number[_key(members)]]

    def _loops(self, root: int, purse: Purse) -> list[Permutation]:
        """Schreier generators of the group on an image set: along a tree to J, over an arrow to K, and back from K.

        `reach[J]` holds the places of J in the order in which the places of the root arrive there.
        """
        start = self._states(self.keys[root])
        if len(start) == 1:
            return []
        reach, waiting = {root: start.astype(self.maps.dtype)}, [root]
        found: dict[bytes, Permutation] = {}
        place = np.zeros(self.states, dtype=np.int64)
        for here in waiting:  # which grows
            for m, there in zip(self.maps, self.arrows[here], strict=True):
                if self.component[there] != self.component[root]:
                    continue
                purse.pay(4 * len(start))
                arrived = m[reach[here]]
                if there not in reach:
                    reach[there] = arrived
                    waiting.append(there)
                    if len(reach) * len(start) > 10 * KEPT:
                        raise TooLargeError
                    continue
                place[reach[there]] = np.arange(len(start))
                loop = place[arrived]
                if not is_identity(loop):
                    found[loop.tobytes()] = loop
                    if len(found) * len(start) > KEPT:
                        raise TooLargeError
        return list(found.values())


def _key(members: NDArray[np.bool_]) -> bytes:
    return np.packbits(members).tobytes()


def strong_components(arrows: list[list[int]]) -> list[int]:
    """The strong component of each node (Tarjan, without recursion)."""
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
            node, ahead = path[-1]
            for there in ahead:
                if number[there] == -1:
                    low[there] = number[there] = count
                    count += 1
                    stack.append(there)
                    path.append((there, iter(arrows[there])))
                    break
                if component[there] == -1:
                    low[node] = min(low[node], number[there])
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
