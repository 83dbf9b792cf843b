"""Machines as dictionaries, which is what a JSON file holds: by a table of numbers, or by named transitions.

    {"table": [[0, 1], [1, 0]], "start": 0, "outputs": [0, 1], "states": ["even", "odd"], "symbols": ["0", "1"]}
    {"even": {"0": "even", "1": "odd"}, "odd": {"0": "odd", "1": "even"}, "start": "even", "accepting": ["odd"]}
    {"transitions": {"even": {"0": "even", ...}, ...}, "start": "even", "outputs": {"even": 0, "odd": 1}}
    {"transitions": [["even", "0", "even"], ...], "start": "even", "accepting": ["odd"]}

In the second form every key with a dictionary is a state, except "outputs". A state is one that has a dictionary, or
that "states", "start", "accepting" or "outputs" name: any other next state is an error. In a list of transitions, every
state that occurs is one. The states are numbered as in "states", or else in order of appearance, and the symbols as in
"symbols", or else in order of appearance. The start is the first state unless it is given. The output of a state is 1
if it is in "accepting" and 0 otherwise, or as in "outputs"; with neither it is the number of the state. With a table,
"accepting" lists numbers or names of states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sdssm.automata.machine import Machine
from sdssm.automata.partial import build_machine, empty_table, names_or_none
from sdssm.errors import FormatError, did_you_mean, format_value

TABLE_KEYS = ("table", "start", "accepting", "outputs", "states", "symbols")
TRANSITION_KEYS = ("transitions", "start", "accepting", "outputs", "states", "symbols")
#: Names of states that an error lists.
MOST_NAMES = 12
#: Names that other programs give to the same keys.
ALIASES = {
    "initial_state": "start",
    "final_states": "accepting",
    "accepting_states": "accepting",
    "input_symbols": "symbols",
    "alphabet": "symbols",
}
FORMS = (
    'a machine is a JSON object with a "table": [[next state for each symbol] for each state], '
    'or with transitions: {"state": {"symbol": "next state"}}'
)


def machine_from_mapping(data: object, *, sink: bool = False) -> Machine:
    """Return the machine that a dictionary describes, in one of the forms above.

    >>> machine_from_mapping({"even": {"1": "odd"}, "odd": {"1": "even"}, "accepting": ["odd"]}).output("1")
    1
    """
    if not isinstance(data, Mapping):
        raise FormatError(FORMS)
    if "table" in data:
        return _from_table(_rename_keys(data, TABLE_KEYS), sink)
    if "transitions" in data:
        return _from_transitions(_rename_keys(data, TRANSITION_KEYS), sink)
    # A state may be called "start" or "states": these keys never have a dictionary. "outputs" may have one.
    rows = {key: value for key, value in data.items() if isinstance(value, Mapping) and key != "outputs"}
    if not rows:
        raise FormatError(FORMS)
    others = {key: value for key, value in data.items() if key not in rows}
    return _from_transitions({**_rename_keys(others, TRANSITION_KEYS[1:]), "transitions": rows}, sink)


def _rename_keys(data: Mapping[Any, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Return the values under our names of the keys; raise an error for a key that is not known or given twice."""
    values = {ALIASES.get(key, key): value for key, value in data.items()}
    if len(values) < len(data):
        raise FormatError("a key of the machine is given under two names; keep one of them")
    _check_keys(values, known)
    return values


