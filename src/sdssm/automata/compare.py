"""Where two machines differ, and whether one is the other with its states renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sdssm.automata.refinement import Ints, reachable
from sdssm.errors import AutomatonError

if TYPE_CHECKING:
    from sdssm.automata.machine import Machine


def same_alphabet(one: Machine, other: Machine) -> None:
    if one.n_symbols != other.n_symbols:
        raise AutomatonError(
            f"the machines read {one.n_symbols} and {other.n_symbols} symbols; both need the same alphabet"
        )
    if one.symbols and other.symbols and one.symbols != other.symbols:
        mine, theirs = next((a, b) for a, b in zip(one.symbols, other.symbols, strict=True) if a != b)
        raise AutomatonError(f"the machines name a symbol {mine!r} and {theirs!r}; both need the same alphabet")


def distinguish(one: Machine, other: Machine, valid: Machine | None) -> tuple[int, ...] | None:
    """Breadth first over the triples (state of one, of the other, of valid), a layer of strings at a time."""
    machines = [one, other] if valid is None else [one, other, valid]
    for machine in machines[1:]:
        same_alphabet(one, machine)
    shape = tuple(machine.n_states for machine in machines)
    frontier = np.ravel_multi_index([np.array([machine.start]) for machine in machines], shape)
    seen = frontier
    layers: list[tuple[Ints, Ints]] = []  # for each new triple: the place it came from in the layer before, the symbol
    while len(frontier):
        parts = np.unravel_index(frontier, shape)
        ahead = [machine.table[part] for machine, part in zip(machines, parts, strict=True)]  # each (frontier, V)
        wrong = one.outputs[ahead[0]] != other.outputs[ahead[1]]
        if valid is not None:
            wrong &= valid.outputs[ahead[2]] != 0
        if wrong.any():
            place, symbol = divmod(int(np.flatnonzero(wrong.ravel())[0]), one.n_symbols)
            return _spell(layers, place, symbol)
        reached, first = np.unique(np.ravel_multi_index(ahead, shape).ravel(), return_index=True)
        new = ~np.isin(reached, seen, assume_unique=True)
        order = np.argsort(first[new])  # keeps the frontier in the order of its strings
        frontier, first = reached[new][order], first[new][order]
        layers.append((first // one.n_symbols, first % one.n_symbols))
        seen = np.union1d(seen, frontier)
    return None


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
