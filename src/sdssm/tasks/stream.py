"""Training strings, each a function of its seed and its step only.

A string does not depend on the other seeds, on how many steps are drawn at once, on whether a run was resumed, or on
the device: its symbols come from Philox with the seed as key and (block of four positions, string, step, purpose) as
counter.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from sdssm.automata.refinement import Ints
from sdssm.errors import TaskError, did_you_mean, format_value
from sdssm.extras import import_extra
from sdssm.tasks.philox import LENGTHS, random_words
from sdssm.tasks.prefixes import label_prefixes, prefix_ends
from sdssm.tasks.ragged import validate_integer
from sdssm.tasks.sampling import MIXED, SAMPLINGS, validate_sampling
from sdssm.tasks.stream_tables import StreamTables
from sdssm.tasks.task import Task

IMPLEMENTATIONS = ("torch", "numba", "triton")


@dataclass(frozen=True, eq=False)
class StringBatch:
    """The strings of M steps and R seeds, int64.

    `tokens` is (M, R, B, width), `labels` (M, R, B) holds the label of each whole string, `states` (M, R, B) the state
    of `Task.minimal` after it, and `before` (M, R, B) that before its last symbol. If strings start in random states,
    `starts` (M, R, B) has the start state of each, a state of the machine of the task, and `states` and `before` are
    None; otherwise `starts` is None. With several prefixes of each string, `ends` (M, R, P) are their lengths and
    `prefix_labels` (M, R, B, P) their labels; else both are None.
    """

    tokens: Tensor
    labels: Tensor
    states: Tensor | None
    before: Tensor | None
    starts: Tensor | None
    ends: Tensor | None = None
    prefix_labels: Tensor | None = None


class StringStream:
    """Draw batches of strings for R seeds at once, at any step.

    Args:
        task: one task for all seeds, or one for each seed; all must have the same number of symbols.
        seeds: the R seeds, each in 0..2^63-1.
        batch: the number of strings for each seed and step.
        max_length: the greatest length.
        device: where the strings are drawn.
        random_start: draw the start state of each string uniformly among the states of the machine.
        sampling: "uniform", "balanced" or "covering", as in `Task.sample`, or "mixed": the strings of a batch take the
            samplings of `sampling.MIXTURE` in turn. One for all seeds, or a list with one for each.
        prefixes: how many prefixes of each string are labelled, see `prefixes.prefix_ends`; 1: whole strings only.
        implementation: "torch", "numba" or "triton"; all draw the same strings. None: the fastest for the device.

    >>> from sdssm.tasks import get_task
    >>> stream = StringStream(get_task("parity"), seeds=[0, 1], batch=3, max_length=40, device="cpu")
    >>> lengths = torch.from_numpy(stream.draw_lengths(first=7, count=5, most=np.array([40, 40])))
    >>> strings = stream.draw(torch.tensor(7), lengths, width=40)
    >>> strings.tokens.shape, strings.labels.shape
    (torch.Size([5, 2, 3, 40]), torch.Size([5, 2, 3]))
    """

    def __init__(
        self,
        task: Task | Sequence[Task],
        *,
        seeds: Sequence[int],
        batch: int,
        max_length: int,
        device: torch.device | str,
        random_start: bool = False,
        sampling: str | Sequence[str] = "uniform",
        prefixes: int = 1,
        implementation: str | None = None,
    ) -> None:
        self.batch = _validate_range(batch, "batch", 1, 1 << 31)
        self.prefixes = _validate_range(prefixes, "prefixes", 1, 1 << 31)
        self.max_length = _validate_range(max_length, "max_length", 1, 1 << 31)
        self.random_start = random_start
        self.seeds = torch.tensor(
            [_validate_range(seed, "seed", 0, (1 << 63) - 1) for seed in seeds], dtype=torch.int64
        )
        if len(self.seeds) == 0:
            raise TaskError("seeds is empty; a string stream needs at least one seed")
        tasks = [task] * len(self.seeds) if isinstance(task, Task) else list(task)
        self.task = _check_shared_stream(tasks, len(self.seeds), random_start)
        if self.prefixes > 1 and self.task.valid is not None:
            raise TaskError(
                f"prefixes is {self.prefixes}, but prefixes of {self.task.name} may be invalid; use prefixes=1"
            )
        samplings = _validate_samplings(sampling, len(self.seeds), random_start)
        self.longest_valid_lengths = _longest_valid_lengths(self.task, self.max_length)
        self._host_seeds = self.seeds
        self.seeds = self.seeds.to(device)
        self.device = self.seeds.device
        self.implementation = implementation or _fastest_implementation(self.device)
        _import_implementation(self.implementation)
        self._tables = StreamTables.build(tasks, samplings, self.max_length, self.device, random_start=random_start)

    def draw_lengths(
        self, first: int, count: int, most: Ints | Sequence[int], least: Ints | Sequence[int] | None = None
    ) -> Ints:
        """Draw a length for each of the steps first .. first+count-1 and each seed: int64 (count, R).

        A length is uniform on least..most, and then lowered to the next length that has a valid string, or raised if
        that would be below `least`.

        Args:
            first: the first step.
            count: the number of steps.
            most: the greatest length for each seed, (R,), or for each step and seed, (count, R).
            least: the smallest length for each seed, (R,). None: 1 for all.
        """
        most = np.asarray(most)
        replicas = len(self._host_seeds)
        if most.shape not in ((replicas,), (count, replicas)) or not np.issubdtype(most.dtype, np.integer):
            raise TaskError(f"most is {format_value(most)}; pass a whole number for each of {replicas} seeds")
        if most.min() < 1 or most.max() > self.max_length:
            raise TaskError(
                f"most is {most.min() if most.min() < 1 else most.max()}; "
                f"the lengths of this stream are 1..{self.max_length}"
            )
        least = self._validate_least(least, most)
        steps = torch.arange(first, first + count)
        word = random_words(self._host_seeds, steps, LENGTHS, 1, 1)[..., 0, 0].numpy()  # (count, R)
        drawn = least + (word * (most - least + 1) >> 32)
        shortest = [self.longest_valid_lengths[self.longest_valid_lengths >= length].min() for length in least]
        return np.asarray(np.maximum(self.longest_valid_lengths[drawn], shortest))

    def _validate_least(self, least: Ints | Sequence[int] | None, most: Ints) -> Ints:
        replicas = len(self._host_seeds)
        lengths = np.ones(replicas, dtype=np.int64) if least is None else np.asarray(least)
        if lengths.shape != (replicas,) or not np.issubdtype(lengths.dtype, np.integer):
            raise TaskError(f"least is {format_value(lengths)}; pass a whole number for each of {replicas} seeds")
        if lengths.min() < 1 or (lengths > most).any():
            raise TaskError(
                f"least is {format_value(lengths)}; each must be at least 1 and at most the greatest length"
            )
        if lengths.max() > self.longest_valid_lengths[-1]:
            raise TaskError(
                f"{self.task.name} has no valid string of length {lengths.max()}..{self.max_length}; "
                f"the greatest length with one is {self.longest_valid_lengths[-1]}"
            )
        return lengths

    def draw(self, first: Tensor, lengths: Tensor, width: int, batch: int | None = None) -> StringBatch:
        """Draw the strings of steps first .. first+M-1 for lengths (M, R), padded with 0 to `width`.

        `batch` replaces the number of strings of the stream.

        `first`, an int64 scalar tensor, and `lengths`, int64, are on the device of the stream. On a GPU they are read
        by the kernel only, so that a draw can be captured in a CUDA graph. Lengths are then not checked: the caller
        makes sure that they are in 1..width and have valid strings.
        """
        self._check(first, lengths, width)
        shape, none = (*lengths.shape, self.batch if batch is None else batch), (0, 0, 0)
        tokens, labels = lengths.new_empty(*shape, width), lengths.new_empty(shape)
        states, before = (lengths.new_empty(none if self.random_start else shape) for _ in range(2))
        starts = lengths.new_empty(shape if self.random_start else none)
        _import_implementation(self.implementation).fill_strings(
            self._tables, self.seeds, first, lengths, tokens, labels, states, before, starts
        )
        strings = StringBatch(tokens, labels, states, before, None)
        if self.random_start:
            strings = StringBatch(tokens, labels, None, None, starts)
        if self.prefixes == 1:
            return strings
        ends = prefix_ends(lengths, self.prefixes)
        return replace(strings, ends=ends, prefix_labels=label_prefixes(self._tables, tokens, ends, strings.starts))

    def _check(self, first: Tensor, lengths: Tensor, width: int) -> None:
        replicas = len(self.seeds)
        for name, tensor, is_shape_valid, shape in (
            ("first", first, first.ndim == 0, "()"),
            ("lengths", lengths, lengths.ndim == 2 and lengths.shape[1] == replicas, f"(M, {replicas})"),
        ):
            if not is_shape_valid or tensor.dtype != torch.int64 or tensor.device != self.device:
                raise TaskError(
                    f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}; "
                    f"this stream takes torch.int64 {shape} on {self.device}"
                )
        _validate_range(width, "width", 1, self.max_length)
        if self.device.type == "cpu" and lengths.numel():  # reading the values of a GPU would wait for it
            values = lengths.numpy()
            low, high = int(values.min()), int(values.max())
            if low < 1 or high > width:
                raise TaskError(f"a length is {low if low < 1 else high}; with this width it must be in 1..{width}")
            invalid = values[self.longest_valid_lengths[values] != values]
            if len(invalid):
                raise TaskError(
                    f"{self.task.name} has no valid string of length {invalid[0]}; "
                    "pass lengths that StringStream draws itself"
                )


def uniform_numbers(
    seeds: Tensor, step: Tensor, purpose: int, shape: Sequence[int], implementation: str | None = None
) -> Tensor:
    """Return uniform random numbers in [0, 1), float32 (R, *shape), as a function of seed and step only.

    `seeds` is (R,), `step` a scalar tensor, and `purpose` 3 (`philox.DROPOUT`) or a greater number: each purpose has
    its own random numbers.

    >>> mask = uniform_numbers(torch.tensor([0, 1]), torch.tensor(7), 3, (128, 64)) < 0.5
    >>> mask.shape
    torch.Size([2, 128, 64])
    """
    rows, width = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    out = torch.empty(len(seeds), rows, width, device=seeds.device)
    _import_implementation(implementation or _fastest_implementation(seeds.device)).fill_uniform(
        seeds, step, purpose, out
    )
    return out.view(len(seeds), *shape)


def _validate_range(number: int, name: str, least: int, most: int) -> int:
    value = validate_integer(number, name)
    if not least <= value <= most:
        raise TaskError(f"{name} is {value}; it must be in {least}..{most}")
    return value


def _check_shared_stream(tasks: Sequence[Task], seeds: int, random_start: bool) -> Task:
    """Check that the tasks can share a stream, and return the first.

    All have the same valid strings.
    """
    if len(tasks) != seeds:
        raise TaskError(f"{len(tasks)} tasks were passed for {seeds} seeds; pass one for all, or one for each")
    first = tasks[0]
    if random_start and first.valid is not None:
        raise TaskError(f"{first.name} defines its valid strings from its own start state only; use random_start=False")
    for other in tasks[1:]:
        if other.digest == first.digest:
            continue
        if other.n_symbols != first.n_symbols:
            raise TaskError(
                f"{first.name} has {first.n_symbols} symbols and {other.name} {other.n_symbols}; "
                "all tasks of a stream need the same alphabet"
            )
        if random_start or first.valid is not None or other.valid is not None:
            raise TaskError(
                f"{first.name} and {other.name} cannot share a stream; every string of both must be valid, "
                "and random_start must be False"
            )
    return first


def _validate_samplings(sampling: str | Sequence[str], seeds: int, random_start: bool) -> list[str]:
    """Return the sampling of each seed."""
    samplings = [sampling] * seeds if isinstance(sampling, str) else list(sampling)
    if len(samplings) != seeds:
        raise TaskError(f"{len(samplings)} samplings were passed for {seeds} seeds; pass one for all, or one for each")
    for name in samplings:
        validate_sampling(name, (*SAMPLINGS, MIXED))
        if random_start and name != "uniform":
            raise TaskError(f"{name} strings start in the start state of the machine; use random_start=False")
    return samplings


def _longest_valid_lengths(task: Task, longest: int) -> Ints:
    """Return the greatest length with a valid string up to each of 0..longest.

    If there is none, it is the smallest length with a valid string.
    """
    valid = task.valid_lengths(longest)
    if not len(valid):
        task.longest_valid_length(longest)  # raises an error that names the lengths with valid strings
    index_of_longest = np.searchsorted(valid, np.arange(longest + 1), side="right") - 1
    lengths: Ints = valid[np.maximum(index_of_longest, 0)]
    return lengths


def _fastest_implementation(device: torch.device) -> str:
    name = {"cpu": "numba", "cuda": "triton"}.get(device.type, "torch")
    return name if name != "torch" and importlib.util.find_spec(name) else "torch"


@cache
def _import_implementation(implementation: str) -> ModuleType:
    """Import the module with `fill_strings` and `fill_uniform`, which may need an optional package."""
    if implementation not in IMPLEMENTATIONS:
        raise TaskError(f"implementation is {implementation!r}; {did_you_mean(str(implementation), IMPLEMENTATIONS)}")
    if implementation != "torch":
        import_extra(implementation, f"the {implementation} implementation of string streams")
    return importlib.import_module(f"sdssm.tasks.stream_{implementation}")
