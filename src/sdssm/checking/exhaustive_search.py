"""Read all valid strings of a task, shortest first, until one is misclassified."""

from __future__ import annotations

from time import monotonic

import numpy as np

from sdssm.checking.string_reader import MOST_ROWS, Prefixes, StringReader
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.extraction.model_reader import Word
from sdssm.layers.mixer import join_states, state_tensors
from sdssm.progress import TimeLimit

#: Limit on the numbers of the prefixes, and of the states after them, that are kept from one length to the next.
MOST_KEPT = 1 << 25

#: A misclassified string with its label and the prediction, None if the logits are not finite.
Error = tuple[Word, int, int | None]


class AllStringsSearch:
    """A breadth-first search over all valid strings, which can be interrupted and continued.

    The prefixes of one length, with the states of a recurrent model, are kept in memory; where they are too many,
    longer strings are reached from the last ones that were kept.

    Attributes:
        length: every valid string up to this length was read and is classified correctly.
        error: the shortest misclassified string, the first in the order of symbols; None if none was found yet.
        unconfirmed: strings that are misclassified symbol by symbol, but correctly as a whole, because of rounding.
        is_complete: whether no valid string is longer than `length`.
    """

    def __init__(self, reader: StringReader, max_strings: int) -> None:
        self.reader, self.max_strings = reader, max_strings
        self.length, self.unconfirmed, self.is_complete = 0, 0, False
        self.error: Error | None = None
        self._kept, self._kept_length = [reader.start_prefixes()], 0
        self._reached = np.array([1 if q == reader.start else 0 for q in range(len(reader.table))], dtype=object)
        self._count = 0
        self._seconds_each = 0.0

    def read_up_to(self, longest: int, limit: TimeLimit, seconds: float) -> None:
        """Read all strings of the next lengths, up to `longest` or until the time is over.

        A length is not started if it would take longer than `seconds` in all.
        """
        end = monotonic() + seconds
        while self.error is None and not self.is_complete and self.length < longest and not limit.is_over:
            count = self._count_prefixes()
            # The first batches include the start of the model's code, so they say nothing about the next length.
            is_long = count > MOST_ROWS and monotonic() + count * self._seconds_each > end
            if self._count + count > self.max_strings or is_long:
                return
            if not count:
                self.is_complete = True
                return
            try:
                self._read_next(limit)
            except TimeIsUpError:
                return

    def _count_prefixes(self) -> int:
        """Return the number of prefixes of the next length that some valid string starts with."""
        return int(self._next_counts().sum())

    def _next_counts(self) -> np.ndarray:
        counts = np.zeros(len(self._reached), dtype=object)  # whole numbers of any size
        for state in np.flatnonzero(self._reached):
            for successor in self.reader.table[state]:
                counts[successor] += self._reached[state]
        return np.where(self.reader.live, counts, 0)

    def _read_next(self, limit: TimeLimit) -> None:
        started, count = monotonic(), self._count_prefixes()
        steps = self.length + 1 - self._kept_length
        kept: list[Prefixes] | None = [] if self._can_keep(count) else None
        for prefixes in self._kept:
            self._expand(prefixes, steps, kept, limit)
            if self.error is not None:
                return
        self.length += 1
        self._count += count
        self._reached = self._next_counts()
        self._seconds_each = (monotonic() - started) / count
        if kept is not None:
            self._kept, self._kept_length = [_join(kept)], self.length

    def _can_keep(self, count: int) -> bool:
        numbers = self.length + 1 + sum(tensor[:1].numel() for tensor in state_tensors(self._kept[0].model_state))
        return count * numbers <= MOST_KEPT

    def _expand(self, prefixes: Prefixes, steps: int, kept: list[Prefixes] | None, limit: TimeLimit) -> None:
        """Read the strings that continue some prefixes by this many symbols, in batches, depth first."""
        reader = self.reader
        length = 1 if reader.steps else prefixes.tokens.shape[1] + steps
        rows = max(1, reader.rows_at_once(length) // reader.n_symbols)
        for first in range(0, len(prefixes.states), rows):
            if limit.is_over:
                raise TimeIsUpError
            extended, verdicts = reader.extend(prefixes.rows(slice(first, first + rows)), judged=steps == 1)
            if verdicts is not None and verdicts.wrong.any():
                wrong = np.flatnonzero(verdicts.wrong)
                self.error = reader.confirm_rows(extended.tokens[wrong])
                if self.error is not None:
                    return
                self.unconfirmed += len(wrong)
            if steps > 1:
                self._expand(extended, steps - 1, kept, limit)
                if self.error is not None:
                    return
            elif kept is not None:
                kept.append(extended)


def _join(parts: list[Prefixes]) -> Prefixes:
    """Join the strings of several batches."""
    tokens = np.concatenate([part.tokens for part in parts])
    states = np.concatenate([part.states for part in parts])
    return Prefixes(tokens, states, join_states([part.model_state for part in parts]))
