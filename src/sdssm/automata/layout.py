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

import shutil
import subprocess
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Ints

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

#: Seconds after which an answer of `dot` is no longer awaited.
PATIENCE = 10.0
#: Ring of polygons: free space between two of them, in units.
MOAT = 1.1
#: Distance between neighbours in the plain layouts, in units: their edges cross and need more room than a ring's.
STRIDE = 1.7


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
            return Layout(kind, _pairs(points))
    edges = np.array(_edges(table)).reshape(-1, 2)
    best = Layout("plain", _plain(table, start, edges))
    answer = graphviz(table)
    if answer is not None:
        theirs = Layout("graphviz", _apart(answer))
        best = min(theirs, best, key=lambda found: _badness(found.positions, edges))
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


# -- by structure ----------------------------------------------------------------------------------------------------


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
            out[outer] = _directions(len(outer)) * (inner_radius + 1.15)
            out[swap[outer]] = _directions(len(outer)) * inner_radius
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
    edges = np.array([(p, q) for p, q in _edges(table) if group[p] != group[q]]).reshape(-1, 2)
    depth = _depths(len(groups), group[edges], int(group[start]))
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
        centre[ring] = reach * _directions(len(ring), half=d % 2 == 0)
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
        return _badness(_pairs(points), edges), points, turn, sense

    outward = np.where(centre == 0, -1j, centre / np.maximum(np.abs(centre), 1e-9))
    half = np.where(radius > radius.min(), np.exp(1j * np.pi / size), 1)  # the outermost, by half a step
    first = np.zeros(len(groups), dtype=np.int64)
    begun = [settle(centre, turn, first) for turn in (outward, outward * half)]
    cost, points, turn, sense = min(begun, key=lambda found: found[0])
    trials = [(int(p), int(q)) for ring in rings for p, q in combinations(ring, 2)]
    for _ in range(8):
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


def _directions(n: int, *, half: bool = False) -> Complexes:
    """n unit vectors clockwise from the top, or from half a step past it."""
    return np.asarray(-1j * np.exp(2j * np.pi * (np.arange(n) + half / 2) / n))


def _radius(n: int) -> float:
    """The radius of a regular polygon of n corners and side 1."""
    return float(0.5 / np.sin(np.pi / n)) if n > 1 else 0.0


def _polygon(n: int) -> Complexes:
    return _directions(n) * (_radius(n) if n > 2 else 0.8 * (n - 1))


def _pairs(points: Complexes) -> Floats:
    return np.stack([points.real, points.imag], axis=1)


# -- without structure -----------------------------------------------------------------------------------------------


def graphviz(table: Ints) -> Floats | None:
    """The positions that `dot` finds, or None where it is missing, fails, is too slow or answers something else."""
    program = shutil.which("dot")
    if program is None:
        return None
    look = 'rankdir=LR; nodesep=0.8; ranksep=1.2; node [shape=circle, fixedsize=true, width=0.5, label=""];'
    edges = " ".join(f"{p} -> {q};" for p, q in _edges(table))
    nodes = " ".join(f"{q};" for q in range(len(table)))
    try:
        answer = subprocess.run(  # numbers only: no name reaches the program
            [program, "-Tplain"],
            input=f"digraph {{ {look} {nodes} {edges} }}",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        ).stdout
        rows = [line.split() for line in answer.splitlines() if line.startswith("node ")]
        at = {int(row[1]): (float(row[2]), -float(row[3])) for row in rows}
        found = np.array([at[q] for q in range(len(table))])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return None  # any failure at all: our own layout needs no program
    return found if np.isfinite(found).all() else None


def _plain(table: Ints, start: int, edges: Ints) -> Floats:
    """The layout with the fewest crossings among layers from the start and stress from two beginnings."""
    distance = _distances(len(table), edges)
    order = np.argsort(distance[start], kind="stable")
    circle = np.empty((len(table), 2))
    circle[order] = _pairs(_directions(len(table))) * len(table) / 4
    layers = _layers(distance[start], edges)
    candidates = [layers, *(_upright(_stress(distance, x), start) for x in (circle, layers))]
    candidates = [_apart(_exchanged(x, edges)) for x in candidates]
    badness = [_badness(x, edges) for x in candidates]
    badness[0] *= 0.9  # columns read from left to right: worth a crossing in ten
    return candidates[int(np.argmin(badness))]


def _edges(table: Ints) -> list[tuple[int, int]]:
    """The pairs of different states with an edge between them in either direction, each once."""
    return sorted({(min(p, q), max(p, q)) for p, row in enumerate(table.tolist()) for q in row if p != q})


def _depths(n: int, edges: Ints, start: int) -> Ints | None:
    """Steps from `start`, along edges in either direction; None if not every vertex is reached."""
    distance = _distances(n, edges)[start]
    return None if (distance > n).any() else distance.astype(np.int64)


