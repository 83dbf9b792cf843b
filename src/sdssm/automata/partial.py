"""Partial automata: the transitions that are missing lead to a sink state, if the caller asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sdssm.automata.machine import Machine
from sdssm.automata.validation import check_size
from sdssm.errors import AutomatonError, format_value

#: Rows of next states; None marks a missing transition.
PartialTable = list[list[int | None]]


class MissingTransitionError(AutomatonError):
    """A state has no transition for a symbol, and no sink was asked for.

    `fact` is the message without the advice, so that a reader of files can advise in the words of its caller.
    """

    def __init__(self, state: str, symbol: str) -> None:
        self.fact = f"state {format_value(state)} has no transition for symbol {format_value(symbol)}"
        super().__init__(f"{self.fact}; add it, or pass sink=True to send what is missing to a sink state")


def build_machine(
    *,
    table: Any,
    start: Any = 0,
    outputs: Any = None,
    states: Sequence[str] | None = None,
    symbols: Sequence[str] | None = None,
    sink: bool = False,
) -> Machine:
    """Return the machine of a table in which None marks a missing transition.

    With `sink`, missing transitions lead to a new last state that is never left. Its output is 0 if all outputs are 0
    or 1 (it rejects), otherwise a new one: the largest output plus 1, or its number if outputs are state numbers.

    >>> machine = build_machine(table=[[1, None], [None, 0]], outputs=[1, 0], sink=True)
    >>> machine.table.tolist(), machine.outputs.tolist()
    ([[1, 2], [2, 0], [2, 2]], [1, 0, 0])
    """
    missing = _first_missing(table)
    if missing is not None and not sink:
        state, symbol = (_name(names, index) for names, index in zip((states, symbols), missing, strict=True))
        raise MissingTransitionError(state, symbol)
    if missing is not None:
        number, width = len(table), max(len(row) for row in table)
        table = [*([number if target is None else target for target in row] for row in table), [number] * width]
        outputs = _add_output(outputs)
        if isinstance(states, (list, tuple)):
            states = [*states, unused_name("sink", states)]
    return Machine(table=table, start=start, outputs=outputs, states=states, symbols=symbols)


def empty_table(n_states: int, n_symbols: int) -> PartialTable:
    """Return a table without transitions, to be filled; raise an error if it would be too large."""
    check_size(n_states, n_symbols)
    return [[None] * n_symbols for _ in range(n_states)]


def unused_name(name: str, taken: Sequence[str]) -> str:
    """Return the name, with as many primes as make it differ from the others."""
    while name in taken:
        name += "'"
    return name


def names_or_none(names: list[str]) -> list[str] | None:
    """Return None if the names are just the numbers 0, 1, 2, ..., or if two of them are equal."""
    is_useless = names == [str(k) for k in range(len(names))] or len(set(names)) < len(names)
    return None if is_useless else names


def _first_missing(table: Any) -> tuple[int, int] | None:
    """Return state and symbol of the first missing entry; a table of a wrong form is left to `Machine`."""
    if not isinstance(table, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in table):
        return None
    if len({len(row) for row in table}) != 1:
        return None
    return next(((q, a) for q, row in enumerate(table) for a, target in enumerate(row) if target is None), None)


def _name(names: Sequence[str] | None, index: int) -> str:
    return names[index] if isinstance(names, (list, tuple)) and index < len(names) else str(index)


def _add_output(outputs: Any) -> Any:
    """Return the outputs with that of the sink; values of a wrong form are left to `Machine`."""
    if not isinstance(outputs, (list, tuple, np.ndarray)):
        return outputs
    largest = max((int(value) for value in outputs if isinstance(value, (int, np.integer))), default=0)
    return [*outputs, 0 if largest <= 1 else largest + 1]
