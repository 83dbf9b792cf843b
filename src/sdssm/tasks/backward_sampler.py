"""Balanced and covering strings of any length, drawn from their ends to their starts.

The last state, or the last transition, is drawn first. A string is then completed backwards: in state q after t symbols
the transition before is drawn with a weight that is the number of strings of t - 1 symbols that reach its source.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sdssm.automata.refinement import Floats, Ints
from sdssm.tasks.string_counts import StringCounts
from sdssm.tasks.validity import LabelledTable


class BackwardSampler:
    """Draw balanced or covering strings of a machine; the memory is proportional to states and transitions.

    The computation is on the CPU, where counts are exact, and the strings are on the device of the random numbers.
    """

    def __init__(self, machine: LabelledTable) -> None:
        self.counts = StringCounts(machine)

    def draw(self, sampling: str, numbers: Tensor) -> Tensor:
        """Draw strings of length L for uniform numbers in [0, 1), float64 (B, L + 2) -> int64 (B, L).

        Each row is a function of its own numbers. Some string of this length must be valid.
        """
        uniform = numbers.cpu().numpy()
        ends, u = uniform[:, :2], uniform[:, 2:]
        batch, length = u.shape
        tokens: Ints = np.empty((length, batch), dtype=np.int64)
        if sampling == "balanced":
            state, remaining = self._choose_last_state(length, ends), length
        else:
            state, tokens[-1] = self._choose_last_transition(length, ends)
            remaining = length - 1
        counts, n_symbols = self.counts, self.counts.machine.n_symbols
        for t in range(remaining, 0, -1):
            chosen = counts.in_edges.choose(counts.last_transition_weights(t), state, u[:, t - 1])
            state, tokens[t - 1] = np.divmod(counts.edges[chosen], n_symbols)
        return torch.from_numpy(tokens.T.copy()).to(numbers.device)

    def _choose_last_state(self, length: int, u: Floats) -> Ints:
        """Choose a label, and then a state with this label, for numbers (B, 2)."""
        possible, by_label = self.counts.possible_lists(length), self.counts.by_label
        lists = possible[(u[:, 0] * len(possible)).astype(np.int64)]
        cumulative = by_label.cumulative_weights(self.counts.at(length))
        return by_label.states[by_label.choose(cumulative, lists, u[:, 1])]

    def _choose_last_transition(self, length: int, u: Floats) -> tuple[Ints, Ints]:
        """Choose a state before the last symbol, and the symbol, for numbers (B, 2)."""
        cumulative = self.counts.cumulative_pairs(self.counts.at(length - 1))
        pair = (u[:, 0] * cumulative[-1]).astype(np.int64)
        state = np.searchsorted(cumulative, pair, side="right")
        before = np.where(state > 0, cumulative[state - 1], 0)
        return state, self.counts.valid_symbols[state, pair - before]
