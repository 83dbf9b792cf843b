"""Layouts of machines without a special structure: by layers, by stress, and by the program `dot`."""

from __future__ import annotations

import shutil
import subprocess
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Floats, Ints

Complexes = NDArray[np.complex128]
#: Seconds after which `dot` is stopped.
TIMEOUT = 10.0
#: Distance between neighbours in the plain layouts, in units: their edges cross and need space.
STRIDE = 1.7
#: The most states on a line.
MOST_IN_LINE = 12


def graphviz_layout(table: Ints) -> Floats | None:
    """Return the positions computed by `dot`, or None if it is missing, fails, or takes too long."""
    program = shutil.which("dot")
    if program is None:
        return None
    attributes = 'rankdir=LR; nodesep=0.8; ranksep=1.2; node [shape=circle, fixedsize=true, width=0.5, label=""];'
    edges = " ".join(f"{p} -> {q};" for p, q in neighbours(table))
    nodes = " ".join(f"{q};" for q in range(len(table)))
    try:
        answer = subprocess.run(  # noqa: S603  # only numbers are passed, no names
            [program, "-Tplain"],
            input=f"digraph {{ {attributes} {nodes} {edges} }}",
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=True,
        ).stdout
        rows = [line.split() for line in answer.splitlines() if line.startswith("node ")]
        position = {int(row[1]): (float(row[2]), -float(row[3])) for row in rows}
        positions = np.array([position[q] for q in range(len(table))])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError):
        return None  # on any failure the plain layout is used
    return positions if np.isfinite(positions).all() else None


def line_layout(table: Ints, start: int) -> tuple[Floats, dict[tuple[int, int], float]] | None:
    """Return the states on a line, and the bends of the edges between states that are not neighbours.

    None unless every state but the last is followed by one that is one symbol farther from the start, and the edges can
    be drawn as arcs above and below the line without crossings.
    """
    order, rank = [start], {start: 0}
    for q in order:
        new = sorted(set(table[q].tolist()) - rank.keys())
        rank |= {target: len(order) + k for k, target in enumerate(new)}
        order += new
        if len(new) > 1 or len(order) > MOST_IN_LINE:
            return None
    if len(order) < len(table):
        return None
    arcs = sorted(
        {(min(rank[p], rank[q]), max(rank[p], rank[q])) for p, q in neighbours(table)}, key=lambda arc: arc[1] - arc[0]
    )
    sides: dict[tuple[int, int], int] = {}
    for a, b in arcs[::-1]:  # the longest first: shorter ones fit below them
        if b - a > 1:
            crossed = [side for (c, d), side in sides.items() if a < c < b < d or c < a < d < b]
            free = [side for side in (-1, 1) if side not in crossed]
            if not free:
                return None
            same_end = [side for (c, d), side in sides.items() if a == c or b == d]
            sides[a, b] = max(free, key=lambda side: (same_end.count(side), side))
    positions = np.zeros((len(table), 2))
    positions[order, 0] = np.arange(len(order))
    bends = {}
    for (a, b), side in sides.items():
        p, q = order[a], order[b]
        upwards = -side if p < q else side  # an edge bends to its left, seen from the smaller number
        bends[min(p, q), max(p, q)] = upwards * min(0.08 * (b - a), 0.4)
    bends |= {(min(p, q), max(p, q)): 0.0 for p, q in pairwise(order)}
    return positions, bends


def plain_layout(table: Ints, start: int, edges: Ints) -> Floats:
    """Return the best of three layouts: layers from the start, and stress from two initial layouts."""
    distance = _distances(len(table), edges)
    order = np.argsort(distance[start], kind="stable")
    circle = np.empty((len(table), 2))
    circle[order] = to_xy(directions(len(table))) * len(table) / 4
    layers = _layers(distance[start], edges)
    candidates = [layers, *(_orient(_stress(distance, x), start) for x in (circle, layers))]
    candidates = [spread_apart(_exchange_states(x, edges)) for x in candidates]
    scores = [badness(x, edges) for x in candidates]
    scores[0] *= 0.9  # columns are easier to read: worth one crossing in ten
    return candidates[int(np.argmin(scores))]


def neighbours(table: Ints) -> list[tuple[int, int]]:
    """Return the pairs of different states with an edge between them in either direction."""
    return sorted({(min(p, q), max(p, q)) for p, row in enumerate(table.tolist()) for q in row if p != q})


