"""Search misclassified strings that are too long to read all strings of their length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from sdssm.automata.refinement import Ints
from sdssm.checking.exhaustive_search import Error
from sdssm.checking.string_reader import Prefixes, StringReader
from sdssm.errors import ModelError
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.extraction.model_reader import Word
from sdssm.layers.mixer import flatten_state
from sdssm.progress import TimeLimit

#: Random strings, and strings that repeat a word, of each length; the repeated words have up to LONGEST_WORD symbols.
STRINGS, LONGEST_WORD = 128, 12
#: Once a misclassified string is known, this many rounds of shorter ones may bring no improvement.
MOST_STALE = 8
#: Transitions of the machine whose strings are read, and random symbols after each of them.
MOST_TRANSITIONS, CONTINUATION = 4_096, 8
#: Prefixes that the search by margins keeps at each length, and the share of them that is kept at random.
BEAM, RANDOM_SHARE = 256, 0.25
#: States that differ by less than this, relative to the size of all states, are taken for equal by the beam.
RESOLUTION = 1e-3
#: Misclassified strings of a batch that are read again as whole strings.
MOST_CONFIRMED = 16


@dataclass(frozen=True)
class SearchedStrings:
    """How far one method has searched: the longest strings that it read, and how many valid strings it judged."""

    method: str
    length: int
    strings: int


class GuidedSearch:
    """Searches strings that are likely to be misclassified, of increasing length.

    Attributes:
        error: the shortest misclassified string that was found, None if there is none.
        method: which method found it.
        searched: how far each method has searched.
        note: why longer strings were not read, if the model failed on them.
        joined: how many prefixes the search by margins left out because machine and model were in the same states as
            after another prefix. States that are equal up to rounding need not lead to the same predictions, so this is
            a heuristic.
    """

    def __init__(self, reader: StringReader, longest: int, seed: int) -> None:
        self.reader, self.longest = reader, longest
        self.generator = np.random.default_rng(seed)
        self.error: Error | None = None
        self.method: str | None = None
        self.searched: list[SearchedStrings] = []
        self.joined = 0
        self.note: str | None = None

    @property
    def last_length(self) -> int:
        """The longest length that is still of interest."""
        return self.longest if self.error is None else min(self.longest, len(self.error[0]) - 1)

    def run(self, known: int, limits: dict[str, TimeLimit]) -> None:
        """Search with each method until its time is over; all strings up to the length `known` were read before."""
        methods: dict[str, Callable[[int, TimeLimit], Iterator[int]]] = {
            "transitions": self._try_transitions,
            "random and repeated words": self._try_random,
            "smallest margins": self._try_beam,
        }
        for name, method in methods.items():
            before, error_before, length = self.reader.strings, self.error, 0
            self.reader.limit = limits[name]
            try:
                for read in method(known, limits[name]):
                    length = max(length, read)
            except TimeIsUpError:
                pass
            except ModelError as error:  # such as a module that has no positions for long strings
                self.note = str(error)
            if self.error is not error_before:
                self.method = name
            if self.reader.strings > before:
                self.searched.append(SearchedStrings(name, length, self.reader.strings - before))

    # -- methods: each yields the lengths that it has read -------------------------------------------------------------

    def _try_transitions(self, known: int, limit: TimeLimit) -> Iterator[int]:
        """Read a shortest string for each transition of the task's machine, and random continuations of it."""
        words = [word for word in self.reader.access_words() if len(word) + CONTINUATION > known]
        for length in sorted({len(word) for word in words[:MOST_TRANSITIONS]}):
            same = np.array([word for word in words[:MOST_TRANSITIONS] if len(word) == length])
            if length > self.last_length:
                return
            added = self.generator.integers(self.reader.n_symbols, size=(len(same), CONTINUATION))
            tokens = self.reader.complete(np.concatenate([same, added], 1))[:, : self.last_length]
            self._read(tokens)
            if not self.reader.judges_prefixes:  # then only the whole continuation was judged
                self._read(same)
            yield tokens.shape[1]

    def _try_random(self, known: int, limit: TimeLimit) -> Iterator[int]:
        """Read random strings, and strings that repeat a word, of increasing length."""
        length, stale = max(known + 1, 8), 0
        while not limit.is_over and stale < MOST_STALE:
            length, before = min(length, self.last_length), self.error
            if length <= known:
                return
            drawn = self.generator.integers(self.reader.n_symbols, size=(2 * STRINGS, length))
            for row in range(STRINGS):
                word = drawn[row, : 1 + row % min(LONGEST_WORD, length)]
                drawn[row] = np.resize(word, length)
            tokens = self.reader.complete(drawn)
            self._read(tokens)
            if self.reader.task.has_length(length):
                generator = torch.Generator().manual_seed(int(self.generator.integers(1 << 31)))
                self._read(self.reader.task.sample(STRINGS, length, generator=generator).tokens.numpy())
            yield tokens.shape[1]
            if self.error is None:
                length *= 2
                stale = MOST_STALE if length > 2 * tokens.shape[1] or length >= 2 * self.longest else 0
            else:
                stale = stale + 1 if self.error is before else 0

    def _try_beam(self, known: int, limit: TimeLimit) -> Iterator[int]:
        """Extend the prefixes with the smallest margins, symbol by symbol."""
        if not self.reader.steps:
            return
        prefixes, length = self.reader.start_prefixes(), 0
        while length < self.last_length and not limit.is_over:
            prefixes, verdicts = self.reader.extend(prefixes)
            if verdicts is None:
                return
            length += 1
            self._take([tuple(prefixes.tokens[row].tolist()) for row in np.flatnonzero(verdicts.wrong)])
            prefixes = self._select(prefixes, verdicts.margins)
            yield length

    # -- parts of them -------------------------------------------------------------------------------------------------

    def _read(self, tokens: Ints) -> None:
        """Read strings, and keep the shortest misclassified prefix."""
        if not tokens.shape[1]:
            return
        errors = self.reader.find_errors(tokens)
        rows = np.flatnonzero(errors)
        rows = rows[np.argsort(errors[rows], kind="stable")]
        self._take([tuple(tokens[row, : errors[row]].tolist()) for row in rows])

    def _take(self, words: list[Word]) -> None:
        """Keep the first of these strings that is misclassified as a whole and shorter than the known one."""
        shorter = [word for word in words if len(word) <= self.last_length]
        self.error = self.reader.confirm(shorter[:MOST_CONFIRMED]) or self.error

    def _select(self, prefixes: Prefixes, margins: np.ndarray) -> Prefixes:
        """Return the prefixes with the smallest margins and some random ones, one for each pair of states."""
        codes = np.concatenate([prefixes.states[:, None], self._quantised(prefixes)], 1)
        factors = np.random.default_rng(0).integers(1 << 62, size=codes.shape[1])
        first = np.unique((codes * factors).sum(1), return_index=True)[1]  # sums overflow: they are hashes
        self.joined += len(codes) - len(first)
        order = first[np.argsort(margins[first], kind="stable")]
        if len(order) > BEAM:
            best = int(BEAM * (1 - RANDOM_SHARE))
            order = np.concatenate([order[:best], self.generator.permutation(order[best:])[: BEAM - best]])
        return prefixes.rows(np.sort(order))

    def _quantised(self, prefixes: Prefixes) -> Ints:
        """Return states of the model as whole numbers, which are equal for states that are equal up to rounding."""
        parts = []
        for tensor in flatten_state(prefixes.model_state):
            flat = tensor.flatten(1).double().nan_to_num(0.0, 1e30, -1e30)
            scale = flat.abs().amax().clamp(min=1e-30) * RESOLUTION
            parts.append((flat / scale).round().long().cpu().numpy())
        return np.concatenate(parts, 1) if parts else np.zeros((len(prefixes.states), 0), dtype=np.int64)


