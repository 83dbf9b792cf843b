"""A regular expression from a machine: states are eliminated one after the other.

An edge carries an expression. When a state is eliminated, each path of two edges through it becomes an edge:
in (loop)* out. The order decides how long the result is: a greedy order is tried first (the state that adds the fewest
letters), then some random ones, and the shortest expression is returned.
"""

from __future__ import annotations

from random import Random

import numpy as np

from sdssm.automata.expressions import MOST_CHARACTERS, Expression, ExpressionBuilder
from sdssm.automata.machine import Machine
from sdssm.automata.refinement import live_states
from sdssm.automata.validation import format_names
from sdssm.errors import AutomatonError, format_value

#: At most so many orders are tried, and none after expressions of so many letters in all, which takes about a second.
MOST_ORDERS, MOST_TRIED = 60, 1_500

#: (source, target) -> expression. The machine starts at -1 and accepts at -2.
Edges = dict[tuple[int, int], Expression]
START, END = -1, -2


def find_regex(machine: Machine, accepting: set[int]) -> str:
    """Return a short regular expression for the strings after which the output is in `accepting`."""
    for name in machine.symbol_names:
        if len(name) != 1:
            raise AutomatonError(
                f"symbol {format_value(name)} has more than one letter; a regular expression needs symbols of one "
                f"letter, and the symbols are {format_names(machine.symbol_names)}"
            )
    accepts = np.isin(machine.outputs, sorted(accepting))
    acceptor = Machine(table=machine.table, start=machine.start, outputs=accepts.astype(np.int64)).minimise()
    builder = ExpressionBuilder(machine.symbol_names)
    edges = _first_edges(acceptor, machine.symbol_names, builder)
    states = sorted({state for pair in edges for state in pair if state >= 0})
    results: list[str] = []
    random, tried = Random(0), 0  # noqa: S311  # no secret: an order of states to try
    for k in range(MOST_ORDERS):
        if tried > MOST_TRIED:
            break
        order = random.sample(states, len(states)) if k else None
        try:
            results.append(_eliminate(dict(edges), states, order, builder))
            tried += len(results[-1])
        except (AutomatonError, RecursionError):  # too long; another order may be shorter
            tried += MOST_CHARACTERS
    if not results:
        raise AutomatonError(
            f"the regular expression of this machine with {acceptor.n_states} states has more than {MOST_CHARACTERS:,} "
            "characters; write the machine as .json or .dot instead"
        )
    return min(results, key=lambda text: (len(text), text))


def _first_edges(acceptor: Machine, letters: tuple[str, ...], builder: ExpressionBuilder) -> Edges:
    """Return the edges of a machine, without those to states from which no string is accepted."""
    alive = live_states(acceptor.table, acceptor.outputs == 1)
    chosen: dict[tuple[int, int], list[str]] = {}
    for q, row in enumerate(acceptor.table.tolist()):
        for letter, target in zip(letters, row, strict=True):
            if alive[q] and alive[target]:
                chosen.setdefault((q, target), []).append(letter)
    edges = {pair: builder.letters(pair_letters) for pair, pair_letters in chosen.items()}
    if alive[acceptor.start]:
        edges[START, acceptor.start] = builder.empty
        edges |= {(int(q), END): builder.empty for q in np.flatnonzero(acceptor.outputs)}
    return edges


def _eliminate(edges: Edges, states: list[int], order: list[int] | None, builder: ExpressionBuilder) -> str:
    """Return the expression that is left when all states are eliminated, in this order or greedily."""
    remaining = list(states)
    while remaining:
        state = min(remaining, key=lambda q: _added_letters(edges, q)) if order is None else order[-len(remaining)]
        remaining.remove(state)
        loop = edges.pop((state, state), None)
        around = builder.empty if loop is None else builder.star(loop)
        sources = {p: edges.pop((p, state)) for p in [p for p, q in edges if q == state]}
        targets = {q: edges.pop((state, q)) for q in [q for p, q in edges if p == state]}
        for p, before in sources.items():
            for q, after in targets.items():
                path = builder.sequence(before, around, after)
                edges[p, q] = builder.choice(edges[p, q], path) if (p, q) in edges else path
    return edges.get((START, END), builder.nothing).text


def _added_letters(edges: Edges, state: int) -> int:
    """Return how many letters the elimination of a state adds, without simplification."""
    before = [len(e.text) for (p, q), e in edges.items() if q == state != p]
    after = [len(e.text) for (p, q), e in edges.items() if p == state != q]
    loop = len(edges[state, state].text) if (state, state) in edges else 0
    paths = len(before) * len(after)
    return sum(before) * (len(after) - 1) + sum(after) * (len(before) - 1) + loop * (paths - 1)
