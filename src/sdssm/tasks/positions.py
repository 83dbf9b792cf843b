"""Tasks in which the symbols that may come next depend only on the position in the string."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sdssm.automata.refinement import live_states
from sdssm.tasks.task import Task


@dataclass(frozen=True)
class PositionSymbols:
    """The symbols that a valid string may have at each position, whatever its other symbols are.

    For such a task, and for no other, every prefix of a uniformly drawn string is itself uniformly drawn.

    Attributes:
        symbols: the allowed symbols at positions 0, 1, ..., P-1.
        can_end: whether a string may end before each of these positions.
        loop_start: the position, below P, whose entries hold for position P; from there on they repeat.
    """

    symbols: tuple[tuple[int, ...], ...]
    can_end: tuple[bool, ...]
    loop_start: int

    @classmethod
    def from_task(cls, task: Task) -> PositionSymbols | None:
        """Return the symbols of a task, or None if the allowed symbols depend on the symbols before.

        >>> from sdssm.tasks import get_task
        >>> PositionSymbols.from_task(get_task("arithmetic"))
        PositionSymbols(symbols=((0, 1, 2, 3, 4), (5, 6, 7)), can_end=(False, True), loop_start=0)
        """
        if task.valid is None:
            return cls(symbols=(tuple(range(task.n_symbols)),), can_end=(True,), loop_start=0)
        machine = task.valid.minimise()
        live = live_states(machine.table, machine.outputs != 0)
        state, position, symbols = machine.start, dict[int, int](), list[tuple[int, ...]]()
        while state not in position:
            position[state] = len(position)
            next_states = machine.table[state]
            live_next = {int(q) for q in next_states if live[q]}
            if len(live_next) != 1:
                return None
            state = live_next.pop()
            symbols.append(tuple(np.flatnonzero(next_states == state).tolist()))
        can_end = tuple(bool(machine.outputs[q]) for q in position)
        return cls(symbols=tuple(symbols), can_end=can_end, loop_start=position[state])

    def index_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the index into `symbols` and `can_end` that holds for each position."""
        period = len(self.symbols) - self.loop_start
        return np.where(
            positions < self.loop_start, positions, self.loop_start + (positions - self.loop_start) % period
        )

    def longest_valid_lengths(self, limits: np.ndarray) -> np.ndarray:
        """Return for each limit the greatest length up to it that has a valid string, or 0."""
        lengths = np.arange(int(limits.max()) + 1)
        valid_lengths = np.where(np.array(self.can_end)[self.index_at(lengths)], lengths, 0)
        valid_lengths[0] = 0
        return np.asarray(np.maximum.accumulate(valid_lengths)[limits])

    def draw(self, batch: int, first: int, count: int, generator: torch.Generator) -> Tensor:
        """Draw the symbols at positions first .. first + count - 1 of `batch` strings: (batch, count).

        The result is uint8, or int64 if there are more than 256 symbols.
        """
        most = max(max(row) for row in self.symbols)
        dtype = torch.uint8 if most < 256 else torch.int64
        if len(self.symbols) == 1 and len(self.symbols[0]) == most + 1:
            return torch.randint(most + 1, (batch, count), generator=generator, dtype=dtype)
        sizes = torch.tensor([len(row) for row in self.symbols])
        padded = torch.zeros(len(sizes), int(sizes.max()), dtype=dtype)
        for row, allowed in zip(padded, self.symbols, strict=True):
            row[: len(allowed)] = torch.tensor(allowed)
        index = torch.from_numpy(self.index_at(np.arange(first, first + count)))
        u = torch.rand(batch, count, generator=generator, dtype=torch.float64)
        return padded[index, (u * sizes[index]).long()]
