"""Balanced and covering evaluation strings from a string stream: drawn on the device, and the same on every device."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from torch import Tensor

from sdssm.tasks.stream import StringStream
from sdssm.tasks.task import Task

#: The most thresholds of a stream (lengths x transitions), 512 MiB. Longer strings are drawn without such tables.
MOST_THRESHOLDS = 1 << 27
#: The step of a stream is made of a length below this, and the number of a part.
LENGTHS = 1 << 20
#: The strings that are kept after their last use: balanced and covering strings of a task.
MOST_KEPT = 2


class StreamedStrings:
    """Strings of any lengths that are a function of task, sampling, seed, length, part and index.

    Args:
        task: the task.
        sampling: "balanced" or "covering".
        seed: a number in 0..2^63-1.
        device: where the strings are drawn.
    """

    def __init__(self, task: Task, sampling: str, seed: int, device: torch.device) -> None:
        self.task, self.sampling, self.seed, self.device = task, sampling, seed, device
        # Shorter streams are kept: a thread may still read their tables on another CUDA stream. Lengths double, so that
        # all of them together take about twice the memory of the last.
        self._streams: list[StringStream] = []
        self._lock = Lock()  # several threads may evaluate models of one task

    def has_length(self, length: int) -> bool:
        """Whether the tables for strings of this length are small enough."""
        return length <= self._greatest_length

    @property
    def _greatest_length(self) -> int:
        return min(LENGTHS - 1, MOST_THRESHOLDS // self.task.minimal.table.size)

    def draw(self, count: int, length: int, *, part: int) -> tuple[Tensor, Tensor]:
        """Draw `count` strings of a length: tokens (count, L) and labels (count,); each part has its own strings."""
        stream = self._stream(length)
        step = torch.tensor(part * LENGTHS + length, device=stream.device)
        lengths = torch.full((1, 1), length, device=stream.device)
        strings = stream.draw(step, lengths, length, batch=count)
        return strings.tokens[0, 0], strings.labels[0, 0]

    def _stream(self, length: int) -> StringStream:
        """Return a stream for strings up to this length or more."""
        with self._lock:
            stream = self._streams[-1] if self._streams else None
            if stream is None or stream.max_length < length:
                # Lengths may come in ascending order: with twice the length few tables are computed.
                twice = length if stream is None else 2 * stream.max_length
                longest = max(length, min(twice, self._greatest_length))
                stream = StringStream(
                    self.task,
                    seeds=[self.seed],
                    batch=1,
                    max_length=longest,
                    device=self.device,
                    sampling=self.sampling,
                )
                if self.device.type == "cuda":  # other threads read the tables on other CUDA streams
                    torch.cuda.current_stream(self.device).synchronize()
                self._streams.append(stream)
            return stream


class SharedStrings:
    """The strings of several tasks, so that all models of a task, in every thread, are evaluated on the same object.

    The tables for strings of 50,000 symbols are large, and computed in up to a second.
    """

    def __init__(self) -> None:
        self._strings = OrderedDict[tuple[Task, str, int, torch.device], StreamedStrings]()
        self._kept = Counter[str]()  # digests of the tasks in `keep`
        self._lock = Lock()

    def get(self, task: Task, sampling: str, seed: int, device: torch.device) -> StreamedStrings:
        """Return the strings of a task; the same object again for equal arguments."""
        with self._lock:
            key = task, sampling, seed, device
            strings = self._strings.setdefault(key, StreamedStrings(task, sampling, seed, device))
            self._strings.move_to_end(key)
            self._forget()
        return strings

    @contextmanager
    def keep(self, digest: str) -> Iterator[None]:
        """Keep all strings of a task as long as the block is open."""
        with self._lock:
            self._kept[digest] += 1
        try:
            yield
        finally:
            with self._lock:
                self._kept[digest] -= 1
                self._forget()

    def _forget(self) -> None:
        """Forget the strings of the tasks that were used least recently and are not kept."""
        others = [key for key in self._strings if not self._kept[key[0].digest]]
        for key in others[: max(0, len(others) - MOST_KEPT)]:
            del self._strings[key]


#: The strings of this process.
SHARED_STRINGS = SharedStrings()
