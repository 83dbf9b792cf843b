"""Strings of a task as a dataset of torch, for training loops other than that of this package."""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.data import IterableDataset, get_worker_info

from sdssm.errors import TaskError, format_value
from sdssm.tasks.batch import Batch
from sdssm.tasks.ragged import validate_integer, validate_length, validate_range
from sdssm.tasks.sampling import validate_sampling
from sdssm.tasks.seeding import DATASET, make_generator
from sdssm.tasks.task import Task

#: Single strings are drawn in blocks of this many. The strings depend on this number.
BLOCK = 64


class TaskDataset(IterableDataset[Batch]):
    """An endless or counted dataset of strings, determined by its seed; `Task.dataset` describes the arguments.

    An item is a batch of `batch` strings, or with None a single string: a `Batch` without its first dimension. Workers
    of a `DataLoader` share the items without repeating any. Batches arrive in the same order for any number of workers.
    Iterating again yields the same items again.

    >>> from sdssm.tasks import get_task
    >>> strings = get_task("parity").dataset(4, seed=0, count=2)
    >>> [(string.tokens.tolist(), string.labels.tolist()) for string in strings]
    [([1, 1, 0, 1], [1, 0, 0, 1]), ([0, 1, 0, 1], [0, 1, 1, 0])]
    """

    def __init__(
        self,
        task: Task,
        length: int | tuple[int, int],
        *,
        seed: int,
        batch: int | None = None,
        count: int | None = None,
        sampling: str = "uniform",
    ) -> None:
        super().__init__()
        self.task, self.sampling = task, validate_sampling(sampling)
        self.seed = _validate_at_least(seed, "seed", 0)
        self.batch = None if batch is None else _validate_at_least(batch, "batch", 1)
        self.count = None if count is None else _validate_at_least(count, "count", 1)
        if isinstance(length, tuple) and len(length) == 2:
            validate_range(task, length)
        elif isinstance(length, tuple | list):
            raise TaskError(
                f"length is {format_value(length)}; pass one length for all strings, or a range (least, greatest)"
            )
        else:
            task.check_has_length(validate_length(length))
        self.length = length

    def __len__(self) -> int:
        if self.count is None:
            raise TypeError("this dataset has no end, and no length; pass count=")
        return self.count

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        yield from self._batches(first, step) if self.batch is not None else self._strings(first, step)

    def _batches(self, first: int, step: int) -> Iterator[Batch]:
        """Yield every `step`-th batch."""
        assert self.batch is not None
        index = first
        while self.count is None or index < self.count:
            yield self._draw(self.batch, index)
            index += step

    def _strings(self, first: int, step: int) -> Iterator[Batch]:
        """Yield the single strings of every `step`-th block."""
        block = first
        while self.count is None or block * BLOCK < self.count:
            size = BLOCK if self.count is None else min(BLOCK, self.count - block * BLOCK)
            strings = self._draw(BLOCK, block)
            for tokens, labels, length in zip(*(tensor[:size] for tensor in strings), strict=True):
                yield Batch(tokens[:length], labels[:length], length)
            block += step

    def _draw(self, batch: int, index: int) -> Batch:
        """Draw the strings of one index; they depend on nothing else but the seed."""
        generator = make_generator(self.seed, DATASET, index)
        return self.task.sample(batch, self.length, generator=generator, sampling=self.sampling)


def _validate_at_least(number: int, name: str, least: int) -> int:
    value = validate_integer(number, name)
    if value < least:
        raise TaskError(f"{name} is {value}; it must be at least {least}")
    return value
