"""The labels of every prefix, for a whole batch of strings at once.

A string is read in words of m symbols: for each state and each of the V^m words one table holds the state after the
word, another the labels on the way. The states between words are found word by word, for the whole batch at once. Long
strings are cut into segments first: what a segment does to every state is found for all segments side by side, then the
segments are chained, and then all are run from their true states.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: The most entries of the table of words; larger ones no longer fit the processor's cache.
WORD_TABLE = 1 << 17
#: From this many words on it may pay to cut strings into segments.
LONG = 256
#: Steps that cost as much as looking up this many entries (a launch against a gather).
STEP_COST = 4_000


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
        batch, n_words = code.shape
        scale = self.n_symbols**self.word_length
        start = code.new_full((batch,), self.start * scale)
        segments = self._segments(batch, n_words)
        if segments == 1:
            return self._run(start, code)[0]
        size = -(-n_words // segments)
        padded = torch.nn.functional.pad(code, (0, segments * size - n_words)).view(batch * segments, size)
        everywhere = torch.arange(self.n_states, device=code.device) * scale
        _, maps = self._run(everywhere.expand(batch * segments, -1), padded, keep=False)  # (B S, Q)
        maps = maps.view(batch, segments, self.n_states)
        begins = []
        for s in range(segments):
            begins.append(start)
            start = maps[:, s].gather(1, (start // scale)[:, None])[:, 0]
        before, _ = self._run(torch.stack(begins, dim=1).flatten(), padded)
        return before.view(batch, segments * size)[:, :n_words]

    def _run(self, state: Tensor, code: Tensor, *, keep: bool = True) -> tuple[Tensor, Tensor]:
        """From `state` (B,) or (B, K) over code (B, W): the states before each word, if kept, and the last one."""
        columns = code.t().contiguous()  # (W, B): each step reads one row
        if state.ndim == 2:
            columns = columns[..., None]
        kept = []
        for column in columns:
            if keep:
                kept.append(state)
            state = torch.take(self.after, state + column)
        return (torch.stack(kept, dim=1) if keep else state), state

    def _segments(self, batch: int, n_words: int) -> int:
        """How many segments are cheapest: steps one after the other against the states looked up in all."""
        if n_words < LONG:
            return 1
        segments = round(n_words**0.5)
        straight = n_words * (STEP_COST + batch)
        cut = 3 * segments * STEP_COST + n_words * batch * (self.n_states + 1)
        return segments if cut < straight else 1
