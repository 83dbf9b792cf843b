"""What an evaluation is asked, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import torch

from sdssm.devices import resolve_device
from sdssm.errors import SdssmError, format_value

#: Bounds of what can be asked.
MOST_LENGTH, MOST_STRINGS, MOST_SEED = 1_000_000, 1 << 16, (1 << 63) - 1


class EvaluationError(SdssmError):
    """A question that an evaluation cannot answer."""


@dataclass(frozen=True)
class Asked:
    """What an evaluation is to find out."""

    lengths: np.ndarray | None  # None: every length up to the task's test length
    listed: bool  # whether they were named one by one
    strings: int
    seed: int
    fresh: bool
    device: torch.device | None  # None: the best there is for a run, and for a model where it stands


def asked_for(
    max_length: int | None,
    lengths: Sequence[int] | int | None,
    strings: int,
    seed: int,
    fresh: bool,
    device: str | torch.device,
) -> Asked:
    """The question, or one line on what is wrong with it.

    >>> asked_for(None, [5000, 500], 512, 1, False, "cpu").lengths.tolist()
    [500, 5000]
    >>> asked_for(None, 5000, 512, 1, False, "cpu").lengths.tolist()
    [5000]
    """
    return Asked(
        lengths=_lengths(max_length, lengths),
        listed=lengths is not None,
        strings=_whole("strings", strings, 1, MOST_STRINGS),
        seed=_whole("seed", seed, 0, MOST_SEED),
        fresh=fresh,
        device=None if isinstance(device, str) and device == "auto" else resolve_device(device),
    )


def _lengths(max_length: int | None, lengths: Sequence[int] | int | None) -> np.ndarray | None:
    """Those asked for, each once and in order."""
    if lengths is None:
        return None if max_length is None else np.arange(1, _whole("max_length", max_length, 1, MOST_LENGTH) + 1)
    if max_length is not None:
        raise EvaluationError("max_length and lengths were both given; leave one out")
    several: Iterable[Any] = lengths if isinstance(lengths, Iterable) and not isinstance(lengths, str) else [lengths]
    found = sorted({_whole("a length", length, 1, MOST_LENGTH) for length in several})
    if not found:
        raise EvaluationError("lengths is empty; name at least one, as in lengths=[500, 5000]")
    return np.array(found)


def _whole(name: str, value: int, least: int, most: int) -> int:
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise EvaluationError(f"{name} is {format_value(value)}; it must be a whole number from {least} to {most:,}")
    return number
