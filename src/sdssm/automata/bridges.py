"""Convert machines to and from networkx, automata-lib, AALpy and pythomata, which are optional extras.

A DFA of automata-lib or pythomata has no outputs: output 1 becomes "accepted" and 0 "rejected". For a machine with more
than two outputs, `accepting` lists the outputs that accept. Objects are recognised by their attributes, so no library
is imported to read one (except automata-lib for its NFAs, which it makes deterministic itself).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any

from sdssm.automata.machine import Machine
from sdssm.automata.mealy import build_from_mealy, number_outputs
from sdssm.automata.partial import PartialTable, build_machine, empty_table, names_or_none
from sdssm.automata.sources import as_machine
from sdssm.automata.validation import validate_accepting
from sdssm.errors import AutomatonError, format_value
from sdssm.extras import import_extra


def to_networkx(machine: Any) -> Any:
    """Return a `networkx.MultiDiGraph`.

    Nodes are 0..Q-1 with attributes `name` and `output`. Edges have attributes `symbol` and `label`.
    """
    machine = as_machine(machine)
    nx = import_extra("networkx", "the bridge to networkx")
    graph = nx.MultiDiGraph(start=machine.start)
    for q, name in enumerate(machine.state_names):
        graph.add_node(q, output=int(machine.outputs[q]), name=name)
    for q, row in enumerate(machine.table.tolist()):
        for a, target in enumerate(row):
            graph.add_edge(q, target, symbol=a, label=machine.symbol_names[a])
    return graph


def from_networkx(graph: Any, *, sink: bool = False) -> Machine:
    """Return the machine of a directed graph, as `to_networkx` builds it or as drawn by hand.

    An edge has an attribute `label`: a symbol, or a list of symbols. The start state is the node in the attribute
    `start` of the graph, or the node with `start=True`, or the first node. The output of a node is its attribute
    `output`; or 1 if it has `accepting=True`, and 0 for the others; or else its number.
    """
    number = {node: q for q, node in enumerate(graph.nodes)}
    edges: list[tuple[Any, str, Any]] = []
    order: dict[str, Any] = {}
    for source, target, data in graph.edges(data=True):
        if "label" not in data:
            raise AutomatonError("an edge of the graph has no 'label'; set it to the name of the symbol")
        for label in data["label"] if isinstance(data["label"], (list, tuple, set, frozenset)) else [data["label"]]:
            edges.append((source, str(label), target))
            order.setdefault(str(label), data.get("symbol", 0))
    symbols = sorted(order, key=lambda label: order[label])
    flagged = [node for node, data in graph.nodes(data=True) if data.get("start") is True]
    start = graph.graph.get("start", next(iter([*flagged, *graph.nodes]), None))
    nodes = [data for _, data in graph.nodes(data=True)]
    outputs: list[Any] | None = None
    if any("output" in data for data in nodes):
        outputs = [data.get("output", q) for q, data in enumerate(nodes)]
    elif any("accepting" in data for data in nodes):
        outputs = [int(bool(data.get("accepting"))) for data in nodes]
    return build_machine(
        table=_table(edges, number, symbols),
        start=number.get(start, -1),
        outputs=outputs,
        states=names_or_none([str(data.get("name", node)) for node, data in graph.nodes(data=True)]),
        symbols=names_or_none(symbols),
        sink=sink,
    )


def to_automata_lib(machine: Any, *, accepting: Collection[int] | None = None) -> Any:
    """Return an `automata.fa.dfa.DFA` that accepts if the output is in `accepting` (default: if it is 1)."""
    machine = as_machine(machine)
    dfa = import_extra("automata.fa.dfa", "the bridge to automata-lib")
    accepting = validate_accepting(accepting, machine.n_outputs)
    names, symbols = machine.state_names, machine.symbol_names
    return dfa.DFA(
        states=set(names),
        input_symbols=set(symbols),
        transitions={
            names[q]: {symbols[a]: names[target] for a, target in enumerate(row)}
            for q, row in enumerate(machine.table.tolist())
        },
        initial_state=names[machine.start],
        final_states={names[q] for q in range(machine.n_states) if int(machine.outputs[q]) in accepting},
    )


def from_automata_lib(automaton: Any) -> Machine:
    """Return the machine of a DFA or NFA: output 1 if it accepts.

    Missing transitions of a partial DFA lead to a sink state, because automata-lib rejects such strings. An NFA is made
    deterministic by automata-lib.
    """
    targets = [target for row in automaton.transitions.values() for target in row.values()]
    if any(isinstance(target, (set, frozenset)) for target in targets) and hasattr(automaton, "eliminate_lambda"):
        automaton = import_extra("automata.fa.dfa", "the bridge to automata-lib").DFA.from_nfa(automaton)
    return _from_dfa(
        automaton.initial_state,
        automaton.states,
        automaton.input_symbols,
        automaton.transitions,
        automaton.final_states,
    )


def from_pythomata(automaton: Any) -> Machine:
    """Return the machine of a `SimpleDFA` or `SimpleNFA` of pythomata: output 1 if it accepts.

    Missing transitions lead to a sink state, because pythomata rejects such strings.
    """
    if hasattr(automaton, "determinize"):  # NFAs have it, DFAs do not
        automaton = automaton.determinize()
    if not isinstance(getattr(automaton, "transition_function", None), Mapping):
        raise AutomatonError(
            f"a {type(automaton).__name__} of pythomata has no table of transitions; pass a SimpleDFA or a SimpleNFA"
        )
    return _from_dfa(
        automaton.initial_state,
        automaton.states,
        automaton.alphabet,
        automaton.transition_function,
        automaton.accepting_states,
    )


def _from_dfa(
    initial: Hashable,
    states: Iterable[Hashable],
    symbols: Iterable[Hashable],
    transitions: Mapping[Any, Mapping[Any, Any]],
    accepting: Collection[Hashable],
) -> Machine:
    """Return the machine of a possibly partial DFA; the initial state comes first."""
    ordered = [initial, *sorted((q for q in states if q != initial), key=str)]
    number = {q: k for k, q in enumerate(ordered)}
    letters = _sorted(symbols)
    rows = [[number.get(transitions.get(q, {}).get(a)) for a in letters] for q in ordered]
    return build_machine(
        table=rows,
        outputs=[int(q in accepting) for q in ordered],
        states=names_or_none([_state_name(q) for q in ordered]),
        symbols=names_or_none([str(a) for a in letters]),
        sink=True,
    )


def _state_name(state: Hashable) -> str:
    """Return the name of a state; a set, as determinisation makes them, without the words of its type."""
    if isinstance(state, (set, frozenset)):
        return "{" + ",".join(sorted(map(str, state))) + "}"
    return str(state)


def to_aalpy(machine: Any) -> Any:
    """Return an AALpy `MooreMachine` with the names of the states and symbols."""
    machine = as_machine(machine)
    automata = import_extra("aalpy.automata", "the bridge to AALpy")
    states = [automata.MooreState(name, output=int(machine.outputs[q])) for q, name in enumerate(machine.state_names)]
    for q, row in enumerate(machine.table.tolist()):
        states[q].transitions = {machine.symbol_names[a]: states[target] for a, target in enumerate(row)}
    return automata.MooreMachine(states[machine.start], states)


def from_aalpy(automaton: Any, *, sink: bool = False) -> Machine:
    """Return the machine of an AALpy `Dfa`, `MooreMachine` or `MealyMachine`.

    A `Dfa` has output 1 if it accepts. Outputs that are whole numbers from 0 are kept; any others are numbered in the
    order of their texts. The states of a `MealyMachine` become pairs of a state and the output of the last transition;
    before the first symbol this is the smallest output. A missing transition is an error, or with `sink` leads to a
    state that is never left.
    """
    number = {id(state): q for q, state in enumerate(automaton.states)}
    if not all(isinstance(state.transitions, Mapping) for state in automaton.states):
        raise _not_deterministic(automaton)
    letters = _sorted({a for state in automaton.states for a in state.transitions})
    edges = [(id(state), str(a), id(target)) for state in automaton.states for a, target in state.transitions.items()]
    if any(target not in number for *_, target in edges):  # the targets are lists of states, or stack symbols
        raise _not_deterministic(automaton)
    symbols = [str(a) for a in letters]
    rows = _table(edges, number, symbols)
    start = number[id(automaton.initial_state)]
    names = [str(state.state_id) for state in automaton.states]
    if hasattr(automaton.initial_state, "is_accepting"):
        outputs = [int(bool(state.is_accepting)) for state in automaton.states]
    elif hasattr(automaton.initial_state, "output_fun"):
        numbers = number_outputs([value for state in automaton.states for value in state.output_fun.values()])
        labels = [[numbers.get(state.output_fun.get(a), 0) for a in letters] for state in automaton.states]
        return build_from_mealy(rows, labels, start, numbers=numbers, states=names, symbols=symbols, sink=sink)
    else:
        numbers = number_outputs([state.output for state in automaton.states])
        outputs = [numbers[state.output] for state in automaton.states]
    return build_machine(
        table=rows,
        start=start,
        outputs=outputs,
        states=names_or_none(names),
        symbols=names_or_none(symbols),
        sink=sink,
    )


def _not_deterministic(automaton: Any) -> AutomatonError:
    return AutomatonError(
        f"a {type(automaton).__name__} is not a deterministic finite automaton; "
        "pass a Dfa, MooreMachine or MealyMachine"
    )


def _sorted(values: Iterable[Any]) -> list[Any]:
    """Return values in order, or in the order of their texts if they cannot be compared."""
    values = list(values)
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=str)


#: What an object of a library is recognised by: its attributes, in the order in which they are tried.
CONVERTERS: tuple[tuple[tuple[str, ...], Callable[[Any, bool], Machine]], ...] = (
    (("nodes", "edges", "is_directed"), lambda graph, sink: from_networkx(graph, sink=sink)),
    (("input_symbols", "transitions", "initial_state", "final_states"), lambda dfa, _: from_automata_lib(dfa)),
    (("alphabet", "accepting_states", "initial_state"), lambda dfa, _: from_pythomata(dfa)),
    (("states", "initial_state", "get_input_alphabet"), lambda automaton, sink: from_aalpy(automaton, sink=sink)),
)


def from_object(automaton: Any, *, sink: bool = False) -> Machine:
    """Return the machine of an object of networkx, automata-lib, pythomata or AALpy, whichever it is."""
    for attributes, convert in CONVERTERS:
        if all(hasattr(automaton, name) for name in attributes):
            return convert(automaton, sink)
    raise AutomatonError(
        "a machine is a name, a path, a table, a dictionary, a Machine, or an automaton of automata-lib, AALpy, "
        f"pythomata or networkx, not {format_value(automaton)}"
    )


def _table(edges: list[tuple[Any, str, Any]], number: dict[Any, int], symbols: list[str]) -> PartialTable:
    """Return rows of next states; None where an edge is missing."""
    column = {symbol: a for a, symbol in enumerate(symbols)}
    rows = empty_table(len(number), len(symbols))
    for source, label, target in edges:
        row = rows[number[source]]
        if row[column[label]] is not None:
            raise AutomatonError(f"state {source} has two edges for symbol {label!r}; keep one")
        row[column[label]] = number[target]
    return rows
