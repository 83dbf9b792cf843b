"""Groups of permutations by their generators: order and solvability, without listing the elements.

Three roads lead to an answer, the cheap ones first. A regular group (one element for each point) is read off orbits of
one point. A group that holds all even permutations is known by one long prime cycle (Jordan). Any other gets a
stabiliser chain. Chance only ever decides how soon an answer comes, or that none does: an order is given only for a
chain that is complete by Schreier's lemma, and the verdicts on solvability are a derived series that ends in the
identity, or a subgroup all of whose generators lie inside the group of its own commutators, or a group with more
elements than a solvable one can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from math import factorial, lcm, log

import numpy as np

from sdssm.automata.chains import (
    BUDGET,
    CALL,
    CHUNK,
    Mixer,
    Permutation,
    Permutations,
    Purse,
    StabiliserChain,
    TooLargeError,
    commutator,
    conjugate,
    cycle_lengths,
    is_even,
    is_identity,
    orbit,
)


class PermutationGroup:
    """The group that some permutations of the same points (at least one) generate; what is found out is kept.

    >>> group = PermutationGroup([np.array([1, 0, 2, 3, 4]), np.array([1, 2, 3, 4, 0])])
    >>> group.order, group.is_solvable
    (120, False)
    """

    def __init__(self, generators: Sequence[Permutation] | Permutations, purse: Purse | None = None) -> None:
        """With a purse, all questions together spend no more than what is in it; else each step has the full budget."""
        moved = (np.asarray(generators) != np.arange(len(generators[0]))).any(axis=0)
        place = np.cumsum(moved) - 1  # points that nothing moves are left out
        distinct = {g.tobytes(): place[g[moved]] for g in generators if not is_identity(g)}
        self.generators = list(distinct.values())
        self.degree = int(moved.sum())
        self._shared = purse

    def _purse(self) -> Purse:
        return self._shared or Purse()

    @cached_property
    def order(self) -> int | None:
        """The number of elements, or None where the budget does not suffice to prove it."""
        if len(self.generators) < 2:
            return lcm(*(length for g in self.generators for length in cycle_lengths(g)))
        try:
            if self._few is not None:
                return self.degree
            if self._all_even:
                return self._most
            chain, full = self._chain
            if not full:
                return None
            chain.complete(self._shared or Purse(2 * BUDGET))
            return chain.size
        except TooLargeError:
            return None

    @cached_property
    def floor(self) -> int:
        """A number that the order is at least."""
        return self.order or self._chain[0].size

    @cached_property
    def is_solvable(self) -> bool | None:
        """Whether the derived series ends in the identity; None where the budget does not suffice to prove either."""
        if self.degree < 5 or len(self.generators) < 2:  # the symmetric group of four points is solvable
            return True
        try:
            if self._few is not None:
                return _regular_solvable(self._few)
            if self._alternating_orbit or _too_many(self._chain[0]):
                return False
            chain, full = self._chain
            current, purse = chain.generators if full else self.generators, self._purse()
            while current:
                derived = _derived(current, purse)
                if _too_many(derived) or derived.contains(np.stack(current)):
                    return False
                current = derived.generators
        except TooLargeError:
            return None
        return True

    @cached_property
    def _few(self) -> list[Permutation] | None:
        """Generators of the group, few of them, if it is regular."""
        self._purse().pay(2 * self.degree * len(self.generators))
        return regular_generators(self.generators)

    @cached_property
    def _most(self) -> int:
        """How many permutations there are, or how many even ones where all generators are even."""
        return factorial(self.degree) // (1 + all(is_even(g) for g in self.generators))

    @cached_property
    def _all_even(self) -> bool:
        """Whether every even permutation is known to be in the group."""
        return bool(orbit(self.generators, 0).all()) and _long_prime_cycle(self.generators, self._purse())

    @cached_property
    def _alternating_orbit(self) -> bool:
        """Whether on some orbit, of eight points or more, the group is known to act by all even permutations."""
        left, purse = np.ones(self.degree, dtype=bool), self._purse()
        try:
            while left.any():
                purse.pay(2 * self.degree * len(self.generators))
                here = orbit(self.generators, int(left.argmax()))
                left &= ~here
                if here.all():
                    return self._all_even
                place = np.cumsum(here) - 1
                if _long_prime_cycle([place[g[here]] for g in self.generators], purse):
                    return True
        except TooLargeError:
            pass
        return False

    @cached_property
    def _chain(self) -> tuple[StabiliserChain, bool]:
        """The chain of the group, and whether the budget sufficed to fill it (what it holds is true either way)."""
        out = StabiliserChain(self.degree, self._purse())
        try:
            out.add(self.generators)
        except TooLargeError:
            return out, False
        return out, True


def regular_generators(generators: Sequence[Permutation]) -> list[Permutation] | None:
    """Some of the generators that generate the whole group, if it is regular; None if it is not.

    Take generators until 0 goes everywhere. A regular group has no smaller group that does this, so those taken must
    generate it, and they do if for each of them, g, some permutation that commutes with all generators sends 0 to g[0]:
    such partners then send 0 everywhere too, and a permutation that commutes with them and fixes one point fixes all.
    """
    few = [generators[0]]
    seen = orbit(few, 0)
    for g in generators:
        if not seen[g[seen]].all():
            few.append(g)
            seen = orbit(few, 0)
    if not seen.all():
        return None
    moves = np.stack(few)
    layers = _layers(moves)
    for g in few:
        partner = np.empty_like(g)
        partner[0] = g[0]
        for points, source, label in layers:
            partner[points] = moves[label, partner[source]]
        if any((partner[m] != m[partner]).any() for m in generators):
            return None
    return few


def _layers(moves: Permutations) -> list[tuple[Permutation, Permutation, Permutation]]:
    """Breadth-first layers from point 0: points, where from, by which generator."""
    seen = np.zeros(moves.shape[1], dtype=bool)
    seen[0] = True
    frontier, layers = np.array([0]), []
    while len(frontier):
        points, first = np.unique(moves[:, frontier].ravel(), return_index=True)
        new = ~seen[points]
        points, first = points[new], first[new]
        layers.append((points, frontier[first % len(frontier)], first // len(frontier)))
        seen[points] = True
        frontier = points
    return layers


def _regular_solvable(generators: list[Permutation]) -> bool:
    """Whether a regular group is solvable. Where 0 goes names the element: a subgroup is as large as the orbit of 0."""
    inside = np.ones(len(generators[0]), dtype=bool)
    while inside.sum() > 1:
        size = inside.sum()
        inside = np.arange(len(inside)) == 0
        derived: list[Permutation] = []
        waiting = [commutator(p, q) for p, q in combinations(generators, 2)]
        while waiting:
            c = waiting.pop()
            if not inside[c[0]]:
                derived.append(c)
                inside = orbit(derived, 0)
                waiting += [conjugate(c, g) for g in generators]
        if inside.sum() == size:
            return False
        generators = derived
    return True


def _long_prime_cycle(generators: Sequence[Permutation], purse: Purse) -> bool:
    """Whether some random element of a transitive group of n points has a cycle of prime length p, n/2 < p < n - 2.

    Then all even permutations are inside. A power of the element is one p-cycle, since the other cycles are shorter
    than p. A block that the cycle moves has p images, too many for blocks of two points; if it moves none, one block
    holds more than half of the points: so the group is primitive, and Jordan's theorem applies.
    """
    points = len(generators[0])
    primes = {p for p in range(points // 2 + 1, points - 2) if all(p % k for k in range(2, int(p**0.5) + 1))}
    if not primes:
        return False
    mixer = Mixer(generators, purse)
    for _ in range(60):
        purse.pay(20 * points)
        if not primes.isdisjoint(cycle_lengths(mixer.random())):
            return True
    return False


def _too_many(group: StabiliserChain) -> bool:
    """A solvable group of n points has at most 24^((n - 1) / 3) elements (Dixon, 1967); does this one have more?"""
    return 3 * sum(log(len(level.orbit)) for level in group.levels) > (group.degree - 1) * log(24) + 1e-6


def _derived(generators: list[Permutation], purse: Purse) -> StabiliserChain:
    """The group of all commutators: the normal closure of the generators' own.

    Random conjugates fill the chain; then each generator's conjugates are seen to be inside, which is the proof.
    """
    out = StabiliserChain(len(generators[0]), purse)
    pairs = list(combinations(generators, 2))
    step = max(1, CHUNK // out.degree)
    for i in range(0, len(pairs), step):
        purse.pay(6 * len(pairs[i : i + step]) * (out.degree + CALL))
        out.generators += out.absorb(np.stack([commutator(p, q) for p, q in pairs[i : i + step]]))
    checked = 0
    while checked < len(out.generators):
        outer = Mixer(generators, purse)
        while True:
            inner = Mixer(out.generators, purse)
            added = out.absorb(np.stack([conjugate(inner.random(), outer.random()) for _ in range(20)]))
            if not added:
                break
            out.generators += added
        fresh, checked = out.generators[checked:], len(out.generators)
        for g in generators:
            purse.pay(4 * len(fresh) * (out.degree + CALL))
            out.generators += out.absorb(np.stack([conjugate(c, g) for c in fresh]))
    return out
