"""A task: a machine to emulate, and which strings are valid."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sdssm.automata import Machine
from sdssm.errors import TaskError, format_value
from sdssm.limits import LONGEST_STRING
from sdssm.tasks.batch import PADDING_LABEL, Batch
from sdssm.tasks.ragged import (
    draw_lengths,
    draw_ragged,
    validate_integer,
    validate_length,
    validate_lengths,
)
from sdssm.tasks.sampling import validate_sampling
from sdssm.tasks.validity import LabelledTable, ReachedStates, label_states

# torch takes seconds to import, and is needed only where strings are drawn or labelled.
if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sdssm.tasks.backward_sampler import BackwardSampler
    from sdssm.tasks.dataset import TaskDataset
    from sdssm.tasks.labels import PrefixLabeller
    from sdssm.tasks.sampler import StringSampler


def chance_accuracy(n_classes: int) -> float:
    """Return the accuracy of predicting one of `n_classes` labels uniformly at random, in percent.

    >>> chance_accuracy(2), round(chance_accuracy(60), 2)
    (50.0, 1.67)
    """
    return 100 / n_classes


@dataclass(frozen=True, kw_only=True)
class Task:
    """Emulate a machine: predict its output after every prefix of a string.

    Args:
        name: the name of the task.
        machine: the machine to emulate; its outputs are the labels.
        valid: a machine whose output is 0 after every string that is not valid. None: every string is valid.
        train_length: the greatest length to train on.
        test_length: the greatest length to test on.

    >>> import torch
    >>> from sdssm.automata import get_machine
    >>> parity = Task(name="parity", machine=get_machine("parity"))
    >>> parity.labels(torch.tensor([[1, 1, 0, 1]]))
    tensor([[1, 0, 0, 1]])
    """

    name: str
    machine: Machine
    valid: Machine | None = None
    train_length: int = 40  # as in the paper
    test_length: int = 500

    def __post_init__(self) -> None:
        if self.valid is not None and self.valid.n_symbols != self.machine.n_symbols:
            raise TaskError(
                f"the machine reads {self.machine.n_symbols} symbols but the machine of valid strings "
                f"{self.valid.n_symbols}; both need the same alphabet"
            )
        for name in ("train_length", "test_length"):
            if not 1 <= validate_integer(getattr(self, name), name) <= LONGEST_STRING:
                length = format_value(getattr(self, name))
                raise TaskError(f"{name} is {length}; it must be at least 1 and at most {LONGEST_STRING:,}")

    @property
    def n_symbols(self) -> int:
        """The number of symbols; they are 0..n_symbols-1."""
        return self.machine.n_symbols

    @property
    def n_classes(self) -> int:
        """The number of classes; labels are 0..n_classes-1."""
        return self.machine.n_outputs

    @property
    def chance_accuracy(self) -> float:
        """The accuracy of predicting a label uniformly at random, in percent."""
        return chance_accuracy(self.n_classes)

    def __repr__(self) -> str:
        return f"Task({self.name!r}, {self.machine!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields only; a copy builds its own tables."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return partial(Task, **fields), ()

    @cached_property
    def digest(self) -> str:
        """A short fingerprint of tables, start states, outputs and valid strings. Names do not change it."""
        digest = hashlib.sha256()
        for machine in (self.machine, self.valid):
            if machine is not None:
                for array in (machine.table, np.array([machine.start]), machine.outputs):
                    digest.update(repr(array.shape).encode() + np.ascontiguousarray(array, dtype="<i8").tobytes())
        return digest.hexdigest()[:16]

    # -- which strings are valid -------------------------------------------------------------------------------------

    def has_length(self, length: int) -> bool:
        """Whether any string of this length is valid."""
        if length < 1:
            return False
        if self.valid is None:
            return True
        return bool((self.valid.outputs[self._validity_states.at(length)] != 0).any())

    def valid_lengths(self, longest: int) -> np.ndarray:
        """Return the lengths 1..longest that have a valid string, in ascending order.

        >>> from sdssm.tasks import get_task
        >>> get_task("arithmetic").valid_lengths(6).tolist()
        [1, 3, 5]
        """
        lengths = np.arange(1, longest + 1)
        if self.valid is None:
            return lengths
        numbers, index = np.unique(self._validity_states.numbers(longest), return_inverse=True)
        valid = [(self.valid.outputs[self._validity_states.at(number)] != 0).any() for number in numbers.tolist()]
        return np.asarray(lengths[np.array(valid)[index][1:]])

    def longest_valid_length(self, length: int) -> int:
        """Return the greatest length up to this one that has a valid string.

        >>> from sdssm.tasks import get_task
        >>> get_task("arithmetic").longest_valid_length(40)
        39
        """
        length = validate_length(length)
        for candidate in range(length, 0, -1):
            if self.has_length(candidate):
                return candidate
        raise TaskError(f"{self.name} has no valid string of length {length} or less{self.nearest_lengths(length)}")

    @cached_property
    def _validity_states(self) -> ReachedStates:
        """The states of `valid` that strings of each length reach."""
        assert self.valid is not None
        return ReachedStates(self.valid.table, self.valid.start)

    def possible_labels(self, longest: int, shortest: int = 1) -> frozenset[int]:
        """Return the labels that strings of length shortest..longest can have.

        >>> from sdssm.tasks import get_task
        >>> sorted(get_task("cycle").possible_labels(1)), sorted(get_task("d4").possible_labels(1, shortest=1))
        ([0, 1, 4], [1, 4])
        """
        table, start, labels = self.labelled
        states, seen = {start}, set[int]()
        for length in range(1, validate_length(longest) + 1):
            states = set(table[sorted(states)].flatten().tolist())
            if length < shortest:
                continue
            if states <= seen and len(seen) == len(table):
                break
            seen |= states
        return frozenset(labels[sorted(seen)].tolist()) - {-1}

    def nearest_lengths(self, length: int) -> str:
        """Name the nearest lengths that have a valid string, for an error message."""
        if self.valid is None:
            return ""
        below = next((k for k in range(length - 1, 0, -1) if self.has_length(k)), None)
        # From any state a valid one is at most as many steps away as there are states.
        above = next(
            (k for k in range(max(length, 0) + 1, length + self.valid.n_states + 2) if self.has_length(k)), None
        )
        lengths = [str(k) for k in (below, above) if k is not None]
        return f"; the nearest with one: {' and '.join(lengths)}" if lengths else "; no string is valid"

    # -- sampling ----------------------------------------------------------------------------------------------------

    def sample(
        self,
        batch: int,
        length: int | tuple[int, int] | Sequence[int] | Tensor,
        *,
        generator: torch.Generator,
        sampling: str = "uniform",
    ) -> Batch:
        """Draw `batch` valid strings on the generator's device, by default uniformly among those of their length.

        length: one length for all strings; a tuple (least, greatest), from which the length of each string is drawn
            uniformly, among the lengths that have a valid string; or a list or tensor with the length of each string.
        sampling: "uniform": among the valid strings of the length. "balanced": the label of the whole string is drawn
            first, among the labels that occur at its length, and then a string with that label. "covering": the last
            transition is drawn first, among all pairs of a state of `minimal` before the last symbol and a symbol, and
            then a string that ends with it.

        Strings of different lengths are padded with the token 0 and the label -100, see `Batch`.

        >>> import torch
        >>> from sdssm.tasks import get_task
        >>> generator = torch.Generator().manual_seed(0)
        >>> get_task("a5").sample(128, 40, generator=generator).labels.shape
        torch.Size([128, 40])
        >>> get_task("arithmetic").sample(6, (1, 5), generator=generator).lengths.tolist()  # only odd lengths are valid
        [3, 5, 5, 5, 5, 1]
        """
        import torch

        validate_sampling(sampling)
        if not isinstance(generator, torch.Generator):
            raise TaskError(
                f"the generator is {format_value(generator)}; pass a torch.Generator, "
                "as in generator=torch.Generator().manual_seed(0)"
            )
        if isinstance(length, (list, tuple, torch.Tensor, np.ndarray)) and np.ndim(length) > 0:
            return self._sample_ragged(batch, length, generator, sampling)
        length = validate_length(length)  # type: ignore[arg-type]  # a number, or an error
        _validate_batch(batch)
        self.check_has_length(length)
        tokens = self._draw(batch, length, generator, sampling)
        lengths = tokens.new_full((batch,), length)
        return Batch(tokens, self._labeller(tokens.device)(tokens), lengths)

    def _sample_ragged(
        self, batch: int, length: Sequence[int] | Tensor, generator: torch.Generator, sampling: str
    ) -> Batch:
        """Run `sample` for a range of lengths, or a length for each string."""
        _validate_batch(batch)
        if isinstance(length, tuple) and len(length) == 2:
            lengths = draw_lengths(self, batch, length, generator)
        else:
            lengths = validate_lengths(self, batch, length, generator.device)
        tokens = draw_ragged(lengths, lambda count, length: self._draw(count, length, generator, sampling))
        labels = self._labeller(tokens.device)(tokens)
        positions = lengths.new_ones(tokens.shape[1]).cumsum(0)  # 1, 2, .., L
        return Batch(tokens, labels.masked_fill(positions > lengths[:, None], PADDING_LABEL), lengths)

    def dataset(
        self,
        length: int | tuple[int, int] | None = None,
        *,
        seed: int,
        batch: int | None = None,
        count: int | None = None,
        sampling: str = "uniform",
    ) -> TaskDataset:
        """Return a `torch.utils.data.IterableDataset` of this task's strings, for a training loop of your own.

        length: as in `sample`: one length, or (least, greatest). None: (1, train_length), as in training.
        seed: determines all strings.
        batch: the number of strings of each item. None: every item is a single string.
        count: the number of items. None: the dataset has no end.
        sampling: as in `sample`.

        >>> import torch
        >>> from sdssm.tasks import get_task
        >>> dataset = get_task("a5").dataset((5, 40), seed=0, batch=64, count=100)
        >>> loader = torch.utils.data.DataLoader(dataset, batch_size=None)
        >>> len(loader), next(iter(loader)).lengths.shape
        (100, torch.Size([64]))
        """
        from sdssm.tasks.dataset import TaskDataset

        lengths = (1, self.train_length) if length is None else length
        return TaskDataset(self, lengths, seed=seed, batch=batch, count=count, sampling=sampling)

    def check_has_length(self, length: int) -> None:
        """Raise TaskError unless a string of this length is valid."""
        if not self.has_length(length):
            raise TaskError(f"{self.name} has no valid string of length {length}{self.nearest_lengths(length)}")

    def _draw(self, batch: int, length: int, generator: torch.Generator, sampling: str) -> Tensor:
        import torch

        if sampling != "uniform":
            numbers = torch.rand(batch, length + 2, generator=generator, device=generator.device, dtype=torch.float64)
            return self.backward_sampler.draw(sampling, numbers)
        if self.valid is None:
            return torch.randint(self.n_symbols, (batch, length), generator=generator, device=generator.device)
        return self._valid_sampler.draw(batch, length, generator)

    @cached_property
    def _valid_sampler(self) -> StringSampler:
        import torch

        from sdssm.tasks.sampler import StringSampler

        assert self.valid is not None
        machine = self.valid.minimise()
        ends = torch.tensor(machine.outputs != 0)
        return StringSampler(torch.tensor(machine.table), machine.start, ends)

    @cached_property
    def backward_sampler(self) -> BackwardSampler:
        """The sampler of balanced and covering strings."""
        from sdssm.tasks.backward_sampler import BackwardSampler

        return BackwardSampler(self.minimal)

    # -- labels ------------------------------------------------------------------------------------------------------

    def labels(self, tokens: Tensor) -> Tensor:
        """Return the label of every prefix: integers (..., L) -> int64 (..., L).

        The label of a prefix that is not a valid string is -1.
        """
        import torch

        if not isinstance(tokens, torch.Tensor):
            raise TaskError(f"tokens are {format_value(tokens)}; pass a tensor, as in torch.tensor([[0, 1]])")
        if tokens.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8):
            raise TaskError(f"tokens are {tokens.dtype}; symbols are whole numbers, use int64")
        if tokens.ndim == 0 or tokens.shape[-1] == 0:
            raise TaskError(f"tokens have shape {tuple(tokens.shape)}; a string needs at least one symbol")
        flat = tokens.reshape(-1, tokens.shape[-1]).long()
        if flat.numel() == 0:
            return torch.empty_like(tokens, dtype=torch.long)
        low, high = (int(value) for value in torch.aminmax(flat))
        if low < 0 or high >= self.n_symbols:
            raise TaskError(
                f"token {low if low < 0 else high} is not a symbol of {self.name}; symbols are 0..{self.n_symbols - 1}"
            )
        return self._labeller(tokens.device)(flat).view(tokens.shape)

    @cached_property
    def labelled(self) -> LabelledTable:
        """The table of the reachable pairs of a state of `machine` and a state of `valid`, with their labels."""
        return label_states(self.machine, self.valid)

    @cached_property
    def minimal(self) -> LabelledTable:
        """The smallest transition table with the labels of all non-empty strings, -1 if a string is not valid.

        Its states are what strings can be distinguished by: they are the reachable states of the minimised product of
        `machine` and `valid`.

        >>> from sdssm.tasks import get_task
        >>> get_task("regex:(ab)*").minimal.labels.tolist()
        [1, 0, 0]
        """
        return self.labelled.minimise()

    def _labeller(self, device: torch.device) -> PrefixLabeller:
        import torch

        from sdssm.tasks.labels import PrefixLabeller

        if device not in self._labellers:
            table, start, labels = self.labelled
            self._labellers[device] = PrefixLabeller.build(
                torch.tensor(table, device=device), start, torch.tensor(labels, device=device)
            )
        return self._labellers[device]

    @cached_property
    def _labellers(self) -> dict[torch.device, PrefixLabeller]:
        return {}


def _validate_batch(batch: int) -> None:
    if validate_integer(batch, "batch") < 1:
        raise TaskError(f"batch must be at least 1, got {batch}; pass batch=128")
