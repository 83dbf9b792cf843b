"""A token model as an unknown machine: what it says of strings, and its states as points."""

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
from sdssm.layers.mixer import State, each
from sdssm.models import Classifier

#: A string of symbols.
Word = tuple[int, ...]
#: Labels that are none: of a string that is not asked, and where the model's numbers are not finite.
NOT_ASKED, OVERFLOW = -1, -2
#: About the most numbers of logits in memory at a time.
MOST_NUMBERS = 1 << 23
#: States that say how far apart states are: so many strings of such a length.
SAMPLE = (32, 64)


class ModelReader:
    """A token model as an unknown machine: the labels of strings, and states to go on from.

    Only strings that `valid` lets end count: any other has the label -1. A place is a state of `valid`; `live` are
    those from which a valid string can still be reached.
    """

    def __init__(self, model: Classifier, valid: Machine | None) -> None:
        self.model = check_extractable(model)
        self.valid = Machine(table=[[0] * model.n_symbols], outputs=[1]) if valid is None else valid.minimise()
        if self.valid.n_symbols != model.n_symbols:
            raise ExactError(
                f"the model reads {model.n_symbols} symbols but the machine of valid strings {self.valid.n_symbols}; "
                "both need the same alphabet"
            )
        self.table, self.asked = self.valid.table, self.valid.outputs != 0
        live = self.asked
        while (more := live | live[self.table].any(1)).sum() > live.sum():
            live = more
        self.live = live
        if not live[self.table[self.valid.start]].any():
            raise ExactError("no string is valid; give a machine of valid strings that lets some of them end")
        self.explored, self.margin = 0, math.inf
        self.trusted = 0  # strings up to this length should be far from any other label
        self._centre: NDArray[np.float32] | None = None
        self._scale = 1.0

    @property
    def n_symbols(self) -> int:
        return self.model.n_symbols

    @property
    def scale_free(self) -> bool:
        """Whether the length of a state means nothing, so that its direction alone is compared."""
        model = self.model
        bare = model.bare and model.input_matrix is None and model.skip is None
        return bare and (model.norm is not None or model.readout.scale is not None or model.mixers[0].settings.rescale)

    # -- reading -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def read(self, tokens: Ints, state: State = None) -> tuple[Ints, Tensor, State]:
        """Strings (B, L) from states: all labels (B, L), the logits at the end (B, C), the states there."""
        rows = torch.from_numpy(tokens).to(next(self.model.parameters()).device)
        piece = max(1, MOST_NUMBERS // (len(tokens) * max(self.model.numbers, self.model.n_classes)))
        told = []
        for part in torch.split(rows, piece, dim=1):
            logits, state = self.model.advance(part, state)
            best, label = logits.max(-1)
            told.append(torch.where(best.isfinite(), label, OVERFLOW))
        return torch.cat(told, 1).cpu().numpy(), logits[:, -1], state

    @torch.no_grad()
    def empty(self) -> int:
        """What the model says of the empty string, where its start state can be read; 0 elsewhere."""
        model = self.model
        if not model.bare or model.initial_state is None:
            return 0
        start = model.initial_state
        return int(model.logits(start if model.query is None else model._query_step(model._symbols(), start)).argmax())

    def labels(self, tokens: Ints) -> Ints:
        """The label of every prefix of strings (B, L), -1 where that is no valid string."""
        told, logits, _ = self.read(tokens)
        counts = self.counts(tokens)
        if tokens.shape[1] <= self.trusted:
            self.margin = min(self.margin, smallest_margin(logits, counts[:, -1]))
        return np.where(counts, told, NOT_ASKED)

    def counts(self, tokens: Ints) -> NDArray[np.bool_]:
        """Which prefixes of strings (B, L) are valid strings: (B, L)."""
        return np.asarray(self.asked[trace_states(self.table, np.full(len(tokens), self.valid.start), tokens)])

    def lives(self, tokens: Ints) -> NDArray[np.bool_]:
        """Which prefixes of strings (B, L) are, or begin, valid strings: (B, L)."""
        return np.asarray(self.live[trace_states(self.table, np.full(len(tokens), self.valid.start), tokens)])

    def answers(self, states: State, places: Ints, words: Sequence[Word]) -> Ints:
        """The label after each word from each state: (B, E)."""
        rows = np.arange(len(places))
        if not words:
            return np.zeros((len(rows), 0), dtype=np.int64)
        ends = np.array([len(word) for word in words])
        filled = np.zeros((len(words), ends.max()), dtype=np.int64)  # what comes after the end is not looked at
        for row, word in zip(filled, words, strict=True):
            row[: len(word)] = word
        tokens, last = np.tile(filled, (len(rows), 1)), np.tile(ends - 1, len(rows))
        which, every = np.repeat(rows, len(words)), np.arange(len(last))
        told = self.read(tokens, select_rows(states, which))[0][every, last]
        asked = self.asked[trace_states(self.table, places[which], tokens)[every, last]]
        return np.where(asked, told, NOT_ASKED).reshape(len(rows), len(words))

    def vectors(self, states: State) -> NDArray[np.float32]:
        """States as points (B, F), about 1 away from their mean."""
        flat = np.concatenate([part.cpu().numpy() for part in _parts(states)], axis=1)
        flat = np.nan_to_num(flat.astype(np.float32), posinf=1e15, neginf=-1e15)
        if self.scale_free:
            flat = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-30)
        return np.asarray(flat if self._centre is None else (flat - self._centre) / self._scale)

    def measure(self, tokens: Ints) -> None:
        """Find out how far apart states are, from those after strings (B, L) and after their prefixes."""
        state, found = None, []
        for column in tokens.T:
            _, _, state = self.read(np.ascontiguousarray(column)[:, None], state)
            found.append(self.vectors(state))
        points = np.concatenate(found)
        centre = points.mean(0)
        self._centre, self._scale = centre, max(float(np.sqrt(np.square(points - centre).sum(1).mean())), 1e-30)


