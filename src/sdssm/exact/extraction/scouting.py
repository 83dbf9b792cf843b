"""Read strings that lead a linear recurrence to states as different from each other as possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints
from sdssm.exact.extraction.explored_classes import START, ClassGraph
from sdssm.exact.extraction.model_reader import Word
from sdssm.exact.extraction.token_matrices import TokenMatrices
from sdssm.exact.watch import Watch

#: States from which the next symbols are read at each length, and a limit on the multiplications of each length.
WIDEST, NARROWEST, MOST_WORK = 48, 8, 1 << 26
#: States that are nearer than this to one found before (all have norm 1) lead to nothing new.
NEAR = 0.02
#: The states found last with which new ones are compared, and the new ones of each length that may be continued.
MOST_SEEN, MOST_COMPARED = 1_024, 512


@dataclass(frozen=True, eq=False)
class ScoutedLength:
    """The strings of one length that were read: (B,) each; `parents` are rows of the length before."""

    parents: Ints
    symbols: Ints
    labels: Ints


class ScoutedStrings:
    """A tree of strings, and the labels that a model gives them.

    Uniformly random strings miss most states of most machines: with 64 symbols, none of a million random strings has
    a given factor of four symbols. A recurrence shows by its state that something has been noticed, long before the
    label changes. So at each length the strings are continued that lead to states far from all states found before.
    """

    def __init__(self, matrices: TokenMatrices, watch: Watch) -> None:
        self.matrices, self.watch = matrices, watch
        work = matrices.n_symbols * len(matrices.start) ** 2
        self.width = int(np.clip(MOST_WORK // work, NARROWEST, WIDEST))
        self.lengths: list[ScoutedLength] = []
        self._seen = self._states = matrices.start[None]
        self._rows = np.zeros(1, dtype=np.int64)

    def _extend(self, longest: int) -> None:
        """Read strings up to a length, unless they stop to lead to new states before."""
        symbols = np.arange(self.matrices.n_symbols)
        while len(self.lengths) < longest and len(self._rows):
            self.watch.tick()
            self.watch.check()
            after = self.matrices.successors(self._states).flatten(0, 1)
            parents = np.repeat(self._rows, len(symbols))
            labels = self.matrices.labels(after)
            self.lengths.append(ScoutedLength(parents, np.tile(symbols, len(self._states)), labels))
            self._rows = _farthest(after, self._seen, self.width)
            self._states = after[self._rows]
            self._seen = torch.cat([self._seen, self._states])[-MOST_SEEN:]

    def disagreements(self, graph: ClassGraph, longest: int, most: int) -> list[Word]:
        """Return up to `most` shortest strings up to a length that a graph misclassifies."""
        self._extend(longest)
        words = list[Word]()
        for number, wrong in enumerate(self._wrong(graph.table, START, graph.labels, longest)):
            words += [self._word(number, int(row)) for row in np.flatnonzero(wrong)[: most - len(words)]]
            if len(words) == most:
                break
        return words

    def weighted_error(self, machine: Machine, weights: np.ndarray) -> tuple[float, float]:
        """Return the weight of all labels that differ from those of a machine, and of all labels.

        `weights` (L,) are those of a label after 1 to L symbols.
        """
        differences = self._wrong(machine.table, machine.start, machine.outputs, len(weights))
        counts = np.array([(wrong.sum(), len(wrong)) for wrong in differences]).reshape(-1, 2)
        sums = weights[: len(counts)] @ counts
        return float(sums[0]), float(sums[1])

    def _wrong(self, table: Ints, start: int, outputs: Ints, longest: int) -> Iterator[np.ndarray]:
        """Whether each label differs from that of a machine, length by length."""
        state = np.array([start])
        for level in self.lengths[:longest]:
            state = table[state[level.parents], level.symbols]
            yield outputs[state] != level.labels

    def _word(self, number: int, row: int) -> Word:
        """Return the string of a row of a length."""
        symbols = []
        for level in self.lengths[number::-1]:
            symbols.append(int(level.symbols[row]))
            row = int(level.parents[row])
        return tuple(reversed(symbols))


def _farthest(states: torch.Tensor, seen: torch.Tensor, most: int) -> Ints:
    """Return the rows of at most `most` states (B, N), one after the other the farthest from all chosen and seen."""
    nearest = (states @ seen.T).max(1).values  # the cosine; all states have norm 1
    kept = nearest.argsort()[:MOST_COMPARED]
    nearest, states = nearest[kept], states[kept]
    rows = list[int]()
    while len(rows) < most:
        row = int(nearest.argmin())
        if nearest[row] > 1 - NEAR**2 / 2:
            break
        rows.append(row)
        nearest = torch.maximum(nearest, states @ states[row])
    return kept.numpy()[rows] if rows else np.zeros(0, dtype=np.int64)
