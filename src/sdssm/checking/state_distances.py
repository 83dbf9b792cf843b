"""Distances of a model's states within and between the states of the task's minimal machine, at training lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from sdssm.automata.refinement import coarsest_congruence
from sdssm.checking.forecast_states import (
    ClassCentres,
    StateFlattener,
    batch_axis,
    class_means,
    largest_entry,
    map_tensors,
    reading,
)
from sdssm.models import TokenModel
from sdssm.tasks import Task
from sdssm.tasks.validity import label_states

#: The number of strings. A prime: the axis of a state that has this size is the batch axis, also in a state such as
#: (layers, B, N).
STRINGS = 499
#: The number of strings that are read on with scaled deviations.
RESTARTED = 199
#: The strings are read in this many pieces; states are measured at the end of each.
PIECES = 10
#: The quantiles of ratios, and of margins: a tenth of the strings is beyond the 90 % quantile of the ratio.
QUANTILES = (0.5, 0.75, 0.9, 0.97)
LOW_QUANTILES = (0.03, 0.1, 0.25, 0.5)
#: Factors of the deviations in the middle of the strings.
AMPLITUDES = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)
#: Quantiles for several pieces, or for several amplitudes.
Quantiles = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class StateDistances:
    """Distances of a model's states at training lengths, from reading random strings of L symbols in pieces.

    A class is a state of the task's minimal machine; its centre is the mean over the second half of the strings. A
    `ratio` is measured for each string: how far its state is on the way from the centre of its own class to that of
    another, at worst. 0 is the own centre, and from 1/2 on another centre is nearer. There are three spaces: "states"
    are the carried states, each part of them in units of its standard deviation; "directions" have each part divided
    by its norm; "logits" have their mean over the labels subtracted. A model without a state has logits only.

    Attributes:
        train_length: L, the length of the strings.
        positions: the prefix length at the end of each piece.
        accuracy: the share of correct predictions in each piece.
        within: root mean square distance of states from the mean of their class at the same position.
        between: distance of these means from the nearest other one, averaged over classes.
        largest: the largest entry of a state; 0 for a model without states.
        margins: quantiles of the logit of the label minus the largest other logit, at `LOW_QUANTILES`.
        ratios: by space: quantiles of the ratio, at `QUANTILES`.
        shifts: by space: the ratio of the means of the classes at this position, averaged over classes.
        moves: by space: the distance of these means from those of the piece before, over the distance to the nearest
            other centre, averaged over classes.
        amplitudes: factors of the deviations in `restarts`.
        restarts: accuracy and ratios after reading on from the middle of the strings, see `Restart`.
    """

    train_length: int
    positions: tuple[int, ...]
    accuracy: tuple[float, ...]
    within: tuple[float, ...]
    between: tuple[float, ...]
    largest: tuple[float, ...]
    margins: Quantiles
    ratios: Mapping[str, Quantiles]
    shifts: Mapping[str, tuple[float, ...]]
    moves: Mapping[str, tuple[float, ...]]
    amplitudes: tuple[float, ...] = ()
    restarts: tuple[Restart, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the distances as plain values of four digits."""
        data: dict[str, Any] = _rounded(asdict(self))
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the distances that `to_json` has written."""
        values = _restored(data)
        return cls(**{**values, "restarts": tuple(Restart(**restart) for restart in values["restarts"])})


@dataclass(frozen=True, eq=False)
class Restart:
    """What happens `symbols` after the middle of a string if the deviations of the states are scaled there.

    The state in the middle is replaced by the centre of its class plus an amplitude times its deviation from it. The
    model then reads the rest of the string, so no string is longer than the training length.

    Attributes:
        symbols: the number of symbols read since then.
        accuracy: for each amplitude, the share of correct predictions; empty before the first symbol.
        ratios: by space, for each amplitude: quantiles of the ratio, as in `StateDistances`.
        distances: by space, for each amplitude: the root mean square distance to the vectors of amplitude 1.
    """

    symbols: int
    accuracy: tuple[float, ...]
    ratios: Mapping[str, Quantiles]
    distances: Mapping[str, tuple[float, ...]]


def measure_state_distances(model: TokenModel, task: Task, *, strings: int = STRINGS, seed: int = 0) -> StateDistances:
    """Read random strings of training length and measure the states of the model within and between classes.

    Args:
        model: the model. If it carries no state, its logits take the place of states.
        task: its task.
        strings: the number of strings.
        seed: of the strings.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> distances = measure_state_distances(compile("parity"), get_task("parity"), strings=97)
    >>> max(distances.within), distances.positions[-1]  # the states of a class are equal
    (0.0, 40)
    """
    with reading(model):
        strings_read = _StringsRead(model, task, strings, seed)
        return StateDistances(
            train_length=strings_read.length,
            **_measure_pieces(strings_read),
            amplitudes=AMPLITUDES if strings_read.can_restart else (),
            restarts=tuple(_restart(strings_read)) if strings_read.can_restart else (),
        )


class _Space(NamedTuple):
    """Vectors (B, P, D) at the end of each piece, and the centres of the classes among them."""

    vectors: Tensor
    centres: ClassCentres


class _StringsRead:
    """Strings of a task with their classes, and the states and logits of a model that has read them in pieces."""

    def __init__(self, model: TokenModel, task: Task, strings: int, seed: int) -> None:
        drawn = draw_classified(task, strings, task.train_length, seed)
        self.model, self.strings = model, strings
        # Only the model reads on its device. Many small statistics of a few numbers are faster on the CPU.
        self.tokens, self.classes, self.labels = drawn[0].to(model.device), drawn[1], drawn[2]
        self.outputs = class_outputs(task)
        self.n_classes = len(self.outputs)
        self.length = self.tokens.shape[1]
        any_valid = (self.classes >= 0).any(0).tolist()
        ends = sorted({max(1, round(self.length * k / PIECES)) for k in range(1, PIECES + 1)})
        # A piece ends at the last position up to its end at which strings are valid.
        valid_ends = (next((t for t in range(end, 0, -1) if any_valid[t - 1]), 0) for end in ends)
        self.ends = sorted({end for end in valid_ends if end})
        self.middle = next((end for end in self.ends if end >= self.length / 2), self.ends[-1])
        self.flatten = StateFlattener(strings)
        self.middle_state: Any = None
        self.largest: list[float] = []
        self.spaces = self._read()

    @property
    def can_restart(self) -> bool:
        """Whether strings can be read on from scaled deviations in the middle."""
        return self.middle_state is not None and bool((self.classes[:, self.middle - 1] >= 0).all())

    def _read(self) -> dict[str, _Space]:
        """Read the strings; return the vectors of each space at the ends of pieces."""
        vectors, state, start = [], None, 0
        shape = (self.strings, self.length, self.model.n_classes)
        self.logits = torch.full(shape, torch.nan)  # NaN where the model does not read a prefix
        for end in self.ends:
            if self.model.is_recurrent:
                prediction, state = self.model.advance(self.tokens[:, start:end], state)
                self.logits[:, start:end] = centred(prediction)
                vectors.append(self.flatten(state).cpu())
                self.largest.append(largest_entry(state))
                self.middle_state = state if end == self.middle else self.middle_state
            elif not self.model.can_read_prefixes_at_once:
                self.logits[:, end - 1] = centred(self.model.last_logits(self.tokens[:, :end]))
            elif end == self.ends[-1]:
                self.logits[:, :end] = centred(self.model.forward(self.tokens[:, :end]))
            start = end
        logits = self.logits[:, [end - 1 for end in self.ends]]
        spaces = {"logits": self._space(logits, self.outputs)}
        if not vectors:
            self.largest = [0.0] * len(self.ends)
            return spaces
        raw = torch.stack(vectors, 1)
        self.flatten.fit(raw)
        return {**{name: self._space(kind, None) for name, kind in self.split(raw).items()}, **spaces}

    def split(self, raw: Tensor) -> dict[str, Tensor]:
        """Return flat states (..., D) in the coordinates of the spaces of states and of directions."""
        return {"states": self.flatten.normalise(raw), "directions": self.flatten.directions(raw)}

    def _space(self, vectors: Tensor, outputs: Tensor | None) -> _Space:
        classes = self.classes[:, [end - 1 for end in self.ends]]
        chosen = (classes >= 0) & (torch.tensor(self.ends) > self.middle)
        if not bool(chosen.any()):
            chosen = classes >= 0
        return _Space(vectors, ClassCentres.build(vectors[chosen], classes[chosen], self.n_classes, outputs))


def _measure_pieces(read: _StringsRead) -> dict[str, Any]:
    """Return the curves of `StateDistances` over pieces."""
    main = next(iter(read.spaces.values()))
    curves: dict[str, list[Any]] = {name: [] for name in ("accuracy", "within", "between", "margins")}
    by_space: dict[str, dict[str, list[Any]]] = {
        name: {space: [] for space in read.spaces} for name in ("ratios", "shifts", "moves")
    }
    before: dict[str, ClassCentres] = {}
    for k, end in enumerate(read.ends):
        start = read.ends[k - 1] if k else 0
        margins = _margins(read.logits[:, start:end], read.labels[:, start:end])
        curves["accuracy"].append(float((margins > 0).float().mean()))
        curves["margins"].append(quantiles(margins, LOW_QUANTILES))
        rows = read.classes[:, end - 1] >= 0
        classes = read.classes[rows, end - 1]
        within, between = within_and_between(main.vectors[rows, k], classes, read.n_classes)
        curves["within"].append(within)
        curves["between"].append(between)
        for space, (vectors, centres) in read.spaces.items():
            here = ClassCentres.build(vectors[rows, k], classes, read.n_classes)
            met = here.counts.nonzero()[:, 0]
            by_space["ratios"][space].append(quantiles(centres.ratios(vectors[rows, k], classes)))
            by_space["shifts"][space].append(finite_mean(centres.ratios(here.means[met], met)))
            by_space["moves"][space].append(_move(here, before.get(space, here), centres))
            before[space] = here
    return {
        "positions": tuple(read.ends),
        "largest": tuple(read.largest),
        **{name: tuple(curve) for name, curve in curves.items()},
        **{name: {space: tuple(curve) for space, curve in parts.items()} for name, parts in by_space.items()},
    }


def _margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the logit of the label minus the largest other one, for the prefixes that are valid and were read."""
    known = (labels >= 0) & ~logits.isnan().all(-1)
    logits, labels = logits[known], labels[known][:, None]
    margins = logits.gather(1, labels)[:, 0] - logits.scatter(1, labels, -torch.inf).amax(1)
    return margins.nan_to_num(nan=-torch.inf, posinf=torch.inf)


