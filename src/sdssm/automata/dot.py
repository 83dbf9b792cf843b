"""Machines in the DOT language of Graphviz.

`from_dot` reads what `to_dot` writes, and returns an equal machine. It also reads the usual ways of drawing a
deterministic automaton by hand:

    digraph { s [shape=none]; s -> even; even -> even [label="0"]; even -> odd [label="1"]; odd -> ...
              odd [shape=doublecircle] }

The start state is the target of the arrow from a node that is not a state (`s` above: it has no incoming edge, and no
shape or no label on its arrow), or a node with `start=true`, or else the first node. The symbols are the labels of the
edges in order of appearance; "a,b" means both. The output of a state is its attribute `output`; or 1 for a doublecircle
and 0 for all others, if there is any doublecircle; or else its number.

Why not pydot (which networkx uses as well): pydot 4.0.1 parses the files of s6 and s5:32:0 75 times more slowly (4.6 s
and 8.8 s, here 0.06 s and 0.11 s, on one core), fails on every file with an attribute `name`, which `to_dot` writes for
named states and symbols, fails on a byte order mark, and accepts undirected edges in a digraph and text after its end.
Quotes, escapes, ports, default attributes and subgraphs would still have to be handled here, and its edges have no line
numbers for error messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from sdssm.automata.machine import Machine
from sdssm.errors import FormatError, format_value

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
      | (?P<quoted>"(?:[^"\\]|\\.)*"|<(?:[^<>]|<[^<>]*>)*>)
      | (?P<word>[^\W\d]\w*|-?(?:\.\d+|\d+(?:\.\d*)?))
      | (?P<sign>->|--|[{}\[\];,=:+])""",
    re.VERBOSE | re.DOTALL,
)


def to_dot(machine: Machine) -> str:
    """Return the machine as a DOT graph, which Graphviz can draw."""
    lines = ["digraph machine {", "  rankdir=LR;", "  node [shape=circle];", "  start [shape=point];"]
    for q, name in enumerate(machine.state_names):
        output = int(machine.outputs[q])
        label = name if output == q and machine.states is None else f"{name} / {output}"
        name_attribute = f", name={_quote(name)}" if machine.states else ""
        lines.append(f"  {q} [label={_quote(label)}, output={output}{name_attribute}];")
    lines.append(f"  start -> {machine.start};")
    for q, row in enumerate(machine.table.tolist()):
        for a, target in enumerate(row):
            label = _quote(machine.symbol_names[a])
            name_attribute = f", name={label}" if machine.symbols else ""
            lines.append(f"  {q} -> {target} [label={label}, symbol={a}{name_attribute}];")
    return "\n".join([*lines, "}", ""])


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def from_dot(text: str) -> Machine:
    """Return the machine that a DOT graph describes.

    >>> from_dot("digraph { a -> b [label=x]; b -> a [label=x] }").table.tolist()
    [[1], [0]]
    """
    graph = _DotParser(text).parse()
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
    symbols, have_names = _order_symbols(edges)
    return Machine(
        table=_table(edges, number, symbols),
        start=number[start],
        outputs=_outputs(graph, nodes),
        states=_state_names(graph, nodes),
        symbols=symbols if have_names else None,
    )


@dataclass
class _Edge:
    """An edge with its attributes and its line in the text."""

    source: str
    target: str
    attributes: dict[str, str]
    line: int

    def symbols(self) -> list[str]:
        """Return the symbols of the edge; there may be several, separated by commas."""
        if "symbol" in self.attributes:  # written by to_dot: the label is one symbol, which may contain commas
            return [self.attributes.get("name", self.attributes["symbol"])]
        if "label" not in self.attributes:
            ends = f"{format_value(self.source)} -> {format_value(self.target)}"
            raise FormatError(f"line {self.line}: the edge {ends} has no label; add its symbol")
        return [part.strip() for part in self.attributes["label"].split(",")]


