"""The labels of every prefix, for a whole batch of strings at once.

A string is read in words of m symbols: for each state and each of the V^m words one table holds the state after the
word, another the labels on the way. The states between words are found word by word: for many strings all at once on
their device, for a few long ones in a plain loop on the host, where a step costs a hundredth of a tensor operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

#: The most entries of the table of words; larger ones no longer fit the processor's cache.
WORD_TABLE = 1 << 17
#: Strings in a batch below which a loop on the host is faster than tensor operations, and words from which it pays.
FEW_STRINGS = 48
LONG = 64


@dataclass(frozen=True, eq=False)
class Labeller:
    """Tables on one device for one machine. `after[q V^m + w]` is V^m times the state after word w from state q."""

    start: int
    n_states: int
    n_symbols: int
    word_length: int
    after: Tensor  # (Q V^m,)
    labels: Tensor  # (Q V^m, m)
    powers: Tensor  # (m,): V^(m-1), ..., V, 1

    @classmethod
    def build(cls, table: Tensor, start: int, labels: Tensor) -> Labeller:
        """From a table (Q, V), a start state and the label of each state (Q,), on the device they are on."""
        n_states, n_symbols = table.shape
        m = 1
        while n_states * n_symbols ** (m + 1) * (m + 1) <= WORD_TABLE and m < 16:
            m += 1
        words = n_symbols**m
        digits = torch.arange(words, device=table.device)
        state = torch.arange(n_states, device=table.device)[:, None].expand(n_states, words)
        trace = []
        for place in reversed(range(m)):
            state = table[state, digits // n_symbols**place % n_symbols]
            trace.append(labels[state])
        return cls(
            start=start,
            n_states=n_states,
            n_symbols=n_symbols,
            word_length=m,
            after=(state * words).flatten(),
            labels=torch.stack(trace, dim=-1).flatten(0, 1),
            powers=n_symbols ** torch.arange(m - 1, -1, -1, device=table.device),
        )

    def __call__(self, tokens: Tensor) -> Tensor:
        """The label of every prefix: tokens (B, L) -> labels (B, L)."""
        batch, length = tokens.shape
        m = self.word_length
        tokens = tokens.contiguous()
        n_words = -(-length // m)
        if n_words * m != length:
            tokens = torch.nn.functional.pad(tokens, (0, n_words * m - length))
        code = (tokens.view(batch, n_words, m) * self.powers).sum(-1) if m > 1 else tokens  # (B, W): the words
        place = self._before(code).add_(code)  # (B, W): state before each word, and word, as one index
        labels = self.labels.index_select(0, place.flatten()).view(batch, n_words * m)
        return labels if n_words * m == length else labels[:, :length]

    def _before(self, code: Tensor) -> Tensor:
        """V^m times the state before each word: (B, W) -> (B, W)."""
        batch, n_words = code.shape
        first = self.start * self.n_symbols**self.word_length
        if batch < FEW_STRINGS and n_words >= LONG:
            rows = [self._loop(first, words) for words in code.tolist()]
            return torch.tensor(rows, device=code.device)
        state = code.new_full((batch,), first)
        before = [state]
        for words in code.t()[:-1].contiguous():  # each step reads one row
            state = torch.take(self.after, state + words)
            before.append(state)
        return torch.stack(before, dim=1)

    def _loop(self, state: int, words: list[int]) -> list[int]:
        after = self._host_after
        before = []
        for word in words:
            before.append(state)
            state = after[state + word]
        return before

    @cached_property
    def _host_after(self) -> list[int]:
        return self.after.tolist()
