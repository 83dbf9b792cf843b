"""Merge the states of a graph to the smallest machine that agrees with it on all valid strings."""

from __future__ import annotations

import numpy as np

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints, coarsest_congruence
from sdssm.exact.watch import UNWATCHED, Watch

#: If some strings are not valid, all pairs of states are tried for merging up to this number of states.
MOST_TO_FOLD = 512


def build_machine(
    table: Ints,
    labels: Ints,
    valid_states: Ints,
    symbols: tuple[str, ...] | None = None,
    start_label: int = 0,
    watch: Watch = UNWATCHED,
) -> Machine:
    """Return a small machine that agrees with a graph on all valid strings.

    State 0 of the graph is the start. A -1 in the `table` (Q, V) or the `labels` (Q,) means that any value will do.
    Partition refinement merges states that no valid string distinguishes. Free values are then chosen such that further
    states can be merged, greedily, one pair after the other. The label of the start state is free unless a string leads
    back to it; if it stays free, it becomes `start_label`. If the time is up, fewer states are merged.

    >>> table, labels = np.array([[1, 2], [1, 2], [2, 1]]), np.array([-1, 0, 1])
    >>> build_machine(table, labels, np.array([0, 0, 0])).table.tolist()
    [[0, 1], [1, 0]]
    """
    table, labels = _merge_equivalent(table, labels, valid_states)
    has_free_values = (table < 0).any() or (labels[1:] < 0).any()
    all_pairs = bool(has_free_values) and len(labels) <= MOST_TO_FOLD
    table, labels, start = _fold(table, labels, all_pairs, watch)
    itself = np.arange(len(table))[:, None]
    machine = Machine(
        table=np.where(table < 0, itself, table),
        start=start,
        outputs=np.where(labels < 0, np.where(np.arange(len(labels)) == start, start_label, 0), labels),
        symbols=symbols,
    )
    return machine.minimise()


def _merge_equivalent(table: Ints, labels: Ints, valid_states: Ints) -> tuple[Ints, Ints]:
    """Merge states with the same state of valid strings that no string distinguishes."""
    sink = len(table)
    full = np.concatenate([np.where(table < 0, sink, table), np.full((1, table.shape[1]), sink)])
    kinds = np.stack([valid_states, labels, np.zeros_like(labels)], 1)
    kinds[0, 2] = 1  # the start state is kept separate until its free label is chosen
    colours = np.append(np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1), -1)
    classes = coarsest_congruence(full, colours)
    _, first = np.unique(classes, return_index=True)
    first = first[first != sink]  # classes are numbered by their first member, so that of the sink is the last
    return np.where(table[first] < 0, -1, classes[full[first]]), labels[first]


def _fold(table: Ints, labels: Ints, all_pairs: bool, watch: Watch) -> tuple[Ints, Ints, int]:
    """Merge compatible pairs of states: those with the start state, or all pairs."""
    owner = np.arange(len(table))
    watch.start("merge states", total=len(table) if all_pairs else 1, unit="states")
    for p in range(len(table)) if all_pairs else range(1):
        watch.update(p)
        if p and watch.is_over:
            break
        for q in _compatible_states(table, labels, owner, p):
            if owner[p] == p and owner[q] == q and (merged := _merge_pair(table, labels, owner, p, int(q))) is not None:
                table, labels, owner = merged
    roots = np.flatnonzero(owner == np.arange(len(owner)))
    number = np.searchsorted(roots, _find_root(owner, np.arange(len(owner))))
    return np.where(table[roots] < 0, -1, number[table[roots]]), labels[roots], int(number[0])


def _compatible_states(table: Ints, labels: Ints, owner: Ints, p: int) -> Ints:
    """Return the later states whose labels, now and one symbol later, do not contradict state p."""
    if owner[p] != p:
        return np.zeros(0, dtype=np.int64)
    root_labels = np.append(labels[_find_root(owner, np.arange(len(owner)))], -1)  # the last entry is for state -1
    own, others = root_labels[table[p]], root_labels[table]
    compatible = ((own < 0) | (others < 0) | (own == others)).all(1)
    compatible &= (labels[p] < 0) | (labels < 0) | (labels == labels[p])
    compatible[: p + 1] = False
    return np.flatnonzero(compatible & (owner == np.arange(len(owner))))


def _merge_pair(table: Ints, labels: Ints, owner: Ints, p: int, q: int) -> tuple[Ints, Ints, Ints] | None:
    """Merge two states and hence their successors; return None if labels contradict each other."""
    table, labels, owner = table.copy(), labels.copy(), owner.copy()
    pairs = [(p, q)]
    while pairs:
        a, b = sorted(int(_find_root(owner, np.array(state))) for state in pairs.pop())
        if a == b:
            continue
        if labels[a] >= 0 and labels[b] >= 0 and labels[a] != labels[b]:
            return None
        labels[a] = max(labels[a], labels[b])
        owner[b] = a
        both = (table[a] >= 0) & (table[b] >= 0)
        pairs += zip(table[a, both].tolist(), table[b, both].tolist(), strict=True)
        table[a] = np.where(table[a] >= 0, table[a], table[b])
    return table, labels, owner


def _find_root(owner: Ints, states: Ints) -> Ints:
    """Return the state that each of the states was merged into."""
    while (owner[states] != states).any():
        states = owner[states]
    return states
