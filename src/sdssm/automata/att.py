"""Machines as AT&T text files (`.att`), which foma, HFST and OpenFst read and write.

    0   1   a   a       from state 0 to state 1 by symbol a, with output a
    1                   state 1 is final

Fields are separated by tabs, or by spaces in a line without tabs. The source in the first line is the start state.
A transition of an acceptor may have one symbol instead of two. A weight may follow, but must be 0. Transitions that are
missing lead to a sink state that rejects. The symbols are numbered in order of appearance, the states by their numbers,
or in order of appearance if they have names.

If the two symbols of any transition differ, the file is a Mealy machine: the second one is the output. It is converted
to a Moore machine.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from sdssm.automata.att_states import AttTransition, find_suspicious_states
from sdssm.automata.groups import check_n_states
from sdssm.automata.machine import Machine
from sdssm.automata.mealy import build_from_mealy, number_outputs, parse_output
from sdssm.automata.partial import PartialTable, build_machine, empty_table, names_or_none
from sdssm.automata.refinement import reachable_states
from sdssm.automata.sources import as_machine
from sdssm.automata.validation import format_names
from sdssm.errors import FormatError, FormatWarning, format_value

#: How HFST writes symbols that would separate fields or lines.
ESCAPES = {" ": "@_SPACE_@", "\t": "@_TAB_@", "\n": "@_NEWLINE_@"}
#: Symbols with a special meaning in foma, HFST or OpenFst, which a deterministic machine over a fixed alphabet lacks.
SPECIAL = {
    "@0@": "the empty string",
    "@_EPSILON_SYMBOL_@": "the empty string",
    "<eps>": "the empty string",
    "@_UNKNOWN_SYMBOL_@": "any other symbol",
    "@_IDENTITY_SYMBOL_@": "any other symbol",
}
EXPECTED = "expected 'source target symbol symbol' for a transition, or 'state' for a final state"
WEIGHT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)


def from_att(text: str, *, sink: bool = True, symbols: Sequence[str] | None = None, file: str | None = None) -> Machine:
    """Return the machine that an AT&T text describes, with a `FormatWarning` for states that look mistyped.

    Args:
        text: the contents of the file.
        sink: has no effect; missing transitions always lead to a sink state, as the format defines it.
        symbols: the alphabet, if it has more symbols than the file; also fixes their numbers.
        file: the name of the file, for warnings.

    >>> from_att("0 1 a a\\n1 0 b b\\n0").to_regex()
    '(ab)*'
    >>> from_att("0 0 a a\\n0 1 b b\\n1", symbols="abc")
    Machine(3 states, 3 symbols, 2 outputs)
    >>> from_att("0 1 a\\n0 0 a")
    Traceback (most recent call last):
    sdssm.errors.FormatError: line 2: state '0' has two transitions for symbol 'a' (the other is in line 1); ...
    """
    transitions, final, start = _parse(text)
    states = _order_states(transitions, final, start)
    check_n_states("the machine", len(states))
    alphabet = _alphabet(transitions, symbols)
    number = {state: q for q, state in enumerate(states)}
    table = _table(transitions, number, alphabet)
    names, symbol_names = names_or_none(states), names_or_none(alphabet)
    mealy = next((edge for edge in transitions if edge.symbol != edge.output), None)
    for sentence in find_suspicious_states(transitions, final, start, is_acceptor=mealy is None):
        warnings.warn(sentence if file is None else f"{file}: {sentence}", FormatWarning, stacklevel=2)
    if mealy is None:
        outputs = [int(state in final) for state in states]
        return build_machine(
            table=table, start=number[start], outputs=outputs, states=names, symbols=symbol_names, sink=True
        )
    if final and len(final) < len(states):
        raise FormatError(
            f"line {mealy.line}: symbols {format_value(mealy.symbol)} and {format_value(mealy.output)} differ, so the "
            "second symbols are outputs, and all states must be final, or none; got "
            f"{len(final)} final of {len(states)} states; if it is an acceptor, write the same symbol twice"
        )
    return _from_mealy(transitions, table, states, alphabet, number[start])


def check_language(machine: Machine) -> None:
    """Raise an error if all strings have the same output, the empty string aside: then there is nothing to learn.

    >>> check_language(from_att("0 0 a a\\n0 0 b b\\n0"))
    Traceback (most recent call last):
    sdssm.errors.FormatError: the language has all strings, so there is nothing to learn; ...
    """
    ends = machine.table[reachable_states(machine.table, machine.start)]  # of all strings but the empty one
    outputs = set(machine.outputs[ends].ravel().tolist())
    if len(outputs) > 1:
        return
    fault = "is empty" if outputs == {0} else "has all strings"
    if machine.n_outputs > 2:
        fault = f"has the output {min(outputs)} for all strings"
    raise FormatError(
        f"the language {fault}, so there is nothing to learn; choose one that has some strings, but not all"
    )


def to_att(machine: Any) -> str:
    """Return the machine as an AT&T text, with the transitions of the start state first.

    The states that accept are final if the machine is an acceptor; otherwise a transition has the output of the state
    that it leads to. Names of states are not written: other programs want numbers.

    >>> print(to_att("regex:a*b"), end="")
    0	0	a	a
    0	1	b	b
    1	2	a	a
    1	2	b	b
    2	2	a	a
    2	2	b	b
    1
    """
    machine = as_machine(machine)
    names = [_escape(name) for name in machine.symbol_names]
    outputs = machine.outputs.tolist()
    rows = machine.table.tolist()
    order = [machine.start, *(q for q in range(machine.n_states) if q != machine.start)]
    lines, is_ambiguous = [], not machine.is_acceptor
    for q in order:
        for name, target in zip(names, rows[q], strict=True):
            output = name if machine.is_acceptor else str(outputs[target])
            is_ambiguous = is_ambiguous and output == name
            lines.append(f"{q}\t{target}\t{name}\t{output}")
    if is_ambiguous:
        raise FormatError(
            "every output has the name of its symbol, so the file would read as an acceptor; write .json or .dot"
        )
    final = [str(q) for q in range(machine.n_states) if not machine.is_acceptor or outputs[q]]
    return "\n".join([*lines, *final, ""])


def _escape(name: str) -> str:
    if name in SPECIAL or name in ESCAPES.values():
        raise FormatError(f"symbol {format_value(name)} has a special meaning in .att files; write .json or .dot")
    escaped = "".join(ESCAPES.get(letter, letter) for letter in name)
    if any(letter.isspace() for letter in escaped):
        raise FormatError(f"symbol {format_value(name)} cannot be written to .att files; write .json or .dot")
    return escaped


def _unescape(name: str) -> str:
    for letter, escape in ESCAPES.items():
        name = name.replace(escape, letter)
    return name


# -- lines -----------------------------------------------------------------------------------------------------------


def _parse(text: str) -> tuple[list[AttTransition], dict[str, int], str]:
    """Return the transitions, the final states with their lines, and the start state."""
    lines = [
        (k, fields) for k, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1) if (fields := _split(line))
    ]
    if not lines:
        raise FormatError(f"the file is empty; {EXPECTED}")
    n_symbols = _count_symbols([fields for _, fields in lines])
    transitions, final = list[AttTransition](), dict[str, int]()
    for line, fields in lines:
        if len(fields) <= 2:
            if fields[-1].isdigit() and len(fields) == 2:  # a transition without a symbol, rather than a weight
                raise _malformed(line, fields)
            _check_weight(line, fields[1:], fields)
            final.setdefault(fields[0], line)
            continue
        if not 2 + n_symbols <= len(fields) <= 3 + n_symbols:
            raise _malformed(line, fields)
        _check_weight(line, fields[2 + n_symbols :], fields)
        for name in fields[2 : 2 + n_symbols]:
            if name in SPECIAL:
                raise FormatError(
                    f"line {line}: symbol {format_value(name)} stands for {SPECIAL[name]}; machines here are "
                    "deterministic and have a fixed alphabet, remove it with the program that wrote the file"
                )
        symbol, output = _unescape(fields[2]), _unescape(fields[1 + n_symbols])
        transitions.append(AttTransition(line, fields[0], fields[1], symbol, output))
    return transitions, final, lines[0][1][0]


def _count_symbols(lines: list[list[str]]) -> int:
    """Return whether transitions have one symbol or two.

    A line of four fields has two symbols, or one symbol and a weight: the other lines decide.
    """
    lengths = {len(fields) for fields in lines}
    has_weights = all(WEIGHT.fullmatch(fields[3]) for fields in lines if len(fields) == 4)
    return 1 if 3 in lengths and 5 not in lengths and has_weights else 2


def _split(line: str) -> list[str]:
    """Return the fields of a line; none if it is blank."""
    line = line.removesuffix("\r")
    if not line.strip():
        return []
    fields = line.split("\t") if "\t" in line.strip() else line.split()
    return [field.strip(" ") for field in fields]


def _check_weight(line: int, weights: list[str], fields: list[str]) -> None:
    """Raise an error for an empty field, or for a weight that is not 0."""
    if "" in fields:
        raise _malformed(line, fields)
    for weight in weights:
        if not WEIGHT.fullmatch(weight):
            raise _malformed(line, fields)
        if float(weight) != 0:
            raise FormatError(f"line {line}: the weight is {weight}; machines here have no weights, only 0 is read")


def _malformed(line: int, fields: list[str]) -> FormatError:
    return FormatError(f"line {line}: {EXPECTED}, got {format_value(' '.join(fields))}")


# -- numbers ---------------------------------------------------------------------------------------------------------


def _order_states(transitions: list[AttTransition], final: Mapping[str, int], start: str) -> list[str]:
    """Return the states: by number, or in order of appearance if some have names."""
    names = dict.fromkeys([start, *(state for edge in transitions for state in (edge.source, edge.target))])
    states = [*names, *sorted(final.keys() - names.keys())]
    if all(re.fullmatch("0|[1-9][0-9]{0,17}", state) for state in states):
        states.sort(key=int)
    return states


def _alphabet(transitions: list[AttTransition], symbols: Sequence[str] | None) -> list[str]:
    """Return the symbols of the file in order of appearance, or the given ones."""
    lines: dict[str, int] = {}  # the first line with each symbol
    for edge in transitions:
        lines.setdefault(edge.symbol, edge.line)
    if symbols is None:
        if not lines:
            raise FormatError("the file has no transitions, so the alphabet is not known; give it, as in symbols='ab'")
        return list(lines)
    given = list(symbols)
    for symbol, line in lines.items():
        if symbol not in given:
            raise FormatError(
                f"line {line}: symbol {format_value(symbol)} is not in the alphabet {format_names(given)}; "
                "add it to the alphabet, or fix the file"
            )
    return given


def _table(transitions: list[AttTransition], number: dict[str, int], alphabet: list[str]) -> PartialTable:
    """Return the next states; None where a transition is missing."""
    column = {symbol: a for a, symbol in enumerate(alphabet)}
    rows = empty_table(len(number), len(alphabet))
    lines: dict[tuple[str, str], AttTransition] = {}
    for edge in transitions:
        other = lines.setdefault((edge.source, edge.symbol), edge)
        if other is not edge:
            raise FormatError(
                f"line {edge.line}: state {format_value(edge.source)} has two transitions for symbol "
                f"{format_value(edge.symbol)} (the other is in line {other.line}); make the machine deterministic first"
            )
        rows[number[edge.source]][column[edge.symbol]] = number[edge.target]
    return rows


def _from_mealy(
    transitions: list[AttTransition],
    table: PartialTable,
    states: list[str],
    alphabet: list[str],
    start: int,
) -> Machine:
    """Return the Moore machine.

    If all transitions into a state have the same output, the states stay as they are. Otherwise they become pairs of a
    state and the output of the last transition.
    """
    number, column = ({name: k for k, name in enumerate(names)} for names in (states, alphabet))
    values = [parse_output(edge.output) for edge in transitions]
    numbers = number_outputs(values)
    by_target: dict[int, set[int]] = {}
    labels = [[0] * len(alphabet) for _ in states]
    for edge, value in zip(transitions, values, strict=True):
        labels[number[edge.source]][column[edge.symbol]] = numbers[value]
        by_target.setdefault(number[edge.target], set()).add(numbers[value])
    if all(len(outputs) == 1 for outputs in by_target.values()):
        smallest = min(numbers.values())  # of a state that nothing leads to
        moore = [min(by_target.get(q, {smallest})) for q in range(len(states))]
        names, symbols = names_or_none(states), names_or_none(alphabet)
        return build_machine(table=table, start=start, outputs=moore, states=names, symbols=symbols, sink=True)
    return build_from_mealy(table, labels, start, numbers=numbers, states=states, symbols=alphabet, sink=True)