@dataclass
class _DotGraph:
    """The nodes with their attributes, and the edges."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[_Edge] = field(default_factory=list)


def _find_start_markers(graph: _DotGraph) -> tuple[set[str], list[_Edge]]:
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


def _order_symbols(edges: list[_Edge]) -> tuple[list[str], bool]:
    """Return the symbols in order, and whether they have names other than their numbers."""
    symbols = list(dict.fromkeys(label for edge in edges for label in edge.symbols()))
    if all("symbol" in edge.attributes for edge in edges):
        by_number = {edge.symbols()[0]: edge.attributes["symbol"] for edge in edges}
        if all(_is_number(n) for n in by_number.values()):
            symbols = sorted(symbols, key=lambda name: int(by_number[name]))
        return symbols, any("name" in edge.attributes for edge in edges)
    return symbols, True


def _is_number(text: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", text) is not None


def _table(edges: list[_Edge], number: dict[str, int], symbols: list[str]) -> list[list[int]]:
    column = {symbol: a for a, symbol in enumerate(symbols)}
    rows: list[list[int | None]] = [[None] * len(symbols) for _ in number]
    for edge in edges:
        for label in edge.symbols():
            row, a = rows[number[edge.source]], column[label]
            if row[a] is not None:
                raise FormatError(
                    f"line {edge.line}: state {format_value(edge.source)} has two edges for "
                    f"symbol {format_value(label)}; keep one"
                )
            row[a] = number[edge.target]
    table = []
    for node, row in zip(number, rows, strict=True):
        for symbol, target in zip(symbols, row, strict=True):
            if target is None:
                raise FormatError(
                    f"state {format_value(node)} has no edge for symbol {format_value(symbol)}; "
                    "a machine has one for each symbol"
                )
        table.append([target for target in row if target is not None])
    return table


def _outputs(graph: _DotGraph, nodes: list[str]) -> list[int] | None:
    outputs = [graph.nodes[node].get("output") for node in nodes]
    if any(value is not None for value in outputs):
        for node, value in zip(nodes, outputs, strict=True):
            if value is None or not _is_number(value):
                raise FormatError(
                    f"the output of state {format_value(node)} is {format_value(value)}; "
                    "give every state a whole number from 0"
                )
        return [int(value) for value in outputs if value is not None]
    accepting = [int(graph.nodes[node].get("shape") == "doublecircle") for node in nodes]
    return accepting if any(accepting) else None


def _state_names(graph: _DotGraph, nodes: list[str]) -> list[str] | None:
    if any("output" in graph.nodes[node] for node in nodes) and nodes == [str(q) for q in range(len(nodes))]:
        names = [graph.nodes[node].get("name") for node in nodes]
        return [str(name) for name in names] if all(name is not None for name in names) else None
    return nodes


class _DotParser:
    """A recursive descent parser for the part of the DOT grammar that describes a directed graph."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokenize(text))
        self.position = 0
        self.defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}, "graph": {}}
        self.graph = _DotGraph()

    def parse(self) -> _DotGraph:
        """Parse the whole text."""
        if self._peek().lower() == "strict":
            self.position += 1
        if self._next().lower() != "digraph":
            raise self._error("a machine is a 'digraph { ... }'", back=1)
        if self._peek() != "{":
            self._next()
        self._block()
        if self.position < len(self.tokens):
            raise self._error("text after the closing '}'")
        return self.graph

    def _block(self) -> None:
        """Parse statements in braces: the graph, or a subgraph, which only says how to draw its nodes."""
        self._expect("{")
        while self._peek() != "}":
            self._statement()
        self._expect("}")

    def _statement(self) -> None:
        if self._peek().lower() == "subgraph":
            self.position += 1
            if self._peek() != "{":
                self._identifier()
        if self._peek() == "{":
            self._block()
            if self._peek() == "->":
                raise self._error("an edge must start at a state, not at a subgraph")
            return
        if self._peek() == ";":
            self.position += 1
            return
        first, kind, line = self._identifier()
        if self._peek() == "=":
            self.position += 1
            self._identifier()
        elif kind == "word" and first.lower() in self.defaults:
            self.defaults[first.lower()] |= self._attributes()
        else:
            chain = [first]
            self._port()
            while self._peek() == "->":
                self.position += 1
                chain.append(self._identifier()[0])
                self._port()
            if self._peek() == "--":
                raise self._error("machines have directed edges, '->'")
            attributes = self._attributes()
            for node in chain:
                self.graph.nodes.setdefault(node, dict(self.defaults["node"]))
            if len(chain) == 1:
                self.graph.nodes[first] |= attributes
            for source, target in pairwise(chain):
                self.graph.edges.append(_Edge(source, target, self.defaults["edge"] | attributes, line))
        if self._peek() == ";":
            self.position += 1

    def _port(self) -> None:
        """Skip a port such as :n, the side of a node at which an edge ends."""
        while self._peek() == ":":
            self.position += 1
            self._identifier()

    def _attributes(self) -> dict[str, str]:
        attributes: dict[str, str] = {}
        while self._peek() == "[":
            self.position += 1
            while self._peek() != "]":
                key = self._identifier()[0]
                self._expect("=")
                attributes[key] = self._identifier()[0]
                if self._peek() in (",", ";"):
                    self.position += 1
            self.position += 1
        return attributes

    def _identifier(self) -> tuple[str, str, int]:
        """Read a name, and return its text, kind and line."""
        if self.position >= len(self.tokens):
            raise self._error("the graph ends too early")
        text, kind, line = self.tokens[self.position]
        if kind == "sign":
            raise self._error("expected a name")
        self.position += 1
        while kind == "quoted" and self.position + 1 < len(self.tokens) and self._peek() == "+":
            self.position += 1
            text += self._identifier()[0]
        return text, kind, line

    def _peek(self) -> str:
        if self.position >= len(self.tokens):
            raise self._error("the graph ends too early, '}' is missing")
        text, kind, _ = self.tokens[self.position]
        return text if kind != "quoted" else ""

    def _next(self) -> str:
        token = self._peek()
        self.position += 1
        return token

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._error(f"expected {sign!r}")
        self.position += 1

    def _error(self, message: str, back: int = 0) -> FormatError:
        position = min(self.position - back, len(self.tokens) - 1)
        if position < 0:
            return FormatError(f"{message}; the text is empty")
        text, _, line = self.tokens[position]
        return FormatError(f"line {line}: {message}, near {format_value(text)}")


def _tokenize(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the text, kind and line of each token, without quotes and escapes."""
    position, line = int(text.startswith("\ufeff")), 1  # skip a byte order mark
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise FormatError(f"line {line}: {text[position]!r} is not part of the DOT language; remove or quote it")
        kind, token = match.lastgroup or "", match[0]
        if kind == "quoted":
            yield re.sub(r"\\([\\\"])", r"\1", token[1:-1]), kind, line
        elif kind != "space":
            yield token, kind, line
        line += token.count("\n")
        position = match.end()
