"""Characters of commutative groups: the form in which diagonal layers can hold a group machine.

A character is a map chi from a group to the unit circle with chi(g h) = chi(g) chi(h). A commutative group of M
elements has M characters, whose values are M-th roots of unity. Phases are integers here, in units of 1 / M turns.
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
from sdssm.exact.watch import UNWATCHED, Watch

#: Limit on the number of group elements: the table of characters is square.
MOST_ELEMENTS = 4_096


@dataclass(frozen=True, eq=False)
class SymbolGroup:
    """The group that the symbols of a machine generate; element 0 is the identity, the empty string.

    `table[g, v]` is g times symbol v (first g, then v), `permutations[g]` is the permutation of the states of the
    minimal machine by g, and `labels[g]` is the output after any string that performs g.
    """

    table: Ints
    permutations: Ints
    labels: Ints

    @classmethod
    def generate(cls, machine: Machine, watch: Watch = UNWATCHED) -> SymbolGroup:
        """Generate the group of a machine whose symbols permute the states of its minimal form.

        >>> from sdssm.automata import get_machine
        >>> SymbolGroup.generate(get_machine("d4")).table.shape
        (8, 2)
        """
        machine = machine.minimise()
        columns = np.ascontiguousarray(machine.table.T)
        elements = [np.arange(machine.n_states)]
        index = {elements[0].tobytes(): 0}
        rows: list[list[int]] = []
        watch.start("generate the group", unit="elements")
        for element in elements:  # the list grows during the loop
            watch.update(len(rows))
            row = []
            for column in columns:
                product = column[element]
                key = product.tobytes()
                if key not in index:
                    index[key] = len(elements)
                    elements.append(product)
                row.append(index[key])
            rows.append(row)
            if len(elements) > MOST_ELEMENTS:
                raise ExactError(
                    f"the symbols generate a group of more than {MOST_ELEMENTS:,} elements, too many for a table of "
                    "characters; choose a smaller group"
                )
        permutations = np.stack(elements)
        return cls(np.array(rows), permutations, machine.outputs[permutations[:, machine.start]])

    @cached_property
    def _index(self) -> dict[bytes, int]:
        return {row.tobytes(): g for g, row in enumerate(self.permutations)}

    @property
    def size(self) -> int:
        return len(self.table)

    def product(self, g: int, h: int) -> int:
        """Return the element that performs g first, then h."""
        return self._index[self.permutations[h][self.permutations[g]].tobytes()]

    def inverse(self, g: int) -> int:
        return self._index[np.argsort(self.permutations[g]).tobytes()]

    def is_commuting(self, g: int, h: int) -> bool:
        return self.product(g, h) == self.product(h, g)

    def order(self, g: int) -> int:
        return lcm(*cycle_lengths(self.permutations[g]))

    def subgroup(self, generators: list[int]) -> list[int]:
        """Return the elements of the subgroup with these generators, the identity first."""
        elements, seen = [0], {0}
        for g in elements:  # the list grows during the loop
            for h in generators:
                product = self.product(g, h)
                if product not in seen:
                    seen.add(product)
                    elements.append(product)
        return elements

    def commutator_generators(self) -> list[int]:
        """Return generators of the commutator subgroup, the smallest with a commutative quotient."""
        symbols = sorted(set(self.table[0].tolist()))
        queue = [
            self.product(self.inverse(self.product(h, g)), self.product(g, h))
            for g in symbols
            for h in symbols
            if g < h
        ]
        generators, members = list[int](), {0}
        for element in queue:  # the list grows by the conjugates of new elements
            if element not in members:
                generators.append(element)
                members = set(self.subgroup(generators))
                queue += [self.product(self.product(self.inverse(s), element), s) for s in symbols]
        return generators


def character_phases(table: Ints) -> np.ndarray:
    """Return the phases of all characters of a commutative group: (M characters, M elements).

    `table` (M, V) is the product of each element with each symbol.
    The characters of a subgroup H are extended by one symbol g at a time. If g^m is the first power of g in H, each
    character has m extensions: its value at g is one of the m-th roots of its value at g^m.

    >>> character_phases(np.array([[1], [2], [0]])).tolist()
    [[0, 0, 0], [0, 1, 2], [0, 2, 1]]
    """
    size = len(table)
    phases: np.ndarray = np.zeros((1, size), dtype=np.int32)  # int32 because the table is large
    members, is_member = np.array([0]), np.arange(size) == 0
    for column in table.T:
        cosets, successors = [members], column[members]
        while not is_member[successors[0]]:
            cosets.append(successors)
            successors = column[successors]
        m = len(cosets)
        roots = (phases[:, successors[0], None] + size * np.arange(m)) // m  # (characters, m); divisible by m
        extended = np.zeros((len(phases), m, size), dtype=np.int32)
        for power, coset in enumerate(cosets):
            extended[:, :, coset] = (phases[:, None, members] + power * roots[:, :, None]) % size
        phases, members = extended.reshape(-1, size), np.concatenate(cosets)
        is_member[members] = True
    return phases


def select_characters(phases: np.ndarray) -> Ints:
    """Return the characters to keep: one of each conjugate pair, and not the constant character."""
    size = phases.shape[1]
    conjugate = (-phases) % size
    first = (phases != conjugate).argmax(1)[:, None]  # 0 if the character is real
    is_first = np.take_along_axis(phases, first, 1) <= np.take_along_axis(conjugate, first, 1)
    return np.flatnonzero(is_first[:, 0] & phases.any(1))


def roots_of_unity(phases: np.ndarray, size: int) -> np.ndarray:
    """Return exp(2 pi i phase / size) in complex128, exact at quarter turns."""
    z: np.ndarray = np.exp(2j * np.pi * (phases % size) / size)
    z.real[np.abs(z.real) < 1e-12] = 0
    z.imag[np.abs(z.imag) < 1e-12] = 0
    return z


@dataclass(frozen=True, eq=False)
class GroupExtension:
    """A group with a commutative normal subgroup N and a commutative quotient.

    Elements are written as n r(q), with n in N and a representative r(q) of each element q of the quotient. Symbol v
    maps n r(q) to n c(q, v) r(q v): the quotient moves independently of n, and n is multiplied by an element that
    depends only on q and v. If q is known as an input, the group therefore moves like the commutative group of the
    pairs (q, n).
    """

    group: SymbolGroup
    quotient: Ints  #: (Q, V): transition table of the quotient
    coset: Ints  #: (M,): q of each element
    quotient_phases: np.ndarray  #: (K, Q): phases of the characters of the quotient, in units of 1 / Q
    phases: np.ndarray  #: (M, M): phases of the characters of the pairs (q, n), in units of 1 / M
    steps: np.ndarray  #: (M, Q, V): what symbol v adds to these phases at q

    @classmethod
    def split(cls, group: SymbolGroup, watch: Watch = UNWATCHED) -> GroupExtension:
        """Split a group, or raise an error if it has no such normal subgroup.

        N is chosen large, so that the quotient is small.

        >>> from sdssm.automata import get_machine
        >>> GroupExtension.split(SymbolGroup.generate(get_machine("d30"))).quotient.tolist()  # toggled or not
        [[1, 0], [0, 1]]
        """
        watch.start("find a commutative normal subgroup")
        normal = _commutative_normal_subgroup(group, watch)
        number = {g: i for i, g in enumerate(normal)}
        coset, position, representatives = np.full(group.size, -1), np.zeros(group.size, dtype=int), list[int]()
        watch.start("split the group", total=2 * group.size, unit="elements")
        for g in range(group.size):
            watch.update(g)
            if coset[g] < 0:
                members = [group.product(n, g) for n in normal]
                coset[members], position[members] = len(representatives), np.arange(len(normal))
                representatives.append(g)
        quotient, moves = coset[group.table[representatives]], position[group.table[representatives]]  # (Q, V) each
        used = np.unique(moves)
        normal_table = np.zeros((len(normal), len(used)), dtype=np.int64)
        for i, element in enumerate(normal):
            watch.update(group.size * (1 + i / len(normal)))
            normal_table[i] = [number[group.product(element, normal[m])] for m in used]
        quotient_phases, normal_phases = character_phases(quotient), character_phases(normal_table)
        # Every pair of a character of the quotient and a character of N.
        pairs = np.meshgrid(range(len(representatives)), range(len(normal)), indexing="ij")
        q, n = (axis.ravel() for axis in pairs)
        outer, inner = quotient_phases[q] * len(normal), normal_phases[n] * len(representatives)
        return cls(
            group=group,
            quotient=quotient,
            coset=coset,
            quotient_phases=quotient_phases,
            phases=(outer[:, coset] + inner[:, position]) % group.size,
            steps=(outer[:, None, quotient[0]] + inner[:, moves]) % group.size,
        )


def _commutative_normal_subgroup(group: SymbolGroup, watch: Watch) -> list[int]:
    """Return a large commutative subgroup that contains all commutators, and hence is normal."""
    generators = group.commutator_generators()
    if not all(group.is_commuting(g, h) for g in generators for h in generators):
        raise ExactError(
            f"two diagonal layers need a commutative commutator subgroup, but the commutators of this group generate a "
            f"subgroup of {len(group.subgroup(generators)):,} elements that is not commutative; compile it as sd-ssm"
        )
    members = group.subgroup(generators)
    inside = set(members)
    for g in sorted(range(group.size), key=lambda g: (-group.order(g), g)):
        watch.tick()
        if g not in inside and all(group.is_commuting(g, h) for h in generators):
            generators.append(g)
            members = group.subgroup(generators)
            inside = set(members)
    return members
