"""A parser for the part of the DOT language of Graphviz that describes a directed graph.

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

from sdssm.errors import FormatError, format_value

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
      | (?P<quoted>"(?:[^"\\]|\\.)*"|<(?:[^<>]|<[^<>]*>)*>)
      | (?P<word>[^\W\d]\w*|-?(?:\.\d+|\d+(?:\.\d*)?))
      | (?P<sign>->|--|[{}\[\];,=:+])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass
class DotEdge:
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
class DotGraph:
    """The nodes with their attributes, and the edges."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[DotEdge] = field(default_factory=list)


def parse_dot(text: str) -> DotGraph:
    """Return the nodes and edges of a DOT graph.

    >>> [edge.target for edge in parse_dot("digraph { a -> b -> c }").edges]
    ['b', 'c']
    """
    return _DotParser(text).parse()


class _DotParser:
    """A recursive descent parser for the part of the DOT grammar that describes a directed graph."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokenize(text))
        self.position = 0
        self.defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}, "graph": {}}
        self.graph = DotGraph()

    def parse(self) -> DotGraph:
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
                self.graph.edges.append(DotEdge(source, target, self.defaults["edge"] | attributes, line))
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
