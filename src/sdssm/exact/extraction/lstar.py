"""Angluin's L* through AALpy: the machine of a model from its labels alone, without a look at its states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sdssm.automata.refinement import Ints
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.merging import COARSER, DIFFER, too_many
from sdssm.exact.extraction.model_reader import NOT_ASKED, Word
from sdssm.extras import import_extra

if TYPE_CHECKING:
    from sdssm.exact.extraction.candidates import CandidateMachines

#: Rounds of counterexamples after which the machines found have to do, and those in a row that bring nothing.
MOST_ROUNDS, MOST_STALE = 200, 20
#: Labels that are none: of a string that nothing makes valid any more, and of the empty one.
DEAD, EMPTY = -3, -4


class _TooManyError(Exception):
    """L* would go on and on: each longer word tells more states apart."""


def search_by_lstar(trial: CandidateMachines, max_states: int) -> tuple[int, str | None]:
    """Try the machines that L* comes to: how many rounds, and what to know of the result."""
    base: Any = import_extra("aalpy.base", "extraction by L*")
    algorithms: Any = import_extra("aalpy.learning_algs", "extraction by L*")
    reader, told = trial.reader, dict[Word, int]()
    rounds = stale = 0
    least, note = math.inf, None

    class Model(base.SUL):  # type: ignore[misc]  # of a package without types
        """The model as the system under learning. What was said of a string once is said again, whatever its rest."""

        def query(self, word: Word) -> list[int]:
            if not word:
                return [EMPTY]
            if word not in told:
                self.num_queries += 1
                # A row of the table a state and one a transition, a column a round.
                if self.num_queries > max_states * (reader.n_symbols + 1) * (rounds + 2):
                    raise _TooManyError
                reader.explored += len(word)
                tokens = np.array([word])
                labels = np.where(reader.lives(tokens), reader.labels(tokens), DEAD)[0].tolist()
                for end, label in enumerate(labels, 1):
                    told.setdefault(word[:end], label)
            return [told[word[:end]] for end in range(1, len(word) + 1)]

        def pre(self) -> None:
            """Nothing to prepare: words are read as a whole."""

        post = pre

        def step(self, letter: int | None) -> int:
            raise NotImplementedError("words are read as a whole")

    class Strings(base.Oracle):  # type: ignore[misc]  # of a package without types
        """Looks for a counterexample where the other method does."""

        def find_cex(self, hypothesis: Any) -> Word | None:
            nonlocal rounds, stale, least, note
            table, labels = _partial(hypothesis, reader.n_symbols)
            if len(table) > max_states:
                raise _TooManyError
            machine = trial.add(table, labels, np.zeros_like(labels))
            error = trial.error(machine)
            least, stale = (error, 0) if error < least else (least, stale + 1)
            wrong = trial.counterexamples(machine, _words(table))
            if not wrong:
                return None
            if stale == MOST_STALE or rounds == MOST_ROUNDS:
                note = DIFFER
                return None
            rounds += 1
            return wrong[0]

    alphabet, model = list(range(reader.n_symbols)), Model()
    try:
        algorithms.run_Lstar(
            alphabet,
            model,
            Strings(alphabet, model),
            automaton_type="moore",
            cache_and_non_det_check=False,  # it is done above
            print_level=0,
        )
    except _TooManyError:
        if not trial.machines:
            raise ExactError(too_many(max_states)) from None
        note = COARSER.format(max_states)
    return rounds, note


def _partial(hypothesis: Any, n_symbols: int) -> tuple[Ints, Ints]:
    """The table and labels of what L* supposes, the start state first, -1 where anything will do."""
    states = [hypothesis.initial_state, *(q for q in hypothesis.states if q is not hypothesis.initial_state)]
    states = [q for q in states if q.output != DEAD]
    number = {id(q): k for k, q in enumerate(states)}
    table = [[number.get(id(q.transitions[a]), -1) for a in range(n_symbols)] for q in states]
    return np.array(table), np.array([max(q.output, NOT_ASKED) for q in states])


def _words(table: Ints) -> list[Word]:
    """A shortest string to each state but the first, and one symbol further."""
    words: dict[int, Word] = {0: ()}
    for q in (queue := [0]):
        for symbol, there in enumerate(table[q].tolist()):
            if there >= 0 and there not in words:
                words[there] = (*words[q], symbol)
                queue.append(there)
    return list(words.values())[1:]
