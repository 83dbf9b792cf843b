"""Read strings with a model and compare its predictions with the labels of a task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdssm.automata.refinement import Ints, live_states
from sdssm.errors import ModelError
from sdssm.exact.errors import TimeIsUpError
from sdssm.exact.extraction.model_reader import Word, trace_states
from sdssm.layers.mixer import map_state, select_state_rows
from sdssm.models import TokenModel
from sdssm.models.reading import reading_mode
from sdssm.models.token_model import State
from sdssm.progress import TimeLimit
from sdssm.tasks import Task
from sdssm.tasks.validity import label_states

#: Approximate limit on the numbers in memory while strings are read, and on the strings read together.
MOST_NUMBERS, MOST_ROWS = 1 << 24, 4_096
#: Symbols that a recurrent model reads between two looks at the clock.
PIECE = 256
#: Logits of one symbol at a time and of the whole string that differ by more than this, relative to their size, are
#: not those of the same model.
TOLERANCE = 1e-3
#: Strings, and their length, on which the two are compared.
COMPARED = (8, 12)


class Prefixes(NamedTuple):
    """Strings of equal length that some valid string starts with.

    `tokens` are the strings (M, L), `states` (M,) the states of the task's machine after them, and `model_state` the
    state of a recurrent model, None for any other.
    """

    tokens: Ints
    states: Ints
    model_state: State = None

    def rows(self, rows: Ints | slice) -> Prefixes:
        """Return some of the strings."""
        if isinstance(rows, slice):
            return Prefixes(self.tokens[rows], self.states[rows], map_state(lambda x: x[rows], self.model_state))
        return Prefixes(self.tokens[rows], self.states[rows], select_state_rows(self.model_state, rows))


class Verdicts(NamedTuple):
    """What a model predicts for M strings: `wrong` (M,) marks valid strings that it misclassifies."""

    wrong: NDArray[np.bool_]
    margins: NDArray[np.float32]  #: difference of the best and the second logit
    valid: int  #: number of valid strings among them


class StringReader:
    """A model that reads strings of a task, and the labels that it should predict.

    Only valid strings are judged: a string that is not valid has no label. `strings` counts the valid strings that were
    judged. A prediction counts as wrong if the logits are not finite.

    A recurrent model reads one symbol after the other, with its state. If that gives other logits than reading the
    whole string, or fails, whole strings are read.
    """

    def __init__(self, model: TokenModel, task: Task, limit: TimeLimit) -> None:
        if (model.n_symbols, model.n_classes) != (task.n_symbols, task.n_classes):
            raise ModelError(
                f"{model.name} has {model.n_symbols} symbols and {model.n_classes} classes, but {task.name} has "
                f"{task.n_symbols} and {task.n_classes}; pass the task that the model is for"
            )
        if model.settings.needs_given_state or model.settings.state_embedding is not None:
            raise ModelError(f"{model.name} is given a start state with each string; pass a model with its own")
        self.model, self.task, self.limit = model, task, limit
        valid = None if task.valid is None else task.valid.minimise()
        self.table, self.start, self.labels = label_states(task.machine.minimise(), valid)
        self.live = live_states(self.table, self.labels >= 0)
        self.strings = 0

    @property
    def n_symbols(self) -> int:
        return self.model.n_symbols

    def check(self) -> None:
        """Raise an error if the time is over."""
        if self.limit.is_over:
            raise TimeIsUpError

    def rows_at_once(self, length: int) -> int:
        """Return the number of strings of this length that are read together."""
        numbers = length * self.model.numbers_per_symbol + length**2 * self.model.numbers_per_pair
        return int(max(1, min(MOST_ROWS, MOST_NUMBERS // max(numbers, 1))))

    def reading(self) -> AbstractContextManager[None]:
        """Read without gradients, in evaluation mode; restore the mode afterwards."""
        return reading_mode(self.model)

    # -- the model -----------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Read a few strings, because the first calls of a model may compile code, which takes seconds."""
        prefixes = self.start_prefixes()
        for _ in range(min(2, self.model.longest or 2)):
            prefixes, _ = self.extend(prefixes)
        longest = min(self.model.longest or PIECE, self.task.train_length)
        for rows, length in ((1, 2), (2, longest)):
            tokens = self._to_device(np.zeros((rows, min(length, longest)), dtype=np.int64))
            self.model.last_logits(tokens)
            if self.judges_prefixes:
                self.model.advance(tokens)
        self.strings = 0

    @cached_property
    def steps(self) -> bool:
        """Whether the model reads one symbol at a time, with a state that leads to the logits of the whole string."""
        if not self.model.is_recurrent:
            return False
        strings, length = COMPARED
        if self.model.longest is not None:
            length = max(1, min(length, self.model.longest))
        # Of any strings: valid or not, the logits must be the same.
        tokens = torch.randint(self.n_symbols, (strings, length), generator=torch.Generator().manual_seed(0))
        tokens = tokens.to(self.model.device)
        whole = self.model.last_logits(tokens)
        state: State = None
        try:
            for symbols in tokens.T:
                logits, state = self.model.advance(symbols[:, None], state)
                state = select_state_rows(state, np.arange(strings))
        except (ModelError, RuntimeError, TypeError, IndexError, ValueError, AttributeError):
            return False
        finite = whole.isfinite()
        difference = torch.where(finite, logits[:, -1] - whole, 0.0).abs().max()
        return bool(difference <= TOLERANCE * torch.where(finite, whole, 0.0).abs().max().clamp(min=1e-6))

    @property
    def judges_prefixes(self) -> bool:
        """Whether one pass over a string gives the prediction for each of its prefixes."""
        return self.steps or (self.model.can_read_prefixes_at_once and not self.model.is_recurrent)

    def start_prefixes(self) -> Prefixes:
        """Return the empty string."""
        return Prefixes(np.zeros((1, 0), dtype=np.int64), np.array([self.start]))

    def extend(self, prefixes: Prefixes, *, judged: bool = True) -> tuple[Prefixes, Verdicts | None]:
        """Append every symbol to every string, where some valid string continues so, and judge the results.

        A model that reads whole strings reads nothing if the results are not `judged`.
        """
        row, symbols = np.nonzero(self.live[self.table[prefixes.states]])
        tokens = np.concatenate([prefixes.tokens[row], symbols[:, None]], 1)
        states = self.table[prefixes.states[row], symbols]
        if not len(row):
            return Prefixes(tokens, states), None
        if self.steps:
            before = select_state_rows(prefixes.model_state, row)
            logits, after = self.model.advance(self._to_device(symbols[:, None]), before)
            extended = Prefixes(tokens, states, after)
            return extended, self._judge(logits[:, -1], states) if judged else None
        extended = Prefixes(tokens, states)
        return extended, self._judge(self.model.last_logits(self._to_device(tokens)), states) if judged else None

    def find_errors(self, tokens: Ints) -> Ints:
        """Return the length of the shortest misclassified prefix of each string (B, L), 0 if there is none: (B,).

        Only the whole string is judged if the model cannot read all prefixes in one pass.
        """
        errors = np.zeros(len(tokens), dtype=np.int64)
        states = trace_states(self.table, np.full(len(tokens), self.start), tokens)
        length = tokens.shape[1]
        batch = self.rows_at_once(min(length, PIECE) if self.steps else length)
        for first in range(0, len(tokens), batch):
            rows = slice(first, first + batch)
            self.check()
            if not self.judges_prefixes:
                wrong = self._judge(self.model.last_logits(self._to_device(tokens[rows])), states[rows, -1]).wrong
                errors[rows] = wrong * length
            else:
                errors[rows] = self._first_errors(tokens[rows], states[rows])
        return errors

    def _first_errors(self, tokens: Ints, states: Ints) -> Ints:
        """Return the length of the shortest misclassified prefix of each string, reading all prefixes at once."""
        errors = np.zeros(len(tokens), dtype=np.int64)
        state: State = None
        piece = PIECE if self.steps else tokens.shape[1]
        for first in range(0, tokens.shape[1], piece):
            if first:
                self.check()
            logits, state = self.model.advance(self._to_device(tokens[:, first : first + piece]), state)
            verdicts = self._judge(logits.flatten(0, 1), states[:, first : first + piece].ravel())
            wrong = verdicts.wrong.reshape(len(tokens), -1)
            new = (errors == 0) & wrong.any(1)
            errors[new] = first + 1 + wrong[new].argmax(1)
            if errors.any():  # a longer prefix is of no interest
                break
        return errors

    def confirm(self, words: Sequence[Word]) -> tuple[Word, int, int | None] | None:
        """Return the first of the strings that is misclassified if it is read as a whole, with label and prediction.

        The prediction is None if the logits are not finite.
        """
        for word in words:
            label = self.label(word)
            logits = self.model.last_logits(self._to_device(np.array([word])))[0]
            prediction = int(logits.argmax()) if bool(logits.isfinite().all()) else None
            if label >= 0 and prediction != label:
                return word, label, prediction
        return None

    def confirm_rows(self, tokens: Ints) -> tuple[Word, int, int | None] | None:
        """Return the first of the strings (B, L) that is misclassified as a whole, as `confirm`; all are read."""
        batch = self.rows_at_once(tokens.shape[1])
        for first in range(0, len(tokens), batch):
            self.check()
            rows = tokens[first : first + batch]
            logits = self.model.last_logits(self._to_device(rows))
            predicted = torch.where(logits.isfinite().all(-1), logits.argmax(-1), -2).cpu().numpy()
            states = trace_states(self.table, np.full(len(rows), self.start), rows)[:, -1]
            wrong = np.flatnonzero((predicted != self.labels[states]) & (self.labels[states] >= 0))
            if len(wrong):  # a string may be read otherwise alone, because of rounding
                error = self.confirm([tuple(rows[row].tolist()) for row in wrong])
                if error is not None:
                    return error
        return None

    def label(self, word: Word) -> int:
        """Return the label of a string, -1 if it is not valid."""
        state = self.start
        for symbol in word:
            state = int(self.table[state, symbol])
        return int(self.labels[state]) if word else -1

    def _judge(self, logits: Tensor, states: Ints) -> Verdicts:
        """Compare logits (M, C) with the labels of the machine's states (M,)."""
        finite = logits.isfinite().all(-1)
        best = logits.topk(min(2, logits.shape[-1]), dim=-1)
        margins = (best.values[:, 0] - best.values[:, -1]).nan_to_num(0.0).float().cpu().numpy()
        predicted = torch.where(finite, best.indices[:, 0], -2).cpu().numpy()
        labels = self.labels[states]
        valid = int((labels >= 0).sum())
        self.strings += valid
        return Verdicts((predicted != labels) & (labels >= 0), margins, valid)

    def _to_device(self, tokens: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(tokens)).to(self.model.device)

    # -- strings -------------------------------------------------------------------------------------------------------

    def complete(self, drawn: Ints) -> Ints:
        """Replace symbols of strings (B, L) after which no valid string can follow by others; maybe shorten them.

        If at some point no valid string continues some prefix, all strings end there.
        """
        state, columns = np.full(len(drawn), self.start), list[Ints]()
        order = np.arange(self.n_symbols)
        for column in drawn.T:
            allowed = self.live[self.table[state]]  # (B, V)
            if not allowed.any(1).all():
                break
            # The next allowed symbol after the drawn one, in cyclic order.
            rank = np.where(allowed, (order - column[:, None]) % self.n_symbols, self.n_symbols)
            symbols = rank.argmin(1)
            state = self.table[state, symbols]
            columns.append(symbols)
        return np.stack(columns, 1) if columns else np.zeros((len(drawn), 0), dtype=np.int64)

    def access_words(self) -> list[Word]:
        """Return, for each transition of the task's machine, a shortest string that takes it last."""
        words: dict[int, Word] = {self.start: ()}
        transitions = []
        for state in (queue := [self.start]):
            for symbol in np.flatnonzero(self.live[self.table[state]]).tolist():
                successor = int(self.table[state, symbol])
                transitions.append((*words[state], symbol))
                if successor not in words:
                    words[successor] = transitions[-1]
                    queue.append(successor)
        return transitions
