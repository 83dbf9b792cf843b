"""How the states of a model move at training lengths: between classes, within classes, and with the length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdssm.checking.card_section import SectionTimeUpError
from sdssm.checking.forecast_states import class_means, replace_vectors, state_vectors
from sdssm.checking.forecast_strings import ENDINGS, draw_strings
from sdssm.models import TokenModel
from sdssm.models.reading import reading_mode
from sdssm.tasks import Task

#: The number of strings: the first for which all states have at most this many entries. Primes, see `state_vectors`.
STRINGS, MOST_ENTRIES = (1_499, 499, 211), 4_000_000
#: The largest logarithm of the size of a state: float32 ends at 88.
LARGEST_LOG = 87.0


@dataclass(frozen=True, eq=False)
class StatePart:
    """One tensor of the state, for strings of several lengths up to the training length.

    A group are the strings of one class (a state of the task's minimal machine) with the same ending. Vectors are in
    units of their root mean square norm at the same length, which is the size.

    Attributes:
        sizes: the size at each length.
        within: at each length, the root mean square distance of a vector from the centre of its group.
        between: the distance of a centre from the nearest one with the same ending at the last length; 0 if all agree.
        centres: (G, D), the centre of each group at the last length.
        drift: (G, D), how far the centres moved from the last length but one, less what is due to few strings.
        deviations: (B, D), the vectors at the last length minus the centres of their groups.
    """

    sizes: tuple[float, ...]
    within: tuple[float, ...]
    between: float
    centres: Tensor
    drift: Tensor
    deviations: Tensor


@dataclass(frozen=True)
class Growth:
    """How states are continued beyond the training length L, to a length T.

    The centres drift as T^drift - L^drift. Deviations grow as (T / L)^deviation, both lengths without the common
    ending. The size of the states grows exponentially or as a power of the length, whichever agrees better with the
    lengths that were measured; without `size` it stays.
    """

    drift: float | None = 1.0
    deviation: float | None = 0.5
    size: bool = True


class StateDistances:
    """The states of a recurrent model after random strings of several lengths up to the training length.

    All strings end with one of a few common endings. What the model remembers of the last symbols only is then the same
    for all strings of a group, and the distances that remain are those that it keeps.

    Args:
        model: a recurrent model.
        task: its task.
        seed: of the strings.
        end: the time, as `monotonic` gives it, after which an error stops the reading.
    """

    def __init__(self, model: TokenModel, task: Task, *, seed: int = 0, end: float = math.inf) -> None:
        self.model, self.strings, self._end = model, _number_of_strings(model), end
        drawn = draw_strings(task, self.strings, seed)
        self.lengths, self.n_groups = drawn.lengths, drawn.n_groups
        groups = [group.to(model.device) for group in drawn.groups]
        self.groups = groups[-1]
        self._after, self._labels = drawn.after.to(model.device), drawn.labels.to(model.device)
        self._endings = drawn.endings.to(model.device)
        self._state: Any = None
        vectors, state, start = [], None, 0
        with reading_mode(model):
            for length in self.lengths:
                stop = length - drawn.step
                state = self._advance(drawn.tokens[:, start:stop].to(model.device), state)
                self._state = self._advance(self._endings, state)
                vectors.append(state_vectors(self._state, self.strings))
                start = stop
        shapes = {tuple(part.shape for part in parts) for parts in vectors}
        #: Whether the state has the same shape at all lengths; that of attention with a cache grows.
        self.has_fixed_shape = len(shapes) == 1 and bool(vectors[0])
        self.parts = (
            [self._part(list(part), groups) for part in zip(*vectors, strict=True)] if self.has_fixed_shape else []
        )

    def _advance(self, tokens: Tensor, state: Any) -> Any:
        if monotonic() > self._end:
            raise SectionTimeUpError("the time is up")
        return self.model.advance_state(tokens, state)

    @property
    def n_labelled(self) -> int:
        """The number of predictions from which `accuracy` is computed."""
        return int((self._labels >= 0).sum())

    @property
    def ratio(self) -> float:
        """Within-class over between-class distance at training length, in the part that separates classes best."""
        return min((part.within[-1] / part.between for part in self.parts if part.between), default=math.nan)

    def retention(self) -> float:
        """Return the share of the within-class distance that is left after reading a common ending once more.

        Below 1 the states of a class approach each other if they read the same symbols: the model forgets.
        """
        centres = [part.centres[self.groups] * part.sizes[-1] for part in self.parts]
        with reading_mode(self.model):
            ends = [
                state_vectors(self._advance(self._endings, state), self.strings)
                for state in (self._state, replace_vectors(self._state, self.strings, centres))
            ]
        left = sum(
            float((own - centre).abs().square().sum()) / part.sizes[-1] ** 2
            for own, centre, part in zip(*ends, self.parts, strict=True)
        )
        before = sum(float(part.deviations.abs().square().sum()) for part in self.parts)
        return math.sqrt(left / before) if before else 0.0

    def accuracy(self, length: float, growth: Growth) -> float:
        """Return the share of correct predictions from states as they would be after strings of this length."""
        if monotonic() > self._end:
            raise SectionTimeUpError("the time is up")
        vectors = [self._continued(part, length, growth) for part in self.parts]
        with reading_mode(self.model):
            logits, _ = self.model.advance(self._after, replace_vectors(self._state, self.strings, vectors))
        known = self._labels >= 0
        correct = (logits.argmax(-1) == self._labels) & ~logits.isnan().any(-1)
        return float(correct[known].float().mean())

    def _part(self, vectors: list[Tensor], groups: list[Tensor]) -> StatePart:
        sizes, within, centres, counts = [], [], [], []
        for raw, group in zip(vectors, groups, strict=True):
            exact = raw.to(torch.complex128 if raw.is_complex() else torch.float64)
            size = float(exact.abs().square().sum(1).mean().sqrt()) or 1.0
            means, count = class_means(exact / size, group, self.n_groups)
            deviations = exact / size - means[group]
            # Bessel's correction: the mean of k vectors accounts for a share 1 / k of their variance.
            several = count[group] > 1
            squares = deviations.abs().square().sum(1) * count[group] / (count[group] - 1).clamp(min=1)
            sizes.append(size)
            within.append(float(squares[several].mean().sqrt()) if several.any() else 0.0)
            centres.append(means)
            counts.append(count)
        known = (counts[-1] > 1) & (counts[-2] > 1)
        drift = (centres[-1] - centres[-2]) * known[:, None]
        errors = sum(width**2 / count.clamp(min=1) for width, count in zip(within[-2:], counts[-2:], strict=True))
        moved = float(drift.abs().square().sum())
        systematic = max(0.0, 1 - float((errors * known).sum()) / moved) if moved else 0.0
        return StatePart(
            sizes=tuple(sizes),
            within=tuple(within),
            between=_nearest(centres[-1], counts[-1] > 0),
            centres=centres[-1],
            drift=drift * math.sqrt(systematic),
            deviations=deviations,
        )

    def _continued(self, part: StatePart, length: float, growth: Growth) -> Tensor:
        """Return the vectors of a part, (B, D), as they would be after strings of this length."""
        before, last = self.lengths[-2:]
        vectors = part.centres[self.groups]
        if growth.drift is not None:
            power = growth.drift
            steps = (length**power - last**power) / (last**power - before**power)
            vectors = vectors + steps * part.drift[self.groups]
        # The ending is the same for all strings of a group: deviations stem from the symbols before it.
        ending = last - before
        scale = 1.0 if growth.deviation is None else ((length - ending) / (last - ending)) ** growth.deviation
        vectors = vectors + scale * part.deviations
        return vectors * math.exp(self._log_size(part, length if growth.size else last))

    def _log_size(self, part: StatePart, length: float) -> float:
        """Return the logarithm of the size at a length: exponential or a power, as at the lengths measured."""
        logs, lengths = np.log(part.sizes), np.array(self.lengths)
        rates, powers = np.diff(logs) / np.diff(lengths), np.diff(logs) / np.diff(np.log(lengths))
        is_exponential = np.std(rates) * abs(np.mean(powers)) < np.std(powers) * abs(np.mean(rates))
        change = rates[-1] * (length - lengths[-1]) if is_exponential else powers[-1] * math.log(length / lengths[-1])
        return float(np.clip(logs[-1] + change, -LARGEST_LOG, LARGEST_LOG))


def _number_of_strings(model: TokenModel) -> int:
    """Return how many strings to read: fewer for a model with a large state."""
    few = STRINGS[-1]
    with reading_mode(model):
        state = model.advance_state(torch.zeros(few, 1, dtype=torch.int64, device=model.device))
    entries = sum(part.shape[1] for part in state_vectors(state, few))
    return next((count for count in STRINGS if count * entries <= MOST_ENTRIES), few)


def _nearest(centres: Tensor, known: Tensor) -> float:
    """Return the distance of a centre to the nearest one with the same ending, averaged over centres; 0 if alone."""
    real = torch.view_as_real(centres).flatten(1) if centres.is_complex() else centres
    distances = torch.cdist(real, real)
    index = torch.arange(len(real), device=real.device)
    comparable = (index[:, None] % ENDINGS == index % ENDINGS) & (index[:, None] != index) & known & known[:, None]
    nearest = distances.masked_fill(~comparable, torch.inf).amin(1)
    finite = nearest[nearest.isfinite()]
    return float(finite.mean()) if len(finite) else 0.0
