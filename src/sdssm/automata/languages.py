"""Machines that are not groups: Even Pairs, Arithmetic, Tomita, bounded Dyck and prefix languages, random tables."""

from __future__ import annotations

from math import ceil, log

import numpy as np

from sdssm.automata.machine import Machine
from sdssm.automata.refinement import reachable_states
from sdssm.errors import AutomatonError

#: How often a random table is redrawn before it is drawn by counting, and the most counts in memory.
REDRAWS = 50
MOST_COUNTS = 20_000_000


def even_pairs() -> Machine:
    """Return the machine with output 0 if a string has as many 01 as 10, else 1.

    This is so if the first and the last symbol are equal. States are the start, and (first, last). The empty string has
    output 0.
    """
    return Machine(
        table=[[1, 4], [1, 2], [1, 2], [3, 4], [3, 4]],
        outputs=[0, 0, 1, 1, 0],
        states=["start", "0..0", "0..1", "1..0", "1..1"],
    )


def arithmetic() -> Machine:
    """Return the machine that computes arithmetic mod 5: digits 0..4 joined by + - *.

    Multiplication has precedence, and there are no brackets.

    State (s, p) is the sum of the finished terms and the signed product of the current term. A digit d multiplies p by
    d; '+' and '-' add p to s and start a term with sign 1 or 4 = -1; '*' changes nothing. The output is s + p.
    """
    pairs = [(s, p) for s in range(5) for p in range(5)]
    number = {pair: q for q, pair in enumerate(pairs)}
    rows = []
    for s, p in pairs:
        next_pairs = [(s, p * d % 5) for d in range(5)] + [((s + p) % 5, 1), ((s + p) % 5, 4), (s, p)]
        rows.append([number[pair] for pair in next_pairs])
    return Machine(
        table=rows,
        start=number[0, 1],
        outputs=[(s + p) % 5 for s, p in pairs],
        states=[f"{s},{p}" for s, p in pairs],
        symbols=[*"01234+-*"],
    )


def left_arithmetic() -> Machine:
    """Return the machine that computes arithmetic mod 5 from left to right: `*` has no precedence, 1+2*3 is 4.

    So it is posed in "Length Generalization with Log-Depth Recurrent Units" (arXiv 2605.26035). State (v, o) is the
    value so far and the operator that joins the next digit to it. The output is v.

    >>> left_arithmetic().output("1+2*3"), arithmetic().output("1+2*3")
    (4, 2)
    """
    operators = {"+": lambda v, d: v + d, "-": lambda v, d: v - d, "*": lambda v, d: v * d}
    pairs = [(v, o) for v in range(5) for o in operators]
    number = {pair: q for q, pair in enumerate(pairs)}
    rows = [[(operators[o](v, d) % 5, "+") for d in range(5)] + [(v, other) for other in operators] for v, o in pairs]
    return Machine(
        table=[[number[pair] for pair in row] for row in rows],
        start=number[0, "+"],
        outputs=[v for v, _ in pairs],
        states=[f"{v}{o}" for v, o in pairs],
        symbols=[*"01234+-*"],
    )


def arithmetic_strings() -> Machine:
    """Return the machine of the valid strings of Arithmetic, also of the one from left to right.

    Digits and operators alternate, with digits at both ends.
    """
    return Machine(
        table=[[1] * 5 + [2] * 3, [2] * 5 + [0] * 3, [2] * 8],
        outputs=[0, 1, 0],
        states=["digit next", "operator next", "ill-formed"],
        symbols=[*"01234+-*"],
    )


#: The seven languages of Tomita (1982) over 0 and 1: definition, table, accepting states.
TOMITA: dict[int, tuple[str, list[list[int]], set[int]]] = {
    1: ("1*", [[1, 0], [1, 1]], {0}),
    2: ("(10)*", [[2, 1], [0, 2], [2, 2]], {0}),
    3: (
        "no odd run of 1s directly followed by an odd run of 0s",
        [[0, 1], [2, 0], [3, 4], [2, 1], [4, 4]],
        {0, 1, 3},
    ),
    4: ("no 000 inside", [[1, 0], [2, 0], [3, 0], [3, 3]], {0, 1, 2}),
    5: ("an even number of 0s and an even number of 1s", [[1, 2], [0, 3], [3, 0], [2, 1]], {0}),
    6: ("as many 0s as 1s, mod 3", [[1, 2], [2, 0], [0, 1]], {0}),
    7: ("0*1*0*1*", [[0, 1], [2, 1], [2, 3], [4, 3], [4, 4]], {0, 1, 2, 3}),
}


