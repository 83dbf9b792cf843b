"""Evaluation strings: a function of the seed alone, the same for every model and on every device.

Uniform strings are drawn on the CPU in blocks of positions and labelled on the device of the model, so that strings of
a million symbols never have to fit into memory as a whole. Balanced and covering strings come from a string stream on
the device, unless its tables would be too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sdssm.errors import TaskError
from sdssm.tasks.labels import LabelWalk, PrefixLabeller
from sdssm.tasks.positions import PositionSymbols
from sdssm.tasks.sampling import SAMPLINGS, validate_sampling
from sdssm.tasks.seeding import (
    FRESH_TOKENS,
    PREFIX_TOKENS,
    START_STATES,
    STREAMED_TOKENS,
    make_generator,
    mix_key,
)
from sdssm.tasks.streamed_strings import SHARED_STRINGS, StreamedStrings
from sdssm.tasks.task import Task

#: Positions drawn at a time. The strings depend on this number.
BLOCK = 512
#: Fresh strings are drawn in batches of this size, as in the paper. The strings depend on this number.
BATCH = 64
#: The most symbols of fresh strings in memory at a time, unless a single batch is larger.
MOST_SYMBOLS = 1 << 24
#: `shortest_length` of a task without valid strings: longer than any string.
NEVER = 1 << 62


@dataclass(frozen=True, eq=False)
class EvaluationStrings:
    """`count` strings of a task, determined by `seed` and moved to `device` as they are drawn.

    With `random_start` each string starts in its own state, drawn uniformly. `sampling` is as in `Task.sample`; a
    prefix of a balanced or covering string is neither, so each length needs fresh strings.
    """

    task: Task
    count: int
    seed: int
    device: torch.device
    random_start: bool = False
    sampling: str = "uniform"

    def __post_init__(self) -> None:
        validate_sampling(self.sampling)
        if self.random_start and self.sampling != "uniform":
            raise TaskError(
                f"{self.sampling} strings start in the start state of the machine; use random_start=False, or "
                "sampling='uniform'"
            )
        labels_are_unique = self.task.machine.n_states == self.task.n_classes
        if self.random_start and (self.task.valid is not None or not labels_are_unique):
            raise TaskError(
                f"{self.task.name} cannot start in a random state: every string must be valid and every state needs "
                "its own label; choose a group, such as a5"
            )

    def blocks(self, length: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield long strings in blocks of positions: tokens (B, T) and the label of every prefix (B, T).

        Strings of a greater `length` start with the same symbols. The label of a prefix that is not a valid string is
        arbitrary.
        """
        assert self.positions is not None, "the prefixes of this task's strings are not uniformly drawn"
        labels = self._label_walk(self.start_states())
        generator = make_generator(self.seed, PREFIX_TOKENS)
        for first in range(0, length, BLOCK):
            drawn = self.positions.draw(self.count, first, BLOCK, generator)[:, : length - first]
            tokens = self._to_device(drawn).long()
            yield tokens, labels.advance(tokens)

    def draw_fresh(self, length: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Yield new strings of one length, as many at a time as fit into memory.

        Yields tokens (b, L), the label of each string (b,), and its start state (b,) if that is random. The strings
        depend only on the seed and `length`. If no string of this length is valid, they have the greatest length below
        it that has valid strings.
        """
        valid_length = self.task.longest_valid_length(length)
        generator = make_generator(self.seed, FRESH_TOKENS, length)
        starts = self.start_states(length)
        at_once = max(1, MOST_SYMBOLS // (BATCH * valid_length)) * BATCH
        streamed = self._streamed if self.sampling != "uniform" and self._streamed.has_length(valid_length) else None
        for part, first in enumerate(range(0, self.count, at_once)):
            count = min(at_once, self.count - first)
            if streamed is not None:
                yield *streamed.draw(count, valid_length, part=part), None
                continue
            tokens = self._to_device(self._draw(count, valid_length, generator)).long()
            batch_starts = None if starts is None else starts[first : first + len(tokens)]
            yield tokens, self._label_walk(batch_starts, len(tokens)).advance(tokens)[:, -1], batch_starts

    def start_states(self, length: int = 0) -> Tensor | None:
        """Return the random start state of each string (B,), or None if all have the machine's start state.

        Length 0 means the strings of `blocks`, any other length the fresh strings of that length.
        """
        if not self.random_start:
            return None
        generator = make_generator(self.seed, START_STATES, length)
        return self._to_device(torch.randint(self.task.machine.n_states, (self.count,), generator=generator))

    @cached_property
    def positions(self) -> PositionSymbols | None:
        """The symbols at each position, or None if prefixes of the strings are not drawn as the strings are.

        Each length then needs fresh strings.
        """
        return None if self.sampling != "uniform" else PositionSymbols.from_task(self.task)

    @cached_property
    def shortest_length(self) -> int:
        """The smallest length that has a valid string, or NEVER."""
        valid = self.task.valid
        limit = 1 if valid is None else valid.n_states + 1  # a shortest path to a valid state repeats no state
        return next((length for length in range(1, limit + 1) if self.task.has_length(length)), NEVER)

    def _draw(self, count: int, length: int, generator: torch.Generator) -> Tensor:
        sizes = [min(BATCH, count - row) for row in range(0, count, BATCH)]
        if self.sampling != "uniform":  # one walk for all strings is faster than one for each batch
            numbers = [torch.rand(size, length + 2, generator=generator, dtype=torch.float64) for size in sizes]
            return self.task.backward_sampler.draw(self.sampling, torch.cat(numbers))
        if self.positions is None:
            return torch.cat([self.task.sample(size, length, generator=generator).tokens for size in sizes])
        return torch.cat([self.positions.draw(size, 0, length, generator) for size in sizes])

    @cached_property
    def _streamed(self) -> StreamedStrings:
        seed = mix_key(self.seed, STREAMED_TOKENS, SAMPLINGS.index(self.sampling)) >> 1  # a stream takes 63 bits
        return SHARED_STRINGS.get(self.task, self.sampling, seed, self.device)

    def _label_walk(self, starts: Tensor | None, count: int | None = None) -> LabelWalk:
        if starts is None:
            starts = torch.full((count or self.count,), self.task.machine.start, device=self.device)
        return LabelWalk(self._transitions, self._labeller, starts)

    @cached_property
    def _transitions(self) -> Tensor:
        return torch.tensor(self.task.machine.table, device=self.device)

    @cached_property
    def _labeller(self) -> PrefixLabeller:
        outputs = torch.tensor(self.task.machine.outputs, device=self.device)
        return PrefixLabeller.build(self._transitions, self.task.machine.start, outputs)

    def _to_device(self, tensor: Tensor) -> Tensor:
        """Copy to the device; for a GPU asynchronously from pinned memory."""
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)