def _move(here: ClassCentres, before: ClassCentres, centres: ClassCentres) -> float:
    """Return the mean distance of two sets of means of the same classes, over the distance to the nearest centre."""
    moved = (here.means - before.means).norm(dim=1) / centres.nearest
    return finite_mean(moved[(here.counts > 0) & (before.counts > 0) & centres.nearest.isfinite()])


def _restart(read: _StringsRead) -> Iterator[Restart]:
    """Read the second half of the strings from states whose deviations are scaled."""
    middle, count, strings = read.middle, len(AMPLITUDES), min(RESTARTED, read.strings)
    classes = read.classes[:, middle - 1]
    factors = torch.tensor(AMPLITUDES)[:, None, None].to(read.model.device)

    def scale(tensor: Tensor) -> Tensor:
        axis = batch_axis(tensor, read.strings)
        if axis is None:
            return tensor
        rows = tensor.movedim(axis, 0)
        flat = rows.reshape(read.strings, -1)
        members = classes.to(flat.device)
        means = class_means(flat, members, read.n_classes)[0][members][:strings]
        scaled = means + factors.to(flat.dtype) * (flat[:strings] - means)  # (A, B, N)
        return scaled.reshape(count * strings, *rows.shape[1:]).movedim(0, axis)

    state = map_tensors(scale, read.middle_state)
    flatten, start = read.flatten.for_batch(count * strings), middle
    for k, end in enumerate(read.ends):
        if end < middle:
            continue
        vectors, accuracy = {}, ()
        now, labels = read.classes[:strings, end - 1], read.labels[:strings, end - 1]
        if end > middle:
            prediction, state = read.model.advance(read.tokens[:strings, start:end].repeat(count, 1), state)
            vectors["logits"] = centred(prediction[:, -1]).cpu().reshape(count, strings, -1)
            accuracy = tuple((vectors["logits"].argmax(-1) == labels).float().mean(1).tolist())
        start = end
        if bool((now < 0).any()):
            continue
        for name, kind in read.split(flatten(state).cpu()).items():
            vectors[name] = kind.reshape(count, strings, -1)
        differences = {name: kind - read.spaces[name].vectors[:strings, k] for name, kind in vectors.items()}
        yield Restart(
            symbols=end - middle,
            accuracy=accuracy,
            ratios={
                name: tuple(quantiles(read.spaces[name].centres.ratios(rows, now)) for rows in kind)
                for name, kind in vectors.items()
            },
            distances={name: tuple(x.square().sum(-1).mean(1).sqrt().tolist()) for name, x in differences.items()},
        )


