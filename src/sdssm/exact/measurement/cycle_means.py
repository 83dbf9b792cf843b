"""The cycle of a weighted graph with the greatest mean weight, by policy iteration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sdssm.automata.refinement import Floats, Ints

#: Improvements below this are rounding errors.
TOLERANCE = 1e-9
#: Policy iteration ends after a few rounds; this only bounds it.
MOST_ROUNDS = 200
#: Steps of a walk are doubled this often. Its mean weight then is that of its cycle: 2^40 steps are many rounds of it.
DOUBLINGS = 40


class HeaviestCycle(NamedTuple):
    """A cycle with the greatest mean weight: the mean, its first node, and the edge that it takes from each node."""

    mean: float
    node: int
    edges: tuple[int, ...]


def find_heaviest_cycle(targets: Ints, weights: Floats) -> HeaviestCycle | None:
    """Return the cycle with the greatest mean weight of its edges; None if there is no cycle.

    Args:
        targets: (P, E), the node that each edge of each node leads to; -1 if there is no such edge.
        weights: (P, E), the weight of each edge.

    This is Howard's algorithm: each node has a chosen edge, and all nodes change it at once while that improves the
    mean weight of the cycle that they end in, or the weight on the way to it.

    >>> targets, weights = np.array([[0, 1], [0, -1]]), np.array([[1.0, 0.0], [3.0, 0.0]])
    >>> find_heaviest_cycle(targets, weights)  # the loop at node 0 has mean 1, the cycle through both nodes 1.5
    HeaviestCycle(mean=1.5, node=0, edges=(1, 0))
    """
    targets, weights, names = _without_dead_ends(targets, weights)
    if not len(targets):
        return None
    exists = targets >= 0
    nodes = np.arange(len(targets))
    chosen = np.where(exists, weights, -np.inf).argmax(1)
    for _ in range(MOST_ROUNDS):
        means, values = _evaluate(targets[nodes, chosen], weights[nodes, chosen])
        better = np.where(exists, means[targets], -np.inf)
        best = better.max(1)
        # Of the edges to the best cycle, the one with the greatest weight up to it.
        gains = np.where(better >= best[:, None] - TOLERANCE, weights - best[:, None] + values[targets], -np.inf)
        improves = (best > means + TOLERANCE) | (gains.max(1) > gains[nodes, chosen] + TOLERANCE)
        if not improves.any():
            break
        chosen = np.where(improves, gains.argmax(1), chosen)
    node = int(means.argmax())
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = int(chosen[node])
        node = int(targets[node, chosen[node]])
    path = list(seen)
    cycle = path[path.index(node) :]
    first = min(cycle)  # so that the result does not depend on where the walk started
    start = cycle.index(first)
    cycle = cycle[start:] + cycle[:start]
    edges = tuple(seen[k] for k in cycle)
    mean = float(np.mean([weights[k, edge] for k, edge in zip(cycle, edges, strict=True)]))
    return HeaviestCycle(mean, int(names[first]), edges)


def _without_dead_ends(targets: Ints, weights: Floats) -> tuple[Ints, Floats, Ints]:
    """Remove nodes from which every walk ends; return the rest, and the former numbers of its nodes."""
    targets = targets.copy()
    alive = np.ones(len(targets), dtype=bool)
    while True:
        exists = (targets >= 0) & alive[targets]
        dead = alive & ~exists.any(1)
        if not dead.any():
            break
        alive &= ~dead
    targets[~exists] = -1
    number = np.cumsum(alive) - 1
    kept = np.nonzero(alive)[0]
    rest = targets[kept]
    return np.where(rest >= 0, number[rest], -1), weights[kept], kept


def _evaluate(targets: Ints, weights: Floats) -> tuple[Floats, Floats]:
    """Return the mean weight of the cycle that each node leads to, and its weight above that mean on the way.

    Each node has one edge: targets (P,), weights (P,). The way ends at the smallest node of the cycle.
    """
    ends, sums = targets, weights
    for _ in range(DOUBLINGS):
        sums, ends = (sums + sums[ends]) / 2, ends[ends]  # means over 1, 2, 4, ... steps
    means = sums
    numbers = np.arange(len(targets))
    smallest, step = numbers, targets  # the smallest node on the way
    for _ in range(DOUBLINGS):
        smallest, step = np.minimum(smallest, smallest[step]), step[step]
    is_root = smallest[ends] == numbers  # the smallest node of each cycle
    step, values = np.where(is_root, numbers, targets), np.where(is_root, 0.0, weights - means)
    for _ in range(DOUBLINGS):
        values, step = values + values[step], step[step]
    return means, values
