"""Explore the states of a linear recurrence breadth first, and join the states that behave alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints, coarsest_congruence
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.extraction.model_reader import Word
from sdssm.exact.extraction.token_matrices import SuffixRows, TokenMatrices
from sdssm.exact.watch import Watch

#: The start state, which no other state joins: no model predicts a label for the empty string.
START = 0
#: Rows whose behaviour and distance are compared with all known classes at a time.
COMPARED_ROWS = 4_096


@dataclass(frozen=True, eq=False)
class ClassGraph:
    """Classes of model states and their transitions; class 0 holds the start state alone.

    `table` (Q, V) leads from class to class, `labels` (Q,) is -1 for the start, and `points` (Q, N) are the first
    states that were found of each class, after the strings `words`. Row q of `successors` (Q, V, N) are the states
    after each symbol from there.
    """

    table: Ints
    labels: Ints
    points: Tensor
    words: tuple[Word, ...]
    successors: Tensor

    @property
    def depth(self) -> int:
        """The length of the longest string to the first state of a class."""
        return max(map(len, self.words))

    def build_machine(self, start_label: int) -> Machine:
        """Return the smallest machine that agrees with the graph on every string except the empty one.

        The label of the start state is free. So it is merged with a state that has the same successors, if there is
        one, preferably with the label `start_label`; otherwise it gets that label.
        """
        classes = coarsest_congruence(self.table, self.labels)
        _, first = np.unique(classes, return_index=True)
        table, labels = classes[self.table[first]], self.labels[first].copy()
        same = np.flatnonzero((table == table[START]).all(1))[1:]
        preferred = same[labels[same] == start_label]
        start = int((preferred if len(preferred) else same)[0]) if len(same) else START
        labels[START] = start_label
        return Machine(table=table, start=start, outputs=labels).minimise()


class JoinRule(Protocol):
    """Decides which class each state belongs to."""

    def join(self, states: Tensor) -> tuple[Ints, list[int]]:
        """Return the class of each state (B, N), from 1 on, and the rows that started a new class, in order."""


class JoinBySuffixes:
    """States join if they have the same label after every suffix."""

    def __init__(self, suffixes: SuffixRows) -> None:
        self.suffixes = suffixes
        self.classes: dict[int, int] = {}
        # A random number for each suffix turns the labels of a state into one number. That two states with different
        # labels get the same number has a probability of 2^-64.
        self.weights = np.random.default_rng(0).integers(2**63, size=len(suffixes.words), dtype=np.uint64) * 2 + 1

    def join(self, states: Tensor) -> tuple[Ints, list[int]]:
        """Return the class of each state, and the rows that started a new class."""
        labels = self.suffixes.predictions(states).labels.astype(np.uint64)
        _, first, group = np.unique(labels @ self.weights, return_index=True, return_inverse=True)
        keys = (labels[first] @ self.weights).tolist()
        number, new = np.zeros(len(first), dtype=np.int64), []
        for k in np.argsort(first):  # in the order in which they were found
            if keys[k] not in self.classes:
                self.classes[keys[k]] = len(self.classes) + 1
                new.append(int(first[k]))
            number[k] = self.classes[keys[k]]
        return number[group.reshape(-1)], new


class JoinByCentres:
    """States join if the same centre of the readout is nearest."""

    def __init__(self, matrices: TokenMatrices) -> None:
        self.rows = matrices.rows
        self.classes = np.zeros(len(matrices.rows), dtype=np.int64)

    def join(self, states: Tensor) -> tuple[Ints, list[int]]:
        """Return the class of each state, and the rows that started a new class."""
        centres = (states @ self.rows.T).argmax(1).numpy()
        reached, first = np.unique(centres, return_index=True)
        new = np.sort(first[self.classes[reached] == 0])
        self.classes[centres[new]] = self.classes.max() + 1 + np.arange(len(new))
        return self.classes[centres], new.tolist()


class JoinNearest:
    """A state joins the nearest class that it does not contradict, if that is near enough.

    Two states contradict each other if a suffix has different labels with gaps above `tolerance` from both.
    """

    def __init__(self, suffixes: SuffixRows, *, tolerance: float, distance: float = math.inf) -> None:
        self.suffixes, self.tolerance, self.distance = suffixes, tolerance, distance
        self.points = suffixes.matrices.start.new_zeros(0, len(suffixes.matrices.start))
        self.behaviour = self._behaviour(self.points)

    def _behaviour(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether each label is clear (B, E), and which clear label it is (B, E C)."""
        labels, gaps = self.suffixes.predictions(states)
        classes = self.suffixes.matrices.n_classes
        clear = torch.from_numpy(gaps > self.tolerance)
        hot = torch.nn.functional.one_hot(torch.from_numpy(labels), classes) * clear[..., None]
        return clear.float(), hot.flatten(1).float()

    def join(self, states: Tensor) -> tuple[Ints, list[int]]:
        """Return the class of each state, and the rows that started a new class."""
        parts, new = [], list[int]()
        for first in range(0, len(states), COMPARED_ROWS):
            part = states[first : first + COMPARED_ROWS]
            numbers, rows = self._join(part)
            parts.append(numbers)
            new += [first + row for row in rows]
        return np.concatenate(parts), new

    def _join(self, states: Tensor) -> tuple[Ints, list[int]]:
        clear, hot = self._behaviour(states)
        nearest, number = self._nearest(states, clear, hot, 0)
        new = list[int]()
        while True:
            free = np.flatnonzero(np.isinf(nearest))
            if not len(free):
                return number, new
            row = int(free[0])
            new.append(row)
            known = len(self.points)
            self.points = torch.cat([self.points, states[row, None]])
            self.behaviour = (
                torch.cat([self.behaviour[0], clear[row, None]]),
                torch.cat([self.behaviour[1], hot[row, None]]),
            )
            distance, _ = self._nearest(states, clear, hot, known)
            distance[row] = 0.0  # rounding must not separate a state from itself
            closer = distance < nearest
            nearest[closer], number[closer] = distance[closer], known + 1

    def _nearest(self, states: Tensor, clear: Tensor, hot: Tensor, first: int) -> tuple[np.ndarray, Ints]:
        """Return the distance to the nearest class from number `first` on that a state may join, and its number."""
        points = self.points[first:]
        if not len(points):
            return np.full(len(states), np.inf), np.zeros(len(states), dtype=np.int64)
        squared = (2 - 2 * states @ points.T).clamp_min(0)  # states have norm 1
        contradicted = clear @ self.behaviour[0][first:].T - hot @ self.behaviour[1][first:].T > 0.5
        limit = max(self.distance, 1e-3) ** 2
        best = squared.masked_fill_(contradicted | (squared > limit), math.inf).min(1)
        return best.values.numpy(), best.indices.numpy() + first + 1


