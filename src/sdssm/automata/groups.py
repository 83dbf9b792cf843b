"""Groups as machines: the state is the group element reached so far, each symbol multiplies by one generator.

Elements are numbered from 0, the identity. Multiplying on the right by a generator is what reading its symbol does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations as arrangements
from math import factorial, lgamma, log

import numpy as np

from sdssm.automata.machine import Machine
from sdssm.automata.refinement import Ints
from sdssm.errors import AutomatonError

#: The most states a named machine may have.
MOST_STATES = 10_000
#: Draws of random generators before giving up.
DRAWS = 1_000


@dataclass(frozen=True)
class Group:
    """A finite group: `multiply(elements, g)` is each of `elements` times element g; `names` are the names of all."""

    name: str
    size: int
    multiply: Callable[[Ints, int], Ints]
    names: tuple[str, ...]

    def machine(self, generators: Sequence[int], symbols: Sequence[str]) -> Machine:
        """The machine with one symbol for each generator.

        >>> cyclic(5).machine([4, 0, 1], ["left", "stay", "right"]).table[0].tolist()
        [4, 0, 1]
        """
        everything = np.arange(self.size)
        table = np.stack([self.multiply(everything, g) for g in generators], axis=1)
        return Machine(table=table, states=self.names, symbols=symbols)

    def random_machine(self, count: int, seed: int) -> Machine:
        """`count` distinct random generators without the identity, drawn anew until they generate the group."""
        asked = f"{self.name}:{count}:{seed}"
        if not 1 <= count < self.size:
            raise AutomatonError(
                f"{asked} asks for {count} generators; {self.name} has {self.size - 1} elements beside the identity"
            )
        rng = np.random.default_rng(seed)
        for _ in range(DRAWS):
            drawn = (rng.choice(self.size - 1, count, replace=False) + 1).tolist()
            if self._generated(drawn) == self.size:
                return self.machine(drawn, [self.names[g] for g in drawn])
        raise AutomatonError(
            f"{asked}: {DRAWS:,} draws of {count} never generated all of {self.name}; ask for more generators"
        )

    def _generated(self, generators: Sequence[int]) -> int:
        """How many elements the generators reach (in a finite group inverses are powers)."""
        seen = np.zeros(self.size, dtype=bool)
        frontier = np.array([0])
        while len(frontier):
            seen[frontier] = True
            ahead = np.unique(np.concatenate([self.multiply(frontier, g) for g in generators]))
            frontier = ahead[~seen[ahead]]
        return int(seen.sum())


def refuse_past_limit(name: str, n_states: int) -> None:
    """Refuse a machine past the limit before anything of its size is built."""
    if n_states > MOST_STATES:
        raise AutomatonError(
            f"{name} would have {n_states:,} states; the most is {MOST_STATES:,}, choose a smaller one"
        )


def _refuse_factorial(name: str, n: int) -> None:
    """Refuse n! states (or half of them) without computing n!."""
    digits = lgamma(n + 1) / log(10)
    if digits > 6:
        raise AutomatonError(
            f"{name} would have about 10^{digits:.0f} states; the most is {MOST_STATES:,}, choose a smaller one"
        )


def cyclic(n: int) -> Group:
    """C_n, counting mod n."""
    refuse_past_limit(f"z{n}", n)
    return Group(f"z{n}", n, lambda x, g: (x + g) % n, tuple(map(str, range(n))))


def toggled_ring(n: int, *, mirrored: bool) -> Group:
    """C_2 x C_n, or with `mirrored` the dihedral group D_n. Element n t + x: toggle t, place x on the ring.

    The element stands for the string "move x times, then toggle t times"; in D_n a toggled ring moves backwards.
    """
    name = f"d{n}" if mirrored else f"c2xc{n}"
    refuse_past_limit(name, 2 * n)

    def multiply(elements: Ints, g: int) -> Ints:
        t, x = np.divmod(elements, n)
        turn = np.where(t == 1, -1, 1) if mirrored else np.ones_like(t)
        product: Ints = n * (t ^ (g // n)) + (x + turn * (g % n)) % n
        return product

    return Group(name, 2 * n, multiply, tuple(f"{t},{x}" for t in (0, 1) for x in range(n)))


def symmetric(n: int) -> Group:
    """S_n, all arrangements of (0, ..., n-1) in lexicographic order."""
    _refuse_factorial(f"s{n}", n)
    refuse_past_limit(f"s{n}", factorial(n))
    return _arrangements(f"s{n}", n, even_only=False)


def alternating(n: int) -> Group:
    """A_n, the even arrangements of (0, ..., n-1) in lexicographic order."""
    _refuse_factorial(f"a{n}", n)
    refuse_past_limit(f"a{n}", factorial(n) // 2)
    return _arrangements(f"a{n}", n, even_only=True)


def _arrangements(name: str, n: int, *, even_only: bool) -> Group:
    """Element g turns the arrangement p into (p[g[0]], ..., p[g[n-1]]): it says which place each one comes from."""
    places = np.array(list(arrangements(range(n))))
    if even_only:
        later = np.triu_indices(n, 1)
        inversions = (places[:, later[0]] > places[:, later[1]]).sum(axis=1)
        places = places[inversions % 2 == 0]
    digits = n ** np.arange(n)[::-1]
    codes = places @ digits  # ascending, because the order is lexicographic
    names = tuple("".join(map(str, p)) for p in places.tolist())
    return Group(name, len(places), lambda p, g: np.searchsorted(codes, places[p][:, places[g]] @ digits), names)
