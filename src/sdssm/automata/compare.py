"""Where two machines differ, and whether one is the other with its states renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Ints, coarsest_congruence, reachable
from sdssm.errors import AutomatonError

if TYPE_CHECKING:
    from sdssm.automata.machine import Machine

#: The most pairs or triples of states for which a flag each is kept (bytes).
MOST_FLAGS = 1 << 28


def same_alphabet(one: Machine, other: Machine) -> None:
    if one.n_symbols != other.n_symbols:
        raise AutomatonError(
            f"the machines read {one.n_symbols} and {other.n_symbols} symbols; both need the same alphabet"
        )
    if one.symbols and other.symbols and one.symbols != other.symbols:
        mine, theirs = next((a, b) for a, b in zip(one.symbols, other.symbols, strict=True) if a != b)
        raise AutomatonError(f"the machines name a symbol {mine!r} and {theirs!r}; both need the same alphabet")


def distinguish(one: Machine, other: Machine, valid: Machine | None) -> tuple[int, ...] | None:
    """Partition refinement finds which states differ at all; a search among pairs that do finds the shortest string."""
    same_alphabet(one, other)
    sides = [(machine.table, machine.start, machine.outputs) for machine in (one.minimise(), other.minimise())]
    if valid is not None:
        same_alphabet(one, valid)
        sides = [_heard(*side, valid.minimise()) for side in sides]
    (table, start, outputs), (table_2, start_2, outputs_2) = sides
    both = np.concatenate([table, table_2 + len(table)])
    classes = coarsest_congruence(both, np.concatenate([outputs, outputs_2]))
    _, first = np.unique(classes, return_index=True)
    quotient, heard = classes[both[first]], np.concatenate([outputs, outputs_2])[first]
    return _search(quotient, heard, int(classes[start]), int(classes[start_2 + len(table)]))


def pair_table(table: Ints, other: Ints) -> Ints:
    """Both tables (states x symbols) on the same string: row p Q' + q holds the pairs that follow (p, q)."""
    pairs: Ints = table[:, None, :] * len(other) + other[None, :, :]
    return pairs.reshape(len(table) * len(other), -1)


def _heard(table: Ints, start: int, outputs: Ints, valid: Machine) -> tuple[Ints, int, Ints]:
    """The pair with `valid`: one more than the output after a valid string, and 0 after any other."""
    ok = valid.outputs[None, :] != 0
    heard = np.where(ok, outputs[:, None] + 1, 0).ravel()
    return pair_table(table, valid.table), start * valid.n_states + valid.start, heard


def _search(table: Ints, outputs: Ints, one: int, other: int) -> tuple[int, ...] | None:
    """The first shortest non-empty string after which the outputs from two states differ, no two states being alike.

    Breadth first over pairs of states, a layer of strings at a time; a pair of twice the same state leads nowhere.
    """
    states, symbols = table.shape
    seen = _Seen(states**2)
    frontier = np.array([one * states + other])[[one != other]]
    layers: list[tuple[Ints, Ints]] = []  # for each new pair: the place it came from in the layer before, the symbol
    while len(frontier):
        p, q = table[frontier // states], table[frontier % states]  # each (frontier, V)
        wrong = np.flatnonzero(outputs[p] != outputs[q])
        if len(wrong):
            return _spell(layers, *divmod(int(wrong[0]), symbols))
        reached, first = np.unique((p * states + q).ravel(), return_index=True)
        new = seen.add(reached) & (reached // states != reached % states)
        order = np.argsort(first[new])  # keeps the frontier in the order of its strings
        frontier, first = reached[new][order], first[new][order]
        layers.append((first // symbols, first % symbols))
    return None


class _Seen:
    """Which numbers below `size` were met: one bit each, or a set where that many bits are too many."""

    def __init__(self, size: int) -> None:
        self.flags = np.zeros(size, dtype=bool) if size <= MOST_FLAGS else None
        self.met: set[int] = set()

    def add(self, numbers: Ints) -> NDArray[np.bool_]:
        """Which of `numbers` (each once) are new; from now on none of them is."""
        if self.flags is not None:
            new = ~self.flags[numbers]
            self.flags[numbers] = True
            return new
        new = np.array([number not in self.met for number in numbers.tolist()], dtype=bool)
        self.met.update(numbers.tolist())
        return new


def _spell(layers: list[tuple[Ints, Ints]], place: int, symbol: int) -> tuple[int, ...]:
    """The string that ends at `place` of the last layer, and then `symbol`."""
    word = [symbol]
    for parent, label in reversed(layers):
        word.append(int(label[place]))
        place = int(parent[place])
    return tuple(reversed(word))


def isomorphism(one: Machine, other: Machine, *, outputs: bool) -> tuple[int, ...] | None:
    """The only candidate is found by walking both machines together from their start states."""
    for machine in (one, other):
        if not reachable(machine.table, machine.start).all():
            raise AutomatonError("an isomorphism is sought among reachable states; call reachable() on both first")
    if one.table.shape != other.table.shape:
        return None
    partner = np.full(one.n_states, -1)
    partner[one.start] = other.start
    frontier = np.array([one.start])
    while len(frontier):
        mine, theirs = one.table[frontier].ravel(), other.table[partner[frontier]].ravel()
        new = partner[mine] == -1
        partner[mine[new]] = theirs[new]
        frontier = np.unique(mine[new])
    matches = (
        len(np.unique(partner)) == one.n_states
        and (partner[one.table] == other.table[partner]).all()
        and (not outputs or (one.outputs == other.outputs[partner]).all())
    )
    return tuple(partner.tolist()) if matches else None