def _distances(n: int, edges: Ints) -> Floats:
    """Steps between every two vertices (n + 1 where there is no way)."""
    out = np.full((n, n), float(n + 1))
    np.fill_diagonal(out, 0)
    for p, q in edges:
        out[p, q] = out[q, p] = 1
    for via in range(n):
        out = np.minimum(out, out[:, via, None] + out[None, via, :])
    return np.asarray(np.minimum(out, n + 1))


def _layers(depth: Floats, edges: Ints) -> Floats:
    """A column for each distance from the start; within it the states in the order of their neighbours' heights."""
    columns = [np.flatnonzero(depth == d) for d in np.unique(depth)]
    at = np.zeros((len(depth), 2))
    for x, column in enumerate(columns):
        at[column] = np.stack([np.full(len(column), STRIDE * x), _centred(len(column))], axis=1)
    for _ in range(8):
        for column in columns:
            heights = [
                at[np.concatenate([edges[edges[:, 0] == q, 1], edges[edges[:, 1] == q, 0], [q]]), 1].mean()
                for q in column
            ]
            at[column[np.argsort(heights, kind="stable")], 1] = _centred(len(column))
    return at


def _centred(n: int) -> Floats:
    return np.asarray(STRIDE * (np.arange(n) - (n - 1) / 2))


def _stress(distance: Floats, x: Floats, steps: int = 300) -> Floats:
    """Positions whose distances are as near as can be to the graph's (majorisation; Gansner, Koren, North 2004)."""
    n = len(x)
    near = np.where(distance > n, distance[distance <= n].max() + 1, distance) * STRIDE  # parts without a way: apart
    weight = np.where(near > 0, 1 / np.maximum(near, 1) ** 2, 0)
    inverse = np.linalg.inv(np.diag(weight.sum(1)) - weight + 1 / n)
    for _ in range(steps):
        gap = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
        pull = -weight * near / np.maximum(gap, 1e-6)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(1))
        x = np.asarray(inverse @ pull @ x, dtype=np.float64)
    return x


def _upright(x: Floats, start: int) -> Floats:
    """Turned so that the longest extent lies from left to right, with the start state in the left half."""
    x = x - x.mean(0)
    _, axes = np.linalg.eigh(x.T @ x)
    x = x @ axes[:, ::-1]
    return np.asarray(x * np.where(x[start] > 0, -1, 1))


def _exchanged(x: Floats, edges: Ints) -> Floats:
    """Exchange two states wherever that makes a better picture; up to 30 states, for it tries all pairs."""
    best = _badness(x, edges)
    for _ in range(3 if len(x) <= 30 else 0):
        before = best
        for p, q in combinations(range(len(x)), 2):
            moved = x.copy()
            moved[[p, q]] = moved[[q, p]]
            if (found := _badness(moved, edges)) < best - 1e-9:
                x, best = moved, found
        if best == before:
            break
    return x


def _badness(x: Floats, edges: Ints) -> float:
    """Crossings, states that lie on an edge (worse), and a little for the length of the edges."""
    if not len(edges):
        return 0.0
    a, b = x[edges[:, 0]], x[edges[:, 1]]
    side_a, side_b = _sides(a, b, a), _sides(a, b, b)  # [i, j]: on which side of edge i the ends of edge j lie
    across = (side_a * side_b < -1e-9) & ((side_a * side_b).T < -1e-9)
    along = b - a
    length = np.maximum((along**2).sum(1), 1e-9)
    t = ((x[None] - a[:, None]) * along[:, None]).sum(-1) / length[:, None]
    foot = a[:, None] + np.clip(t, 0, 1)[..., None] * along[:, None]
    on = (((x[None] - foot) ** 2).sum(-1) < 0.4**2) & (t > 0) & (t < 1)
    on[np.arange(len(edges))[:, None], edges] = False
    return float(across.sum() / 2 + 3 * on.sum() + 0.3 * np.sqrt(length).sum())


def _sides(a: Floats, b: Floats, points: Floats) -> Floats:
    along, to = (b - a)[:, None], points[None] - a[:, None]
    return np.asarray(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0])


def _apart(x: Floats, least: float = 1.0) -> Floats:
    """Push states that stand too near away from each other, each pair along its own line."""
    if len(x) == 1:
        return np.zeros((1, 2))
    n = len(x)
    x = x + 1e-4 * _pairs(_directions(n))  # two states on one spot get a line
    for _ in range(500):
        to = x[None] - x[:, None]
        gap = np.sqrt((to**2).sum(-1)) + np.eye(n) * 9
        if gap.min() >= least:
            return x
        push = np.where(gap < least * 1.02, (least * 1.02 - gap) / gap / 2, 0)
        x = x - (push[..., None] * to).sum(1)
    return np.asarray(x * (least / gap.min()))
