"""Distances of a model's states within and between the states of the task's minimal machine, at training lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from sdssm import ops
from sdssm.automata.refinement import coarsest_congruence
from sdssm.models import Classifier
from sdssm.tasks import Task
from sdssm.tasks.validity import label_states

#: The default number of strings. A prime: the axis of a state that has this size is the batch axis, also in a state of
#: another library such as (layers, B, N).
STRINGS = 997
#: The number of strings of a restart, also a prime.
RESTARTED = 199
#: Larger parts of a state are projected to this many random directions, which changes distances by about 5 %.
MOST_ENTRIES = 256
#: The quantiles of ratios, and of margins: a tenth of the strings is beyond the 90 % quantile of the ratio.
QUANTILES = (0.5, 0.75, 0.9, 0.97)
LOW_QUANTILES = (0.03, 0.1, 0.25, 0.5)
#: Factors of the deviations in the middle of the strings, and how many symbols later the effect is measured.
AMPLITUDES = (0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)
RESTART_SYMBOLS = (0, 1, 2, 5, 10, 20)
#: Quantiles at several positions, or for several amplitudes.
Quantiles = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class StateDistances:
    """Distances of a model's states at training lengths, from reading random strings of L symbols.

    A `ratio` is measured for each string: how far its state is on the way from the centre of its own class to that of
    another class, at worst; 0 is the own centre, and from 1/2 on another centre is nearer. A class is a state of the
    task's minimal machine, its centre the mean over the second half of the positions.

    Attributes:
        train_length: L, the length of the strings.
        positions: the prefix lengths at which some string is valid.
        accuracy: the share of correct predictions at each position.
        within: root mean square distance of states from the mean of their class at the same position.
        between: distance of these means from the nearest other mean, averaged over classes.
        norms: root mean square norm of the state at each position, relative to the last one.
        largest: the largest entry of a state at each position, in its own unit; 0 for a model without states.
        margins: quantiles at each position of the logit of the label minus the largest other logit, at `LOW_QUANTILES`.
        ratios: by space ("states", "directions", "logits"): quantiles of the ratio at each position, at `QUANTILES`.
        shifts: by space: the ratio of the means of the classes at each position, averaged over classes.
        amplitudes: factors of the deviations in `restarts`.
        restarts: accuracy and ratios after reading on from the middle of the strings, see `Restart`.
    """

    train_length: int
    positions: tuple[int, ...]
    accuracy: tuple[float, ...]
    within: tuple[float, ...]
    between: tuple[float, ...]
    norms: tuple[float, ...]
    largest: tuple[float, ...]
    margins: Quantiles
    ratios: Mapping[str, Quantiles]
    shifts: Mapping[str, tuple[float, ...]]
    amplitudes: tuple[float, ...] = ()
    restarts: tuple[Restart, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the distances as plain values of four digits."""
        return _rounded(asdict(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the distances that `to_json` has written."""
        restarts = tuple(Restart(**restart) for restart in data["restarts"])
        return cls(**{**data, "restarts": restarts})


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


@dataclass(frozen=True, eq=False)
class ClassCentres:
    """The mean vector of each class, the distances between them, and the directions that they span.

    Attributes:
        means: (K, D), the centre of each class.
        counts: (K,), the number of vectors of each class; 0 if its centre is unknown.
        gaps: (K, K), the squared distances of centres; infinite on the diagonal and between classes that need not be
            distinguished.
    """

    means: Tensor
    counts: Tensor
    gaps: Tensor

    @classmethod
    def build(cls, vectors: Tensor, classes: Tensor, n_classes: int, outputs: Tensor | None = None) -> ClassCentres:
        """Average vectors (M, D) by class (M,). With `outputs` (K,), classes of equal output are not distinguished."""
        means, counts = class_means(vectors, classes, n_classes)
        gaps = torch.cdist(means, means).square()
        known = counts > 0
        apart = known[:, None] & known[None]
        apart &= ~torch.eye(n_classes, dtype=torch.bool, device=means.device)
        if outputs is not None:
            apart &= outputs[:, None] != outputs[None]
        return cls(means, counts, gaps.masked_fill(~apart, torch.inf))

    def ratios(self, vectors: Tensor, classes: Tensor) -> Tensor:
        """Return how far each vector (M, D) is on its way to the nearest other centre, (M,); NaN if that is unknown.

        It is 0 at the centre of its own class, and above 1/2 if another centre is nearer: the distance from its own
        centre in the direction of another one, over the distance of the two centres; the largest over all others.
        """
        offsets = vectors - self.means[classes]  # (M, D)
        along = offsets @ self.means.T - (offsets * self.means[classes]).sum(-1, keepdim=True)  # (M, K)
        largest = (along / self.gaps[classes]).amax(-1)
        is_known = self.gaps[classes].isfinite().any(-1)
        return largest.where(is_known, torch.nan)


def measure_state_distances(
    model: Classifier,
    task: Task,
    *,
    strings: int = STRINGS,
    amplitudes: Sequence[float] = AMPLITUDES,
    seed: int = 0,
) -> StateDistances:
    """Read random strings of training length and measure the states of the model after every prefix.

    Args:
        model: the model. If it carries no state, its logits take the place of states.
        task: its task.
        strings: the number of strings.
        amplitudes: factors of the deviations in the middle of the strings; none: no restarts.
        seed: of the strings.
    """
    reader = _Reader(model, task, strings, seed)
    with reading(model):
        spaces, middle = reader.read()
        curves = _measure_positions(reader, spaces)
        restarts: tuple[Restart, ...] = ()
        can_restart = middle is not None and bool((reader.classes[:, reader.middle - 1] >= 0).all())
        if can_restart and amplitudes:
            restarts = tuple(_restart(reader, spaces, middle, tuple(amplitudes)))
    return StateDistances(
        train_length=reader.length, amplitudes=tuple(amplitudes) if restarts else (), restarts=restarts, **curves
    )


class _Space(NamedTuple):
    """Vectors (B, L, D) of one kind, and the centres of the classes among them."""

    vectors: Tensor
    centres: ClassCentres


class _Reader:
    """Strings of a task with their classes, and a model that reads them."""

    def __init__(self, model: Classifier, task: Task, strings: int, seed: int) -> None:
        device = next(model.parameters()).device
        drawn = draw_classified(task, strings, task.train_length, seed)
        self.model, self.strings = model, strings
        self.tokens, self.classes, self.labels = (tensor.to(device) for tensor in drawn)
        self.outputs = class_outputs(task).to(device)
        self.length = self.tokens.shape[1]
        self.middle = (self.length + 1) // 2
        self.flatten = StateFlattener(strings)
        self.largest = [0.0] * self.length

    def read(self) -> tuple[dict[str, _Space], Any]:
        """Return states, directions and logits after every prefix, and the carried state in the middle."""
        middle = state = None
        if not self.model.is_recurrent:
            self.logits = centred(self.model.forward(self.tokens))
            return {"logits": self._space(self.logits, self.outputs)}, None
        vectors, logits = [], []
        for position, symbol in enumerate(self.tokens.unbind(1), 1):
            prediction, state = read_symbol(self.model, symbol, state)
            logits.append(centred(prediction))
            vectors.append(self.flatten(state))
            self.largest[position - 1] = largest_entry(state)
            middle = state if position == self.middle else middle
        self.logits = torch.stack(logits, 1)
        raw = torch.stack(vectors, 1)
        self.flatten.fit(raw)
        kinds = self.split(raw)
        spaces = {name: self._space(kind, None) for name, kind in kinds.items()}
        return {**spaces, "logits": self._space(self.logits, self.outputs)}, middle

    def split(self, raw: Tensor) -> dict[str, Tensor]:
        """Return flat states (..., D) in the coordinates of the spaces of states and of directions."""
        return {"states": self.flatten.normalise(raw), "directions": self.flatten.directions(raw)}

    def _space(self, vectors: Tensor, outputs: Tensor | None) -> _Space:
        chosen = self.classes >= 0
        if bool(chosen[:, self.middle :].any()):
            chosen = chosen.clone()
            chosen[:, : self.middle] = False
        return _Space(vectors, ClassCentres.build(vectors[chosen], self.classes[chosen], len(self.outputs), outputs))


def _measure_positions(reader: _Reader, spaces: dict[str, _Space]) -> dict[str, Any]:
    """Return the curves of `StateDistances` over positions."""
    valid = reader.classes >= 0
    positions = [t for t in range(reader.length) if bool(valid[:, t].any())]
    first = next(iter(spaces.values()))
    norms = first.vectors.square().sum(-1).mean(0).sqrt()
    curves: dict[str, Any] = {name: [] for name in ("accuracy", "within", "between", "norms", "largest", "margins")}
    ratios: dict[str, list[Any]] = {name: [] for name in spaces}
    shifts: dict[str, list[float]] = {name: [] for name in spaces}
    for t in positions:
        rows = valid[:, t]
        classes, labels, logits = reader.classes[rows, t], reader.labels[rows, t], reader.logits[rows, t]
        own = logits.gather(1, labels[:, None])[:, 0]
        margins = own - logits.scatter(1, labels[:, None], -torch.inf).amax(1)
        curves["accuracy"].append(float((margins > 0).float().mean()))
        curves["margins"].append(quantiles(margins, LOW_QUANTILES))
        within, between = within_and_between(first.vectors[rows, t], classes, len(reader.outputs))
        curves["within"].append(within)
        curves["between"].append(between)
        curves["norms"].append(float(norms[t] / norms[-1]))
        curves["largest"].append(reader.largest[t])
        for name, (vectors, centres) in spaces.items():
            ratios[name].append(quantiles(centres.ratios(vectors[rows, t], classes)))
            here = ClassCentres.build(vectors[rows, t], classes, len(reader.outputs))
            met = here.counts.nonzero()[:, 0]
            shifts[name].append(float(finite_mean(centres.ratios(here.means[met], met))))
    return {
        "positions": tuple(t + 1 for t in positions),
        **{name: tuple(curve) for name, curve in curves.items()},
        "ratios": {name: tuple(rows) for name, rows in ratios.items()},
        "shifts": {name: tuple(row) for name, row in shifts.items()},
    }


def _restart(
    reader: _Reader, spaces: dict[str, _Space], middle: Any, amplitudes: tuple[float, ...]
) -> Iterator[Restart]:
    """Read the second half of the strings from states whose deviations are scaled."""
    start, count, strings = reader.middle, len(amplitudes), min(RESTARTED, reader.strings)
    classes = reader.classes[:, start - 1]
    factors = torch.tensor(amplitudes, device=classes.device)[:, None, None]

    def scale(tensor: Tensor) -> Tensor:
        axis = batch_axis(tensor, reader.strings)
        if axis is None:
            return tensor
        rows = tensor.movedim(axis, 0)
        flat = rows.reshape(reader.strings, -1)
        means = class_means(flat, classes, len(reader.outputs))[0][classes][:strings]
        scaled = means + factors.to(flat.dtype) * (flat[:strings] - means)  # (A, B, N)
        return scaled.reshape(count * strings, *rows.shape[1:]).movedim(0, axis)

    state = map_tensors(scale, middle)
    flatten = reader.flatten.for_batch(count * strings)
    prediction = None
    for symbols in range(reader.length - start + 1):
        column = start + symbols - 1
        if symbols:
            prediction, state = read_symbol(reader.model, reader.tokens[:strings, column].repeat(count), state)
        now, labels = reader.classes[:strings, column], reader.labels[:strings, column]
        if symbols not in RESTART_SYMBOLS or bool((now < 0).any()):
            continue
        vectors = reader.split(flatten(state))
        if prediction is not None:
            vectors["logits"] = centred(prediction)
        vectors = {name: kind.reshape(count, strings, -1) for name, kind in vectors.items()}
        accuracy: tuple[float, ...] = ()
        if prediction is not None:
            accuracy = tuple((vectors["logits"].argmax(-1) == labels).float().mean(1).tolist())
        differences = {name: kind - spaces[name].vectors[:strings, column] for name, kind in vectors.items()}
        yield Restart(
            symbols=symbols,
            accuracy=accuracy,
            ratios={
                name: tuple(quantiles(spaces[name].centres.ratios(rows, now)) for rows in kind)
                for name, kind in vectors.items()
            },
            distances={name: tuple(x.square().sum(-1).mean(1).sqrt().tolist()) for name, x in differences.items()},
        )


def class_means(vectors: Tensor, classes: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean of the vectors (M, D) of each class, (K, D), and their number, (K,)."""
    counts = torch.bincount(classes, minlength=n_classes)
    sums = vectors.new_zeros(n_classes, vectors.shape[1]).index_add_(0, classes, vectors)
    return sums / counts.clamp(min=1)[:, None], counts


def within_and_between(vectors: Tensor, classes: Tensor, n_classes: int) -> tuple[float, float]:
    """Return the within-class and the between-class distance of vectors (M, D); NaN if unknown.

    The first is the root mean square distance from the mean of the class, the second the distance of a mean from the
    nearest other one, averaged over classes.
    """
    centres = ClassCentres.build(vectors, classes, n_classes)
    counts = centres.counts[classes]
    several = counts > 1
    # Bessel's correction: the mean of k states accounts for a share 1 / k of their variance.
    squares = (vectors - centres.means[classes]).square().sum(1) * counts / (counts - 1).clamp(min=1)
    return float(squares[several].mean().sqrt()), float(finite_mean(centres.gaps.amin(1).sqrt()))


def quantiles(values: Tensor, shares: tuple[float, ...] = QUANTILES) -> tuple[float, ...]:
    """Return quantiles of the finite values; NaN if there are none."""
    finite = values[values.isfinite()]
    if not len(finite):
        return (math.nan,) * len(shares)
    found = torch.quantile(finite.float(), torch.tensor(shares, device=values.device))
    return tuple(found.tolist())


def finite_mean(values: Tensor) -> Tensor:
    """Return the mean of the finite values; NaN if there are none."""
    return values[values.isfinite()].mean()


def draw_classified(task: Task, strings: int, length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw random valid strings: tokens (B, L), the minimal machine's state and the label after every prefix (B, L).

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


def read_symbol(model: Classifier, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Read one symbol of each string: symbols (B,), state -> logits (B, C), state."""
    if isinstance(model, Classifier):  # cheaper for models that read a query after each symbol
        return model.step(symbols, state)
    logits, state = model.advance(symbols[:, None], state)
    return logits[:, 0], state


def centred(logits: Tensor) -> Tensor:
    """Subtract the mean of the logits over the classes, which no prediction depends on."""
    return logits - logits.mean(-1, keepdim=True)


class StateFlattener:
    """Turns the state of a model into vectors (B, D).

    Tensors without an axis of size B, and tensors of whole numbers, are left out. Large tensors are projected to a
    few random directions.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self._sizes: list[int] = []
        self._scales: list[Tensor] = []
        self._maps: dict[int, Tensor] = {}

    def __call__(self, state: Any) -> Tensor:
        """Return the state as vectors (B, D)."""
        parts = [self._flatten(tensor) for tensor in state_tensors(state) if batch_axis(tensor, self.batch) is not None]
        self._sizes = [part.shape[1] for part in parts]
        return torch.cat(parts, 1)

    def _flatten(self, tensor: Tensor) -> Tensor:
        axis = batch_axis(tensor, self.batch)
        assert axis is not None
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        flat = real.movedim(axis, 0).reshape(self.batch, -1).float()
        size = flat.shape[1]
        if size <= MOST_ENTRIES:
            return flat
        if size not in self._maps:
            directions = torch.randn(size, MOST_ENTRIES, generator=torch.Generator().manual_seed(size))
            self._maps[size] = (directions / MOST_ENTRIES**0.5).to(flat.device)
        return flat @ self._maps[size]

    def fit(self, vectors: Tensor) -> None:
        """Choose a unit for each part of the vectors (..., D), so that all parts count alike."""
        for part in vectors.split(self._sizes, dim=-1):
            flat = part.reshape(-1, part.shape[-1])
            scale = (flat - flat.mean(0)).square().sum(1).mean().sqrt()
            self._scales.append(scale.where(scale > 0, 1.0))

    def for_batch(self, batch: int) -> StateFlattener:
        """Return a flattener for states of another batch size, with the same units."""
        other = StateFlattener(batch)
        other._sizes, other._scales, other._maps = self._sizes, self._scales, self._maps
        return other

    def normalise(self, vectors: Tensor) -> Tensor:
        """Divide each part of the vectors (..., D) by its unit."""
        parts = vectors.split(self._sizes, dim=-1)
        return torch.cat([part / scale for part, scale in zip(parts, self._scales, strict=True)], -1)

    def directions(self, vectors: Tensor) -> Tensor:
        """Divide each part of the vectors (..., D) by its own norm."""
        parts = vectors.split(self._sizes, dim=-1)
        return torch.cat([torch.nn.functional.normalize(part, dim=-1) for part in parts], -1)


def batch_axis(tensor: Tensor, batch: int) -> int | None:
    """Return the first axis of size `batch` of a tensor of real or complex numbers, or None."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or batch not in tensor.shape:
        return None
    return tuple(tensor.shape).index(batch)


def state_tensors(state: Any) -> Iterator[Tensor]:
    """Yield all tensors of a state: a tensor, or tensors in nested tuples, lists or dictionaries."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for part in state.values():
            yield from state_tensors(part)
    elif isinstance(state, tuple | list):
        for part in state:
            yield from state_tensors(part)


def largest_entry(state: Any) -> float:
    """Return the largest absolute value in a state; infinity if an entry is not finite."""
    floats = [tensor for tensor in state_tensors(state) if tensor.is_floating_point() or tensor.is_complex()]
    largest = max((float(tensor.abs().amax()) for tensor in floats if tensor.numel()), default=0.0)
    return largest if math.isfinite(largest) else math.inf


def map_tensors(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Return a state with every tensor changed by a function; the nesting stays.

    >>> map_tensors(lambda x: x + 1, {"h": [torch.zeros(1), None]})
    {'h': [tensor([1.]), None]}
    """
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, dict):
        return {name: map_tensors(change, part) for name, part in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(map_tensors(change, part) for part in state))
    if isinstance(state, tuple | list):
        return type(state)(map_tensors(change, part) for part in state)
    return state


@contextmanager
def reading(model: Classifier) -> Iterator[None]:
    """Disable gradients, dropout and the check of tokens while a model reads strings."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(), ops.unchecked():
            yield
    finally:
        model.train(training)


def _rounded(value: Any) -> Any:
    """Return nested plain values with numbers of four digits; NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value