def within_and_between(vectors: Tensor, classes: Tensor, n_classes: int) -> tuple[float, float]:
    """Return the within-class and the between-class distance of vectors (M, D); NaN if unknown.

    The first is the root mean square distance from the mean of the class, the second the distance of a mean from the
    nearest other one, averaged over classes.
    """
    centres = ClassCentres.build(vectors, classes, n_classes)
    counts = centres.counts[classes]
    # Bessel's correction: the mean of k states accounts for a share 1 / k of their variance.
    squares = (vectors - centres.means[classes]).square().sum(1) * counts / (counts - 1).clamp(min=1)
    return float(squares[counts > 1].mean().sqrt()), finite_mean(centres.nearest)


def draw_classified(task: Task, strings: int, length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw random valid strings: tokens (B, L), the minimal machine's state and the label after every prefix (B, L).

    State and label are -1 after a prefix that is not a valid string.

    >>> from sdssm.tasks import get_task
    >>> tokens, classes, labels = draw_classified(get_task("even_pairs"), 100, 10, seed=0)
    >>> len(classes.unique()), labels.unique().tolist()  # five states, two labels
    (5, [0, 1])
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = task.sample(strings, task.longest_valid_length(length), generator=generator).tokens
    table, start, outputs = label_states(task.machine, task.valid)
    merged = coarsest_congruence(table, outputs)
    states, path = np.full(strings, start), []
    for symbol in tokens.numpy().T:
        states = table[states, symbol]
        path.append(states)
    visited = np.stack(path, 1)
    labels = outputs[visited]
    classes = np.where(labels >= 0, merged[visited], -1)
    return tokens, torch.from_numpy(classes), torch.from_numpy(labels.astype(np.int64))


def class_outputs(task: Task) -> Tensor:
    """Return the label of each class of `draw_classified`, (K,)."""
    table, _, outputs = label_states(task.machine, task.valid)
    merged = coarsest_congruence(table, outputs)
    by_class = np.full(merged.max() + 1, -1)
    by_class[merged] = outputs
    return torch.from_numpy(by_class)


def centred(logits: Tensor) -> Tensor:
    """Subtract the mean of the logits over the labels, which no prediction depends on."""
    return logits - logits.mean(-1, keepdim=True)


def quantiles(values: Tensor, shares: tuple[float, ...] = QUANTILES) -> tuple[float, ...]:
    """Return quantiles of the values that are not NaN; NaN if there are none."""
    known = values[~values.isnan()].float().clamp(-1e30, 1e30)
    if not len(known):
        return (math.nan,) * len(shares)
    return tuple(torch.quantile(known, torch.tensor(shares, device=values.device)).tolist())


def finite_mean(values: Tensor) -> float:
    """Return the mean of the finite values; NaN if there are none."""
    return float(values[values.isfinite()].mean())


def _rounded(value: Any) -> Any:
    """Return nested plain values with numbers of four digits; NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value


def _restored(value: Any) -> Any:
    """Return what `_rounded` has made, with tuples and NaN."""
    if isinstance(value, Mapping):
        return {name: _restored(part) for name, part in value.items()}
    if isinstance(value, list):
        return tuple(_restored(part) for part in value)
    return math.nan if value is None else value
