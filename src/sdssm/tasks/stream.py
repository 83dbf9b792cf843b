"""Strings for training, each a function of its seed and its step alone.

A string is the same drawn alone or beside others, one step at a time or many, before or after a resume, on a CPU or a
GPU: its symbols come from Philox with its seed for key and (block of four places, string, step, purpose) for counter.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import index
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from sdssm.automata.refinement import Ints
from sdssm.errors import TaskError, did_you_mean, format_value
from sdssm.extras import import_extra
from sdssm.tasks.philox import LENGTHS, words
from sdssm.tasks.stream_tables import Tables
from sdssm.tasks.task import Task

IMPLEMENTATIONS = ("torch", "numba", "triton")


@dataclass(frozen=True, eq=False)
class Strings:
    """int64 tokens (M, R, B, width), the label of each whole string (M, R, B), and where it starts, if at random."""

    tokens: Tensor
    labels: Tensor
    starts: Tensor | None


class StringStream:
    """Batches of strings of `task` for R seeds side by side, at any step.

    Instead of one task for all seeds there may be one for each, all over the same number of symbols. `random_start`
    also draws the state each string starts from, uniformly among the machine's. `implementation` is chosen by the
    device unless it is given; all of them give the same strings.

    >>> from sdssm.tasks import task
    >>> stream = StringStream(task("parity"), seeds=[0, 1], batch=3, max_length=40, device="cpu")
    >>> lengths = torch.from_numpy(stream.lengths_uniform(first=7, count=5, most=np.array([40, 40])))
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
        implementation: str | None = None,
    ) -> None:
        self.batch = _within(batch, "the batch", 1, 1 << 31)
        self.max_length = _within(max_length, "the greatest length", 1, 1 << 31)
        self.random_start = random_start
        self.seeds = torch.tensor([_within(seed, "a seed", 0, (1 << 63) - 1) for seed in seeds], dtype=torch.int64)
        if len(self.seeds) == 0:
            raise TaskError("no seed was given; a stream of strings needs at least one")
        tasks = [task] * len(self.seeds) if isinstance(task, Task) else list(task)
        self.task = _common(tasks, len(self.seeds), random_start)
        self.floors = _floors(self.task, self.max_length)
        self._host_seeds = self.seeds
        self.seeds = self.seeds.to(device)
        self.device = self.seeds.device
        self.implementation = implementation or _fastest(self.device)
        _module(self.implementation)
        self._tables = Tables.build(tasks, self.max_length, self.device)

    def lengths_uniform(
        self, first: int, count: int, most: Ints | Sequence[int], least: Ints | Sequence[int] | None = None
    ) -> Ints:
        """A length for each step first .. first+count-1 and seed, int64 (count, R): uniform on least..most, then
        lowered to one that the task has, or raised to its least from `least` on. `most` is (R,) or, for each step its
        own, (count, R); `least` is (R,), or 1 for all."""
        most = np.asarray(most)
        replicas = len(self._host_seeds)
        if most.shape not in ((replicas,), (count, replicas)) or not np.issubdtype(most.dtype, np.integer):
            raise TaskError(
                f"the greatest lengths are {format_value(most)}; give a whole number for each of {replicas} seeds"
            )
        if most.min() < 1 or most.max() > self.max_length:
            raise TaskError(
                f"a greatest length of {most.min() if most.min() < 1 else most.max()} was asked for; "
                f"the lengths of this stream are 1..{self.max_length}"
            )
        least = self._least(least, most)
        steps = torch.arange(first, first + count)
        word = words(self._host_seeds, steps, LENGTHS, 1, 1)[..., 0, 0].numpy()  # (count, R)
        there = [self.floors[self.floors >= one].min() for one in least]  # below it no length is drawn
        return np.asarray(np.maximum(self.floors[least + (word * (most - least + 1) >> 32)], there))

    def _least(self, least: Ints | Sequence[int] | None, most: Ints) -> Ints:
        replicas = len(self._host_seeds)
        found = np.ones(replicas, dtype=np.int64) if least is None else np.asarray(least)
        if found.shape != (replicas,) or not np.issubdtype(found.dtype, np.integer):
            raise TaskError(
                f"the least lengths are {format_value(found)}; give a whole number for each of {replicas} seeds"
            )
        if found.min() < 1 or (found > most).any():
            raise TaskError(
                f"the least lengths are {format_value(found)}; each is at least 1 and not above the greatest"
            )
        if found.max() > self.floors[-1]:
            raise TaskError(
                f"{self.task.name} has no valid string of length {found.max()}..{self.max_length}; "
                f"the greatest length with one is {self.floors[-1]}"
            )
        return found

    def draw(self, first: Tensor, lengths: Tensor, width: int) -> Strings:
        """The strings of steps first .. first+M-1 for lengths (M, R), with 0 past the end of each.

        `first`, an int64 tensor without dimensions, and `lengths` are read on the device alone: on a GPU a draw can be
        captured in a graph, and lengths must then be right (1..width, and the task must have them).
        """
        self._check(first, lengths, width)
        M, R = lengths.shape
        tokens = lengths.new_empty(M, R, self.batch, width)
        labels = lengths.new_empty(M, R, self.batch)
        starts = lengths.new_empty((M, R, self.batch) if self.random_start else (0, 0, 0))
        _module(self.implementation).draw(self._tables, self.seeds, first, lengths, tokens, labels, starts)
        return Strings(tokens, labels, starts if self.random_start else None)

    def _check(self, first: Tensor, lengths: Tensor, width: int) -> None:
        for name, tensor, shape in (("the first step", first, "()"), ("lengths", lengths, f"(M, {len(self.seeds)})")):
            right = tensor.ndim == 0 if tensor is first else tensor.ndim == 2 and tensor.shape[1] == len(self.seeds)
            if not right or tensor.dtype != torch.int64 or tensor.device != self.device:
                raise TaskError(
                    f"{name} came as {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}; "
                    f"this stream takes torch.int64 {shape} on {self.device}"
                )
        _within(width, "the width", 1, self.max_length)
        if self.device.type == "cpu" and lengths.numel():  # a look at the values of a GPU would wait for it
            found = lengths.numpy()
            low, high = int(found.min()), int(found.max())
            if low < 1 or high > width:
                raise TaskError(
                    f"a length of {low if low < 1 else high} was asked for; with this width it is 1..{width}"
                )
            wrong = found[self.floors[found] != found]
            if len(wrong):
                raise TaskError(
                    f"{self.task.name} has no valid string of length {wrong[0]}; take the floor of lengths first"
                )


