"""Find suffixes that distinguish states which were joined."""

from __future__ import annotations

import numpy as np
import torch

from sdssm.exact.extraction.explored_classes import START, ClassGraph
from sdssm.exact.extraction.labelled_strings import LabelledStrings
from sdssm.exact.extraction.model_reader import Word
from sdssm.exact.extraction.token_matrices import SuffixRows

#: Limits on the new suffixes of a round, and on the misclassified strings that they are derived from.
MOST_SUFFIXES, MOST_WORDS = 24, 48
#: Limit on the multiplications of one comparison of joined states.
MOST_COMPARED = 1 << 28
#: States at most this far apart are the same up to rounding.
SAME = 1e-4


class DistinguishingSuffixes:
    """Finds suffixes whose labels differ, with gaps above `tolerance`, from two states of one class."""

    def __init__(self, suffixes: SuffixRows, strings: LabelledStrings, tolerance: float) -> None:
        self.suffixes, self.strings, self.tolerance = suffixes, strings, tolerance

    def find(self, graph: ClassGraph, horizon: int) -> list[Word]:
        """Return new suffixes from strings up to the length `horizon`: first from known suffixes, then from strings."""
        return self._extend(graph, horizon) or self._learn(graph, horizon)

    def _extend(self, graph: ClassGraph, horizon: int) -> list[Word]:
        """Return suffixes a e, for a symbol a and a known suffix e, that distinguish joined states."""
        rows, classes = graph.successors.flatten(0, 1), graph.table.ravel()
        others = np.flatnonzero((rows - graph.points[classes]).norm(dim=1).numpy() > SAME)
        words, symbols = self.suffixes.words, self.suffixes.matrices.n_symbols
        most = max(64, MOST_COMPARED // (len(words) * symbols * rows.shape[1]))
        if len(others) > most:
            others = np.sort(self.strings.generator.choice(others, most, replace=False))
        if not len(others):
            return []
        states, first = rows[others], graph.points[classes[others]]
        lengths = np.array([len(word) for word in graph.words])[others // symbols] + 2
        allowed = lengths[:, None] + np.array([len(word) for word in words]) <= horizon
        columns = np.flatnonzero(allowed.any(0))
        if not len(columns):
            return []
        differ = np.zeros((len(others), symbols, len(words)), dtype=bool)
        for symbol in range(symbols):
            labels, gaps = self.suffixes.predictions_after(symbol, states)
            first_labels, first_gaps = self.suffixes.predictions_after(symbol, first)
            differ[:, symbol] = (labels != first_labels) & allowed
            if self.tolerance:
                differ[:, symbol] &= (gaps > self.tolerance) & (first_gaps > self.tolerance)
        return self._cover(differ.reshape(len(others), -1))

    def _cover(self, differ: np.ndarray) -> list[Word]:
        """Return few suffixes that distinguish all pairs that any suffix (pairs, V E) distinguishes, greedily."""
        chosen, known = list[Word](), len(self.suffixes.words)
        counts = differ.sum(0)
        while len(chosen) < MOST_SUFFIXES:
            column = int(counts.argmax())
            if not counts[column]:
                break
            symbol, suffix = divmod(column, known)
            chosen.append((symbol, *self.suffixes.words[suffix]))
            covered = differ[:, column]
            counts = counts - differ[covered].sum(0)
            differ = differ[~covered]
        return [word for word in chosen if word not in self.suffixes.words]

    def _learn(self, graph: ClassGraph, horizon: int) -> list[Word]:
        """Return suffixes that distinguish joined states, from short strings that the graph misclassifies."""
        fresh = dict[Word, None]()
        for word in self.strings.counterexamples(graph, horizon, MOST_WORDS):
            suffix = self._split(graph, word)
            if suffix is not None and suffix not in self.suffixes.words:
                fresh[suffix] = None
            if len(fresh) == MOST_SUFFIXES:
                break
        return list(fresh)

    def _split(self, graph: ClassGraph, word: Word) -> Word | None:
        """Return the shortest rest of a misclassified string that distinguishes two joined states.

        After the first i symbols, the graph stores the first state of its class. If the rest of the string has another
        label from there than from the successor of the first state before, the two should not have been joined.
        """
        path = [START]
        for symbol in word:
            path.append(int(graph.table[path[-1], symbol]))
        rows = self.suffixes.rows_of(())
        for end in range(len(word), 0, -1):
            pair = torch.stack([graph.successors[path[end - 1], word[end - 1]], graph.points[path[end]]])
            best = self.suffixes.best_of_classes(pair @ rows.T).topk(2, dim=1)
            gaps, labels = (best.values[:, 0] - best.values[:, 1]).tolist(), best.indices[:, 0].tolist()
            if labels[0] != labels[1] and min(gaps) > self.tolerance:
                return word[end:]
            rows = self.suffixes.prepend(word[end - 1], rows)
        return None