def _check_keys(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in data:
        if key not in known:
            raise FormatError(f"a machine has no {format_value(key)}; {did_you_mean(str(key), known)}")


def _from_table(data: dict[str, Any], sink: bool) -> Machine:
    if "accepting" in data:
        _check_one_kind_of_output(data)
        accepting, table = data.pop("accepting"), data["table"]
        n_states = len(table) if hasattr(table, "__len__") else 0  # a table of a wrong form is left to `Machine`
        names = data.get("states")
        number = {str(name): q for q, name in enumerate(names if isinstance(names, (list, tuple)) else range(n_states))}
        chosen = {_state_number(state, number, n_states) for state in _items("accepting", accepting)}
        data["outputs"] = [int(q in chosen) for q in range(n_states)]
    return build_machine(**data, sink=sink)


def _state_number(state: Any, number: dict[str, int], n_states: int) -> int:
    if isinstance(state, int) and not isinstance(state, bool) and 0 <= state < n_states:
        return state
    if isinstance(state, str) and state in number:
        return number[state]
    problem = f'{format_value(state)} in "accepting" is not a state'
    if set(number) != {str(q) for q in range(n_states)}:  # the file names them
        names = [*map(format_value, list(number)[:MOST_NAMES]), *(["..."] if len(number) > MOST_NAMES else [])]
        raise FormatError(f"{problem}; {did_you_mean(str(state), number, 'states are ' + ', '.join(names))}")
    raise FormatError(f"{problem}; states are 0..{n_states - 1}")


def _from_transitions(data: dict[str, Any], sink: bool) -> Machine:
    triples, keys = _triples(data["transitions"])
    states = _listed("states", data) or _find_states(data, triples, keys)
    symbols = _listed("symbols", data) or list(dict.fromkeys(symbol for _, symbol, _ in triples))
    if not states:
        raise FormatError("a machine needs at least one state; the transitions name none")
    number, column = ({name: k for k, name in enumerate(names)} for names in (states, symbols))
    rows = empty_table(len(states), len(symbols))
    for source, symbol, target in triples:
        row, a = rows[_index(number, source, "states")], _index(column, symbol, "symbols")
        if row[a] is not None:
            raise FormatError(
                f"state {format_value(source)} has two transitions for symbol {format_value(symbol)}; keep one"
            )
        row[a] = _index(number, target, "states")
    return build_machine(
        table=rows,
        start=_index(number, _name(data["start"], "the start state"), "states") if "start" in data else 0,
        outputs=_outputs(data, number),
        states=names_or_none(states),
        symbols=names_or_none(symbols),
        sink=sink,
    )


def _find_states(data: dict[str, Any], triples: list[tuple[str, str, str]], keys: list[str]) -> list[str]:
    """Return the states in order of appearance.

    A next state that has no dictionary and is named by no other key is a typing error, which a sink would hide.
    """
    states = list(dict.fromkeys([*keys, *(name for triple in triples for name in triple[::2])]))
    if isinstance(data["transitions"], Mapping):
        others = [data.get(key, ()) for key in ("accepting", "outputs")]
        named = {str(name) for names in others if isinstance(names, (Mapping, list, tuple, set)) for name in names}
        named |= {*keys, str(data.get("start"))}
        source, symbol, target = next((triple for triple in triples if triple[2] not in named), ("", "", ""))
        if target:
            raise FormatError(
                f"{format_value(target)} is not a state (symbol {format_value(symbol)} leads from "
                f'{format_value(source)} to it); fix the name, or add {{"{target}": {{...}}}}'
            )
    return states


def _triples(transitions: Any) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return transitions as (state, symbol, next state), and the states that have a dictionary of their own."""
    if isinstance(transitions, Mapping):
        triples = []
        for state, row in transitions.items():
            if not isinstance(row, Mapping):
                raise FormatError(
                    f"the transitions of state {format_value(state)} are {format_value(row)}; "
                    'write {"symbol": "next state", ...}'
                )
            triples += [(state, symbol, target) for symbol, target in row.items() if target is not None]
        keys = [_name(state, "a state") for state in transitions]
    elif isinstance(transitions, (list, tuple)):
        for item in transitions:
            if not isinstance(item, (list, tuple)) or len(item) != 3:
                raise FormatError(f"a transition is [state, symbol, next state], not {format_value(item)}")
        triples, keys = [tuple(item) for item in transitions], []
    else:
        raise FormatError(f'"transitions" is {format_value(transitions)}; write {{"state": {{"symbol": "next"}}}}')
    kinds = ("a state", "a symbol", "a next state")
    named = [tuple(_name(part, kind) for part, kind in zip(triple, kinds, strict=True)) for triple in triples]
    return [(source, symbol, target) for source, symbol, target in named], keys


def _listed(key: str, data: dict[str, Any]) -> list[str]:
    return [_name(value, f'a name in "{key}"') for value in _items(key, data.get(key, ()))]


def _items(key: str, values: Any) -> list[Any]:
    if isinstance(values, (str, Mapping)) or not hasattr(values, "__iter__"):
        raise FormatError(f'"{key}" is {format_value(values)}; list the names')
    return list(values)


def _check_one_kind_of_output(data: dict[str, Any]) -> None:
    if "accepting" in data and "outputs" in data:
        raise FormatError('a machine has "accepting" or "outputs", not both; keep one of them')


def _outputs(data: dict[str, Any], number: dict[str, int]) -> list[Any] | None:
    _check_one_kind_of_output(data)
    if "accepting" in data:
        accepting = {_index(number, name, "states") for name in _listed("accepting", data)}
        return [int(q in accepting) for q in range(len(number))]
    outputs = data.get("outputs")
    if not isinstance(outputs, Mapping):
        return outputs  # a list with an output for each state, or None; `Machine` checks it
    by_number = {_index(number, _name(name, "a state"), "states"): value for name, value in outputs.items()}
    for name, q in number.items():
        if q not in by_number:
            raise FormatError(f'state {format_value(name)} has no output; add it to "outputs"')
    return [by_number[q] for q in range(len(number))]


def _index(numbers: dict[str, int], name: str, kind: str) -> int:
    if name not in numbers:
        where = f'add it to "{kind}"' if kind == "symbols" else "add its transitions, or fix the name"
        raise FormatError(f"{format_value(name)} is not one of the {kind}; {where}")
    return numbers[name]


def _name(value: Any, kind: str) -> str:
    """Return a name as text; whole numbers are allowed as names."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise FormatError(f"{kind} is {format_value(value)}; names are texts")
    return str(value)
