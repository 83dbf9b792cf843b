"""The labels of every prefix, for a whole batch of strings at once.

A string is read in words of m symbols. For each state and each of the V^m words one table holds the state after the
word, and another the labels on the way. The states between words are computed word by word: for many strings in
parallel on their device, for a few long strings in a Python loop on the host, where a step costs a hundredth of a
tensor operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

#: The most entries of the table of words; larger tables do not fit into the processor's cache.
WORD_TABLE = 1 << 17
#: The loop on the host is faster for batches of fewer strings than this, if they have at least this many words.
FEW_STRINGS = 48
MANY_WORDS = 64


@dataclass(frozen=True, eq=False)
class PrefixLabeller:
    """Lookup tables on one device that label the prefixes of strings of one machine.

    `after[q V^m + w]` is V^m times the state after word w from state q.
    """

    start: int
    n_symbols: int
    word_length: int
    after: Tensor  # (Q V^m,)
    labels: Tensor  # (Q V^m, m)
    powers: Tensor  # (m,): V^(m-1), ..., V, 1

    @classmethod
    def build(cls, table: Tensor, start: int, labels: Tensor) -> PrefixLabeller:
        """Build the tables from a transition table (Q, V), a start state and the label of each state (Q,)."""
        n_states, n_symbols = table.shape
        m = 1
        while n_states * n_symbols ** (m + 1) * (m + 1) <= WORD_TABLE and m < 16:
            m += 1
        n_words = n_symbols**m
        words = torch.arange(n_words, device=table.device)
        state = torch.arange(n_states, device=table.device)[:, None].expand(n_states, n_words)
        trace = []
        for digit in reversed(range(m)):
            state = table[state, words // n_symbols**digit % n_symbols]
            trace.append(labels[state])
        return cls(
            start=start,
            n_symbols=n_symbols,
            word_length=m,
            after=(state * n_words).flatten(),
            labels=torch.stack(trace, dim=-1).flatten(0, 1),
            powers=n_symbols ** torch.arange(m - 1, -1, -1, device=table.device),
        )

    @property
    def n_words(self) -> int:
        """The number of different words, V^m."""
        return int(self.n_symbols**self.word_length)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Return the label of every prefix: tokens (B, L) -> labels (B, L)."""
        words = self.number_words(tokens)
        rows = self._states_before(words).add_(words)  # (B, W): state before each word, and word, as one index
        labels = self.labels.index_select(0, rows.flatten()).view(len(tokens), words.shape[1] * self.word_length)
        return labels[:, : tokens.shape[1]]

    def number_words(self, tokens: Tensor) -> Tensor:
        """Return the numbers of the W words of strings, the last of them filled up with symbol 0: (B, L) -> (B, W)."""
        m, missing = self.word_length, -tokens.shape[1] % self.word_length
        if m == 1:
            return tokens
        padded = torch.nn.functional.pad(tokens, (0, missing)) if missing else tokens.contiguous()
        return (padded.view(len(tokens), -1, m) * self.powers).sum(-1)

    def _states_before(self, words: Tensor) -> Tensor:
        """Return V^m times the state before each word: (B, W) -> (B, W)."""
        first = self.start * self.n_words
        if words.shape[0] < FEW_STRINGS and words.shape[1] >= MANY_WORDS:
            rows = [self._states_before_on_host(first, row) for row in words.tolist()]
            return torch.tensor(rows, device=words.device)
        state = words.new_full((len(words),), first)
        before = [state]
        for column in words.t()[:-1].contiguous():  # contiguous: each step reads one row of memory
            state = torch.take(self.after, state + column)
            before.append(state)
        return torch.stack(before, dim=1)

    def _states_before_on_host(self, state: int, words: list[int]) -> list[int]:
        after = self._host_after
        before = []
        for word in words:
            before.append(state)
            state = after[state + word]
        return before

    @cached_property
    def _host_after(self) -> list[int]:
        return self.after.tolist()


class LabelWalk:
    """The labels of strings that arrive in pieces; the state of each string is kept between pieces.

    Args:
        table: the transition table (Q, V), for the symbols that remain after the whole words of a piece.
        labeller: the tables of whole words.
        starts: the start state of each string (B,).
    """

    def __init__(self, table: Tensor, labeller: PrefixLabeller, starts: Tensor) -> None:
        self._transitions, self._labeller, self._states = table, labeller, starts

    def advance(self, tokens: Tensor) -> Tensor:
        """Read the next symbols (B, T) of each string, and return the label after each of them (B, T)."""
        labeller, length = self._labeller, tokens.shape[1]
        before = state = self._states * labeller.n_words  # the unit of `PrefixLabeller.after`
        rows = []
        for column in labeller.number_words(tokens).t().contiguous():
            rows.append(state + column)
            before, state = state, torch.take(labeller.after, rows[-1])
        remainder = length % labeller.word_length
        self._states = torch.div(before if remainder else state, labeller.n_words, rounding_mode="floor")
        for symbol in tokens[:, length - remainder :].t():
            self._states = self._transitions[self._states, symbol]
        return labeller.labels[torch.stack(rows, dim=1)].flatten(1)[:, :length]
