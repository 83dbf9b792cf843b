"""Partition refinement and breadth-first search on bare transition tables (states x symbols, numpy)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def ranges(starts: Ints, counts: Ints) -> Ints:
    """The concatenation of `arange(s, s + c)` over all pairs, without a Python loop."""
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return offsets + np.arange(len(offsets), dtype=np.int64)


def reachable(table: Ints, start: int) -> NDArray[np.bool_]:
    """Which states some string leads to from `start` (the empty string included)."""
    seen = np.zeros(len(table), dtype=bool)
    seen[start] = True
    frontier = np.array([start])
    while len(frontier):
        ahead = np.unique(table[frontier])
        frontier = ahead[~seen[ahead]]
        seen[frontier] = True
    return seen


def coarsest_congruence(table: Ints, colours: Ints) -> Ints:
    """The coarsest partition that refines `colours` and that every symbol respects: Hopcroft's algorithm in rounds.

    Returns the class of each state, numbered by smallest member. Each state carries a hash of the classes its symbols
    lead to. When a class splits, its largest part keeps the name and only the smaller parts are renamed, so a state is
    renamed at most log2(states) times, and each renaming updates the hashes of its predecessors alone. Hashes could
    collide; the result is therefore checked exactly, and a collision only costs another try with other hashes.
    """
    for seed in range(64):
        classes = _refine(table, colours, np.random.default_rng(seed))
        ahead = classes[table]
        _, first, inverse = np.unique(classes, return_index=True, return_inverse=True)
        if (ahead == ahead[first[inverse]]).all():
            order = np.argsort(np.argsort(first))
            return order[inverse]
    raise AssertionError("64 independent 64-bit hashes collided")  # pragma: no cover


def _refine(table: Ints, colours: Ints, rng: np.random.Generator) -> Ints:
    states, symbols = table.shape
    # Incoming edges, grouped by target: the k-th group is incoming[begin[k] : begin[k + 1]].
    targets = table.ravel()
    incoming = np.argsort(targets, kind="stable")
    begin = np.searchsorted(targets[incoming], np.arange(states + 1))
    source = incoming // symbols
    weight = (2 * rng.integers(2**63, size=(symbols,), dtype=np.uint64) + 1)[incoming % symbols]  # odd: none is lost

    names = rng.integers(2**64, size=(states,), dtype=np.uint64)  # a random name for each class there can be
    _, classes = np.unique(colours, return_inverse=True)
    classes = classes.astype(np.int64)
    known = int(classes.max()) + 1
    size = np.bincount(classes, minlength=states)
    hashes = np.zeros(states, dtype=np.uint64)
    shared = np.zeros(states, dtype=np.uint64)  # the hash that the members of a class agreed on
    moved, change = np.arange(states), names[classes]
    while len(moved):
        counts = begin[moved + 1] - begin[moved]
        edges = ranges(begin[moved], counts)
        np.add.at(hashes, source[edges], weight[edges] * np.repeat(change, counts))
        touched = np.unique(source[edges])
        moved, fresh, known = _split(touched, hashes, shared, classes, size, known)
        change = names[fresh] - names[classes[moved]]
        classes[moved] = fresh
    return classes


def _split(
    touched: Ints, hashes: NDArray[np.uint64], shared: NDArray[np.uint64], classes: Ints, size: Ints, known: int
) -> tuple[Ints, Ints, int]:
    """Split the classes of `touched` by hash: the states to rename, their new classes, the number of classes."""
    if not len(touched):
        return touched, touched, known
    count = np.bincount(classes[touched], minlength=len(size))
    mostly = 2 * count > size  # touched for the most part: then the rest may be what is renamed, so look at all of it
    if (mostly & (count < size)).any():
        whole = mostly[classes]
        whole[touched] = True
        touched = np.flatnonzero(whole)
    order = touched[np.lexsort((hashes[touched], classes[touched]))]
    cls, value = classes[order], hashes[order]
    head = np.flatnonzero(_changes(cls) | _changes(value))  # where each group of one class and one hash begins
    counts = np.diff(np.append(head, len(order)))
    owner, agreed = cls[head], value[head]
    by_size = np.lexsort((-counts, owner))
    largest = np.zeros(len(head), dtype=bool)
    largest[by_size[_changes(owner[by_size])]] = True
    # The largest part keeps the name: among the groups, or the untouched rest and whoever agrees with it.
    keeps = np.where(mostly[owner], largest, agreed == shared[owner])
    shared[owner[keeps]] = agreed[keeps]
    leaving = np.flatnonzero(~keeps)
    fresh = known + np.arange(len(leaving))
    np.subtract.at(size, owner[leaving], counts[leaving])
    size[fresh], shared[fresh] = counts[leaving], agreed[leaving]
    members = ranges(head[leaving], counts[leaving])
    return order[members], np.repeat(fresh, counts[leaving]), known + len(leaving)


def _changes(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """True at each place that differs from the one before it, the first place included."""
    return np.append(True, values[1:] != values[:-1])