def tomita(number: int) -> Machine:
    """Return the machine with output 1 on the strings of a Tomita language, else 0."""
    _, table, accepting = TOMITA[number]
    return Machine(table=table, outputs=[int(q in accepting) for q in range(len(table))])


def bounded_dyck(depth: int) -> Machine:
    """Return the machine with output 1 on strings of balanced brackets that are nested at most `depth` deep.

    There is one pair of brackets. State k < depth + 1 has k open brackets; the last state is never left.

    >>> bounded_dyck(2).output("(())()"), bounded_dyck(2).output("((()))"), bounded_dyck(2).n_states
    (1, 0, 4)
    """
    sink = depth + 1
    rows = [[k + 1, k - 1 if k else sink] for k in range(depth + 1)]  # opening at full depth leads to the sink as well
    return Machine(
        table=[*rows, [sink, sink]],
        outputs=[1] + [0] * (depth + 1),
        states=[*map(str, range(depth + 1)), "broken"],
        symbols=["(", ")"],
    )


def prefix_machine(length: int, symbols: int) -> Machine:
    """Return the machine whose output is the number of the first `length` symbols, and one more before they are read.

    This is P_{length,symbols} of "Length Generalization with Log-Depth Recurrent Units" (arXiv 2605.26035) as its code
    defines it. A state is a string of at most `length` symbols; its number in base `symbols` is the output of a
    complete one, and symbols^length that of all shorter ones.

    >>> machine = prefix_machine(2, 2)
    >>> machine.output("1001"), machine.output("1"), machine.n_states
    (2, 4, 7)
    """
    first = [0]  # the number of the first state of each length
    for k in range(length):
        first.append(first[-1] + symbols**k)
    rows = [
        [first[k + 1] + symbols * rank + a for a in range(symbols)] for k in range(length) for rank in range(symbols**k)
    ]
    n_outputs = symbols**length
    return Machine(
        table=[*rows, *([first[length] + rank] * symbols for rank in range(n_outputs))],
        outputs=[n_outputs] * first[length] + list(range(n_outputs)),
    )


def random_machine(states: int, symbols: int, seed: int) -> Machine:
    """Return a uniformly random machine whose states are all reachable; the output is the state.

    The table is redrawn until every state is reachable. If that takes too long (few symbols, many states), a table with
    the same distribution is drawn by counting.
    """
    rng = np.random.default_rng(seed)
    for _ in range(REDRAWS):
        table = rng.integers(states, size=(states, symbols))
        if reachable_states(table, 0).all():
            return Machine(table=table)
    return Machine(table=_draw_by_counting(states, symbols, rng))


def _least_symbols(states: int) -> int:
    """Return a number of symbols with which a fifth of the tables or more reach all states, so that redrawing works.

    A state is in no row with probability exp(-symbols), so exp(-states exp(-symbols)) of the tables use all states.
    """
    return ceil(log(states / log(5)))


def _draw_by_counting(states: int, symbols: int, rng: np.random.Generator) -> np.ndarray:
    """Fill the table in breadth-first order.

    The probability of a value is proportional to the number of tables with it that reach every state.

    With d states reached so far, an entry is one of these d, or one of the states - d others. `log_ways[d]` counts the
    ways to fill the remaining entries. The k-th state must be reached before its row is filled.
    """
    entries = states * symbols
    if entries * states > MOST_COUNTS:
        raise AutomatonError(
            f"random:{states}x{symbols}: almost no table with so few symbols reaches all states; "
            f"use at least {_least_symbols(states)} symbols"
        )
    reached = np.arange(1, states + 1)
    with np.errstate(divide="ignore"):
        stay, grow = np.log(reached), np.log(states - reached)
    log_ways = np.where(reached == states, 0.0, -np.inf)
    new = np.zeros((entries, states))  # the probability that an entry is a new state
    for entry in reversed(range(entries)):
        to_new = grow + np.append(log_ways[1:], -np.inf)
        log_ways = np.logaddexp(stay + log_ways, to_new)
        if entry % symbols == 0:
            log_ways[reached <= entry // symbols] = -np.inf
        with np.errstate(invalid="ignore"):
            new[entry] = np.nan_to_num(np.exp(to_new - log_ways))
    order = np.concatenate(([0], 1 + rng.permutation(states - 1)))  # the states in the order in which they are reached
    table = np.empty(entries, dtype=np.int64)
    n_reached = 1
    for entry in range(entries):
        if rng.random() < new[entry, n_reached - 1]:
            table[entry] = order[n_reached]
            n_reached += 1
        else:
            table[entry] = order[rng.integers(n_reached)]
    numbered = np.empty((states, symbols), dtype=np.int64)
    numbered[order] = table.reshape(states, symbols)
    return numbered