def check_extractable(model: Classifier) -> Classifier:
    """The model, or one line on why no machine can be read from it."""
    if not isinstance(model, Classifier):
        raise ExactError(f"{format_value(model)} is no token model; give a Classifier, a run, or the folder of one")
    if model.settings.layers != 1:
        raise ExactError(f"the model has {model.settings.layers} layers; a machine is read from a model of one layer")
    if not model.recurrent:
        raise ExactError(
            f"{model.settings.name} has no state that it carries on; a machine is read from a recurrent one"
        )
    if getattr(model.settings.mixer, "initial_state", None) == "given":
        raise ExactError("the model is told where to start with each string; a machine starts in one state")
    return model


def select_rows(state: State, rows: Ints) -> State:
    """Some rows of states."""
    return each(lambda x: x[torch.from_numpy(rows).to(x.device)], state)


def trace_states(table: Ints, start: Ints, tokens: Ints) -> Ints:
    """The state after each symbol: starts (B,), strings (B, L) -> (B, L)."""
    found, state = np.empty_like(tokens), start
    for place, symbols in enumerate(tokens.T):
        state = table[state, symbols]
        found[:, place] = state
    return found


def _parts(state: State) -> list[Tensor]:
    """The tensors of a state, each (B, F)."""
    if isinstance(state, Tensor):
        return [(torch.view_as_real(state) if state.is_complex() else state).flatten(1).float()]
    return [] if state is None else [tensor for part in state for tensor in _parts(part)]


def smallest_margin(logits: Tensor, counts: NDArray[np.bool_]) -> float:
    """The least difference between the best and the second logit, of those that count."""
    rows = logits[torch.from_numpy(counts).to(logits.device)]
    if not len(rows) or rows.shape[1] < 2:
        return math.inf
    best = rows.topk(2, dim=-1).values
    return float((best[:, 0] - best[:, 1]).nan_to_num(0.0).min())
