"""Machines in the DOT language of Graphviz.

`from_dot` reads what `to_dot` writes, and returns an equal machine. It also reads the usual ways of drawing a
deterministic automaton by hand:

    digraph { s [shape=none]; s -> even; even -> even [label="0"]; even -> odd [label="1"]; odd -> ...
              odd [shape=doublecircle] }

The start state is the target of the arrow from a node that is not a state (`s` above), or a node with `start=true`, or
else the first node that the text mentions, whatever its name. A node is not a state if it has no incoming edge, and
either its shape is none, point or plaintext or its arrow has no label. The symbols are the labels of the edges in order
of appearance; "a,b" means both. The output of a state is its attribute `output`; or 1 for a doublecircle and 0 for all
others, if there is any doublecircle; or else its number. A missing edge is an error, unless the caller asks for a sink
state.

If every edge is labelled "input/output" and no state has an output, the graph is a Mealy machine, as AALpy writes it.
Its states become pairs of a state and the output of the last transition, as in `from_aalpy`. In "a,b/1" both inputs
have the output 1.
"""

from __future__ import annotations

import re
from typing import Any

from sdssm.automata.dot_parser import DotEdge, DotGraph, parse_dot
from sdssm.automata.machine import Machine
from sdssm.automata.mealy import build_from_mealy, is_number, number_outputs, parse_output
from sdssm.automata.partial import PartialTable, build_machine, empty_table
from sdssm.automata.sources import as_machine
from sdssm.automata.validation import check_size
from sdssm.errors import FormatError, format_value


def to_dot(machine: Any) -> str:
    """Return the machine as a DOT graph, which Graphviz can draw.

    States that accept are double circles, if the machine is an acceptor; otherwise labels show the outputs.
    """
    machine = as_machine(machine)
    lines = ["digraph machine {", "  rankdir=LR;", "  node [shape=circle];", "  start [shape=point];"]
    for q, name in enumerate(machine.state_names):
        output = int(machine.outputs[q])
        is_plain = machine.is_acceptor or (output == q and machine.states is None)
        label = name if is_plain else f"{name} / {output}"
        shape = "shape=doublecircle, " if machine.is_acceptor and output == 1 else ""
        name_attribute = f", name={_quote(name)}" if machine.states else ""
        lines.append(f"  {q} [{shape}label={_quote(label)}, output={output}{name_attribute}];")
    lines.append(f"  start -> {machine.start};")
    for q, row in enumerate(machine.table.tolist()):
        for a, target in enumerate(row):
            label = _quote(machine.symbol_names[a])
            name_attribute = f", name={label}" if machine.symbols else ""
            lines.append(f"  {q} -> {target} [label={label}, symbol={a}{name_attribute}];")
    return "\n".join([*lines, "}", ""])


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def from_dot(text: str, *, sink: bool = False) -> Machine:
    """Return the machine that a DOT graph describes.

    A missing edge is an error, or with `sink` leads to a state that is never left.

    >>> from_dot("digraph { a -> b [label=x]; b -> a [label=x] }").table.tolist()
    [[1], [0]]
    """
    graph = parse_dot(text)
    markers, arrows = _find_start_markers(graph)
    nodes = [node for node in graph.nodes if node not in markers]
    if not nodes:
        raise FormatError("the graph has no states; write edges such as a -> b [label=x]")
    if len(arrows) > 1:
        raise FormatError(f"{len(arrows)} arrows mark a start state; keep one of them")
    flagged = [node for node in nodes if graph.nodes[node].get("start") == "true"]
    start = arrows[0].target if arrows else flagged[0] if flagged else nodes[0]
    number = {node: q for q, node in enumerate(nodes)}
    edges = [edge for edge in graph.edges if edge.source not in markers]
    if _is_mealy(graph, nodes, edges):
        return _from_mealy(edges, number, start, sink)
    symbols, have_names = _order_symbols(edges)
    return build_machine(
        table=_table(edges, number, symbols),
        start=number[start],
        outputs=_outputs(graph, nodes),
        states=_state_names(graph, nodes),
        symbols=symbols if have_names else None,
        sink=sink,
    )


