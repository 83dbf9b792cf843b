"""Find candidate machines with Angluin's L* (through AALpy), from the labels of a model alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sdssm.automata.refinement import Ints
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.extraction.candidates import COARSER, DIFFER, CandidateMachines, SearchResult, too_many_states
from sdssm.exact.extraction.model_reader import NOT_VALID, ModelReader, Word, trace_states
from sdssm.extras import import_extra

#: Limits on the rounds of counterexamples, and on those in a row that bring no improvement.
MOST_ROUNDS, MOST_STALE = 200, 20
#: Values in place of a label: of a string that no continuation makes valid, and of the empty string.
DEAD, EMPTY = -3, -4


class _TooManyStatesError(Exception):
    """L* would not stop: each longer word distinguishes more states."""


class QueriedLabels:
    """The labels of all words that L* has asked for, and of those that it will ask for next.

    AALpy asks for one word after the other. A model reads a thousand words in hardly more time than one, so this class
    repeats what L* does with its observation table, and reads the words of a whole step in one batch. Words that were
    not foreseen are read one by one. Labels are kept, so that they stay the same.
    """

    def __init__(self, reader: ModelReader, max_states: int) -> None:
        self.reader, self.max_states = reader, max_states
        self.known: dict[Word, int] = {(): EMPTY}
        self.words_read = 0  #: number of words that the model has read
        self.rounds = 0
        self._prefixes: list[Word] = [()]
        self._suffixes: list[Word] = [()]
        self._counterexample: Word = ()

    def trace(self, word: Word) -> list[int]:
        """Return the label of every prefix of a word except the empty one; of the empty word, its own."""
        if word not in self.known:
            self._foresee(word)
            self.ask([word])
        return [self.known[word[:end]] for end in range(1, len(word) + 1)] or [EMPTY]

    def ask(self, words: Iterable[Word]) -> None:
        """Read words, and all their prefixes, whose labels are not known."""
        prefixes = {word[:end] for word in words if word not in self.known for end in range(1, len(word) + 1)}
        new = sorted(prefix for prefix in prefixes if prefix not in self.known)
        if not new:
            return
        self.words_read += len(new)
        # The observation table has a row for each state and transition, and a column for each round.
        if self.words_read > 2 * self.max_states * (self.reader.n_symbols + 1) * (self.rounds + 2) * len(
            max(new, key=len)
        ):
            raise _TooManyStatesError
        self.reader.explored += len(new)
        self.reader.watch.update(self.words_read)
        live = [word for word in new if self._is_live(word)]
        self.known.update(dict.fromkeys(new, DEAD))
        try:
            labels = self.reader.labels_of_words(live)
        except TimeIsUpError:
            for word in live:
                del self.known[word]
            raise
        self.known.update(zip(live, labels, strict=True))

    def start(self) -> None:
        """Foresee the words before the first hypothesis."""
        self._close()

    def start_round(self, prefixes: Sequence[Word], counterexample: Word) -> None:
        """Note the rows of the table when a counterexample was found; L* adds one of its suffixes as a column."""
        self.rounds += 1
        self._prefixes, self._counterexample = list(prefixes), counterexample

    def _is_live(self, word: Word) -> bool:
        start = np.array([self.reader.valid.start])
        return bool(self.reader.live[trace_states(self.reader.valid_table, start, np.array([word]))[0, -1]])

    def _rows(self) -> list[Word]:
        known = set(self._prefixes)
        longer = [(*prefix, symbol) for prefix in self._prefixes for symbol in range(self.reader.n_symbols)]
        return [*self._prefixes, *(word for word in longer if word not in known)]

    def _foresee(self, word: Word) -> None:
        """Read all words of the next step if a word is the first of it: the last row with a suffix as a new column."""
        last = self._rows()[-1]
        suffix = word[len(last) :]
        is_new = suffix not in self._suffixes and suffix == self._counterexample[-len(suffix) :]
        if suffix and is_new and word[: len(last)] == last:
            self._suffixes.append(suffix)
            self._close()

    def _close(self) -> None:
        """Add rows until every transition leads to a row of the table, as L* does."""
        while len(self._prefixes) <= self.max_states:
            rows = self._rows()
            self.ask(row + suffix for row in rows for suffix in self._suffixes)
            seen = {self._row_labels(prefix) for prefix in self._prefixes}
            added = []
            for row in rows[len(self._prefixes) :]:
                if (labels := self._row_labels(row)) not in seen:
                    seen.add(labels)
                    added.append(row)
            if not added:
                return
            self._prefixes += added

    def _row_labels(self, row: Word) -> tuple[int, ...]:
        """Return the labels after a row and each prefix of each suffix."""
        return tuple(
            self.known[row + suffix[:end]]
            for suffix in self._suffixes
            for end in range(min(1, len(suffix)), len(suffix) + 1)
        )


def search_by_lstar(candidates: CandidateMachines, max_states: int) -> SearchResult:
    """Add the hypotheses of L* as candidates."""
    base: Any = import_extra("aalpy.base", "extraction by L*")
    algorithms: Any = import_extra("aalpy.learning_algs", "extraction by L*")
    reader = candidates.reader
    queried = QueriedLabels(reader, max_states)
    stale = 0
    least, note = math.inf, None

    class ModelUnderLearning(base.SUL):  # type: ignore[misc]  # aalpy has no types
        """The model as the system under learning."""

        def query(self, word: Word) -> list[int]:
            return queried.trace(word)

        def pre(self) -> None:
            """Do nothing: whole words are read at once."""

        post = pre

        def step(self, letter: int | None) -> int:
            raise NotImplementedError("whole words are read at once")

    class CounterexampleOracle(base.Oracle):  # type: ignore[misc]  # aalpy has no types
        """Finds counterexamples in the same way as `search_by_states`."""

        def find_cex(self, hypothesis: Any) -> Word | None:
            nonlocal stale, least, note
            table, labels = _hypothesis_graph(hypothesis, reader.n_symbols)
            if len(table) > max_states:
                raise _TooManyStatesError
            machine = candidates.add(table, labels, np.zeros_like(labels))
            error = candidates.error(machine)
            least, stale = (error, 0) if error < least else (least, stale + 1)
            wrong = candidates.counterexamples(machine, _shortest_words(table))
            if not wrong:
                return None
            if stale == MOST_STALE or queried.rounds == MOST_ROUNDS:
                note = DIFFER
                return None
            queried.start_round([state.prefix for state in hypothesis.states], wrong[0])
            return wrong[0]

    reader.watch.start("learn with L*", unit="queries")
    alphabet, model = list(range(reader.n_symbols)), ModelUnderLearning()
    try:
        queried.start()
        algorithms.run_Lstar(
            alphabet,
            model,
            CounterexampleOracle(alphabet, model),
            automaton_type="moore",
            cache_and_non_det_check=False,  # `query` caches labels itself
            print_level=0,
        )
    except _TooManyStatesError:
        if not candidates.machines:
            raise too_many_states(max_states) from None
        note = COARSER.format(max_states)
    except TimeIsUpError:
        if not candidates.machines:  # there is nothing to return
            raise
        note = f"{reader.watch.stop_reason}: the machine is the last hypothesis of L*, not a final result"
        return SearchResult(queried.rounds, note, stopped=True)
    return SearchResult(queried.rounds, note)


def _hypothesis_graph(hypothesis: Any, n_symbols: int) -> tuple[Ints, Ints]:
    """Return the table and the labels of a hypothesis; the start state is first, free values are -1."""
    states = [hypothesis.initial_state, *(q for q in hypothesis.states if q is not hypothesis.initial_state)]
    states = [q for q in states if q.output != DEAD]
    number = {id(q): k for k, q in enumerate(states)}
    table = [[number.get(id(q.transitions[a]), -1) for a in range(n_symbols)] for q in states]
    return np.array(table), np.array([max(q.output, NOT_VALID) for q in states])


def _shortest_words(table: Ints) -> list[Word]:
    """Return a shortest string to each state except the first."""
    words: dict[int, Word] = {0: ()}
    for q in (queue := [0]):
        for symbol, successor in enumerate(table[q].tolist()):
            if successor >= 0 and successor not in words:
                words[successor] = (*words[q], symbol)
                queue.append(successor)
    return list(words.values())[1:]
