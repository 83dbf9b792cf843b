"""Validate the parts of a machine.

Each function returns an immutable copy, or raises an error that names the fault.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sdssm.automata.refinement import Ints
from sdssm.errors import AutomatonError, format_value
from sdssm.limits import MOST_STATES, MOST_TRANSITIONS


def format_names(names: Sequence[str], most: int = 8) -> str:
    """Return names for an error message; of many only the first few."""
    first = ", ".join(quote_spaces(name) for name in names[:most])
    return first if len(names) <= most else f"{first}, ... ({len(names)} in all)"


def quote_spaces(name: str) -> str:
    """Return a name for a list of names: in quotes if it contains spaces or a comma, which separate names.

    >>> quote_spaces("left"), quote_spaces("go left")
    ('left', "'go left'")
    """
    quoted = repr(name)
    return quoted if any(letter.isspace() or letter == "," for letter in name) else quoted[1:-1]


def validate_table(table: ArrayLike) -> Ints:
    """Return a table of next states (states x symbols), in which every entry is a state."""
    if isinstance(table, np.ndarray) and table.ndim != 2:
        raise AutomatonError(f"the table has {table.ndim} dimensions; it needs two, states x symbols")
    if isinstance(table, np.ndarray):
        check_size(*table.shape)
    rows = list(_items(table, "the table must be a list of rows, one row of next states for each state"))
    if not rows:
        raise AutomatonError("a machine needs at least one state; the table has no rows")
    if not isinstance(table, np.ndarray):
        check_size(len(rows), 1)
        rows = [list(_items(row, f"row {q} of the table must be a list of next states")) for q, row in enumerate(rows)]
        widths = [len(row) for row in rows]
        check_size(len(rows), max(widths))
        if min(widths) != max(widths):
            shortest = widths.index(min(widths))
            raise AutomatonError(
                f"state {shortest} has {widths[shortest]} of {max(widths)} entries; "
                "every state needs one next state for each symbol"
            )
        for q, row in enumerate(rows):
            if None in row:
                raise AutomatonError(
                    f"symbol {row.index(None)} leads nowhere from state {q}; every entry needs a next state "
                    "(sdssm.machine(table, sink=True) adds a sink state)"
                )
            _check_integers(row, f"the next states of state {q}")
    elif table.dtype.kind not in "iu":
        raise AutomatonError(f"the table holds {table.dtype} values; next states are whole numbers")
    array = _to_int64(table if isinstance(table, np.ndarray) else rows, "next states")
    if array.shape[1] == 0:
        raise AutomatonError("the alphabet is empty; a machine needs at least one symbol")
    outside = np.argwhere((array < 0) | (array >= len(array)))
    if len(outside):
        q, a = outside[0]
        raise AutomatonError(f"symbol {a} sends state {q} to {array[q, a]}; states are 0..{len(array) - 1}")
    return _freeze(array)


def check_size(n_states: int, n_symbols: int) -> None:
    """Raise an error if a machine is too large: each step of its analysis takes time and memory of that size."""
    if n_states > MOST_STATES:
        raise AutomatonError(f"the machine has {n_states:,} states; the most is {MOST_STATES:,}, use a smaller one")
    if n_states * n_symbols > MOST_TRANSITIONS:
        raise AutomatonError(
            f"the machine has {n_states:,} states x {n_symbols:,} symbols; the most is {MOST_TRANSITIONS:,} transitions"
        )


def validate_state(state: int, n_states: int, name: str) -> int:
    """Return the number of a state."""
    try:
        number = index(state)
    except TypeError:
        raise AutomatonError(f"{name} must be the number of a state, not {format_value(state)}") from None
    if isinstance(state, bool) or not 0 <= number < n_states:
        raise AutomatonError(f"{name} is {format_value(state)}; states are 0..{n_states - 1}")
    return number


def validate_outputs(outputs: ArrayLike | None, n_states: int) -> Ints:
    """Return one output, 0 or more, for each state. None: the output of a state is its number."""
    if outputs is None:
        return _freeze(np.arange(n_states))
    values = list(_items(outputs, "outputs must be a list, one for each state"))
    if len(values) != n_states:
        raise AutomatonError(f"there are {n_states} states but {len(values)} outputs; give one for each state")
    _check_integers(values, "outputs")
    array = _to_int64(values, "outputs")
    if array.min() < 0:
        q = int(array.argmin())
        raise AutomatonError(f"the output of state {q} is {array[q]}; outputs are at least 0")
    if array.max() >= 2**31:
        q = int(array.argmax())
        raise AutomatonError(f"the output of state {q} is {array[q]}; outputs must be below 2^31")
    return _freeze(array)


def validate_accepting(accepting: Collection[int] | None, n_outputs: int) -> set[int]:
    """Return the outputs that accept: those given, or 1 if there are no others than 0 and 1."""
    if accepting is None and n_outputs > 2:
        raise AutomatonError(f"the machine has {n_outputs} outputs; say which of them accept, as in accepting={{0}}")
    return {1} if accepting is None else set(accepting)


def validate_names(kind: str, names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    """Return `count` different non-empty texts, or None.

    `kind` is "state" or "symbol", for error messages.
    """
    if names is None:
        return None
    if isinstance(names, str):
        raise AutomatonError(f"{kind} names must be a list of texts, not the single text {format_value(names)}")
    names = tuple(_items(names, f"{kind} names must be a list of texts"))
    if len(names) != count:
        raise AutomatonError(f"there are {count} {kind}s but {len(names)} {kind} names; name all of them or none")
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise AutomatonError(f"the name of {kind} {number} is {format_value(name)}; names are non-empty texts")
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise AutomatonError(
                f"the name of {kind} {number} is {format_value(name)}, with half of a surrogate pair; use valid Unicode"
            )
        if name in first:
            raise AutomatonError(
                f"{kind} name {format_value(name)} is used for both {first[name]} and {number}; rename one"
            )
        first[name] = number
    return names


def _items(values: Any, rule: str) -> Iterable[Any]:
    """Return values that can be iterated, or raise an error with the rule."""
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__"):
        raise AutomatonError(f"{rule}, not {format_value(values)}")
    return values  # type: ignore[no-any-return]  # any iterable is accepted


def _check_integers(values: list[Any], name: str) -> None:
    for value in values:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise AutomatonError(f"{name} must be whole numbers, not {format_value(value)}")


def _to_int64(values: list[Any] | Ints, name: str) -> Ints:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise AutomatonError(f"{name} must be below 2^63; use smaller numbers") from None


def _freeze(array: Ints) -> Ints:
    array = np.array(array, dtype=np.int64, order="C")  # a copy, which the caller cannot write to
    array.setflags(write=False)
    return array
