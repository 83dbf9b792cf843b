"""Strings on which candidate machines are compared with a linear recurrence, and its labels of them."""

from __future__ import annotations

import numpy as np

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints
from sdssm.exact.extraction.covering_strings import draw_covering
from sdssm.exact.extraction.explored_classes import START, ClassGraph
from sdssm.exact.extraction.model_reader import Word, trace_states
from sdssm.exact.extraction.scouting import ScoutedStrings
from sdssm.exact.extraction.token_matrices import TokenMatrices
from sdssm.exact.watch import Watch

#: Strings that cover a candidate, and a limit on the multiplications to read them.
STRINGS, LEAST_STRINGS, MOST_WORK = 256, 32, 1 << 30


class LabelledStrings:
    """Strings that cover candidates, strings that lead to far-apart states, and the labels of all their prefixes."""

    def __init__(self, matrices: TokenMatrices, longest: int, generator: np.random.Generator, watch: Watch) -> None:
        self.matrices, self.longest, self.generator = matrices, longest, generator
        self.scouted = ScoutedStrings(matrices, watch)
        size = len(matrices.start)
        self.number = int(np.clip(MOST_WORK // (longest * size**2), LEAST_STRINGS, STRINGS))
        self.tokens = generator.integers(matrices.n_symbols, size=(self.number, longest))
        self.labels = matrices.labels_of_prefixes(self.tokens)

    def cover(self, graph: ClassGraph) -> None:
        """Read strings of the largest length that cover a graph, and keep them."""
        tokens = draw_covering(graph.table, START, self.number, self.longest, self.generator)
        self.tokens = np.concatenate([self.tokens, tokens])
        self.labels = np.concatenate([self.labels, self.matrices.labels_of_prefixes(tokens)])

    def counterexamples(self, graph: ClassGraph, horizon: int, most: int) -> list[Word]:
        """Return some shortest strings up to a length that a graph misclassifies.

        They are searched among the strings that lead to far-apart states, then among those kept, then among new ones
        that cover the graph.
        """
        words = self.scouted.disagreements(graph, horizon, most)
        if not words:
            words = _misclassified(graph, self.tokens[:, :horizon], self.labels[:, :horizon], most)
        if not words:
            tokens = draw_covering(graph.table, START, self.number, horizon, self.generator)
            words = _misclassified(graph, tokens, self.matrices.labels_of_prefixes(tokens), most)
        return words

    def error(self, machine: Machine, longest: int | None = None) -> float:
        """Return the share of labels on which a machine differs from the model; lengths t have the weight 1/t^2."""
        longest = self.longest if longest is None else longest
        weights = 1.0 / np.arange(1, longest + 1) ** 2
        wrong, total = self.scouted.weighted_error(machine, weights)
        tokens, labels = self.tokens[:, :longest], self.labels[:, :longest]
        differ = _disagreements(machine.table, machine.start, machine.outputs, tokens, labels)
        return (wrong + float((differ @ weights).sum())) / (total + len(differ) * float(weights.sum()))


def _disagreements(table: Ints, start: int, outputs: Ints, tokens: Ints, labels: Ints) -> np.ndarray:
    """Whether the label of each prefix of strings (B, L) differs from that of a machine: (B, L)."""
    return np.asarray(outputs[trace_states(table, np.full(len(tokens), start), tokens)] != labels)


def _misclassified(graph: ClassGraph, tokens: Ints, labels: Ints, most: int) -> list[Word]:
    """Return some shortest prefixes of strings (B, L) that a graph misclassifies."""
    wrong = _disagreements(graph.table, START, graph.labels, tokens, labels)
    rows = np.flatnonzero(wrong.any(1))
    ends = wrong[rows].argmax(1) + 1
    return [tuple(tokens[rows[k], : ends[k]].tolist()) for k in np.argsort(ends, kind="stable")[:most]]
