"""Explore the states of a model breadth first, and join states that behave alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdssm.automata.refinement import Ints
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.extraction.model_reader import NOT_VALID, ModelReader, Word, smallest_margin
from sdssm.layers.mixer import MixerState, join_states, select_state_rows


@dataclass(frozen=True, eq=False)
class StateGraph:
    """States of a model and their transitions; state 0 is the one before the first symbol.

    `table` (Q, V) is -1 where no valid string continues, and `labels` (Q,) is -1 where no valid string ends.
    `valid_states` (Q,) are the states of the machine of valid strings. `states` are those of the model: row q - 1 is
    that of state q. `parents` and `parent_symbols` (Q,) say from which state and by which symbol each was first found.
    If the time was up before all states were explored, `is_complete` is False, and `table` is -1 there too.
    """

    table: Ints
    labels: Ints
    valid_states: Ints
    states: MixerState
    parents: Ints
    parent_symbols: Ints
    is_complete: bool = True

    def word_to(self, q: int) -> Word:
        """Return the string by which a state was first found."""
        symbols = []
        while q:
            symbols.append(int(self.parent_symbols[q]))
            q = int(self.parents[q])
        return tuple(reversed(symbols))


def explore_states(
    reader: ModelReader, *, distance: float, suffixes: Sequence[Word], max_states: int
) -> StateGraph | None:
    """Explore the states of a model breadth first; return None if there are more than `max_states`.

    A state joins the nearest earlier state that is at most `distance` away (any, if that is infinite) and behaves
    alike: both have the same state of the machine of valid strings, the same label, and the same label after each of
    the `suffixes`. If the time is up, the states found so far are returned.
    """
    builder = _GraphBuilder(reader, distance, max_states)
    frontier, states, kept = np.zeros(1, dtype=np.int64), None, list[MixerState]()
    reader.watch.start("explore the states of the model", unit="states")
    while len(frontier):
        reader.watch.update(len(builder.labels))
        valid_before = np.array(builder.valid_states)[frontier]
        row, tokens = np.nonzero(reader.live[reader.valid_table[valid_before]])  # (B,): rows of the frontier, symbols
        if not len(row):  # no valid string is longer
            break
        try:
            before: MixerState = None if states is None else select_state_rows(states, row)
            predictions, logits, after = reader.read(tokens[:, None], before)
            valid_states = reader.valid_table[valid_before[row], tokens]
            suffix_labels = reader.labels_after(after, valid_states, suffixes)
        except TimeIsUpError:
            if not kept:
                raise
            return builder.build(join_states(kept), is_complete=False)
        labels = np.where(reader.accepting[valid_states], predictions[:, 0], NOT_VALID)
        reader.explored += len(labels)
        reader.margin = min(reader.margin, smallest_margin(logits, labels >= 0))
        behaviour = np.concatenate([valid_states[:, None], labels[:, None], suffix_labels], 1)
        joined = builder.join(reader.vectors(after), behaviour, frontier[row], tokens)
        if joined is None:
            return None
        frontier, new_rows = joined
        states = select_state_rows(after, new_rows)
        kept.append(states)
    return builder.build(join_states(kept))


class _GraphBuilder:
    """The states found so far; state 0 is the one before any symbol, which no other state joins."""

    def __init__(self, reader: ModelReader, distance: float, max_states: int) -> None:
        self.distance, self.max_states, self.n_symbols = distance, max_states, reader.n_symbols
        self.by_behaviour: dict[bytes, list[int]] = {}
        self.points: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)]
        self.valid_states, self.labels = [reader.valid.start], [-1]
        self.parents, self.parent_symbols = [0], [0]
        self.edges: list[Ints] = []  # (3, B): source, symbol, target

    def join(
        self, points: NDArray[np.float32], behaviour: Ints, source: Ints, tokens: Ints
    ) -> tuple[Ints, Ints] | None:
        """Assign rows to known or new states; return the new states and their rows, None if too many."""
        _, first, group = np.unique(behaviour, axis=0, return_index=True, return_inverse=True)
        group, target = group.reshape(-1), np.full(len(behaviour), -1)
        fresh: list[tuple[int, int]] = []
        for g in np.argsort(first):  # in the order of their first rows
            rows = np.flatnonzero(group == g)
            alike = self.by_behaviour.setdefault(behaviour[rows[0]].tobytes(), [])
            if alike:
                known = np.stack([self.points[q] for q in alike])
                rows = self._assign_near(rows, points, known, np.array(alike), target)
            while len(rows):
                if len(self.labels) >= self.max_states:
                    return None
                state, row = len(self.labels), int(rows[0])
                fresh.append((state, row))
                alike.append(state)
                self.points.append(points[row])
                self.valid_states.append(int(behaviour[row, 0]))
                self.labels.append(int(behaviour[row, 1]))
                self.parents.append(int(source[row]))
                self.parent_symbols.append(int(tokens[row]))
                rows = self._assign_near(rows, points, points[row : row + 1], np.array([state]), target)
        self.edges.append(np.stack([source, tokens, target]))
        columns = np.array(fresh, dtype=np.int64).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]

    def _assign_near(self, rows: Ints, points: NDArray[np.float32], known: Any, states: Ints, target: Ints) -> Ints:
        """Assign rows that are near a known point to its state, and return the remaining rows."""
        if math.isinf(self.distance):
            target[rows] = states[0]
            return rows[:0]
        candidates = points[rows]
        squared = np.square(candidates).sum(1)[:, None] + np.square(known).sum(1) - 2 * candidates @ known.T
        best = squared.argmin(1)
        # Rounding must not separate a point from itself, or the loop in `join` would not end.
        near = squared[np.arange(len(rows)), best] <= max(self.distance**2, 1e-5)
        near |= (candidates == known[best]).all(1)
        target[rows[near]] = states[best[near]]
        return np.asarray(rows[~near])

    def build(self, states: MixerState, *, is_complete: bool = True) -> StateGraph:
        table = np.full((len(self.labels), self.n_symbols), -1, dtype=np.int64)
        source, tokens, target = np.concatenate(self.edges, axis=1)
        table[source, tokens] = target
        return StateGraph(
            table=table,
            labels=np.array(self.labels),
            valid_states=np.array(self.valid_states),
            states=states,
            parents=np.array(self.parents),
            parent_symbols=np.array(self.parent_symbols),
            is_complete=is_complete,
        )


def distinguishing_suffix(reader: ModelReader, graph: StateGraph, word: Word) -> Word | None:
    """Return a suffix that distinguishes two joined states, from a word that the graph misclassifies.

    For each i, follow the graph for the first i symbols; then read the rest of the string with the model, from the
    model state that the graph stores for its state. For i = 0 the label is the model's, at the end it is the graph's.
    If the label changes from one i to the next, the graph joined two states that the rest of the string distinguishes
    (Rivest and Schapire 1993). The shortest such rest is returned.
    """
    path = [0]
    for symbol in word:
        path.append(int(graph.table[path[-1], symbol]))
    label = int(graph.labels[path[-1]])
    for i in range(len(word) - 1, -1, -1):
        state = select_state_rows(graph.states, np.array([path[i] - 1])) if i else None
        later_label = label
        label = int(reader.read(np.array([word[i:]]), state)[0][0, -1])
        if label != later_label:
            return word[i + 1 :]
    return None
