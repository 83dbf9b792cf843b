"""Positions of the states of a diagram, chosen by the structure of the table, never by names.

The unit is the smallest distance between two states; x increases to the right and y downwards, as in SVG. The layouts,
in order of preference:

    ring       some symbol leads through all states in a single cycle (Z_n, parity);
    two rings  some symbol has two cycles of equal length, and an involution swaps them (C_2 x C_n, D_n): partners are
               on the same ray, so that the edges of the involution are radial although the cycles of D_n have opposite
               directions;
    cycles     all cycles of some symbol have the same length, at least 3: each is a small polygon (the twelve pentagons
               of A_5), and the polygons are on rings by their distance from the polygon of the start state;
    line       the shortest strings from the start reach one state after the other (a search for a word): on a line,
               with arcs above and below it that do not cross;
    graphviz   the layout of the program `dot`, if it is installed and its layout is not worse than
    plain      the best of a few layouts that need no program: by layers from the start state, and by stress.

The last two are compared because `dot` draws machines with many edges as tall columns with many crossings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from sdssm.automata.drawing.general import (
    Complexes,
    badness,
    depths,
    directions,
    graphviz_layout,
    line_layout,
    neighbours,
    plain_layout,
    spread_apart,
    to_xy,
)
from sdssm.automata.refinement import Floats, Ints

#: The most pairs of edges that are compared to exchange polygons; beyond it they are not exchanged.
MOST_TRIED = 20_000_000
#: The space between two polygons of a ring, in units.
POLYGON_GAP = 1.1


@dataclass(frozen=True)
class Layout:
    """The positions of the states (Q, 2), at distances of at least 1, and the kind of layout."""

    kind: str
    positions: Floats
    #: How far the edges between two states (the smaller number first) bend sideways, relative to their distance.
    bends: dict[tuple[int, int], float] = field(default_factory=dict)


def lay_out(table: Ints, start: int) -> Layout:
    """Return the positions of the states of a machine.

    >>> layout = lay_out(np.array([[1], [2], [3], [0]]), 0)
    >>> layout.kind, (layout.positions * 2**0.5).round().astype(int).tolist()  # clockwise from the top
    ('ring', [[0, -1], [1, 0], [0, 1], [-1, 0]])
    """
    cycles_of_symbol = {
        a: cycles(table[:, a]) for a in range(table.shape[1]) if len(np.unique(table[:, a])) == len(table)
    }
    for kind, place in (("ring", _ring), ("two rings", _two_rings), ("cycles", _polygons)):
        points = place(table, start, cycles_of_symbol)
        if points is not None:
            return Layout(kind, to_xy(points))
    edges = np.array(neighbours(table)).reshape(-1, 2)
    line = line_layout(table, start)
    if line is not None:
        return Layout("line", *line)
    best = Layout("plain", plain_layout(table, start, edges))
    answer = graphviz_layout(table)
    if answer is not None:
        candidate = Layout("graphviz", spread_apart(answer))
        best = min(candidate, best, key=lambda layout: badness(layout.positions, edges))
    return best


def cycles(permutation: Ints) -> list[list[int]]:
    """Return the cycles of a permutation, each starting with its smallest member.

    >>> cycles(np.array([2, 1, 3, 0]))
    [[0, 2, 3], [1]]
    """
    seen: set[int] = set()
    all_cycles = []
    for first in range(len(permutation)):
        if first not in seen:
            cycle = [first]
            while (image := int(permutation[cycle[-1]])) != first:
                cycle.append(image)
            seen.update(cycle)
            all_cycles.append(cycle)
    return all_cycles


def _ring(table: Ints, start: int, cycles_of_symbol: dict[int, list[list[int]]]) -> Complexes | None:
    symbols = [a for a, symbol_cycles in cycles_of_symbol.items() if len(symbol_cycles) == 1]
    if not symbols:
        return None
    ordered = _rotate_to(cycles_of_symbol[_most_ascending(table, symbols)][0], start)
    points = np.empty(len(table), dtype=np.complex128)
    points[ordered] = _polygon(len(table)) * (-1j if len(table) == 2 else 1)  # two states are side by side
    return points


def _two_rings(table: Ints, start: int, cycles_of_symbol: dict[int, list[list[int]]]) -> Complexes | None:
    states = np.arange(len(table))
    for a in [a for a, symbol_cycles in cycles_of_symbol.items() if len(symbol_cycles) == 2]:
        first, second = cycles_of_symbol[a]
        for b in cycles_of_symbol:
            swap = table[:, b]
            if len(first) != len(second) or (swap[swap] != states).any() or set(swap[first].tolist()) != set(second):
                continue
            outer = _rotate_to(first if start in first else second, start)
            points = np.empty(len(table), dtype=np.complex128)
            if len(outer) == 2:  # rings of two would lie on one line: draw a square
                points[outer], points[swap[outer]] = np.array([0, 1.5]), np.array([1.5j, 1.5 + 1.5j])
                return points
            inner_radius = max(_radius(len(outer)), 0.85)
            points[outer] = directions(len(outer)) * (inner_radius + 1.15)
            points[swap[outer]] = directions(len(outer)) * inner_radius
            return points
    return None


def _polygons(table: Ints, start: int, cycles_of_symbol: dict[int, list[list[int]]]) -> Complexes | None:
    """Draw each cycle of one symbol as a polygon, on rings around the polygon of the start state.

    If the last ring is a single polygon, it becomes a circle around everything else. So the Cayley graph of A_5, the
    truncated icosahedron, is drawn without crossings.
    """
    symbols = [
        a
        for a, symbol_cycles in cycles_of_symbol.items()
        if len(symbol_cycles[0]) >= 3 and len({len(c) for c in symbol_cycles}) == 1
    ]
    if not symbols:
        return None
    longest = max(len(cycles_of_symbol[a][0]) for a in symbols)
    symbol = next(a for a in symbols if len(cycles_of_symbol[a][0]) == longest)
    groups = np.array(cycles_of_symbol[symbol])  # (groups, size)
    group = np.empty(len(table), dtype=np.int64)
    group[groups] = np.arange(len(groups))[:, None]
    edges = np.array([(p, q) for p, q in neighbours(table) if group[p] != group[q]]).reshape(-1, 2)
    depth = depths(len(groups), group[edges], int(group[start]))
    if depth is None:
        return None
    return _arrange_polygons(groups, group, edges, *_place_polygons(groups, depth))


def _place_polygons(groups: Ints, depth: Ints) -> tuple[Complexes, Floats, list[Ints]]:
    """Return a centre and a radius for each polygon, and the rings (polygons that may be exchanged)."""
    small = _radius(groups.shape[1])
    pitch = 2 * small + POLYGON_GAP
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


def _arrange_polygons(
    groups: Ints, group: Ints, edges: Ints, centre: Complexes, radius: Floats, rings: list[Ints]
) -> Complexes:
    """Rotate, reflect and exchange polygons as long as that improves the picture."""
    size = groups.shape[1]
    root = np.exp(2j * np.pi * np.outer([1, -1], np.arange(size)) / size)  # both orientations of each polygon
    slot = np.empty(len(group), dtype=np.int64)
    slot[groups] = np.arange(size)
    heads, tails = np.concatenate([edges, edges[:, ::-1]]).T

    def settle(centre: Complexes, turn: Complexes, orientation: Ints) -> tuple[float, Complexes, Complexes, Ints]:
        """Rotate and reflect the polygons; return the cost, points, rotations and orientations."""
        for _ in range(4):
            points = centre[group] + radius[group] * turn[group] * root[orientation[group], slot]
            pull = np.zeros((2, len(groups)), dtype=np.complex128)
            to = points[tails] - centre[group[heads]]
            to = to / np.maximum(np.abs(to), 1e-9)
            for s in (0, 1):  # the rotation that best turns the corners towards the other ends of their edges
                np.add.at(pull[s], group[heads], to * root[s, slot[heads]].conj())
            orientation = (np.abs(pull[1]) > np.abs(pull[0]) + 1e-9).astype(np.int64)
            best = pull[orientation, np.arange(len(groups))]
            turn = np.where(np.abs(best) > 1e-9, best / np.maximum(np.abs(best), 1e-9), turn)
        points = centre[group] + radius[group] * turn[group] * root[orientation[group], slot]
        return badness(to_xy(points), edges), points, turn, orientation

    outward = np.where(centre == 0, -1j, centre / np.maximum(np.abs(centre), 1e-9))
    # The outermost polygon is rotated by half a step.
    half = np.where(radius > radius.min(), np.exp(1j * np.pi / size), 1)
    first = np.zeros(len(groups), dtype=np.int64)
    starts = [settle(centre, turn, first) for turn in (outward, outward * half)]
    cost, points, turn, orientation = min(starts, key=lambda result: result[0])
    exchanges = [(int(p), int(q)) for ring in rings for p, q in combinations(ring, 2)]
    is_affordable = len(exchanges) * len(edges) ** 2 <= MOST_TRIED  # each exchange compares every edge with every other
    for _ in range(8 if is_affordable else 0):
        before = cost
        for p, q in exchanges:
            moved = centre.copy()
            moved[[p, q]] = moved[[q, p]]
            result = settle(moved, turn, orientation)
            if result[0] < cost - 1e-9:
                centre = moved
                cost, points, turn, orientation = result
        if cost == before:
            break
    return points


def _most_ascending(table: Ints, symbols: list[int]) -> int:
    """Return the symbol that most often leads from a state to the next number.

    Its ring is then numbered clockwise.
    """
    successor = (np.arange(len(table)) + 1) % len(table)
    return max(symbols, key=lambda a: int((table[:, a] == successor).sum()))


def _rotate_to(cycle: list[int], start: int) -> list[int]:
    """Return the cycle, starting with `start`."""
    index = cycle.index(start)
    return cycle[index:] + cycle[:index]


def _radius(n: int) -> float:
    """Return the radius of a regular polygon with n corners and side 1."""
    return float(0.5 / np.sin(np.pi / n)) if n > 1 else 0.0


def _polygon(n: int) -> Complexes:
    return directions(n) * (_radius(n) if n > 2 else 0.8 * (n - 1))