def depths(n: int, edges: Ints, start: int) -> Ints | None:
    """Return the distance of each vertex from `start`, ignoring directions; None if not connected."""
    distance = _distances(n, edges)[start]
    return None if (distance > n).any() else distance.astype(np.int64)


def _distances(n: int, edges: Ints) -> Floats:
    """Return the distance between every two vertices; n + 1 if they are not connected."""
    distance = np.full((n, n), float(n + 1))
    np.fill_diagonal(distance, 0)
    for p, q in edges:
        distance[p, q] = distance[q, p] = 1
    for via in range(n):
        distance = np.minimum(distance, distance[:, via, None] + distance[None, via, :])
    return np.asarray(np.minimum(distance, n + 1))


def _layers(depth: Floats, edges: Ints) -> Floats:
    """Place states in columns by distance from the start, ordered by the heights of their neighbours."""
    columns = [np.flatnonzero(depth == d) for d in np.unique(depth)]
    at = np.zeros((len(depth), 2))
    for x, column in enumerate(columns):
        at[column] = np.stack([np.full(len(column), STRIDE * x), _centred_heights(len(column))], axis=1)
    for _ in range(8):
        for column in columns:
            heights = [
                at[np.concatenate([edges[edges[:, 0] == q, 1], edges[edges[:, 1] == q, 0], [q]]), 1].mean()
                for q in column
            ]
            at[column[np.argsort(heights, kind="stable")], 1] = _centred_heights(len(column))
    return at


def _centred_heights(n: int) -> Floats:
    return np.asarray(STRIDE * (np.arange(n) - (n - 1) / 2))


def _stress(distance: Floats, x: Floats, steps: int = 300) -> Floats:
    """Return positions whose distances are close to those in the graph, by stress majorisation.

    Gansner, Koren and North, "Graph drawing by stress majorization" (2004).
    """
    n = len(x)
    # Unconnected parts are placed apart.
    near = np.where(distance > n, distance[distance <= n].max() + 1, distance) * STRIDE
    weight = np.where(near > 0, 1 / np.maximum(near, 1) ** 2, 0)
    inverse = np.linalg.inv(np.diag(weight.sum(1)) - weight + 1 / n)
    for _ in range(steps):
        gap = np.hypot(x[:, None, 0] - x[None, :, 0], x[:, None, 1] - x[None, :, 1])
        pull = -weight * near / np.maximum(gap, 1e-6)
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(1))
        x = np.asarray(inverse @ (pull @ x), dtype=np.float64)
    return x


def _orient(x: Floats, start: int) -> Floats:
    """Rotate so that the longest extent is horizontal, with the start state in the left half."""
    x = x - x.mean(0)
    _, axes = np.linalg.eigh(x.T @ x)
    x = x @ axes[:, ::-1]
    return np.asarray(x * np.where(x[start] > 0, -1, 1))


def _exchange_states(x: Floats, edges: Ints) -> Floats:
    """Exchange two states if that improves the picture; only up to 30 states, as all pairs are tried."""
    best = badness(x, edges)
    for _ in range(3 if len(x) <= 30 else 0):
        before = best
        for p, q in combinations(range(len(x)), 2):
            moved = x.copy()
            moved[[p, q]] = moved[[q, p]]
            if (cost := badness(moved, edges)) < best - 1e-9:
                x, best = moved, cost
        if best == before:
            break
    return x


def badness(x: Floats, edges: Ints) -> float:
    """Return the cost of a layout: crossings, states on an edge (worse), and the length of edges."""
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


def spread_apart(x: Floats, least: float = 1.0) -> Floats:
    """Push states that are too close away from each other, along the line between them."""
    if len(x) == 1:
        return np.zeros((1, 2))
    n = len(x)
    x = x + 1e-4 * to_xy(directions(n))  # two states at the same position get a direction
    for _ in range(500):
        to = x[None] - x[:, None]
        gap = np.sqrt((to**2).sum(-1)) + np.eye(n) * 9
        if gap.min() >= least:
            return x
        push = np.where(gap < least * 1.02, (least * 1.02 - gap) / gap / 2, 0)
        x = x - (push[..., None] * to).sum(1)
    return np.asarray(x * (least / gap.min()))


def directions(n: int, *, half: bool = False) -> Complexes:
    """Return n unit vectors clockwise from the top, or with `half` from half a step after it."""
    return np.asarray(-1j * np.exp(2j * np.pi * (np.arange(n) + half / 2) / n))


def to_xy(points: Complexes) -> Floats:
    """Return complex numbers as coordinates: (n,) -> (n, 2)."""
    return np.stack([points.real, points.imag], axis=1)
