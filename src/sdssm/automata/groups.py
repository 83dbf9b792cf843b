"""Groups as machines: the state is the product of the generators read so far.

Elements are numbered from 0, the identity. Reading a symbol multiplies by its generator on the right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import factorial, lgamma, log

import numpy as np

from sdssm.automata.machine import Machine
from sdssm.automata.refinement import Ints
from sdssm.errors import AutomatonError
from sdssm.limits import MOST_STATES_BUILT

#: The most elements of a group of which every element is a symbol.
MOST_ELEMENTS = 1_000
#: Draws of random generators before giving up.
DRAWS = 1_000


@dataclass(frozen=True)
class FiniteGroup:
    """A finite group with numbered elements.

    `multiply(elements, g)` returns the product of each of `elements` with element g, and `names` are the names of all
    elements.
    """

    name: str
    size: int
    multiply: Callable[[Ints, int], Ints]
    names: tuple[str, ...]

    def machine(self, generators: Sequence[int], symbols: Sequence[str]) -> Machine:
        """Return the machine with one symbol for each generator.

        >>> cyclic(5).machine([4, 0, 1], ["left", "stay", "right"]).table[0].tolist()
        [4, 0, 1]
        """
        elements = np.arange(self.size)
        table = np.stack([self.multiply(elements, g) for g in generators], axis=1)
        return Machine(table=table, states=self.names, symbols=symbols)

    def full_machine(self) -> Machine:
        """Return the machine in which every element is a symbol, the identity first: the word problem of the group.

        >>> cyclic(3).full_machine().table.tolist()
        [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
        """
        if self.size > MOST_ELEMENTS:
            raise AutomatonError(
                f"{self.name}:all would have {self.size:,} symbols; the most is {MOST_ELEMENTS:,}, choose a smaller "
                f"group, or random generators as in {self.name}:8:0"
            )
        return self.machine(range(self.size), self.names)

    def random_machine(self, count: int, seed: int) -> Machine:
        """Return the machine of `count` distinct random generators, redrawn until they generate the group."""
        name = f"{self.name}:{count}:{seed}"
        if not 1 <= count < self.size:
            raise AutomatonError(
                f"{name} needs {count} generators, but {self.name} has {self.size - 1} elements other than the identity"
                "; use fewer"
            )
        rng = np.random.default_rng(seed)
        for _ in range(DRAWS):
            drawn = (rng.choice(self.size - 1, count, replace=False) + 1).tolist()
            if self._generated_size(drawn) == self.size:
                return self.machine(drawn, [self.names[g] for g in drawn])
        raise AutomatonError(
            f"{name}: {DRAWS:,} draws of {count} elements never generated all of {self.name}; use more generators"
        )

    def _generated_size(self, generators: Sequence[int]) -> int:
        """Return the size of the generated subgroup (in a finite group inverses are powers)."""
        seen = np.zeros(self.size, dtype=bool)
        frontier = np.array([0])
        while len(frontier):
            seen[frontier] = True
            products = np.unique(np.concatenate([self.multiply(frontier, g) for g in generators]))
            frontier = products[~seen[products]]
        return int(seen.sum())


def check_n_states(name: str, n_states: int) -> None:
    """Raise an error if a machine would be too large, before anything of its size is built."""
    if n_states > MOST_STATES_BUILT:
        raise AutomatonError(
            f"{name} would have {n_states:,} states; the most is {MOST_STATES_BUILT:,}, choose a smaller one"
        )


def _check_factorial(name: str, n: int) -> None:
    """Raise an error if n! states (or half of them) are too many, without computing n!."""
    digits = lgamma(n + 1) / log(10)
    if digits > 6:
        raise AutomatonError(
            f"{name} would have about 10^{digits:.0f} states; the most is {MOST_STATES_BUILT:,}, choose a smaller one"
        )


def cyclic(n: int) -> FiniteGroup:
    """Return C_n: counting mod n."""
    check_n_states(f"z{n}", n)
    return FiniteGroup(f"z{n}", n, lambda x, g: (x + g) % n, tuple(map(str, range(n))))


def toggled_ring(n: int, *, mirrored: bool) -> FiniteGroup:
    """Return C_2 x C_n, or with `mirrored` the dihedral group D_n.

    Element n t + x is the string "move x times, then toggle t times": toggle t, position x on the ring. In D_n a
    toggled ring moves backwards.
    """
    name = f"d{n}" if mirrored else f"c2xc{n}"
    check_n_states(name, 2 * n)

    def multiply(elements: Ints, g: int) -> Ints:
        t, x = np.divmod(elements, n)
        sign = np.where(t == 1, -1, 1) if mirrored else np.ones_like(t)
        product: Ints = n * (t ^ (g // n)) + (x + sign * (g % n)) % n
        return product

    return FiniteGroup(name, 2 * n, multiply, tuple(f"{t},{x}" for t in (0, 1) for x in range(n)))


def symmetric(n: int) -> FiniteGroup:
    """Return S_n: all permutations of (0, ..., n-1) in lexicographic order."""
    _check_factorial(f"s{n}", n)
    check_n_states(f"s{n}", factorial(n))
    return _permutation_group(f"s{n}", n, even_only=False)


def alternating(n: int) -> FiniteGroup:
    """Return A_n: the even permutations of (0, ..., n-1) in lexicographic order."""
    _check_factorial(f"a{n}", n)
    check_n_states(f"a{n}", factorial(n) // 2)
    return _permutation_group(f"a{n}", n, even_only=True)


def _permutation_group(name: str, n: int, *, even_only: bool) -> FiniteGroup:
    """Return the group in which g turns the sequence p into (p[g[0]], ..., p[g[n-1]])."""
    elements = np.array(list(permutations(range(n))))
    if even_only:
        pairs = np.triu_indices(n, 1)
        inversions = (elements[:, pairs[0]] > elements[:, pairs[1]]).sum(axis=1)
        elements = elements[inversions % 2 == 0]
    digits = n ** np.arange(n)[::-1]
    codes = elements @ digits  # ascending, because the order is lexicographic
    names = tuple("".join(map(str, p)) for p in elements.tolist())
    return FiniteGroup(
        name, len(elements), lambda p, g: np.searchsorted(codes, elements[p][:, elements[g]] @ digits), names
    )
