"""Read a token model as an unknown machine: its labels of strings, and its states as points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints, live_states
from sdssm.errors import ModelError
from sdssm.exact.errors import ExactError
from sdssm.exact.watch import UNWATCHED, Watch
from sdssm.layers.mixer import MixerState, flatten_state, select_state_rows
from sdssm.models import Classifier, TokenModel

#: A string of symbols.
Word = tuple[int, ...]
#: Values in place of a label: for a string that is not valid, and if the logits are not finite.
NOT_VALID, OVERFLOW = -1, -2
#: Approximate limit on the number of logits in memory at a time, and on the words that are read together.
MOST_NUMBERS, MOST_WORDS = 1 << 23, 2_048


#: Logits after reading symbol by symbol that differ by more than this, relative to their size, are another model's.
STATE_TOLERANCE = 1e-3


class ModelReader:
    """A token model as an unknown machine: it gives labels of strings, and states from which to continue.

    Only strings that the machine `valid` accepts count; every other string has the label -1. `live` marks the states
    of `valid` from which a valid string can still be reached. `explored` counts the states read so far, and `margin` is
    the smallest difference between the best and the second logit at these states.
    """

    def __init__(self, model: TokenModel, valid: Machine | None, watch: Watch = UNWATCHED) -> None:
        check_extractable(model)
        self.model, self.watch = model, watch
        self.valid = Machine(table=[[0] * model.n_symbols], outputs=[1]) if valid is None else valid.minimise()
        if self.valid.n_symbols != model.n_symbols:
            raise ExactError(
                f"the model reads {model.n_symbols} symbols but the machine of valid strings reads "
                f"{self.valid.n_symbols}; both need the same alphabet"
            )
        self.valid_table, self.accepting = self.valid.table, self.valid.outputs != 0
        self.live = live_states(self.valid_table, self.accepting)
        if not self.live[self.valid_table[self.valid.start]].any():
            raise ExactError("no string is valid; pass a machine of valid strings that accepts some string")
        self.explored, self.margin = 0, math.inf
        self.margin_length = 0  # strings up to this length count for the margin
        self._centre: NDArray[np.float32] | None = None
        self._scale = 1.0

    @property
    def n_symbols(self) -> int:
        return self.model.n_symbols

    def longest_word(self, longest: int) -> int:
        """Return the length up to which words are read: at least `longest`, if the model can read that."""
        length = max(longest, self.valid.n_states)
        return length if self.model.longest is None else min(length, self.model.longest)

    @property
    def are_all_valid(self) -> bool:
        """Whether every string is valid."""
        return self.valid.n_states == 1

    @property
    def is_scale_free(self) -> bool:
        """Whether the norm of a state has no meaning, so that only its direction is compared."""
        model = self.model
        if not isinstance(model, Classifier):
            return False
        bare = model.is_single_sd_ssm and model.input_matrix is None and model.skip is None
        return bare and (model.norm is not None or model.readout.scale is not None or model.mixers[0].settings.rescale)

    # -- reading -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def read(self, tokens: Ints, state: MixerState = None) -> tuple[Ints, Tensor, MixerState]:
        """Read strings (B, L); return labels (B, L), the last logits (B, C) and the last states.

        Raises TimeIsUpError when the time is up.
        """
        if not self.model.is_recurrent:
            return self._read_whole(tokens)
        rows = torch.from_numpy(tokens).to(self.model.device)
        piece = max(1, MOST_NUMBERS // (len(tokens) * max(self.model.numbers_per_symbol, self.model.n_classes)))
        predictions = []
        for part in torch.split(rows, piece, dim=1):
            self.watch.tick()
            self.watch.check()
            logits, state = self.model.advance(part, state)
            best, label = logits.max(-1)
            predictions.append(torch.where(best.isfinite(), label, OVERFLOW))
        return torch.cat(predictions, 1).cpu().numpy(), logits[:, -1], state

    def _read_whole(self, tokens: Ints) -> tuple[Ints, Tensor, None]:
        """Read strings (B, L) with a model without a state, some of them at a time."""
        length, model = tokens.shape[1], self.model
        numbers = length * max(model.numbers_per_symbol, model.n_classes) + length**2 * model.numbers_per_pair
        predictions, last = [], []
        for rows in torch.split(torch.from_numpy(tokens), max(1, MOST_NUMBERS // numbers)):
            self.watch.tick()
            self.watch.check()
            logits = model.advance(rows.to(model.device))[0]
            best, label = logits.max(-1)
            predictions.append(torch.where(best.isfinite(), label, OVERFLOW))
            last.append(logits[:, -1])
        return torch.cat(predictions).cpu().numpy(), torch.cat(last), None

    def labels_of_words(self, words: Sequence[Word]) -> list[int]:
        """Return the label of each of many words, in few calls of the model; -1 if the word is not a valid string.

        Words of similar length are read together; a model that reads all prefixes at once ignores what follows a word.
        """
        order = sorted(range(len(words)), key=lambda number: len(words[number]))
        labels = [NOT_VALID] * len(words)
        is_prefix_reader = self.model.can_read_prefixes_at_once
        for _, group in groupby(order, key=lambda k: -(-len(words[k]) // (8 if is_prefix_reader else 1))):
            numbers = list(group)
            for first in range(0, len(numbers), MOST_WORDS):
                part = numbers[first : first + MOST_WORDS]
                tokens, ends = _pad_words([words[k] for k in part])
                index = np.arange(len(part))
                predictions = self.read(tokens)[0][index, ends - 1] if is_prefix_reader else self._read_ends(tokens)
                is_valid = self.valid_prefixes(tokens)[index, ends - 1]
                for k, label in zip(part, np.where(is_valid, predictions, NOT_VALID).tolist(), strict=True):
                    labels[k] = label
        return labels

    @torch.no_grad()
    def _read_ends(self, tokens: Ints) -> Ints:
        """Return the prediction for each whole string (B, L): (B,)."""
        self.watch.tick()
        self.watch.check()
        best, label = self.model.last_logits(torch.from_numpy(tokens).to(self.model.device)).max(-1)
        return np.asarray(torch.where(best.isfinite(), label, OVERFLOW).cpu().numpy())

    @torch.no_grad()
    def empty_label(self) -> int:
        """Return the prediction for the empty string if the start state can be read, otherwise 0."""
        model = self.model
        if not isinstance(model, Classifier) or not model.is_single_sd_ssm or model.initial_state is None:
            return 0
        start = model.first_state
        return int(
            model.logits(start if model.query is None else model.query_step(model.symbol_parts(), start)).argmax()
        )

    def labels(self, tokens: Ints) -> Ints:
        """Return the label of every prefix of strings (B, L), -1 if the prefix is not a valid string."""
        predictions, logits, _ = self.read(tokens)
        is_valid = self.valid_prefixes(tokens)
        if tokens.shape[1] <= self.margin_length:
            self.margin = min(self.margin, smallest_margin(logits, is_valid[:, -1]))
        return np.where(is_valid, predictions, NOT_VALID)

    def valid_prefixes(self, tokens: Ints) -> NDArray[np.bool_]:
        """Whether each prefix of strings (B, L) is a valid string: (B, L)."""
        return np.asarray(self.accepting[self._trace_valid(tokens)])

    def _trace_valid(self, tokens: Ints) -> Ints:
        return trace_states(self.valid_table, np.full(len(tokens), self.valid.start), tokens)

    def labels_after(self, states: MixerState, valid_states: Ints, words: Sequence[Word]) -> Ints:
        """Return the label after each of E words from each of B states: (B, E)."""
        rows = np.arange(len(valid_states))
        if not words:
            return np.zeros((len(rows), 0), dtype=np.int64)
        padded, ends = _pad_words(words)
        tokens, last = np.tile(padded, (len(rows), 1)), np.tile(ends - 1, len(rows))
        state_of_row, index = np.repeat(rows, len(words)), np.arange(len(last))
        predictions = self.read(tokens, select_state_rows(states, state_of_row))[0][index, last]
        reached = trace_states(self.valid_table, valid_states[state_of_row], tokens)[index, last]
        return np.where(self.accepting[reached], predictions, NOT_VALID).reshape(len(rows), len(words))

    def vectors(self, states: MixerState) -> NDArray[np.float32]:
        """Return states as points (B, F), normalised by `fit_scale` to a distance of about 1 from their mean."""
        flat = np.concatenate([part.cpu().numpy() for part in _flat_parts(states)], axis=1)
        flat = np.nan_to_num(flat.astype(np.float32), posinf=1e15, neginf=-1e15)
        if self.is_scale_free:
            flat = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-30)
        return np.asarray(flat if self._centre is None else (flat - self._centre) / self._scale)

    def fit_scale(self, tokens: Ints) -> None:
        """Set the mean and the scale of `vectors` from the states after all prefixes of strings (B, L)."""
        state, vectors = None, []
        for column in tokens.T:
            _, _, state = self.read(np.ascontiguousarray(column)[:, None], state)
            vectors.append(self.vectors(state))
        points = np.concatenate(vectors)
        centre = points.mean(0)
        self._centre, self._scale = centre, max(float(np.sqrt(np.square(points - centre).sum(1).mean())), 1e-30)


def check_extractable(model: TokenModel) -> None:
    """Raise an error if no machine can be extracted from a model."""
    if model.settings.needs_given_state or model.settings.state_embedding is not None:
        raise ExactError(
            "the start state is passed with each string, but a machine has one start state; "
            "extraction needs another initial_state than 'given'"
        )


def check_states_readable(reader: ModelReader) -> None:
    """Raise an error if a model has no state to explore, or one that leads to other predictions than whole strings."""
    model = reader.model
    advice, shell = "use method='lstar', which needs labels only", "use --method lstar, which needs labels only"
    if not model.is_recurrent:
        problem = f"{model.name} carries no state"
        raise ExactError(f"{problem}; {advice}", shell=f"{problem}; {shell}")
    if isinstance(model, Classifier):
        return
    tokens = torch.randint(model.n_symbols, (4, 9), generator=torch.Generator().manual_seed(0)).to(model.device)
    tokens = tokens[:, : model.longest]
    state: MixerState = None
    sizes = set[int]()
    try:
        with torch.no_grad():
            whole = model.last_logits(tokens)
            for symbols in tokens.T:
                logits, state = model.advance(symbols[:, None], select_state_rows(state, np.arange(len(tokens))))
                sizes.add(sum(part.shape[1] for part in _flat_parts(state)))
    except (ModelError, RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        problem = f"the state of {model.name} cannot be carried from symbol to symbol ({type(error).__name__})"
        raise ExactError(f"{problem}; {advice}", shell=f"{problem}; {shell}") from error
    if len(sizes) > 1 or 0 in sizes:
        what = "holds no tensors" if 0 in sizes else "changes its size with the length of the string"
        raise ExactError(
            f"the state of {model.name} {what}; {advice}", shell=f"the state of {model.name} {what}; {shell}"
        )
    difference, scale = float((logits[:, -1] - whole).abs().max()), float(whole.abs().max())
    if not difference <= STATE_TOLERANCE * max(scale, 1e-6):
        problem = f"reading symbol by symbol changes the logits of {model.name} by {difference:.2g}"
        raise ExactError(f"{problem}; {advice}", shell=f"{problem}; {shell}")


def trace_states(table: Ints, start: Ints, tokens: Ints) -> Ints:
    """Return the state of a machine after each symbol: start states (B,), strings (B, L) -> (B, L)."""
    states, state = np.empty_like(tokens), start
    for position, symbols in enumerate(tokens.T):
        state = table[state, symbols]
        states[:, position] = state
    return states


def _pad_words(words: Sequence[Word]) -> tuple[Ints, Ints]:
    """Return words as rows (B, L), filled up with a symbol that is to be ignored, and their lengths (B,)."""
    lengths = np.array([len(word) for word in words])
    rows = np.zeros((len(words), lengths.max()), dtype=np.int64)
    for row, word in zip(rows, words, strict=True):
        row[: len(word)] = word
    return rows, lengths


def _flat_parts(state: MixerState) -> list[Tensor]:
    """Return the tensors of a state as real numbers, each (B, F)."""
    return [part.flatten(1).float() for part in flatten_state(state)]


def smallest_margin(logits: Tensor, mask: NDArray[np.bool_]) -> float:
    """Return the smallest difference between the best and the second logit, over the rows of the mask."""
    rows = logits[torch.from_numpy(mask).to(logits.device)]
    if not len(rows) or rows.shape[1] < 2:
        return math.inf
    best = rows.topk(2, dim=-1).values
    return float((best[:, 0] - best[:, 1]).nan_to_num(0.0).min())