class ClassExplorer:
    """Explores a linear recurrence again and again with finer rules, and steps from each state only once."""

    def __init__(self, matrices: TokenMatrices, max_states: int, watch: Watch) -> None:
        self.matrices, self.max_states, self.watch = matrices, max_states, watch
        self.explored = 0  #: number of states that were stepped to
        #: What was known when the time was up; the states left stay where they are.
        self.partial: ClassGraph | None = None
        self._known: dict[Word, Tensor] = {}  # (V, N): the states after each symbol, by the string that leads there

    def explore(self, rule: JoinRule) -> ClassGraph | None:
        """Return the classes of all states that are reached from the start; None if there are too many."""
        words: list[Word] = [()]
        points, table, steps = [self.matrices.start[None]], list[Ints](), list[Tensor]()
        frontier = [START]
        while frontier:
            self.watch.update(len(words))
            if self.watch.is_over:
                loops = np.repeat(np.array(frontier)[:, None], self.matrices.n_symbols, 1)
                self.partial = self._build(words, points, [*table, loops], steps) if table else None
                raise TimeIsUpError
            after = self._step([words[q] for q in frontier], torch.cat(points)[frontier])  # (F, V, N)
            steps.append(after)
            flat = after.flatten(0, 1)
            classes, new = rule.join(flat)
            if len(words) + len(new) > self.max_states + 1:
                return None
            table.append(classes.reshape(len(frontier), -1))
            parents = [divmod(row, self.matrices.n_symbols) for row in new]
            words += [(*words[frontier[parent]], symbol) for parent, symbol in parents]
            points.append(flat[new])
            frontier = list(range(len(words) - len(new), len(words)))
        return self._build(words, points, table, steps)

    def _build(self, words: list[Word], points: list[Tensor], table: list[Ints], steps: list[Tensor]) -> ClassGraph:
        vectors = torch.cat(points)
        labels = self.matrices.labels(vectors)
        labels[START] = -1
        return ClassGraph(np.concatenate(table), labels, vectors, tuple(words), torch.cat(steps))

    def _step(self, words: list[Word], states: Tensor) -> Tensor:
        fresh = [k for k, word in enumerate(words) if word not in self._known]
        if fresh:
            self.explored += len(fresh) * self.matrices.n_symbols
            for k, after in zip(fresh, self.matrices.successors(states[fresh]), strict=True):
                self._known[words[k]] = after
        return torch.stack([self._known[word] for word in words])
