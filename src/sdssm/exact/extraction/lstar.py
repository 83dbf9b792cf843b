"""Find candidate machines with Angluin's L* (through AALpy), from the labels of a model alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sdssm.automata.refinement import Ints
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.extraction.candidates import COARSER, DIFFER, CandidateMachines, SearchResult, too_many_states
from sdssm.exact.extraction.model_reader import NOT_VALID, Word
from sdssm.extras import import_extra

#: Limits on the rounds of counterexamples, and on those in a row that bring no improvement.
MOST_ROUNDS, MOST_STALE = 200, 20
#: Values in place of a label: of a string that no continuation makes valid, and of the empty string.
DEAD, EMPTY = -3, -4


class _TooManyStatesError(Exception):
    """L* would not stop: each longer word distinguishes more states."""


def search_by_lstar(candidates: CandidateMachines, max_states: int) -> SearchResult:
    """Add the hypotheses of L* as candidates."""
    base: Any = import_extra("aalpy.base", "extraction by L*")
    algorithms: Any = import_extra("aalpy.learning_algs", "extraction by L*")
    reader, known_labels = candidates.reader, dict[Word, int]()
    rounds = stale = 0
    least, note = math.inf, None

    class ModelUnderLearning(base.SUL):  # type: ignore[misc]  # aalpy has no types
        """The model as the system under learning; labels are cached, so that they stay the same."""

        def query(self, word: Word) -> list[int]:
            if not word:
                return [EMPTY]
            if word not in known_labels:
                self.num_queries += 1
                # The observation table has a row for each state and transition, and a column for each round.
                if self.num_queries > max_states * (reader.n_symbols + 1) * (rounds + 2):
                    raise _TooManyStatesError
                reader.watch.update(self.num_queries)
                if candidates.machines:  # before, there is nothing to return
                    reader.watch.check()
                reader.explored += len(word)
                tokens = np.array([word])
                labels = np.where(reader.live_prefixes(tokens), reader.labels(tokens), DEAD)[0].tolist()
                for end, label in enumerate(labels, 1):
                    known_labels.setdefault(word[:end], label)
            return [known_labels[word[:end]] for end in range(1, len(word) + 1)]

        def pre(self) -> None:
            """Do nothing: whole words are read at once."""

        post = pre

        def step(self, letter: int | None) -> int:
            raise NotImplementedError("whole words are read at once")

    class CounterexampleOracle(base.Oracle):  # type: ignore[misc]  # aalpy has no types
        """Finds counterexamples in the same way as `search_by_states`."""

        def find_cex(self, hypothesis: Any) -> Word | None:
            nonlocal rounds, stale, least, note
            table, labels = _hypothesis_graph(hypothesis, reader.n_symbols)
            if len(table) > max_states:
                raise _TooManyStatesError
            machine = candidates.add(table, labels, np.zeros_like(labels))
            error = candidates.error(machine)
            least, stale = (error, 0) if error < least else (least, stale + 1)
            wrong = candidates.counterexamples(machine, _shortest_words(table))
            if not wrong:
                return None
            if stale == MOST_STALE or rounds == MOST_ROUNDS:
                note = DIFFER
                return None
            rounds += 1
            return wrong[0]

    reader.watch.start("learn with L*", unit="queries")
    alphabet, model = list(range(reader.n_symbols)), ModelUnderLearning()
    try:
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
        note = f"{reader.watch.stop_reason}: the machine is the last hypothesis of L*, not a final result"
        return SearchResult(rounds, note, stopped=True)
    return SearchResult(rounds, note)


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
