"""The numbers of a linear recurrence: one matrix for each symbol, a start state and the rows of the readout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sdssm.automata.refinement import Ints
from sdssm.exact.certification.linear_readout import check_linear, find_row_labels, readout_rows
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.model_reader import Word
from sdssm.models import Classifier, TokenModel

#: A state with a smaller norm counts as zero; so does the difference of two rows of the readout.
SMALLEST_NORM = 1e-30


@dataclass(frozen=True, eq=False)
class TokenMatrices:
    """The recurrence x_t = A_s x_{t-1} and the label of the row with the largest product with x_t.

    `A` (V, N, N), `start` (N,) and `rows` (R, N) are float32 tensors on the CPU, and `row_labels` (R,) the labels of
    the rows: 0, 1, ... of a readout with one row for each class, or those of the centres of a readout with several.
    States are kept at norm 1, so the result does not depend on whether the model rescales its states. Objects hold no
    module, and are small enough to be sent to a worker process.

    >>> from sdssm.exact import compile
    >>> matrices = TokenMatrices.read(compile("parity"))
    >>> matrices.labels_of_prefixes(np.array([[0, 1, 1]])).tolist()
    [[0, 1, 0]]
    """

    A: Tensor
    start: Tensor
    rows: Tensor
    row_labels: Tensor
    n_classes: int

    @classmethod
    def read(cls, model: TokenModel) -> TokenMatrices:
        """Read the weights of a single SD-SSM; raise an error if its prediction is not linear in its state."""
        if not isinstance(model, Classifier):
            raise ExactError(f"the model is {model.name}; only a single SD-SSM is a linear recurrence")
        check_linear(model)
        with torch.no_grad():
            A, start = model.symbol_parts().A.detach().cpu().double(), model.first_state
            rows = torch.from_numpy(readout_rows(model, A.shape[-1])[0])
            if model.query is not None:  # the query is one more step before every readout
                rows = rows @ A[model.query]
            vector = start.detach().cpu().double()
            vector = vector / vector.norm().clamp_min(SMALLEST_NORM)
            labels = torch.from_numpy(find_row_labels(model))
            rows, labels = rows[labels >= 0], labels[labels >= 0]
            return cls(A[: model.n_symbols].float(), vector.float(), rows.float(), labels.long(), model.n_classes)

    @classmethod
    def find(cls, model: TokenModel) -> TokenMatrices | None:
        """Read the weights of a model, or return None if it is not a linear recurrence with several classes."""
        try:
            return cls.read(model) if model.n_classes > 1 else None
        except ExactError:
            return None

    @property
    def has_centres(self) -> bool:
        """Whether a class may have several rows, one for each state of an automaton."""
        return len(self.rows) != self.n_classes or bool((self.row_labels != torch.arange(self.n_classes)).any())

    @property
    def n_symbols(self) -> int:
        """The number of symbols."""
        return len(self.A)

    def successors(self, states: Tensor) -> Tensor:
        """Return the state after each symbol: (B, N) -> (B, V, N)."""
        return _normalise(torch.matmul(self.A, states.T).permute(2, 0, 1))

    def labels(self, states: Tensor) -> Ints:
        """Return the prediction at each state: (B, N) -> (B,)."""
        return self.row_labels[(states @ self.rows.T).argmax(1)].numpy()

    def labels_of_prefixes(self, tokens: Ints) -> Ints:
        """Return the prediction after every prefix of strings: (B, L) -> (B, L)."""
        state, labels = self.start.expand(len(tokens), -1), np.zeros_like(tokens)
        for position, symbols in enumerate(tokens.T):
            state = self.step(state, symbols)
            labels[:, position] = self.labels(state)
        return labels

    def step(self, states: Tensor, symbols: Ints) -> Tensor:
        """Return the state after one symbol for each row: (B, N), (B,) -> (B, N)."""
        after = torch.empty_like(states, memory_format=torch.contiguous_format)
        for symbol in np.unique(symbols):  # one matrix product for each symbol, instead of one for each row
            rows = torch.from_numpy(np.flatnonzero(symbols == symbol))
            after[rows] = states[rows] @ self.A[int(symbol)].T
        return _normalise(after)


def _normalise(states: Tensor) -> Tensor:
    norms: Tensor = states.norm(dim=-1, keepdim=True)
    return states / norms.clamp_min(SMALLEST_NORM)


class Predictions(NamedTuple):
    """The label after each of E suffixes from each of B states, and how clear it is: (B, E) each.

    The gap is the difference between the best and the second score, relative to the largest possible one.
    """

    labels: Ints
    gaps: np.ndarray


class SuffixRows:
    """The predictions after given suffixes, as linear functions of the state.

    The scores after the suffix w from the state x are rows A_w x. So the labels after E suffixes from B states are one
    matrix product, whatever the lengths of the suffixes.
    """

    def __init__(self, matrices: TokenMatrices) -> None:
        self.matrices = matrices
        self.words: list[Word] = []
        self._rows = matrices.rows.new_zeros(0, len(matrices.rows), matrices.rows.shape[1])  # (E, R, N)

    def add(self, words: list[Word]) -> None:
        """Add suffixes that are not among the words yet."""
        fresh = [word for word in dict.fromkeys(words) if word not in set(self.words)]
        if fresh:
            self.words += fresh
            self._rows = torch.cat([self._rows, torch.stack([self.rows_of(word) for word in fresh])])

    def rows_of(self, word: Word) -> Tensor:
        """Return the scores after a suffix as rows (R, N) of the state."""
        rows = _scale(self.matrices.rows)
        for symbol in reversed(word):
            rows = self.prepend(symbol, rows)
        return rows

    def prepend(self, symbol: int, rows: Tensor) -> Tensor:
        """Return the rows (R, N) of a suffix with one more symbol at its start."""
        return _scale(rows @ self.matrices.A[symbol])

    def predictions(self, states: Tensor) -> Predictions:
        """Return the predictions after every suffix from states (B, N)."""
        return self._predict(states, self._rows)

    def predictions_after(self, symbol: int, states: Tensor) -> Predictions:
        """Return the predictions after one symbol and every suffix from states (B, N)."""
        return self._predict(states, self._rows @ self.matrices.A[symbol])

    def _predict(self, states: Tensor, rows: Tensor) -> Predictions:
        """Return the predictions of rows (E, R, N) for states (B, N)."""
        suffixes, number, size = rows.shape
        if not self.matrices.has_centres and number == 2:
            difference = states @ (rows[:, 1] - rows[:, 0]).T
            return Predictions((difference > 0).long().numpy(), difference.abs().numpy())
        scores = (states @ rows.reshape(-1, size).T).reshape(len(states), suffixes, number)
        best = self.best_of_classes(scores).topk(2, dim=-1)
        return Predictions(best.indices[..., 0].numpy(), (best.values[..., 0] - best.values[..., 1]).numpy())

    def best_of_classes(self, scores: Tensor) -> Tensor:
        """Return the best score of each class: (..., R) -> (..., C)."""
        if not self.matrices.has_centres:
            return scores
        lowest = scores.new_full((*scores.shape[:-1], self.matrices.n_classes), -torch.inf)
        return lowest.scatter_reduce(-1, self.matrices.row_labels.expand_as(scores), scores, "amax")


def _scale(rows: Tensor) -> Tensor:
    """Remove what all classes share, and divide by the largest norm: (R, N)."""
    rows = rows - rows.mean(0)
    norms: Tensor = rows.norm(dim=1)
    return rows / norms.max().clamp_min(SMALLEST_NORM)
