"""The predictions of many models at once: R models of one shape, each on strings of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from sdssm.experiments.mlregtest.length_strings import FILLER, LengthStrings, stack_strings
from sdssm.models import Classifier
from sdssm.models.reading import reading_mode
from sdssm.tasks.sampling import SAMPLINGS

#: The approximate limit on the numbers in memory at a time.
MOST_NUMBERS = {"cpu": 1 << 24, "cuda": 1 << 28}


@dataclass(frozen=True, eq=False)
class LengthScores:
    """What one model scores at one length, in percent; `pairs` is None if the language has none of this length."""

    length: int
    accuracy: dict[str, float]  #: by the way the strings are drawn
    best_constant: dict[str, float]
    pairs: float | None  #: pairs of which both strings are classified correctly; a constant answer scores 0
    n_pairs: int


@dataclass(frozen=True, eq=False)
class ModelReading:
    """What one model scores at each length, and one of the shortest test strings that it misclassifies, if any."""

    scores: tuple[LengthScores, ...]
    misclassified: tuple[int, ...] | None


class _LastLogits(torch.nn.Module):
    """A module whose `forward` returns the logits after whole strings, for `functional_call`."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.model.last_logits(tokens, lengths=lengths)


class SideBySideReader:
    """Reads the strings of R models of one shape side by side."""

    def __init__(self, models: Sequence[Classifier]) -> None:
        self.models = models
        self.device = models[0].device
        self._wrapped = [_LastLogits(model) for model in models]
        self._tensors: dict[str, Tensor] = {}
        for part in stack_module_state(self._wrapped):
            self._tensors |= {name: value.detach() for name, value in part.items()}

    def predict(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the predicted label of each string: tokens (R, B, L), lengths (R, B) -> int64 (R, B).

        A logit that is not finite gives the label -1.
        """
        width = len(self.models) * tokens.shape[-1] * max(self.models[0].numbers_per_symbol, 1)
        rows = max(1, MOST_NUMBERS[self.device.type] // width)
        template = self._wrapped[0]

        def read(tensors: dict[str, Tensor], part: Tensor, ends: Tensor) -> Tensor:
            logits: Tensor = functional_call(template, tensors, (part, ends))
            return logits

        predictions = []
        with reading_mode(template.model):
            for part, ends in zip(torch.split(tokens, rows, 1), torch.split(lengths, rows, 1), strict=True):
                largest, label = vmap(read)(self._tensors, part.long(), ends).max(-1)
                predictions.append(torch.where(largest.isfinite(), label, -1))
        return torch.cat(predictions, dim=1)


def measure_models(models: Sequence[Classifier], strings: Sequence[Sequence[LengthStrings]]) -> list[ModelReading]:
    """Return what each model scores at each length; `strings` are those of each model, length by length."""
    reader = SideBySideReader(models)
    scores: list[list[LengthScores]] = [[] for _ in models]
    misclassified: list[tuple[int, ...] | None] = [None for _ in models]
    for entries in zip(*strings, strict=True):
        tokens, lengths, labels = stack_strings(entries)
        predicted = reader.predict(
            torch.from_numpy(tokens).to(reader.device), torch.from_numpy(lengths).to(reader.device)
        )
        correct = predicted.cpu().numpy() == labels
        for k, entry in enumerate(entries):
            scores[k].append(_score(entry, correct[k]))
            wrong = np.flatnonzero(~correct[k] & (labels[k] != FILLER))
            if misclassified[k] is None and len(wrong):  # lengths rise
                row = wrong[lengths[k, wrong].argmin()]
                misclassified[k] = tuple(tokens[k, row, : lengths[k, row]].tolist())
    return [ModelReading(tuple(own), string) for own, string in zip(scores, misclassified, strict=True)]


def _score(entry: LengthStrings, correct: np.ndarray) -> LengthScores:
    """Return the scores of one language at one length; `correct` has its strings in the order of `stack_strings`."""
    blocks, count = entry.labels.shape
    accuracy = 100 * correct[: blocks * count].reshape(blocks, count).mean(1)
    before, after = np.split(correct[blocks * count :], 2)
    both = (before & after)[: len(entry.pairs)]
    return LengthScores(
        entry.length,
        dict(zip(SAMPLINGS, accuracy.tolist(), strict=True)),
        dict(zip(SAMPLINGS, entry.best_constant, strict=True)),
        100 * float(both.mean()) if len(both) else None,
        len(both),
    )
