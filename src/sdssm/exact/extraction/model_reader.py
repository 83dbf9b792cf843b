"""Read a token model as an unknown machine: its labels of strings, and its states as points."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdssm.automata import Machine
from sdssm.automata.refinement import Ints
from sdssm.errors import format_value
from sdssm.exact.errors import ExactError
from sdssm.exact.watch import UNWATCHED, Watch
from sdssm.layers.mixer import MixerState, select_state_rows
from sdssm.models import Classifier
from sdssm.tasks.validity import live_states

#: A string of symbols.
Word = tuple[int, ...]
#: Values in place of a label: for a string that is not valid, and if the logits are not finite.
NOT_VALID, OVERFLOW = -1, -2
#: Approximate limit on the number of logits in memory at a time.
MOST_NUMBERS = 1 << 23


class ModelReader:
    """A token model as an unknown machine: it gives labels of strings, and states from which to continue.

    Only strings that the machine `valid` accepts count; every other string has the label -1. `live` marks the states
    of `valid` from which a valid string can still be reached. `explored` counts the states read so far, and `margin` is
    the smallest difference between the best and the second logit at these states.
    """

    def __init__(self, model: Classifier, valid: Machine | None, watch: Watch = UNWATCHED) -> None:
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

    @property
    def is_scale_free(self) -> bool:
        """Whether the norm of a state has no meaning, so that only its direction is compared."""
        model = self.model
        bare = model.is_single_sd_ssm and model.input_matrix is None and model.skip is None
        return bare and (model.norm is not None or model.readout.scale is not None or model.mixers[0].settings.rescale)

    # -- reading -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def read(self, tokens: Ints, state: MixerState = None) -> tuple[Ints, Tensor, MixerState]:
        """Read strings (B, L); return labels (B, L), the last logits (B, C) and the last states.

        Raises TimeIsUpError when the time is up.
        """
        rows = torch.from_numpy(tokens).to(next(self.model.parameters()).device)
        piece = max(1, MOST_NUMBERS // (len(tokens) * max(self.model.numbers_per_symbol, self.model.n_classes)))
        predictions = []
        for part in torch.split(rows, piece, dim=1):
            self.watch.tick()
            self.watch.check()
            logits, state = self.model.advance(part, state)
            best, label = logits.max(-1)
            predictions.append(torch.where(best.isfinite(), label, OVERFLOW))
        return torch.cat(predictions, 1).cpu().numpy(), logits[:, -1], state

    @torch.no_grad()
    def empty_label(self) -> int:
        """Return the prediction for the empty string if the start state can be read, otherwise 0."""
        model = self.model
        if not model.is_single_sd_ssm or model.initial_state is None:
            return 0
        start = model.initial_state
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

    def live_prefixes(self, tokens: Ints) -> NDArray[np.bool_]:
        """Whether each prefix of strings (B, L) is a prefix of some valid string: (B, L)."""
        return np.asarray(self.live[self._trace_valid(tokens)])

    def _trace_valid(self, tokens: Ints) -> Ints:
        return trace_states(self.valid_table, np.full(len(tokens), self.valid.start), tokens)

    def labels_after(self, states: MixerState, valid_states: Ints, words: Sequence[Word]) -> Ints:
        """Return the label after each of E words from each of B states: (B, E)."""
        rows = np.arange(len(valid_states))
        if not words:
            return np.zeros((len(rows), 0), dtype=np.int64)
        ends = np.array([len(word) for word in words])
        padded = np.zeros((len(words), ends.max()), dtype=np.int64)  # symbols after the end of a word are ignored
        for row, word in zip(padded, words, strict=True):
            row[: len(word)] = word
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


def check_extractable(model: Classifier) -> None:
    """Raise an error if no machine can be extracted from a model."""
    if not isinstance(model, Classifier):
        raise ExactError(f"{format_value(model)} is not a token model; pass a Classifier, a run, or the folder of one")
    if model.settings.layers != 1:
        raise ExactError(f"the model has {model.settings.layers} layers; extraction needs a model of one layer")
    if not model.is_recurrent:
        raise ExactError(f"{model.settings.name} carries no state; extraction needs a recurrent model")
    if getattr(model.settings.mixer, "initial_state", None) == "given":
        raise ExactError(
            "the start state is passed with each string, but a machine has one start state; "
            "extraction needs another initial_state than 'given'"
        )


def trace_states(table: Ints, start: Ints, tokens: Ints) -> Ints:
    """Return the state of a machine after each symbol: start states (B,), strings (B, L) -> (B, L)."""
    states, state = np.empty_like(tokens), start
    for position, symbols in enumerate(tokens.T):
        state = table[state, symbols]
        states[:, position] = state
    return states


def _flat_parts(state: MixerState) -> list[Tensor]:
    """Return the tensors of a state, each (B, F)."""
    if isinstance(state, Tensor):
        return [(torch.view_as_real(state) if state.is_complex() else state).flatten(1).float()]
    return [] if state is None else [tensor for part in state for tensor in _flat_parts(part)]


def smallest_margin(logits: Tensor, mask: NDArray[np.bool_]) -> float:
    """Return the smallest difference between the best and the second logit, over the rows of the mask."""
    rows = logits[torch.from_numpy(mask).to(logits.device)]
    if not len(rows) or rows.shape[1] < 2:
        return math.inf
    best = rows.topk(2, dim=-1).values
    return float((best[:, 0] - best[:, 1]).nan_to_num(0.0).min())