def _find_start_markers(graph: DotGraph) -> tuple[set[str], list[DotEdge]]:
    """Return the nodes that are not states but mark the start state, and their arrows."""
    targets = {edge.target for edge in graph.edges}
    labelled = {edge.source for edge in graph.edges if edge.attributes.get("label") or "symbol" in edge.attributes}
    sources = {edge.source for edge in graph.edges}
    markers = {
        node
        for node in sources - targets
        if node not in labelled or graph.nodes[node].get("shape") in ("none", "point", "plaintext")
    }
    return markers, [edge for edge in graph.edges if edge.source in markers]


def _is_mealy(graph: DotGraph, nodes: list[str], edges: list[DotEdge]) -> bool:
    """Whether the edges have outputs, as in "input/output", and the states have none."""
    return (
        bool(edges)
        and not any("symbol" in edge.attributes for edge in edges)
        and all(re.fullmatch(r"[^/]+/[^/]+", edge.symbols()[-1]) for edge in edges)
        and not any("output" in graph.nodes[node] for node in nodes)
        and not any(graph.nodes[node].get("shape") == "doublecircle" for node in nodes)
    )


def _from_mealy(edges: list[DotEdge], number: dict[str, int], start: str, sink: bool) -> Machine:
    """Return the Moore machine of a graph whose edges are labelled "input/output"."""
    inputs, outputs = [], {}
    for edge in edges:
        parts = [part.partition("/") for part in edge.symbols()]
        for k, (symbol, _, _) in enumerate(parts):  # an input without an output has that of the next one
            output = next(text.strip() for _, slash, text in parts[k:] if slash)
            inputs.append(DotEdge(edge.source, edge.target, {"label": symbol}, edge.line))
            outputs[edge.source, symbol.strip()] = parse_output(output)
    symbols = list(dict.fromkeys(symbol for _, symbol in outputs))
    numbers = number_outputs(list(outputs.values()))
    check_size(len(number), len(symbols))
    labels = [[numbers.get(outputs.get((node, symbol), ""), 0) for symbol in symbols] for node in number]
    table = _table(inputs, number, symbols)
    return build_from_mealy(
        table, labels, number[start], numbers=numbers, states=list(number), symbols=symbols, sink=sink
    )


def _order_symbols(edges: list[DotEdge]) -> tuple[list[str], bool]:
    """Return the symbols in order, and whether they have names other than their numbers."""
    symbols = list(dict.fromkeys(label for edge in edges for label in edge.symbols()))
    if all("symbol" in edge.attributes for edge in edges):
        by_number = {edge.symbols()[0]: edge.attributes["symbol"] for edge in edges}
        if all(is_number(n) for n in by_number.values()):
            symbols = sorted(symbols, key=lambda name: int(by_number[name]))
        return symbols, any("name" in edge.attributes for edge in edges)
    return symbols, True


def _table(edges: list[DotEdge], number: dict[str, int], symbols: list[str]) -> PartialTable:
    """Return the next states; None where an edge is missing."""
    column = {symbol: a for a, symbol in enumerate(symbols)}
    rows = empty_table(len(number), len(symbols))
    for edge in edges:
        for label in edge.symbols():
            row, a = rows[number[edge.source]], column[label]
            if row[a] is not None:
                raise FormatError(
                    f"line {edge.line}: state {format_value(edge.source)} has two edges for "
                    f"symbol {format_value(label)}; keep one"
                )
            row[a] = number[edge.target]
    return rows


def _outputs(graph: DotGraph, nodes: list[str]) -> list[int] | None:
    outputs = [graph.nodes[node].get("output") for node in nodes]
    if any(value is not None for value in outputs):
        for node, value in zip(nodes, outputs, strict=True):
            if value is None or not is_number(value):
                raise FormatError(
                    f"the output of state {format_value(node)} is {format_value(value)}; "
                    "give every state a whole number from 0"
                )
        return [int(value) for value in outputs if value is not None]
    accepting = [int(graph.nodes[node].get("shape") == "doublecircle") for node in nodes]
    return accepting if any(accepting) else None


def _state_names(graph: DotGraph, nodes: list[str]) -> list[str] | None:
    if any("output" in graph.nodes[node] for node in nodes) and nodes == [str(q) for q in range(len(nodes))]:
        names = [graph.nodes[node].get("name") for node in nodes]
        return [str(name) for name in names] if all(name is not None for name in names) else None
    return nodes
