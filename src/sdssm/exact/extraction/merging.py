"""From a graph of a model's states to the smallest machine that fits, and what to ask where it does not."""

from __future__ import annotations

import numpy as np

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints, coarsest_congruence
from sdssm.exact.extraction.model_reader import ModelReader, Word, select_rows
from sdssm.exact.extraction.state_graph import StateGraph

#: States up to which pairs of them are tried for merging where strings are not valid.
MOST_TO_FOLD = 512
#: What to know of a machine that is not all that the model does.
COARSER = "more than {:,} states could be told apart; the machine is a coarser one"
DIFFER = "telling more states apart did not bring machine and model closer"


def too_many(max_states: int) -> str:
    """Where no machine is small enough."""
    return f"the model's labels alone tell more than {max_states:,} states apart; give a greater max_states"


def build_machine(
    table: Ints, labels: Ints, places: Ints, symbols: tuple[str, ...] | None = None, start_label: int = 0
) -> Machine:
    """The machine of a graph that starts in state 0: -1 in the `table` (Q, V) or the `labels` (Q,) is anything.

    Partition refinement merges what no valid string tells apart. What may be anything is then chosen such that states
    become alike, as far as trying one pair after the other brings that about; the label of the start state is one such,
    unless a string leads back to it.

    >>> table, labels = np.array([[1, 2], [1, 2], [2, 1]]), np.array([-1, 0, 1])
    >>> build_machine(table, labels, np.array([0, 0, 0])).table.tolist()
    [[0, 1], [1, 0]]
    """
    table, labels = _congruent(table, labels, places)
    anything = (table < 0).any() or (labels[1:] < 0).any()
    table, labels, start = _folded(table, labels, every=bool(anything) and len(labels) <= MOST_TO_FOLD)
    itself = np.arange(len(table))[:, None]
    machine = Machine(
        table=np.where(table < 0, itself, table),
        start=start,
        outputs=np.where(labels < 0, np.where(np.arange(len(labels)) == start, start_label, 0), labels),
        symbols=symbols,
    )
    return machine.minimise()


def _congruent(table: Ints, labels: Ints, places: Ints) -> tuple[Ints, Ints]:
    """States of the same place that no string tells apart are one."""
    sink = len(table)
    full = np.concatenate([np.where(table < 0, sink, table), np.full((1, table.shape[1]), sink)])
    kinds = np.stack([places, labels, np.zeros_like(labels)], 1)
    kinds[0, 2] = 1  # the start state is no other's equal before it is known what fits it
    colours = np.append(np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1), -1)
    classes = coarsest_congruence(full, colours)
    _, first = np.unique(classes, return_index=True)
    first = first[first != sink]  # classes are numbered by their first member: the sink's is the last
    return np.where(table[first] < 0, -1, classes[full[first]]), labels[first]


def _folded(table: Ints, labels: Ints, every: bool) -> tuple[Ints, Ints, int]:
    """Merge pairs that may be one, the start state's first; with `every` all other pairs as well."""
    owner = np.arange(len(table))
    for p in range(len(table)) if every else range(1):
        for q in _perhaps(table, labels, owner, p):
            if owner[p] == p and owner[q] == q and (merged := _merge(table, labels, owner, p, int(q))) is not None:
                table, labels, owner = merged
    roots = np.flatnonzero(owner == np.arange(len(owner)))
    place = np.searchsorted(roots, _root(owner, np.arange(len(owner))))
    return np.where(table[roots] < 0, -1, place[table[roots]]), labels[roots], int(place[0])


def _perhaps(table: Ints, labels: Ints, owner: Ints, p: int) -> Ints:
    """Later states whose labels, and those a symbol further, do not speak against one with state p."""
    if owner[p] != p:
        return np.zeros(0, dtype=np.int64)
    labelled = np.append(labels[_root(owner, np.arange(len(owner)))], -1)  # the last stands for -1
    mine, theirs = labelled[table[p]], labelled[table]
    fits = ((mine < 0) | (theirs < 0) | (mine == theirs)).all(1)
    fits &= (labels[p] < 0) | (labels < 0) | (labels == labels[p])
    fits[: p + 1] = False
    return np.flatnonzero(fits & (owner == np.arange(len(owner))))


def _merge(table: Ints, labels: Ints, owner: Ints, p: int, q: int) -> tuple[Ints, Ints, Ints] | None:
    """Two states as one, and so what follows them; None where labels differ."""
    table, labels, owner = table.copy(), labels.copy(), owner.copy()
    todo = [(p, q)]
    while todo:
        a, b = sorted(int(_root(owner, np.array(one))) for one in todo.pop())
        if a == b:
            continue
        if labels[a] >= 0 and labels[b] >= 0 and labels[a] != labels[b]:
            return None
        labels[a] = max(labels[a], labels[b])
        owner[b] = a
        both = (table[a] >= 0) & (table[b] >= 0)
        todo += zip(table[a, both].tolist(), table[b, both].tolist(), strict=True)
        table[a] = np.where(table[a] >= 0, table[a], table[b])
    return table, labels, owner


def _root(owner: Ints, states: Ints) -> Ints:
    while (owner[states] != states).any():
        states = owner[states]
    return states


def distinguishing_suffix(reader: ModelReader, graph: StateGraph, word: Word) -> Word | None:
    """A word that tells two states apart that the graph takes for one, from a valid string whose label it gets wrong.

    After i symbols go on from the graph's state instead of the model's own: for i = 0 the label is the model's, at the
    end it is the graph's. Where the label changes from one i to the next, the graph took a state for another that the
    rest of the string tells from it (Rivest and Schapire 1993). The shortest such rest is returned.
    """
    path = [0]
    for symbol in word:
        path.append(int(graph.table[path[-1], symbol]))
    told = int(graph.labels[path[-1]])
    for i in range(len(word) - 1, -1, -1):
        state = select_rows(graph.states, np.array([path[i] - 1])) if i else None
        before = told
        told = int(reader.read(np.array([word[i:]]), state)[0][0, -1])
        if told != before:
            return word[i + 1 :]
    return None
