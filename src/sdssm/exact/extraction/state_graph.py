"""What a model does, as a graph: its states found breadth first, and those that are alike taken for one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdssm.automata.refinement import Ints
from sdssm.exact.extraction.model_reader import NOT_ASKED, ModelReader, Word, select_rows, smallest_margin
from sdssm.layers.mixer import State


@dataclass(frozen=True, eq=False)
class StateGraph:
    """States of a model, and where each symbol leads: state 0 is before the first symbol.

    `table` (Q, V) has -1 where no valid string goes on, `labels` (Q,) where none ends. `states` are those of the model,
    that of state q in row q - 1; `before` and `by` say from which state and by which symbol each was found first.
    """

    table: Ints
    labels: Ints
    places: Ints
    states: State
    before: Ints
    by: Ints

    def word(self, q: int) -> Word:
        """The string by which a state was found."""
        found = []
        while q:
            found.append(int(self.by[q]))
            q = int(self.before[q])
        return tuple(reversed(found))


def explore_states(reader: ModelReader, *, near: float, experiments: Sequence[Word], most: int) -> StateGraph | None:
    """Breadth first through the model's states; None where they are more than `most`.

    A state joins the nearest one found before it that is at most `near` away (any, where that is infinite) and does
    the same: it has the same place, the same label, and the same label after each of the `experiments`.
    """
    nodes = _Nodes(reader, near, most)
    frontier, states, kept = np.zeros(1, dtype=np.int64), None, []
    while len(frontier):
        at = np.array(nodes.places)[frontier]
        source, tokens = np.nonzero(reader.live[reader.table[at]])  # (B,): rows of the frontier, symbols
        if not len(source):  # no valid string is any longer
            break
        told, logits, after = reader.read(tokens[:, None], None if states is None else select_rows(states, source))
        places = reader.table[at[source], tokens]
        labels = np.where(reader.asked[places], told[:, 0], NOT_ASKED)
        reader.explored += len(labels)
        reader.margin = min(reader.margin, smallest_margin(logits, labels >= 0))
        does = np.concatenate([places[:, None], labels[:, None], reader.answers(after, places, experiments)], 1)
        joined = nodes.join(reader.vectors(after), does, frontier[source], tokens)
        if joined is None:
            return None
        frontier, rows = joined
        states = select_rows(after, rows)
        kept.append(states)
    return nodes.graph(_joined(kept))


class _Nodes:
    """The states found so far; the first is that before any symbol, which no other joins."""

    def __init__(self, reader: ModelReader, near: float, most: int) -> None:
        self.near, self.most, self.n_symbols = near, most, reader.n_symbols
        self.alike: dict[bytes, list[int]] = {}  # what they do -> states
        self.points: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)]
        self.places, self.labels = [reader.valid.start], [-1]
        self.before, self.by = [0], [0]
        self.edges: list[Ints] = []  # (3, B): from, symbol, to

    def join(self, points: NDArray[np.float32], does: Ints, source: Ints, tokens: Ints) -> tuple[Ints, Ints] | None:
        """The new states and the rows that they are; None where there are too many."""
        _, first, group = np.unique(does, axis=0, return_index=True, return_inverse=True)
        group, target = group.reshape(-1), np.full(len(does), -1)
        new: list[tuple[int, int]] = []
        for g in np.argsort(first):  # in the order in which they were met
            rows = np.flatnonzero(group == g)
            alike = self.alike.setdefault(does[rows[0]].tobytes(), [])
            if alike:
                known = np.stack([self.points[q] for q in alike])
                rows = self._take(rows, points, known, np.array(alike), target)
            while len(rows):
                if len(self.labels) >= self.most:
                    return None
                node, row = len(self.labels), int(rows[0])
                new.append((node, row))
                alike.append(node)
                self.points.append(points[row])
                self.places.append(int(does[row, 0]))
                self.labels.append(int(does[row, 1]))
                self.before.append(int(source[row]))
                self.by.append(int(tokens[row]))
                rows = self._take(rows, points, points[row : row + 1], np.array([node]), target)
        self.edges.append(np.stack([source, tokens, target]))
        found = np.array(new, dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def _take(self, rows: Ints, points: NDArray[np.float32], known: Any, nodes: Ints, target: Ints) -> Ints:
        """Rows near enough to a known point get its state; the others are left."""
        if math.isinf(self.near):
            target[rows] = nodes[0]
            return rows[:0]
        mine = points[rows]
        square = np.square(mine).sum(1)[:, None] + np.square(known).sum(1) - 2 * mine @ known.T
        best = square.argmin(1)
        # Rounding must not keep a point away from itself: that would never end.
        close = square[np.arange(len(rows)), best] <= max(self.near**2, 1e-5)
        close |= (mine == known[best]).all(1)
        target[rows[close]] = nodes[best[close]]
        return np.asarray(rows[~close])

    def graph(self, states: State) -> StateGraph:
        table = np.full((len(self.labels), self.n_symbols), -1, dtype=np.int64)
        source, tokens, target = np.concatenate(self.edges, axis=1)
        table[source, tokens] = target
        labels, places, before, by = (np.array(one) for one in (self.labels, self.places, self.before, self.by))
        return StateGraph(table=table, labels=labels, places=places, states=states, before=before, by=by)


def _joined(states: list[State]) -> State:
    """The rows of all of them."""
    if isinstance(states[0], Tensor):
        return torch.cat(states)
    return None if states[0] is None else tuple(_joined(list(parts)) for parts in zip(*states, strict=True))