def shorten_error(reader: StringReader, error: Error, limit: TimeLimit, seed: int) -> Error:
    """Delete pieces of a misclassified string as long as a valid, misclassified string remains.

    Pieces of every size from half of the string to one symbol are tried, at every place if the string is short, else at
    random places. What remains cannot be shortened by any single deletion that was tried.
    """
    generator, reader.limit = np.random.default_rng(seed), limit
    size = len(error[0]) // 2
    try:
        while size >= 1:
            shorter = _delete_piece(reader, error[0], size, generator)
            if shorter is not None:
                error, size = shorter, min(size, (len(shorter[0]) + 1) // 2)
            else:
                size = size // 2 if size > 8 else size - 1
    except TimeIsUpError:
        pass
    return error


def _delete_piece(reader: StringReader, word: Word, size: int, generator: np.random.Generator) -> Error | None:
    """Return a misclassified string from which `size` symbols in a row were deleted, None if there is none."""
    length = len(word) - size
    if length < 1:
        return None
    places = np.arange(length + 1)
    if len(places) > 2 * STRINGS:
        places = np.sort(generator.permutation(places)[: 2 * STRINGS])
    letters = np.array(word)
    tokens = np.stack([np.concatenate([letters[:place], letters[place + size :]]) for place in places])
    errors = reader.find_errors(tokens)
    rows = np.flatnonzero(errors)
    rows = rows[np.argsort(errors[rows], kind="stable")]
    return reader.confirm([tuple(tokens[row, : errors[row]].tolist()) for row in rows[:MOST_CONFIRMED]])
