"""The lengths of the strings of a batch: one for all, a range to draw from, or one for each string."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING

from sdssm.errors import TaskError, format_value
from sdssm.tasks.batch import PADDING_TOKEN

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sdssm.tasks.task import Task

#: The longest strings that are drawn: a billion symbols take 8 GB.
LONGEST_DRAWN = 1 << 30


def validate_integer(number: int, name: str) -> int:
    """Return the number as an int, or raise TaskError."""
    try:
        return index(number)
    except TypeError:
        raise TaskError(f"{name} is {format_value(number)}; it must be a whole number") from None


def validate_length(length: int) -> int:
    """Return the length as an int, or raise TaskError unless it is at least 1 and not too long."""
    if not 1 <= validate_integer(length, "length") <= LONGEST_DRAWN:
        raise TaskError(f"length must be at least 1 and at most {LONGEST_DRAWN:,}, got {format_value(length)}")
    return index(length)


def validate_range(task: Task, bounds: Sequence[int]) -> list[int]:
    """Return the lengths from the least to the greatest, both included, that have a valid string."""
    least, most = (validate_length(bound) for bound in bounds)
    if least > most:
        raise TaskError(f"the lengths are ({least}, {most}); pass the least length first, as in ({most}, {least})")
    valid = [length for length in range(least, most + 1) if task.has_length(length)]
    if not valid:
        raise TaskError(f"{task.name} has no valid string of length {least} to {most}{task.nearest_lengths(least)}")
    return valid


def draw_lengths(task: Task, batch: int, bounds: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draw a length for each string, uniformly among the lengths in the range that have a valid string: (B,)."""
    import torch

    valid = torch.tensor(validate_range(task, bounds), device=generator.device)
    return valid[torch.randint(len(valid), (batch,), generator=generator, device=generator.device)]


def validate_lengths(task: Task, batch: int, lengths: Sequence[int] | Tensor, device: torch.device) -> Tensor:
    """Return the given length of each string as an int64 tensor (B,) on the device, or raise TaskError."""
    import torch

    values = lengths.tolist() if hasattr(lengths, "tolist") else list(lengths)
    if not isinstance(values, list) or len(values) != batch:
        raise TaskError(
            f"the lengths are {format_value(lengths)} for {batch} strings; pass one length for each string, "
            "one for all, or a range (least, greatest)"
        )
    for length in sorted({validate_length(value) for value in values}):
        task.check_has_length(length)
    return torch.tensor(values, dtype=torch.int64, device=device)


def draw_ragged(lengths: Tensor, draw: Callable[[int, int], Tensor]) -> Tensor:
    """Draw strings of the given lengths (B,), padded: tokens (B, L).

    `draw(batch, length)` draws strings of one length; it is called once for each length, in ascending order.
    """
    tokens = lengths.new_full((len(lengths), int(lengths.max())), PADDING_TOKEN)
    for length in sorted(set(lengths.tolist())):
        rows = (lengths == length).nonzero()[:, 0]
        tokens[rows, :length] = draw(len(rows), length)
    return tokens
