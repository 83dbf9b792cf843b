"""Compare machines: a string that distinguishes them, or the isomorphism between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Ints, coarsest_congruence, reachable_states
from sdssm.errors import AutomatonError

if TYPE_CHECKING:
    from sdssm.automata.machine import Machine

#: The most bytes of an array with a flag for each pair of states.
MOST_FLAGS = 1 << 28


def align_symbols(machine: Machine, other: Machine) -> Machine:
    """Return the other machine with its symbols in the order of the first; raise an error if they have different ones.

    Symbols are matched by name. If one of the machines has no names, and its numbers are not the names of the other,
    they are matched by number.
    """
    if machine.n_symbols != other.n_symbols:
        raise AutomatonError(
            f"the machines read {machine.n_symbols} and {other.n_symbols} symbols; both need the same alphabet"
        )
    if set(machine.symbol_names) == set(other.symbol_names):
        return _reorder_symbols(machine, other)
    if machine.symbols and other.symbols:
        first = next(name for name in machine.symbols if name not in other.symbols)
        second = next(name for name in other.symbols if name not in machine.symbols)
        raise AutomatonError(
            f"only the first machine has a symbol {first!r}, only the second {second!r}; both need the same alphabet"
        )
    return other


def _reorder_symbols(machine: Machine, other: Machine) -> Machine:
    """Return the other machine with its symbols in the order of the first, which has the same names."""
    if machine.symbol_names == other.symbol_names:
        return other
    column = {name: a for a, name in enumerate(other.symbol_names)}
    order = [column[name] for name in machine.symbol_names]
    return type(other)(
        table=other.table[:, order],
        start=other.start,
        outputs=other.outputs,
        states=other.states,
        symbols=machine.symbols,
    )


def distinguish(machine: Machine, other: Machine, valid: Machine | None) -> tuple[int, ...] | None:
    """Return the first shortest non-empty string on which the outputs differ, or None.

    Partition refinement finds which states differ at all; a search over pairs of them finds the shortest string.
    """
    other = align_symbols(machine, other)
    automata = [(m.table, m.start, m.outputs) for m in (machine.minimise(), other.minimise())]
    if valid is not None:
        minimal_valid = align_symbols(machine, valid).minimise()
        automata = [_hide_invalid_outputs(*automaton, minimal_valid) for automaton in automata]
    (table, start, outputs), (table_2, start_2, outputs_2) = automata
    union = np.concatenate([table, table_2 + len(table)])
    union_outputs = np.concatenate([outputs, outputs_2])
    classes = coarsest_congruence(union, union_outputs)
    _, first = np.unique(classes, return_index=True)
    quotient = classes[union[first]]
    return _search(quotient, union_outputs[first], int(classes[start]), int(classes[start_2 + len(table)]))


def product_table(table: Ints, other: Ints) -> Ints:
    """Return the transition table of pairs of states of two tables (states x symbols).

    Row p Q' + q holds the next pairs of (p, q).
    """
    pairs: Ints = table[:, None, :] * len(other) + other[None, :, :]
    return pairs.reshape(len(table) * len(other), -1)


def _hide_invalid_outputs(table: Ints, start: int, outputs: Ints, valid: Machine) -> tuple[Ints, int, Ints]:
    """Return the product with `valid`: its output is 0 after an invalid string, else the output plus 1."""
    is_valid = valid.outputs[None, :] != 0
    product_outputs = np.where(is_valid, outputs[:, None] + 1, 0).ravel()
    return product_table(table, valid.table), start * valid.n_states + valid.start, product_outputs


def _search(table: Ints, outputs: Ints, state: int, other: int) -> tuple[int, ...] | None:
    """Return the first shortest non-empty string that distinguishes two states of a minimal table.

    The search is breadth-first over pairs of states. A pair of equal states is not continued.
    """
    states, symbols = table.shape
    seen = _SeenNumbers(states**2)
    frontier = np.array([state * states + other])[[state != other]]
    # For each new pair: the index of its predecessor in the layer before, and the symbol.
    layers: list[tuple[Ints, Ints]] = []
    while len(frontier):
        p, q = table[frontier // states], table[frontier % states]  # each (frontier, V)
        different = np.flatnonzero(outputs[p] != outputs[q])
        if len(different):
            return _trace_back(layers, *divmod(int(different[0]), symbols))
        reached, first = np.unique((p * states + q).ravel(), return_index=True)
        new = seen.add(reached) & (reached // states != reached % states)
        order = np.argsort(first[new])  # the frontier stays in the order of its strings
        frontier, first = reached[new][order], first[new][order]
        layers.append((first // symbols, first % symbols))
    return None


class _SeenNumbers:
    """A set of numbers below `size`: an array of flags, or a Python set if that array would be too large."""

    def __init__(self, size: int) -> None:
        self.flags = np.zeros(size, dtype=bool) if size <= MOST_FLAGS else None
        self.members: set[int] = set()

    def add(self, numbers: Ints) -> NDArray[np.bool_]:
        """Add distinct numbers, and return which of them are new."""
        if self.flags is not None:
            new = ~self.flags[numbers]
            self.flags[numbers] = True
            return new
        new = np.array([number not in self.members for number in numbers.tolist()], dtype=bool)
        self.members.update(numbers.tolist())
        return new


def _trace_back(layers: list[tuple[Ints, Ints]], index: int, symbol: int) -> tuple[int, ...]:
    """Return the string that leads to the pair at `index` of the last layer, followed by `symbol`."""
    word = [symbol]
    for parent, label in reversed(layers):
        word.append(int(label[index]))
        index = int(parent[index])
    return tuple(reversed(word))


def isomorphism(machine: Machine, other: Machine, *, outputs: bool) -> tuple[int, ...] | None:
    """Return the isomorphism, or None.

    The only candidate is found by walking both machines from their start states.
    """
    for m in (machine, other):
        if not reachable_states(m.table, m.start).all():
            raise AutomatonError("a machine has unreachable states; call reachable() on both machines first")
    if machine.table.shape != other.table.shape:
        return None
    if set(machine.symbol_names) == set(other.symbol_names):
        other = _reorder_symbols(machine, other)
    partner = np.full(machine.n_states, -1)
    partner[machine.start] = other.start
    frontier = np.array([machine.start])
    while len(frontier):
        targets, other_targets = machine.table[frontier].ravel(), other.table[partner[frontier]].ravel()
        new = partner[targets] == -1
        partner[targets[new]] = other_targets[new]
        frontier = np.unique(targets[new])
    matches = (
        len(np.unique(partner)) == machine.n_states
        and (partner[machine.table] == other.table[partner]).all()
        and (not outputs or (machine.outputs == other.outputs[partner]).all())
    )
    return tuple(partner.tolist()) if matches else None
