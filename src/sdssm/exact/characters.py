"""Group machines in numbers that diagonal layers can hold: the characters of commutative groups.

A character is a map chi of a group into the unit circle with chi(g h) = chi(g) chi(h). A commutative group of M
elements has M of them, whose values are M-th roots of unity: phases are whole numbers here, in units of 1 / M turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm

import numpy as np

from sdssm.automata import Machine
from sdssm.automata.permutations import cycle_lengths
from sdssm.automata.refinement import Ints
from sdssm.exact.errors import ExactError

#: The most elements of a group: its characters are a square table.
MOST_ELEMENTS = 4_096


@dataclass(frozen=True, eq=False)
class Cayley:
    """The group that the symbols of a machine generate; element 0 is the identity, the empty string.

    `table[g, v]` is g times symbol v (first g, then v), `permutations[g]` what g does to the states of the minimal
    machine, `labels[g]` the output after any string that performs g.
    """

    table: Ints
    permutations: Ints
    labels: Ints

    @classmethod
    def of(cls, machine: Machine) -> Cayley:
        """The group of a machine, each of whose symbols permutes the states of the minimal one.

        >>> from sdssm.automata import named
        >>> Cayley.of(named("d4")).table.shape
        (8, 2)
        """
        machine = machine.minimise()
        columns = np.ascontiguousarray(machine.table.T)
        found = [np.arange(machine.n_states)]
        index = {found[0].tobytes(): 0}
        rows = []
        for element in found:  # which grows
            row = []
            for column in columns:
                ahead = column[element]
                key = ahead.tobytes()
                if key not in index:
                    index[key] = len(found)
                    found.append(ahead)
                row.append(index[key])
            rows.append(row)
            if len(found) > MOST_ELEMENTS:
                raise ExactError(
                    f"the symbols generate a group of more than {MOST_ELEMENTS:,} elements, too many for a table of "
                    "characters; choose a smaller group"
                )
        permutations = np.stack(found)
        return cls(np.array(rows), permutations, machine.outputs[permutations[:, machine.start]])

    @cached_property
    def _index(self) -> dict[bytes, int]:
        return {row.tobytes(): g for g, row in enumerate(self.permutations)}

    @property
    def size(self) -> int:
        return len(self.table)

    def product(self, g: int, h: int) -> int:
        """First g, then h."""
        return self._index[self.permutations[h][self.permutations[g]].tobytes()]

    def inverse(self, g: int) -> int:
        return self._index[np.argsort(self.permutations[g]).tobytes()]

    def commute(self, g: int, h: int) -> bool:
        return self.product(g, h) == self.product(h, g)

    def order(self, g: int) -> int:
        return lcm(*cycle_lengths(self.permutations[g]))

    def generated(self, generators: list[int]) -> list[int]:
        """The elements of the subgroup that these generate, the identity first."""
        found, seen = [0], {0}
        for g in found:  # which grows
            for h in generators:
                ahead = self.product(g, h)
                if ahead not in seen:
                    seen.add(ahead)
                    found.append(ahead)
        return found

    def commutators(self) -> list[int]:
        """Generators of the commutator subgroup, the least N with a commutative quotient."""
        symbols = sorted(set(self.table[0].tolist()))
        queue = [
            self.product(self.inverse(self.product(h, g)), self.product(g, h))
            for g in symbols
            for h in symbols
            if g < h
        ]
        kept, inside = list[int](), {0}
        for element in queue:  # which grows, by what the symbols make of what is new
            if element not in inside:
                kept.append(element)
                inside = set(self.generated(kept))
                queue += [self.product(self.product(self.inverse(s), element), s) for s in symbols]
        return kept


def characters(table: Ints) -> np.ndarray:
    """The phases of all characters of a commutative group: table (M, V) -> (M characters, M elements).

    From a subgroup H with its characters to the one that one more symbol g generates with it: if g^m is the first
    power in H, each character goes on in m ways, with one of the m-th roots of its value at g^m as its value at g.

    >>> characters(np.array([[1], [2], [0]])).tolist()
    [[0, 0, 0], [0, 1, 2], [0, 2, 1]]
    """
    size = len(table)
    phases: np.ndarray = np.zeros((1, size), dtype=np.int32)  # the table is large
    members, inside = np.array([0]), np.arange(size) == 0
    for column in table.T:
        cosets, ahead = [members], column[members]
        while not inside[ahead[0]]:
            cosets.append(ahead)
            ahead = column[ahead]
        m = len(cosets)
        roots = (phases[:, ahead[0], None] + size * np.arange(m)) // m  # (characters, m), and nothing is left over
        longer = np.zeros((len(phases), m, size), dtype=np.int32)
        for power, coset in enumerate(cosets):
            longer[:, :, coset] = (phases[:, None, members] + power * roots[:, :, None]) % size
        phases, members = longer.reshape(-1, size), np.concatenate(cosets)
        inside[members] = True
    return phases


def halved(phases: np.ndarray) -> Ints:
    """Which characters to keep: not the constant one, and one of each two that are conjugate to each other."""
    size = phases.shape[1]
    other = (-phases) % size
    first = (phases != other).argmax(1)[:, None]  # 0 where all are real
    ahead = np.take_along_axis(phases, first, 1) <= np.take_along_axis(other, first, 1)
    return np.flatnonzero(ahead[:, 0] & phases.any(1))


def circle(phases: np.ndarray, size: int) -> np.ndarray:
    """exp(2 pi i phase / size) in complex128, exact at quarter turns."""
    z: np.ndarray = np.exp(2j * np.pi * (phases % size) / size)
    z.real[np.abs(z.real) < 1e-12] = 0
    z.imag[np.abs(z.imag) < 1e-12] = 0
    return z


@dataclass(frozen=True, eq=False)
class Split:
    """A group as n r(q): an element n of a commutative normal subgroup N, a representative of a commutative quotient.

    After symbol v, n r(q) becomes n c(q, v) r(q v): the quotient moves on its own, and N by what q and v say. So the
    group moves as one with the elements (q, n) and commutative products would, if q were an input.
    """

    cayley: Cayley
    quotient: Ints  #: (Q, V): the quotient's own table
    coset: Ints  #: (M,): q of each element
    of_quotient: np.ndarray  #: (K, Q): phases of the quotient's characters, in units of 1 / Q
    phases: np.ndarray  #: (M, M): phases of the characters of the pairs (q, n), in units of 1 / M
    steps: np.ndarray  #: (M, Q, V): what symbol v adds to them at q

    @classmethod
    def of(cls, group: Cayley) -> Split:
        """With a large N, that the quotient be small; an error where there is no such N.

        >>> from sdssm.automata import named
        >>> Split.of(Cayley.of(named("d30"))).quotient.tolist()  # whether toggled
        [[1, 0], [0, 1]]
        """
        normal = _commutative_normal(group)
        number = {g: i for i, g in enumerate(normal)}
        coset, position, firsts = np.full(group.size, -1), np.zeros(group.size, dtype=int), list[int]()
        for g in range(group.size):
            if coset[g] < 0:
                members = [group.product(n, g) for n in normal]
                coset[members], position[members] = len(firsts), np.arange(len(normal))
                firsts.append(g)
        quotient, moves = coset[group.table[firsts]], position[group.table[firsts]]  # each (Q, V)
        used = np.unique(moves)
        inner = np.array([[number[group.product(n, normal[m])] for m in used] for n in normal])
        of_quotient, of_normal = characters(quotient), characters(inner)
        # Every pair of a character of the quotient and one of N.
        q, n = (a.ravel() for a in np.meshgrid(range(len(firsts)), range(len(normal)), indexing="ij"))
        outer, inside = of_quotient[q] * len(normal), of_normal[n] * len(firsts)
        return cls(
            cayley=group,
            quotient=quotient,
            coset=coset,
            of_quotient=of_quotient,
            phases=(outer[:, coset] + inside[:, position]) % group.size,
            steps=(outer[:, None, quotient[0]] + inside[:, moves]) % group.size,
        )


def _commutative_normal(group: Cayley) -> list[int]:
    """A large commutative subgroup that holds all commutators: every subgroup that does is normal."""
    kept = group.commutators()
    if not all(group.commute(g, h) for g in kept for h in kept):
        raise ExactError(
            f"two diagonal layers were asked for, but the commutators of this group generate a subgroup of "
            f"{len(group.generated(kept)):,} elements that is not commutative itself; compile it as sd-ssm"
        )
    members = group.generated(kept)
    inside = set(members)
    for g in sorted(range(group.size), key=lambda g: (-group.order(g), g)):
        if g not in inside and all(group.commute(g, h) for h in kept):
            kept.append(g)
            members = group.generated(kept)
            inside = set(members)
    return members
