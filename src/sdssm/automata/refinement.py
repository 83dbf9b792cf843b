"""Partition refinement and breadth-first search on transition tables (states x symbols, numpy)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Arrays of whole numbers and of real numbers, of any shape.
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def concatenate_ranges(starts: Ints, counts: Ints) -> Ints:
    """Return the concatenation of `arange(s, s + c)` over all pairs, without a Python loop."""
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return offsets + np.arange(len(offsets), dtype=np.int64)


def reachable_states(table: Ints, start: int) -> NDArray[np.bool_]:
    """Return which states are reachable from `start`: bool (states,)."""
    seen = np.zeros(len(table), dtype=bool)
    seen[start] = True
    frontier = np.array([start])
    while len(frontier):
        targets = np.unique(table[frontier])
        frontier = targets[~seen[targets]]
        seen[frontier] = True
    return seen


def live_states(table: Ints, accepting: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a string from each state can still end in an accepting state: (Q, V) and (Q,) -> (Q,).

    The string may be empty, so accepting states are live.

    >>> live_states(np.array([[1, 2], [1, 1], [2, 2]]), np.array([False, True, False]))
    array([ True,  True, False])
    """
    live = np.asarray(accepting)
    while (more := live | live[table].any(1)).sum() > live.sum():
        live = more
    return live


def coarsest_congruence(table: Ints, colours: Ints) -> Ints:
    """Return the coarsest partition that refines `colours` and is compatible with every symbol.

    The result is the class of each state, numbered by smallest member. This is Hopcroft's algorithm in rounds: each
    state has a hash of the classes that its symbols lead to. When a class is split, its largest part keeps its number
    and only the smaller parts get new ones. So a state is renumbered at most log2(states) times, and each time only the
    hashes of its predecessors are updated. Hashes could collide. The result is therefore checked exactly, and after a
    collision the computation is repeated with other hashes.
    """
    for seed in range(64):
        classes = _refine(table, colours, np.random.default_rng(seed))
        next_classes = classes[table]
        _, first, inverse = np.unique(classes, return_index=True, return_inverse=True)
        if (next_classes == next_classes[first[inverse]]).all():
            order = np.argsort(np.argsort(first))
            return order[inverse]
    raise AssertionError("64 independent 64-bit hashes collided")  # pragma: no cover


def separation_depths(table: Ints, colours: Ints) -> Ints:
    """Return for each state the least length of strings that distinguish it from every other state: (Q,).

    Strings up to the length k distinguish two states if one of them leads from the two to different colours; k = 0 is
    the empty string, the colours of the states themselves. The depth of a state is -1 if it is equivalent to another.
    The result is that of Moore's algorithm, whose k-th partition is compared with single states; it is correct unless
    two of its 64-bit hashes collide.

    >>> separation_depths(np.array([[1], [2], [3], [3]]), np.array([0, 0, 0, 1]))
    array([2, 2, 1, 0])
    """
    depths = np.full(len(table), -1)
    _refine(table, colours, np.random.default_rng(0), depths)
    return depths


def _refine(table: Ints, colours: Ints, rng: np.random.Generator, depths: Ints | None = None) -> Ints:
    """Return the partition that is correct unless two hashes collide.

    Each round is one of Moore's algorithm. The round in which a state is first alone in its class is written into
    `depths`, which is -1 before.
    """
    states, symbols = table.shape
    # Incoming edges, grouped by target: the k-th group is incoming[offset[k] : offset[k + 1]].
    targets = table.ravel()
    incoming = np.argsort(targets, kind="stable")
    offset = np.searchsorted(targets[incoming], np.arange(states + 1))
    source = incoming // symbols
    factors = 2 * rng.integers(2**63, size=(symbols,), dtype=np.uint64) + 1  # odd factors lose no bits
    weight = factors[incoming % symbols]

    codes = rng.integers(2**64, size=(states,), dtype=np.uint64)  # a random number for each possible class
    _, classes = np.unique(colours, return_inverse=True)
    classes = classes.astype(np.int64)
    n_classes = int(classes.max()) + 1
    size = np.bincount(classes, minlength=states)
    hashes = np.zeros(states, dtype=np.uint64)
    shared = np.zeros(states, dtype=np.uint64)  # the common hash of the members of a class
    moved, change = np.arange(states), codes[classes]
    depth = 0
    while len(moved):
        if depths is not None:
            depths[(depths < 0) & (size[classes] == 1)] = depth
            depth += 1
        counts = offset[moved + 1] - offset[moved]
        edges = concatenate_ranges(offset[moved], counts)
        np.add.at(hashes, source[edges], weight[edges] * np.repeat(change, counts))
        touched = np.unique(source[edges])
        moved, new_classes, n_classes = _split(touched, hashes, shared, classes, size, n_classes)
        change = codes[new_classes] - codes[classes[moved]]
        classes[moved] = new_classes
    return classes


def _split(
    touched: Ints, hashes: NDArray[np.uint64], shared: NDArray[np.uint64], classes: Ints, size: Ints, n_classes: int
) -> tuple[Ints, Ints, int]:
    """Split the classes of `touched` by hash.

    Returns the states that change class, their new classes, and the number of classes.
    """
    if not len(touched):
        return touched, touched, n_classes
    count = np.bincount(classes[touched], minlength=len(size))
    mostly = 2 * count > size  # more than half was touched: the rest may get the new class, so look at all members
    if (mostly & (count < size)).any():
        considered = mostly[classes]
        considered[touched] = True
        touched = np.flatnonzero(considered)
    order = touched[np.lexsort((hashes[touched], classes[touched]))]
    cls, value = classes[order], hashes[order]
    head = np.flatnonzero(_changes(cls) | _changes(value))  # the start of each group with one class and one hash
    counts = np.diff(np.append(head, len(order)))
    owner, agreed = cls[head], value[head]
    by_size = np.lexsort((-counts, owner))
    largest = np.zeros(len(head), dtype=bool)
    largest[by_size[_changes(owner[by_size])]] = True
    # The largest part keeps its class: the largest group, or the untouched rest and the groups with the same hash.
    keeps = np.where(mostly[owner], largest, agreed == shared[owner])
    shared[owner[keeps]] = agreed[keeps]
    leaving = np.flatnonzero(~keeps)
    new_classes = n_classes + np.arange(len(leaving))
    np.subtract.at(size, owner[leaving], counts[leaving])
    size[new_classes], shared[new_classes] = counts[leaving], agreed[leaving]
    members = concatenate_ranges(head[leaving], counts[leaving])
    return order[members], np.repeat(new_classes, counts[leaving]), n_classes + len(leaving)


def _changes(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return whether each entry differs from the one before it; True for the first."""
    return np.append(True, values[1:] != values[:-1])