def uniform(
    seeds: Tensor, step: Tensor, purpose: int, shape: Sequence[int], implementation: str | None = None
) -> Tensor:
    """Numbers in [0, 1), float32 (R, *shape), for seeds (R,), a step () and a purpose, 3 (`philox.DROPOUT`) or more.


    >>> mask = uniform(torch.tensor([0, 1]), torch.tensor(7), 3, (128, 64)) < 0.5
    >>> mask.shape
    torch.Size([2, 128, 64])
    """
    rows, width = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    out = torch.empty(len(seeds), rows, width, device=seeds.device)
    _module(implementation or _fastest(seeds.device)).uniform(seeds, step, purpose, out)
    return out.view(len(seeds), *shape)


def _within(number: int, what: str, least: int, most: int) -> int:
    try:
        whole = index(number)
    except TypeError:
        raise TaskError(f"{what} is {format_value(number)}; it must be a whole number") from None
    if not least <= whole <= most:
        raise TaskError(f"{what} is {whole}; it must be in {least}..{most}")
    return whole


def _common(tasks: Sequence[Task], seeds: int, random_start: bool) -> Task:
    """The task that stands for all: they have the same symbols, and the same strings are valid."""
    if len(tasks) != seeds:
        raise TaskError(f"{len(tasks)} tasks were given for {seeds} seeds; give one for all, or one for each")
    first = tasks[0]
    if random_start and first.valid is not None:
        raise TaskError(
            f"{first.name} says which strings are valid, and only from its own start state; use random_start=False"
        )
    for other in tasks[1:]:
        if other.digest == first.digest:
            continue
        if other.n_symbols != first.n_symbols:
            raise TaskError(
                f"{first.name} has {first.n_symbols} symbols and {other.name} {other.n_symbols}; "
                "one stream has one alphabet"
            )
        if random_start or first.valid is not None or other.valid is not None:
            raise TaskError(
                f"{first.name} and {other.name} cannot share a stream; that needs tasks whose strings are all valid "
                "and that start where they start"
            )
    return first


def _floors(task: Task, longest: int) -> Ints:
    """(longest + 1,): the greatest length up to each that the task has, or the least that it has."""
    there = [length for length in range(1, longest + 1) if task.has(length)]
    if not there:
        task.floor(longest)  # says why, and which lengths it has
    place = np.searchsorted(there, np.arange(longest + 1), side="right") - 1
    found: Ints = np.array(there, dtype=np.int64)[np.maximum(place, 0)]
    return found


def _fastest(device: torch.device) -> str:
    name = {"cpu": "numba", "cuda": "triton"}.get(device.type, "torch")
    return name if name != "torch" and importlib.util.find_spec(name) else "torch"


@cache
def _module(implementation: str) -> ModuleType:
    """The module with `draw` and `uniform`; packages that are not needed are not imported."""
    if implementation not in IMPLEMENTATIONS:
        raise TaskError(
            f"the implementation is {implementation!r}; {did_you_mean(str(implementation), IMPLEMENTATIONS)}"
        )
    if implementation != "torch":
        import_extra(implementation, f"the {implementation} implementation of string streams")
    return importlib.import_module(f"sdssm.tasks.stream_{implementation}")
