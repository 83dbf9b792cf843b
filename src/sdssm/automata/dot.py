"""Machines in the DOT language of Graphviz.

What `to_dot` writes, `from_dot` reads back as an equal machine. Beyond that, `from_dot` reads the usual ways of drawing
a deterministic automaton by hand:

    digraph { s [shape=none]; s -> even; even -> even [label="0"]; even -> odd [label="1"]; odd -> ...
              odd [shape=doublecircle] }

Start: where the arrow of a node that is no state points to (`s` above: nothing leads there, and it has no shape or its
arrow no label), or a node with `start=true`, or else the first node. Symbols: the labels of the edges in order of
appearance, "a,b" meaning both. Outputs: an attribute `output`; or 1 for doublecircles and 0 for the rest, where there
are any; or else the number of the state.
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
    """The machine as a DOT graph, ready for Graphviz."""
    lines = ["digraph machine {", "  rankdir=LR;", "  node [shape=circle];", "  start [shape=point];"]
    for q, name in enumerate(machine.state_names):
        output = int(machine.outputs[q])
        label = name if output == q and machine.states is None else f"{name} / {output}"
        named = f", name={_quote(name)}" if machine.states else ""
        lines.append(f"  {q} [label={_quote(label)}, output={output}{named}];")
    lines.append(f"  start -> {machine.start};")
    for q, row in enumerate(machine.table.tolist()):
        for a, there in enumerate(row):
            label = _quote(machine.symbol_names[a])
            named = f", name={label}" if machine.symbols else ""
            lines.append(f"  {q} -> {there} [label={label}, symbol={a}{named}];")
    return "\n".join([*lines, "}", ""])


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def from_dot(text: str) -> Machine:
    """The machine that a DOT graph describes.

    >>> from_dot("digraph { a -> b [label=x]; b -> a [label=x] }").table.tolist()
    [[1], [0]]
    """
    graph = _Reader(text).graph()
    markers, arrows = _markers(graph)
    nodes = [node for node in graph.nodes if node not in markers]
    if not nodes:
        raise FormatError("the graph has no states; write edges such as a -> b [label=x]")
    if len(arrows) > 1:
        raise FormatError(f"{len(arrows)} arrows mark a start state; keep one of them")
    flagged = [node for node in nodes if graph.nodes[node].get("start") == "true"]
    start = arrows[0].target if arrows else flagged[0] if flagged else nodes[0]
    number = {node: q for q, node in enumerate(nodes)}
    edges = [edge for edge in graph.edges if edge.source not in markers]
    symbols, named = _symbols(edges)
    return Machine(
        table=_table(edges, number, symbols),
        start=number[start],
        outputs=_outputs(graph, nodes),
        states=_state_names(graph, nodes),
        symbols=symbols if named else None,
    )


@dataclass
class _Edge:
    source: str
    target: str
    attributes: dict[str, str]
    line: int

    def labels(self) -> list[str]:
        if "symbol" in self.attributes:  # written by to_dot: the label is one symbol, commas and all
            return [self.attributes.get("name", self.attributes["symbol"])]
        if "label" not in self.attributes:
            ends = f"{format_value(self.source)} -> {format_value(self.target)}"
            raise FormatError(f"line {self.line}: the edge {ends} has no label; give its symbol")
        return [part.strip() for part in self.attributes["label"].split(",")]


@dataclass
class _Graph:
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[_Edge] = field(default_factory=list)


def _markers(graph: _Graph) -> tuple[set[str], list[_Edge]]:
    """The nodes that only mark a start state, and their arrows."""
    targets = {edge.target for edge in graph.edges}
    labelled = {edge.source for edge in graph.edges if edge.attributes.get("label") or "symbol" in edge.attributes}
    sources = {edge.source for edge in graph.edges}
    markers = {
        node
        for node in sources - targets
        if node not in labelled or graph.nodes[node].get("shape") in ("none", "point", "plaintext")
    }
    return markers, [edge for edge in graph.edges if edge.source in markers]


def _symbols(edges: list[_Edge]) -> tuple[list[str], bool]:
    """The symbols in order, and whether their names mean more than their numbers."""
    found = list(dict.fromkeys(label for edge in edges for label in edge.labels()))
    if all("symbol" in edge.attributes for edge in edges):
        by_number = {edge.labels()[0]: edge.attributes["symbol"] for edge in edges}
        if all(_is_number(n) for n in by_number.values()):
            found = sorted(found, key=lambda name: int(by_number[name]))
        return found, any("name" in edge.attributes for edge in edges)
    return found, True


def _is_number(text: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", text) is not None


def _table(edges: list[_Edge], number: dict[str, int], symbols: list[str]) -> list[list[int]]:
    column = {symbol: a for a, symbol in enumerate(symbols)}
    rows: list[list[int | None]] = [[None] * len(symbols) for _ in number]
    for edge in edges:
        for label in edge.labels():
            row, a = rows[number[edge.source]], column[label]
            if row[a] is not None:
                raise FormatError(
                    f"line {edge.line}: state {format_value(edge.source)} has two edges for "
                    f"symbol {format_value(label)}; keep one"
                )
            row[a] = number[edge.target]
    full = []
    for node, row in zip(number, rows, strict=True):
        for symbol, there in zip(symbols, row, strict=True):
            if there is None:
                raise FormatError(
                    f"state {format_value(node)} has no edge for symbol {format_value(symbol)}; "
                    "a machine has one for each symbol"
                )
        full.append([there for there in row if there is not None])
    return full


def _outputs(graph: _Graph, nodes: list[str]) -> list[int] | None:
    given = [graph.nodes[node].get("output") for node in nodes]
    if any(value is not None for value in given):
        for node, value in zip(nodes, given, strict=True):
            if value is None or not _is_number(value):
                raise FormatError(
                    f"the output of state {format_value(node)} is {format_value(value)}; "
                    "give every state a whole number from 0"
                )
        return [int(value) for value in given if value is not None]
    accepting = [int(graph.nodes[node].get("shape") == "doublecircle") for node in nodes]
    return accepting if any(accepting) else None


def _state_names(graph: _Graph, nodes: list[str]) -> list[str] | None:
    if any("output" in graph.nodes[node] for node in nodes) and nodes == [str(q) for q in range(len(nodes))]:
        names = [graph.nodes[node].get("name") for node in nodes]
        return [str(name) for name in names] if all(name is not None for name in names) else None
    return nodes


class _Reader:
    """Reads the part of the DOT grammar that describes a plain directed graph."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}, "graph": {}}
        self.out = _Graph()

    def graph(self) -> _Graph:
        if self._peek().lower() == "strict":
            self.at += 1
        if self._next().lower() != "digraph":
            raise self._error("a machine is a 'digraph { ... }'", back=1)
        if self._peek() != "{":
            self._next()
        self._block()
        if self.at < len(self.tokens):
            raise self._error("text after the closing '}'")
        return self.out

    def _block(self) -> None:
        """Statements in braces: the graph's own, or those of a group inside it, which only says how to draw them."""
        self._expect("{")
        while self._peek() != "}":
            self._statement()
        self._expect("}")

    def _statement(self) -> None:
        if self._peek().lower() == "subgraph":
            self.at += 1
            if self._peek() != "{":
                self._identifier()
        if self._peek() == "{":
            self._block()
            if self._peek() == "->":
                raise self._error("an edge leads from a state to a state, not from a group")
            return
        if self._peek() == ";":
            self.at += 1
            return
        first, kind, line = self._identifier()
        if self._peek() == "=":
            self.at += 1
            self._identifier()
        elif kind == "word" and first.lower() in self.defaults:
            self.defaults[first.lower()] |= self._attributes()
        else:
            chain = [first]
            self._port()
            while self._peek() == "->":
                self.at += 1
                chain.append(self._identifier()[0])
                self._port()
            if self._peek() == "--":
                raise self._error("machines have directed edges, '->'")
            attributes = self._attributes()
            for node in chain:
                self.out.nodes.setdefault(node, dict(self.defaults["node"]))
            if len(chain) == 1:
                self.out.nodes[first] |= attributes
            for source, target in pairwise(chain):
                self.out.edges.append(_Edge(source, target, self.defaults["edge"] | attributes, line))
        if self._peek() == ";":
            self.at += 1

    def _port(self) -> None:
        """Where on a node an edge ends, as in a:n, says nothing about the machine."""
        while self._peek() == ":":
            self.at += 1
            self._identifier()

    def _attributes(self) -> dict[str, str]:
        out: dict[str, str] = {}
        while self._peek() == "[":
            self.at += 1
            while self._peek() != "]":
                key = self._identifier()[0]
                self._expect("=")
                out[key] = self._identifier()[0]
                if self._peek() in (",", ";"):
                    self.at += 1
            self.at += 1
        return out

    def _identifier(self) -> tuple[str, str, int]:
        if self.at >= len(self.tokens):
            raise self._error("the graph ends too early")
        text, kind, line = self.tokens[self.at]
        if kind == "sign":
            raise self._error("expected a name")
        self.at += 1
        while kind == "quoted" and self.at + 1 < len(self.tokens) and self._peek() == "+":
            self.at += 1
            text += self._identifier()[0]
        return text, kind, line

    def _peek(self) -> str:
        if self.at >= len(self.tokens):
            raise self._error("the graph ends too early, '}' is missing")
        text, kind, _ = self.tokens[self.at]
        return text if kind != "quoted" else ""

    def _next(self) -> str:
        token = self._peek()
        self.at += 1
        return token

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._error(f"expected {sign!r}")
        self.at += 1

    def _error(self, what: str, back: int = 0) -> FormatError:
        at = min(self.at - back, len(self.tokens) - 1)
        if at < 0:
            return FormatError(f"{what}; the text is empty")
        text, _, line = self.tokens[at]
        return FormatError(f"line {line}: {what}, near {format_value(text)}")


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """(text, kind, line) of each token, quotes and escapes taken off."""
    at, line = int(text.startswith("\ufeff")), 1  # some editors put a mark at the beginning
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            raise FormatError(f"line {line}: {text[at]!r} begins no word, quoted text or sign of the DOT language")
        kind, token = found.lastgroup or "", found[0]
        if kind == "quoted":
            yield re.sub(r"\\([\\\"])", r"\1", token[1:-1]), kind, line
        elif kind != "space":
            yield token, kind, line
        line += token.count("\n")
        at = found.end()
