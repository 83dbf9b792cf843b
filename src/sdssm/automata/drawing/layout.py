"""Where the states of a diagram stand: found from the structure of the table, never from names.

The unit is the smallest distance between two states; x runs to the right and y runs down, as in SVG. In order of
preference a machine is laid out as

    ring       some symbol leads through all the states in a single cycle (Z_n, parity);
    two rings  some symbol has two cycles of one length and an involution swaps them (C_2 x C_n, D_n): partners stand on
               the same ray, so that the involution's edges are radial although the cycles of D_n run in opposite ways;
    cycles     some symbol has only cycles of one length, at least 3: each is a small polygon (the twelve pentagons of
               A_5), and the polygons stand on rings by their distance from the one that holds the start state;
    graphviz   what the program `dot` answers, where it is installed, does answer, and makes no worse a picture than
    plain      the best of a few layouts that need no program: by layers from the start state, and by stress.

The last two are compared because `dot` spreads machines with many edges over tall columns, full of crossings.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from sdssm.automata.drawing.general import (
    Complexes,
    Floats,
    apart,
    badness,
    depths,
    directions,
    graphviz,
    neighbours,
    pairs,
    plain,
)
from sdssm.automata.refinement import Ints

#: Pairs of edges compared while polygons are exchanged, past which they stay where they are.
MOST_TRIED = 20_000_000
#: Ring of polygons: free space between two of them, in units.
MOAT = 1.1


@dataclass(frozen=True)
class Layout:
    """Positions (Q, 2) no nearer to each other than 1, and the kind of picture they make."""

    kind: str
    positions: Floats


def layout(table: Ints, start: int) -> Layout:
    """The positions of the states of a machine.

    >>> found = layout(np.array([[1], [2], [3], [0]]), 0)
    >>> found.kind, (found.positions * 2**0.5).round().astype(int).tolist()  # clockwise from the top
    ('ring', [[0, -1], [1, 0], [0, 1], [-1, 0]])
    """
    orbits = {a: cycles(table[:, a]) for a in range(table.shape[1]) if len(np.unique(table[:, a])) == len(table)}
    for kind, place in (("ring", _ring), ("two rings", _two_rings), ("cycles", _polygons)):
        points = place(table, start, orbits)
        if points is not None:
            return Layout(kind, pairs(points))
    edges = np.array(neighbours(table)).reshape(-1, 2)
    best = Layout("plain", plain(table, start, edges))
    answer = graphviz(table)
    if answer is not None:
        theirs = Layout("graphviz", apart(answer))
        best = min(theirs, best, key=lambda found: badness(found.positions, edges))
    return best


def cycles(permutation: Ints) -> list[list[int]]:
    """The cycles of a permutation, each from its smallest member on.

    >>> cycles(np.array([2, 1, 3, 0]))
    [[0, 2, 3], [1]]
    """
    seen: set[int] = set()
    out = []
    for first in range(len(permutation)):
        if first not in seen:
            cycle = [first]
            while (ahead := int(permutation[cycle[-1]])) != first:
                cycle.append(ahead)
            seen.update(cycle)
            out.append(cycle)
    return out


def _ring(table: Ints, start: int, orbits: dict[int, list[list[int]]]) -> Complexes | None:
    whole = [a for a, found in orbits.items() if len(found) == 1]
    if not whole:
        return None
    ordered = _from(orbits[_most_upward(table, whole)][0], start)
    out = np.empty(len(table), dtype=np.complex128)
    out[ordered] = _polygon(len(table)) * (-1j if len(table) == 2 else 1)  # two states stand side by side
    return out


def _two_rings(table: Ints, start: int, orbits: dict[int, list[list[int]]]) -> Complexes | None:
    states = np.arange(len(table))
    for a in [a for a, found in orbits.items() if len(found) == 2]:
        one, other = orbits[a]
        for b in orbits:
            swap = table[:, b]
            if len(one) != len(other) or (swap[swap] != states).any() or set(swap[one].tolist()) != set(other):
                continue
            outer = _from(one if start in one else other, start)
            out = np.empty(len(table), dtype=np.complex128)
            if len(outer) == 2:  # rings of two would lie on one line: a square instead
                out[outer], out[swap[outer]] = np.array([0, 1.5]), np.array([1.5j, 1.5 + 1.5j])
                return out
            inner_radius = max(_radius(len(outer)), 0.85)
            out[outer] = directions(len(outer)) * (inner_radius + 1.15)
            out[swap[outer]] = directions(len(outer)) * inner_radius
            return out
    return None


def _polygons(table: Ints, start: int, orbits: dict[int, list[list[int]]]) -> Complexes | None:
    """Each cycle of one symbol a regular polygon; the polygons on rings about the start state's.

    A last ring of a single polygon becomes a circle about everything else: so the Cayley graph of A_5, which is the
    truncated icosahedron, is drawn without a crossing.
    """
    even = [a for a, found in orbits.items() if len(found[0]) >= 3 and len({len(c) for c in found}) == 1]
    if not even:
        return None
    best = max(len(orbits[a][0]) for a in even)
    groups = np.array(orbits[next(a for a in even if len(orbits[a][0]) == best)])  # (groups, size)
    group = np.empty(len(table), dtype=np.int64)
    group[groups] = np.arange(len(groups))[:, None]
    edges = np.array([(p, q) for p, q in neighbours(table) if group[p] != group[q]]).reshape(-1, 2)
    depth = depths(len(groups), group[edges], int(group[start]))
    if depth is None:
        return None
    return _turned(groups, group, edges, *_centres(groups, depth))


def _centres(groups: Ints, depth: Ints) -> tuple[Complexes, Floats, list[Ints]]:
    """A centre and a radius for each polygon, and the rings (polygons whose places may be exchanged)."""
    small = _radius(groups.shape[1])
    pitch = 2 * small + MOAT
    centre = np.zeros(len(groups), dtype=np.complex128)
    radius = np.full(len(groups), small)
    rings, reach = [], 0.0
    for d in range(1, int(depth.max()) + 1):
        ring = np.flatnonzero(depth == d)
        if len(ring) == 1 and d == depth.max():
            radius[ring] = max(reach + small + 1.15, small)
            break
        reach = max(reach + pitch, pitch / (2 * np.sin(np.pi / len(ring))))
        centre[ring] = reach * directions(len(ring), half=d % 2 == 0)
        rings.append(ring)
    return centre, radius, rings


def _turned(groups: Ints, group: Ints, edges: Ints, centre: Complexes, radius: Floats, rings: list[Ints]) -> Complexes:
    """Turn and mirror every polygon, and exchange polygons on a ring, while the edges between them grow shorter."""
    size = groups.shape[1]
    root = np.exp(2j * np.pi * np.outer([1, -1], np.arange(size)) / size)  # both senses of each polygon
    slot = np.empty(len(group), dtype=np.int64)
    slot[groups] = np.arange(size)
    heads, tails = np.concatenate([edges, edges[:, ::-1]]).T

    def settle(centre: Complexes, turn: Complexes, sense: Ints) -> tuple[float, Complexes, Complexes, Ints]:
        for _ in range(4):
            points = centre[group] + radius[group] * turn[group] * root[sense[group], slot]
            pull = np.zeros((2, len(groups)), dtype=np.complex128)
            to = points[tails] - centre[group[heads]]
            to = to / np.maximum(np.abs(to), 1e-9)
            for s in (0, 1):  # the turn that best points the corners at the far ends of their edges
                np.add.at(pull[s], group[heads], to * root[s, slot[heads]].conj())
            sense = (np.abs(pull[1]) > np.abs(pull[0]) + 1e-9).astype(np.int64)
            best = pull[sense, np.arange(len(groups))]
            turn = np.where(np.abs(best) > 1e-9, best / np.maximum(np.abs(best), 1e-9), turn)
        points = centre[group] + radius[group] * turn[group] * root[sense[group], slot]
        return badness(pairs(points), edges), points, turn, sense

    outward = np.where(centre == 0, -1j, centre / np.maximum(np.abs(centre), 1e-9))
    half = np.where(radius > radius.min(), np.exp(1j * np.pi / size), 1)  # the outermost, by half a step
    first = np.zeros(len(groups), dtype=np.int64)
    begun = [settle(centre, turn, first) for turn in (outward, outward * half)]
    cost, points, turn, sense = min(begun, key=lambda found: found[0])
    trials = [(int(p), int(q)) for ring in rings for p, q in combinations(ring, 2)]
    affordable = len(trials) * len(edges) ** 2 <= MOST_TRIED  # a trial compares every edge with every other
    for _ in range(8 if affordable else 0):
        before = cost
        for p, q in trials:
            moved = centre.copy()
            moved[[p, q]] = moved[[q, p]]
            found = settle(moved, turn, sense)
            if found[0] < cost - 1e-9:
                centre = moved
                cost, points, turn, sense = found
        if cost == before:
            break
    return points


def _most_upward(table: Ints, symbols: list[int]) -> int:
    """The symbol that most often leads from a state to the next number: a ring then counts clockwise."""
    ahead = (np.arange(len(table)) + 1) % len(table)
    return max(symbols, key=lambda a: int((table[:, a] == ahead).sum()))


def _from(cycle: list[int], start: int) -> list[int]:
    at = cycle.index(start)
    return cycle[at:] + cycle[:at]


def _radius(n: int) -> float:
    """The radius of a regular polygon of n corners and side 1."""
    return float(0.5 / np.sin(np.pi / n)) if n > 1 else 0.0


def _polygon(n: int) -> Complexes:
    return directions(n) * (_radius(n) if n > 2 else 0.8 * (n - 1))
