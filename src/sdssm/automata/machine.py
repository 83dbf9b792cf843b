"""The Moore machine that a model learns to emulate."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sdssm.automata import comparison
from sdssm.automata.algebra import Algebra
from sdssm.automata.refinement import Ints, coarsest_congruence, reachable_states
from sdssm.automata.sources import as_machine
from sdssm.automata.theory import summarise_theory
from sdssm.automata.validation import (
    check_size,
    format_names,
    quote_spaces,
    validate_accepting,
    validate_names,
    validate_outputs,
    validate_state,
    validate_table,
)
from sdssm.errors import AutomatonError, format_value

#: A string: symbol numbers, symbol names, or a text (of one-letter names, or of names with spaces between them).
Word = str | Sequence[int | str] | Ints


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Machine:
    """A deterministic finite automaton with an output at each state (a Moore machine). It is immutable.

    States are 0..Q-1, symbols 0..V-1.

    Args:
        table: table[q, a] is the next state after symbol `a` in state `q`, (Q, V).
        start: the start state.
        outputs: the output of each state, 0 or more, (Q,). None: the output of a state is its number.
        states: unique names of the states, or None.
        symbols: unique names of the symbols, or None.

    >>> parity = Machine(table=[[0, 1], [1, 0]], states=["even", "odd"])
    >>> parity.run("1101"), parity.output("1101")
    (1, 1)
    >>> Machine(table=[[0, 1], [2, 0]])
    Traceback (most recent call last):
    sdssm.errors.AutomatonError: symbol 0 sends state 1 to 2; states are 0..1
    """

    table: Ints
    start: int
    outputs: Ints
    states: tuple[str, ...] | None
    symbols: tuple[str, ...] | None

    def __init__(
        self,
        *,
        table: ArrayLike,
        start: int = 0,
        outputs: ArrayLike | None = None,
        states: Sequence[str] | None = None,
        symbols: Sequence[str] | None = None,
    ) -> None:
        valid_table = validate_table(table)
        n_states, n_symbols = valid_table.shape
        fields = {
            "table": valid_table,
            "start": validate_state(start, n_states, "the start state"),
            "outputs": validate_outputs(outputs, n_states),
            "states": validate_names("state", states, n_states),
            "symbols": validate_names("symbol", symbols, n_symbols),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    # -- sizes and names ---------------------------------------------------------------------------------------------

    @property
    def n_states(self) -> int:
        """The number of states."""
        return int(self.table.shape[0])

    @property
    def n_symbols(self) -> int:
        """The number of symbols."""
        return int(self.table.shape[1])

    @cached_property
    def n_outputs(self) -> int:
        """Outputs are 0..n_outputs-1; not all of them need to occur."""
        return int(self.outputs.max()) + 1

    @cached_property
    def is_acceptor(self) -> bool:
        """Whether every output is 0 (the string is rejected) or 1 (it is accepted)."""
        return self.n_outputs <= 2

    @cached_property
    def state_names(self) -> tuple[str, ...]:
        """The names of the states; their numbers if they have none."""
        return self.states or tuple(map(str, range(self.n_states)))

    @cached_property
    def symbol_names(self) -> tuple[str, ...]:
        """The names of the symbols; their numbers if they have none."""
        return self.symbols or tuple(map(str, range(self.n_symbols)))

    def __repr__(self) -> str:
        return f"Machine({self.n_states} states, {self.n_symbols} symbols, {self.n_outputs} outputs)"

    def _key(self) -> tuple[Any, ...]:
        return (self.table.tobytes(), self.table.shape, self.start, self.outputs.tobytes(), self.states, self.symbols)

    def __eq__(self, other: object) -> bool:
        """Whether table, start, outputs and names are equal. To compare the behaviour use `is_equivalent`."""
        return self._key() == other._key() if isinstance(other, Machine) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in ("table", "start", "outputs", "states", "symbols")}
        return partial(Machine, **fields), ()

    # -- running -----------------------------------------------------------------------------------------------------

    def encode(self, word: Word) -> list[int]:
        """Return the symbol numbers of a string given as numbers, as names, or as text.

        >>> Machine(table=[[0, 1], [1, 0]], symbols=["stay", "flip"]).encode("flip stay flip")
        [1, 0, 1]
        """
        if isinstance(word, str):
            word = self._split(word)
        if not hasattr(word, "__iter__"):
            raise AutomatonError(f"a string must be a text or a list of symbols, not {format_value(word)}")
        return [self._symbol(symbol) for symbol in (word.tolist() if isinstance(word, np.ndarray) else word)]

    def _split(self, text: str) -> list[str]:
        if all(len(name) == 1 for name in self.symbol_names):
            return [c for c in text if not c.isspace() or c in self._symbol_numbers]
        if any(c.isspace() for name in self.symbol_names for c in name):
            raise AutomatonError("some symbols have spaces in their names; pass the string as a list of symbols")
        return text.split()

    def decode(self, tokens: Sequence[int] | Ints) -> str:
        """Return the text of a string: the names joined, with spaces if any name has more than one letter.

        Names that contain spaces are then in quotes.

        >>> Machine(table=[[0, 0]], symbols=["go left", "stop"]).decode([0, 1])
        "'go left' stop"
        """
        names = [self.symbol_names[int(t)] for t in tokens]
        if all(len(name) == 1 for name in self.symbol_names):
            return "".join(names)
        return " ".join(map(quote_spaces, names))

    def step(self, state: int, symbol: int | str) -> int:
        """Return the next state after one symbol."""
        return int(self.table[validate_state(state, self.n_states, "the state"), self._symbol(symbol)])

    def trace(self, word: Word, *, start: int | None = None) -> Ints:
        """Return the state after each symbol, from the machine's start state or from `start`."""
        state = self.start if start is None else validate_state(start, self.n_states, "the start state")
        rows = self._rows
        states = []
        for symbol in self.encode(word):
            state = rows[state][symbol]
            states.append(state)
        return np.array(states, dtype=np.int64)

    def run(self, word: Word, *, start: int | None = None) -> int:
        """Return the state after the whole string."""
        states = self.trace(word, start=start)
        return int(states[-1]) if len(states) else (self.start if start is None else start)

    def output(self, word: Word) -> int:
        """Return the output after the whole string."""
        return int(self.outputs[self.run(word)])

    @cached_property
    def _rows(self) -> list[list[int]]:
        return self.table.tolist()  # type: ignore[no-any-return]  # numpy types tolist() as Any

    @cached_property
    def _symbol_numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.symbol_names)}

    def _symbol(self, symbol: int | str) -> int:
        is_integer = isinstance(symbol, (int, np.integer)) and not isinstance(symbol, bool)
        number = self._symbol_numbers.get(symbol) if isinstance(symbol, str) else int(symbol) if is_integer else None
        if number is None or not 0 <= number < self.n_symbols:
            raise AutomatonError(
                f"{format_value(symbol)} is not a symbol of this machine; symbols are {format_names(self.symbol_names)}"
            )
        return number

    # -- new machines from old ---------------------------------------------------------------------------------------

    def reachable(self) -> Machine:
        """Return the machine without unreachable states; the others keep their order."""
        kept = np.flatnonzero(reachable_states(self.table, self.start))
        return self if len(kept) == self.n_states else self._keep(kept, np.searchsorted(kept, self.table[kept]))

    def minimise(self) -> Machine:
        """Return the smallest machine with the same outputs on every string.

        Each of its states represents a class of states that no string distinguishes, and has the name and position of
        the first of them. A machine that is already minimal is returned unchanged.
        """
        machine = self.reachable()
        classes = coarsest_congruence(machine.table, machine.outputs)
        _, first = np.unique(classes, return_index=True)
        if len(first) == machine.n_states:
            return machine
        return machine._keep(first, classes[machine.table[first]], start=int(classes[machine.start]))

    def _keep(self, kept: Ints, table: Ints, start: int | None = None) -> Machine:
        return Machine(
            table=table,
            start=int(np.searchsorted(kept, self.start)) if start is None else start,
            outputs=self.outputs[kept],
            states=None if self.states is None else [self.states[q] for q in kept],
            symbols=self.symbols,
        )

    def product(self, other: Any) -> Machine:
        """Return the machine that runs both machines on the same string.

        `other` is a machine, or whatever `get_machine` takes. The state is the pair of states, and the output is
        `self_output * other.n_outputs + other_output`. The symbols keep the order of this machine.
        """
        other = comparison.align_symbols(self, as_machine(other))
        check_size(self.n_states * other.n_states, self.n_symbols)
        return self._pair(other, comparison.product_table(self.table, other.table), self.symbols or other.symbols)

    def direct_product(self, other: Any) -> Machine:
        """Return the machine that runs both machines, each on its own symbols.

        `other` is a machine, or whatever `get_machine` takes. The symbols of this machine come first, then those of the
        other.
        """
        other = as_machine(other)
        check_size(self.n_states * other.n_states, self.n_symbols + other.n_symbols)
        own_next = np.broadcast_to(self.table[:, None, :], (self.n_states, other.n_states, self.n_symbols))
        other_next = np.broadcast_to(other.table[None, :, :], (self.n_states, other.n_states, other.n_symbols))
        p, q = np.arange(self.n_states)[:, None, None], np.arange(other.n_states)[None, :, None]
        table = np.concatenate([own_next * other.n_states + q, p * other.n_states + other_next], axis=2)
        names = self.symbol_names, other.symbol_names
        if set(names[0]) & set(names[1]):
            names = tuple(f"{s}.1" for s in names[0]), tuple(f"{s}.2" for s in names[1])
        return self._pair(other, table, names[0] + names[1])

    def __mul__(self, other: Any) -> Machine:
        return self.direct_product(other)

    def _pair(self, other: Machine, table: Ints, symbols: tuple[str, ...] | None) -> Machine:
        names = [f"{p},{q}" for p in self.state_names for q in other.state_names]
        return Machine(
            table=table.reshape(self.n_states * other.n_states, -1),
            start=self.start * other.n_states + other.start,
            outputs=(self.outputs[:, None] * other.n_outputs + other.outputs[None, :]).ravel(),
            states=names if len(set(names)) == len(names) else None,  # names that contain commas may coincide
            symbols=symbols,
        )

    # -- other forms -------------------------------------------------------------------------------------------------

    def to_regex(self, *, accepting: Collection[int] | None = None) -> str:
        """Return a regular expression for the strings that the machine accepts: those with output 1.

        `accepting` lists the outputs that accept, if there are others than 0 and 1. Symbols must have names of one
        letter. `regex_machine(expression, alphabet)` with the letters of the machine returns an equivalent machine. An
        expression of more than 5,000 letters is refused.

        >>> Machine(table=[[0, 1], [1, 0]], states=["even", "odd"]).to_regex(accepting={0})
        '(0|10*1)*'
        """
        from sdssm.automata.state_elimination import find_regex  # it imports this module

        return find_regex(self, validate_accepting(accepting, self.n_outputs))

    def _repr_svg_(self) -> str | None:
        """Return the state diagram, which notebooks show; None if the machine is too large to draw."""
        from sdssm.automata.drawing import draw  # drawing needs machines, machines only need drawing here

        try:
            return draw(self)
        except AutomatonError:
            return None

    # -- comparing ---------------------------------------------------------------------------------------------------

    def distinguish(self, other: Any, valid: Any = None) -> tuple[int, ...] | None:
        """Return the shortest non-empty string on which the outputs differ, or None if there is none.

        The empty string is not considered: no model predicts an output for it. `is_equivalent` considers it too.

        Args:
            other: a machine, or whatever `get_machine` takes. Its symbols may have another order: they are matched by
                name if both machines have the same names, and by number if one of them has no names.
            valid: a machine too; only strings on which its output is not 0 are considered. None: all strings.

        Returns:
            The string in symbol numbers of this machine. Of several shortest ones it is the first in their order.

        >>> flip = Machine(table=[[0, 1], [1, 0]])
        >>> flip.distinguish(Machine(table=[[0, 1], [1, 1]]))
        (1, 1)
        """
        valid = None if valid is None else as_machine(valid)
        return comparison.distinguish(self, as_machine(other), valid)

    def is_equivalent(self, other: Any) -> bool:
        """Whether the outputs are equal on every string, the empty one included.

        >>> from sdssm.automata import get_machine
        >>> pairs = get_machine("regex:(ab)*")
        >>> pairs.distinguish("regex:(ab)+"), pairs.is_equivalent("regex:(ab)+")  # they differ on the empty string only
        (None, False)
        """
        other = as_machine(other)
        same_start = self.outputs[self.start] == other.outputs[other.start]
        return self.distinguish(other) is None and bool(same_start)

    def isomorphism(self, other: Any, *, outputs: bool = True) -> tuple[int, ...] | None:
        """Return the bijection of states that turns this machine into the other, or None.

        `other` is a machine, or whatever `get_machine` takes. The bijection maps start to start and preserves the
        transitions and, unless `outputs=False`, the outputs. Symbols are matched by name if both machines have the same
        names, otherwise by number. The bijection is unique if all states are reachable; otherwise an error is raised
        (call `machine.reachable()` first).
        """
        return comparison.isomorphism(self, as_machine(other), outputs=outputs)

    # -- algebra of the minimal machine ------------------------------------------------------------------------------

    @cached_property
    def algebra(self) -> Algebra:
        """The algebra of the minimal reachable machine."""
        return Algebra(self.minimise().table)

    @property
    def is_commutative(self) -> bool:
        """Whether the order of the symbols never matters."""
        return self.algebra.is_commutative

    @property
    def is_group(self) -> bool:
        """Whether every symbol permutes the states."""
        return self.algebra.is_group

    @property
    def is_solvable(self) -> bool | None:
        """Whether every group inside the transition monoid is solvable; None if unknown."""
        return self.algebra.is_solvable

    @property
    def is_aperiodic(self) -> bool | None:
        """Whether every group inside the transition monoid is trivial; None if unknown."""
        return self.algebra.is_aperiodic

    @property
    def theory(self) -> str:
        """One sentence on which models are proved to be able to emulate the machine."""
        return summarise_theory(self.algebra)
