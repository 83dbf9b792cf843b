"""The rules that the parts of a machine keep: each comes back checked and frozen, or an error names what broke it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sdssm.automata.refinement import Ints
from sdssm.errors import AutomatonError, format_value


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names for an error message, the first few of many."""
    few = ", ".join(repr(name)[1:-1] for name in names[:most])
    return few if len(names) <= most else f"{few}, ... ({len(names)} in all)"


def checked_table(table: ArrayLike) -> Ints:
    """A table of next states (states x symbols), every entry a state."""
    if isinstance(table, np.ndarray) and table.ndim != 2:
        raise AutomatonError(f"the table has {table.ndim} dimensions; it needs two, states x symbols")
    rows = list(_items(table, "the table must be a list of rows, one row of next states for each state"))
    if not rows:
        raise AutomatonError("a machine needs at least one state; the table has no rows")
    if not isinstance(table, np.ndarray):
        rows = [list(_items(row, f"row {q} of the table must be a list of next states")) for q, row in enumerate(rows)]
        widths = [len(row) for row in rows]
        if min(widths) != max(widths):
            short = widths.index(min(widths))
            raise AutomatonError(
                f"state {short} has {widths[short]} of {max(widths)} entries; "
                "every state needs one next state for each symbol"
            )
        for q, row in enumerate(rows):
            if None in row:
                raise AutomatonError(
                    f"symbol {row.index(None)} leads nowhere from state {q}; every entry needs a next state"
                )
            _check_whole(row, f"the next states of state {q}")
    elif table.dtype.kind not in "iu":
        raise AutomatonError(f"the table holds {table.dtype} values; next states are whole numbers")
    array = _int64(table if isinstance(table, np.ndarray) else rows, "next states")
    if array.shape[1] == 0:
        raise AutomatonError("the alphabet is empty; a machine needs at least one symbol")
    outside = np.argwhere((array < 0) | (array >= len(array)))
    if len(outside):
        q, a = outside[0]
        raise AutomatonError(f"symbol {a} sends state {q} to {array[q, a]}; states are 0..{len(array) - 1}")
    return _frozen(array)


def checked_state(state: int, n_states: int, what: str) -> int:
    """The number of a state."""
    try:
        number = index(state)
    except TypeError:
        raise AutomatonError(f"{what} must be the number of a state, not {format_value(state)}") from None
    if isinstance(state, bool) or not 0 <= number < n_states:
        raise AutomatonError(f"{what} is {format_value(state)}; states are 0..{n_states - 1}")
    return number


def checked_outputs(outputs: ArrayLike | None, n_states: int) -> Ints:
    """One output for each state, counted from 0; left out, the number of the state."""
    if outputs is None:
        return _frozen(np.arange(n_states))
    values = list(_items(outputs, "outputs must be a list, one for each state"))
    if len(values) != n_states:
        raise AutomatonError(f"there are {n_states} states but {len(values)} outputs; give one for each state")
    _check_whole(values, "outputs")
    array = _int64(values, "outputs")
    if array.min() < 0:
        q = int(array.argmin())
        raise AutomatonError(f"the output of state {q} is {array[q]}; outputs count from 0")
    if array.max() >= 2**31:
        q = int(array.argmax())
        raise AutomatonError(f"the output of state {q} is {array[q]}; outputs number the classes and stay below 2^31")
    return _frozen(array)


def checked_names(what: str, names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    """`count` different non-empty texts, or None."""
    if names is None:
        return None
    if isinstance(names, str):
        raise AutomatonError(f"{what} names must be a list of texts, not the single text {format_value(names)}")
    names = tuple(_items(names, f"{what} names must be a list of texts"))
    if len(names) != count:
        raise AutomatonError(f"there are {count} {what}s but {len(names)} {what} names; name all of them or none")
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise AutomatonError(f"the name of {what} {number} is {format_value(name)}; names are non-empty texts")
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise AutomatonError(
                f"the name of {what} {number} is {format_value(name)}; half a surrogate pair is no letter"
            )
        if name in first:
            raise AutomatonError(
                f"{what} name {format_value(name)} stands for both {first[name]} and {number}; rename one"
            )
        first[name] = number
    return names


def _items(values: Any, rule: str) -> Iterable[Any]:
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__"):
        raise AutomatonError(f"{rule}, not {format_value(values)}")
    return values  # type: ignore[no-any-return]  # anything iterable will do


def _check_whole(values: list[Any], what: str) -> None:
    for value in values:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise AutomatonError(f"{what} must be whole numbers, not {format_value(value)}")


def _int64(values: list[Any] | Ints, what: str) -> Ints:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise AutomatonError(f"{what} must be below 2^63") from None


def _frozen(array: Ints) -> Ints:
    array = np.array(array, dtype=np.int64, order="C")  # a copy: nobody else can write to it
    array.setflags(write=False)
    return array
