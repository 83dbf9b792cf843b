"""Test strings: a function of the seed alone, the same for every model and on every device.

They are drawn on the CPU in blocks of places, and labelled on the device where the model reads them, so that strings
of a million symbols never stand in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sdssm.automata import Machine
from sdssm.errors import TaskError
from sdssm.tasks import Task
from sdssm.tasks.labels import Labeller

#: Places drawn at a time. The strings depend on it.
BLOCK = 512
#: Fresh strings are drawn in batches of this many, as published.
BATCH = 64
#: The most symbols of fresh strings in memory at a time, where more than one batch is.
MOST_SYMBOLS = 1 << 24
#: A length that no string has.
NEVER = 1 << 62
#: What a generator is for: each purpose has draws of its own.
PREFIXES, FRESH, STARTS = range(3)


@dataclass(frozen=True)
class Places:
    """The symbols a valid string may hold at each place, where that is a matter of the place alone.

    Then, and only then, the prefixes of uniformly drawn strings are uniformly drawn strings themselves.
    """

    symbols: tuple[tuple[int, ...], ...]
    valid: tuple[bool, ...]  # whether a string may end before each place
    again: int  # after the last place comes this one

    @classmethod
    def of(cls, task: Task) -> Places | None:
        """Those of a task, or None where what may come next depends on what came before.

        >>> from sdssm.tasks import task
        >>> Places.of(task("arithmetic"))
        Places(symbols=((0, 1, 2, 3, 4), (5, 6, 7)), valid=(False, True), again=0)
        """
        if task.valid is None:
            return cls(symbols=(tuple(range(task.n_symbols)),), valid=(True,), again=0)
        machine = task.valid.minimise()
        live = _live(machine)
        state, seen, symbols = machine.start, dict[int, int](), list[tuple[int, ...]]()
        while state not in seen:
            seen[state] = len(seen)
            ahead = machine.table[state]
            there = {int(q) for q in ahead if live[q]}
            if len(there) != 1:
                return None
            before, state = state, there.pop()
            symbols.append(tuple(np.flatnonzero(machine.table[before] == state).tolist()))
        return cls(symbols=tuple(symbols), valid=tuple(bool(machine.outputs[q]) for q in seen), again=seen[state])

    def at(self, places: np.ndarray) -> np.ndarray:
        """The entries of `symbols` and `valid` that hold for these places."""
        period = len(self.symbols) - self.again
        return np.where(places < self.again, places, self.again + (places - self.again) % period)

    def floor(self, lengths: np.ndarray) -> np.ndarray:
        """For each length the greatest up to it that has a valid string, or 0."""
        every = np.arange(int(lengths.max()) + 1)
        held = np.where(np.array(self.valid)[self.at(every)], every, 0)
        held[0] = 0
        return np.asarray(np.maximum.accumulate(held)[lengths])

    def draw(self, strings: int, first: int, count: int, generator: torch.Generator) -> Tensor:
        """The symbols at places first .. first + count - 1: (B, count), in as few bytes as hold them."""
        most = max(max(row) for row in self.symbols)
        kind = torch.uint8 if most < 256 else torch.int64
        if len(self.symbols) == 1 and len(self.symbols[0]) == most + 1:
            return torch.randint(most + 1, (strings, count), generator=generator, dtype=kind)
        sizes = torch.tensor([len(row) for row in self.symbols])
        rows = torch.zeros(len(sizes), int(sizes.max()), dtype=kind)
        for row, found in zip(rows, self.symbols, strict=True):
            row[: len(found)] = torch.tensor(found)
        at = torch.from_numpy(self.at(np.arange(first, first + count)))
        u = torch.rand(strings, count, generator=generator, dtype=torch.float64)
        return rows[at, (u * sizes[at]).long()]


def _live(machine: Machine) -> np.ndarray:
    """Whether a valid string can still be reached from each state."""
    live = machine.outputs != 0
    while (more := live | live[machine.table].any(1)).sum() > live.sum():
        live = more
    return np.asarray(live)


@dataclass(frozen=True, eq=False)
class TestStrings:
    """`count` strings of a task that are a function of the seed, moved to `device` as they are drawn.

    With `random_start` each string begins in a state of its own, drawn uniformly.
    """

    __test__ = False  # nothing for pytest

    task: Task
    count: int
    seed: int
    device: torch.device
    random_start: bool = False

    def __post_init__(self) -> None:
        told = self.task.machine.n_states == self.task.n_classes
        if self.random_start and (self.task.valid is not None or not told):
            raise TaskError(
                f"{self.task.name} cannot begin in a random state: every string must be valid and every state have "
                "a label of its own; choose a group, such as a5"
            )

    def blocks(self, length: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Long strings a block of places at a time: tokens (B, T) and the label of every prefix (B, T).

        A longer `length` only adds places. A prefix that is no valid string has a label that means nothing.
        """
        assert self.places is not None, "asked of a task whose prefixes are not uniform"
        labels = self._walk(self.starts())
        generator = _generator(self.seed, PREFIXES)
        for first in range(0, length, BLOCK):
            drawn = self.places.draw(self.count, first, BLOCK, generator)[:, : length - first]
            tokens = self._move(drawn).long()
            yield tokens, labels.advance(tokens)

    def fresh(self, length: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Strings of one length, as many at a time as memory should hold: tokens (b, L), the label of each (b,) and
        the state in which it begins, if it is a random one (b,).

        They depend on the seed and this length alone. Where no string of the length is valid, they are of the
        greatest length below it that has one.
        """
        held = self.task.floor(length)
        generator = _generator(self.seed, FRESH, length)
        starts = self.starts(length)
        together = max(1, MOST_SYMBOLS // (BATCH * held)) * BATCH
        for first in range(0, self.count, together):
            rows = range(first, min(first + together, self.count), BATCH)
            drawn = torch.cat([self._draw(min(BATCH, self.count - row), held, generator) for row in rows])
            tokens = self._move(drawn).long()
            begin = None if starts is None else starts[first : first + len(tokens)]
            yield tokens, self._walk(begin, len(tokens)).advance(tokens)[:, -1], begin

    def starts(self, length: int = 0) -> Tensor | None:
        """The state in which each string begins (B,): of those read at every prefix, or of fresh ones of a length."""
        if not self.random_start:
            return None
        generator = _generator(self.seed, STARTS, length)
        return self._move(torch.randint(self.task.machine.n_states, (self.count,), generator=generator))

    @cached_property
    def places(self) -> Places | None:
        """None where prefixes of uniform strings are not uniform, so that each length needs strings of its own."""
        return Places.of(self.task)

    @cached_property
    def shortest(self) -> int:
        """The least length that has a valid string."""
        valid = self.task.valid
        most = 1 if valid is None else valid.n_states + 1  # a shortest way to a valid state meets no state twice
        return next((length for length in range(1, most + 1) if self.task.has(length)), NEVER)

    def _draw(self, batch: int, length: int, generator: torch.Generator) -> Tensor:
        if self.places is None:
            return self.task.sample(batch, length, generator=generator).tokens
        return self.places.draw(batch, 0, length, generator)

    def _walk(self, starts: Tensor | None, count: int | None = None) -> LabelWalk:
        if starts is None:
            starts = torch.full((count or self.count,), self.task.machine.start, device=self.device)
        return LabelWalk(self._table, self._words, starts)

    @cached_property
    def _table(self) -> Tensor:
        return torch.tensor(self.task.machine.table, device=self.device)

    @cached_property
    def _words(self) -> Labeller:
        outputs = torch.tensor(self.task.machine.outputs, device=self.device)
        return Labeller.build(self._table, self.task.machine.start, outputs)

    def _move(self, tensor: Tensor) -> Tensor:
        """To the device; a GPU fetches it when it gets there, and the host goes on."""
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)


class LabelWalk:
    """The labels of strings that come in pieces: it remembers the state of each.

    `words` holds the labels of whole words of symbols, `table` (Q, V) is for what is left of a piece after its words.
    """

    def __init__(self, table: Tensor, words: Labeller, starts: Tensor) -> None:
        self._table, self._words, self._states = table, words, starts

    def advance(self, tokens: Tensor) -> Tensor:
        """tokens (B, T) -> the label after each of them (B, T)."""
        words, m = self._words, self._words.word_length
        count, n_words = tokens.shape[1], words.n_symbols**m
        code = (_in_words(tokens, m) * words.powers).sum(-1)  # (B, W): the last word is filled up with 0
        before = state = self._states * n_words  # as the tables of words have it
        at = []
        for word in code.t().contiguous():
            at.append(state + word)
            before, state = state, torch.take(words.after, at[-1])
        cut = count % m
        self._states = torch.div(before if cut else state, n_words, rounding_mode="floor")
        for symbol in tokens[:, count - cut :].t():
            self._states = self._table[self._states, symbol]
        return words.labels[torch.stack(at, dim=1)].flatten(1)[:, :count]


def _in_words(tokens: Tensor, m: int) -> Tensor:
    """(B, T) -> (B, W, m)."""
    return torch.nn.functional.pad(tokens, (0, -tokens.shape[1] % m)).view(len(tokens), -1, m)


def _generator(*key: int) -> torch.Generator:
    """Chance that depends on these numbers alone; torch's own seeds keep 32 bits and no structure must show."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]))
