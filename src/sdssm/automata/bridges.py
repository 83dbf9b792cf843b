"""Convert machines to and from networkx, automata-lib and AALpy, which are optional extras.

A DFA of automata-lib has no outputs: output 1 becomes "accepted" and 0 "rejected". For a machine with more than two
outputs, `accepting` lists the outputs that accept.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from sdssm.automata.machine import Machine
from sdssm.errors import AutomatonError
from sdssm.extras import import_extra


def to_networkx(machine: Machine) -> Any:
    """Return a `networkx.MultiDiGraph`.

    Nodes are 0..Q-1 with attributes `name` and `output`. Edges have attributes `symbol` and `label`.
    """
    nx = import_extra("networkx", "the bridge to networkx")
    graph = nx.MultiDiGraph(start=machine.start)
    for q, name in enumerate(machine.state_names):
        graph.add_node(q, output=int(machine.outputs[q]), name=name)
    for q, row in enumerate(machine.table.tolist()):
        for a, target in enumerate(row):
            graph.add_edge(q, target, symbol=a, label=machine.symbol_names[a])
    return graph


def from_networkx(graph: Any) -> Machine:
    """Return the machine of a graph as `to_networkx` builds it.

    Nodes have an attribute `output`, edges an attribute `label`.
    """
    number = {node: q for q, node in enumerate(graph.nodes)}
    labels = [str(data["label"]) for *_, data in graph.edges(data=True) if "label" in data]
    edges = [(number[u], str(data.get("label")), number[v]) for u, v, data in graph.edges(data=True)]
    if len(labels) != len(edges):
        raise AutomatonError("an edge of the graph has no 'label'; set it to the name of the symbol")
    order = {str(d["label"]): d.get("symbol", 0) for *_, d in graph.edges(data=True)}
    symbols = sorted(dict.fromkeys(labels), key=lambda label: order[label])
    start = graph.graph.get("start", next(iter(graph.nodes), None))
    return Machine(
        table=_table(edges, len(number), symbols),
        start=number.get(start, -1),
        outputs=[data.get("output", number[node]) for node, data in graph.nodes(data=True)],
        states=_names_or_none([str(data.get("name", node)) for node, data in graph.nodes(data=True)]),
        symbols=_names_or_none(symbols),
    )


def to_automata_lib(machine: Machine, *, accepting: Collection[int] | None = None) -> Any:
    """Return an `automata.fa.dfa.DFA` that accepts if the output is in `accepting` (default: if it is 1)."""
    dfa = import_extra("automata.fa.dfa", "the bridge to automata-lib")
    if accepting is None:
        if machine.n_outputs > 2:
            raise AutomatonError(
                f"the machine has {machine.n_outputs} outputs; say which of them accept, as in accepting={{0}}"
            )
        accepting = {1}
    names, symbols = machine.state_names, machine.symbol_names
    return dfa.DFA(
        states=set(names),
        input_symbols=set(symbols),
        transitions={
            names[q]: {symbols[a]: names[target] for a, target in enumerate(row)}
            for q, row in enumerate(machine.table.tolist())
        },
        initial_state=names[machine.start],
        final_states={names[q] for q in range(machine.n_states) if int(machine.outputs[q]) in set(accepting)},
    )


def from_automata_lib(dfa: Any) -> Machine:
    """Return the machine of a DFA: output 1 if it accepts.

    A partial DFA gets a sink state for missing transitions.
    """
    symbols = sorted(dfa.input_symbols)
    states = [dfa.initial_state, *sorted((q for q in dfa.states if q != dfa.initial_state), key=str)]
    number = {q: k for k, q in enumerate(states)}
    sink = len(states)
    rows = [[number.get(dfa.transitions.get(q, {}).get(a), sink) for a in symbols] for q in states]
    outputs = [int(q in dfa.final_states) for q in states]
    names = [str(q) for q in states]
    if any(sink in row for row in rows):
        rows.append([sink] * len(symbols))
        outputs.append(0)
        names.append(_unused_name("sink", names))
    return Machine(
        table=rows,
        outputs=outputs,
        states=_names_or_none(names),
        symbols=_names_or_none([str(a) for a in symbols]),
    )


def to_aalpy(machine: Machine) -> Any:
    """Return an AALpy `MooreMachine` with the names of the states and symbols."""
    automata = import_extra("aalpy.automata", "the bridge to AALpy")
    states = [automata.MooreState(name, output=int(machine.outputs[q])) for q, name in enumerate(machine.state_names)]
    for q, row in enumerate(machine.table.tolist()):
        states[q].transitions = {machine.symbol_names[a]: states[target] for a, target in enumerate(row)}
    return automata.MooreMachine(states[machine.start], states)


def from_aalpy(automaton: Any) -> Machine:
    """Return the machine of an AALpy `MooreMachine` or `Dfa`.

    The outputs of a `MooreMachine` must be whole numbers. A `Dfa` has output 1 if it accepts.
    """
    number = {id(state): q for q, state in enumerate(automaton.states)}
    letters: dict[Hashable, None] = {a: None for state in automaton.states for a in state.transitions}
    symbols = sorted(letters, key=str)
    edges = [
        (number[id(state)], str(a), number[id(target)])
        for state in automaton.states
        for a, target in state.transitions.items()
    ]
    return Machine(
        table=_table(edges, len(number), [str(a) for a in symbols]),
        start=number[id(automaton.initial_state)],
        outputs=[int(s.is_accepting) if hasattr(s, "is_accepting") else s.output for s in automaton.states],
        states=_names_or_none([str(state.state_id) for state in automaton.states]),
        symbols=_names_or_none([str(a) for a in symbols]),
    )


def _table(edges: list[tuple[int, str, int]], n_states: int, symbols: list[str]) -> list[list[Any]]:
    """Return rows of next states. A missing entry stays None; `Machine` raises an error that names it."""
    column = {symbol: a for a, symbol in enumerate(symbols)}
    rows: list[list[Any]] = [[None] * len(symbols) for _ in range(n_states)]
    for source, label, target in edges:
        if rows[source][column[label]] is not None:
            raise AutomatonError(f"state {source} has two edges for symbol {label!r}; keep one")
        rows[source][column[label]] = target
    return rows


def _names_or_none(names: list[str]) -> list[str] | None:
    """Return None if the names are just the numbers 0, 1, 2, ..."""
    return None if names == [str(k) for k in range(len(names))] else names


def _unused_name(name: str, taken: list[str]) -> str:
    while name in taken:
        name += "'"
    return name
