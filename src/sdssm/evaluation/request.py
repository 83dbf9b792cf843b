"""The validated request of an evaluation: lengths, number of strings, seed and device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import torch

from sdssm.devices import resolve_device
from sdssm.errors import SdssmError, format_value
from sdssm.evaluation.sampled_accuracy import MEASURES
from sdssm.limits import LARGEST_SEED, LONGEST_STRING, MOST_STRINGS


class EvaluationError(SdssmError):
    """An evaluation that cannot be carried out."""


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate, with all values validated."""

    lengths: np.ndarray | None  # None: every length up to the task's test length
    listed: bool  # whether the lengths were listed one by one
    strings: int
    seed: int
    fresh: bool
    measures: tuple[str, ...]  # of sampled_accuracy.MEASURES
    device: torch.device | None  # None: the fastest device for a run, and the model's own device for a model


def validate_request(
    max_length: int | None,
    lengths: Sequence[int] | int | None,
    strings: int,
    seed: int,
    fresh: bool,
    device: str | torch.device,
    measures: Sequence[str] = MEASURES,
) -> EvaluationRequest:
    """Validate the arguments of `evaluate`, or raise an error that names the first invalid one.

    >>> validate_request(None, [5000, 500], 512, 1, False, "cpu").lengths.tolist()
    [500, 5000]
    >>> validate_request(None, 5000, 512, 1, False, "cpu").lengths.tolist()
    [5000]
    """
    return EvaluationRequest(
        lengths=_validate_lengths(max_length, lengths),
        listed=lengths is not None,
        strings=_validate_range("strings", strings, 1, MOST_STRINGS),
        seed=_validate_range("seed", seed, 0, LARGEST_SEED),
        fresh=fresh,
        measures=_validate_measures(measures),
        device=None if isinstance(device, str) and device == "auto" else resolve_device(device),
    )


def _validate_lengths(max_length: int | None, lengths: Sequence[int] | int | None) -> np.ndarray | None:
    """Return the lengths in ascending order without duplicates, or None if none were given."""
    if lengths is None and max_length is None:
        return None
    if lengths is None:
        return np.arange(1, _validate_range("max_length", max_length, 1, LONGEST_STRING) + 1)
    if max_length is not None:
        raise EvaluationError("max_length and lengths were both given; leave one out")
    listed: Iterable[Any] = lengths if isinstance(lengths, Iterable) and not isinstance(lengths, str) else [lengths]
    distinct = sorted({_validate_range("a length", length, 1, LONGEST_STRING) for length in listed})
    if not distinct:
        raise EvaluationError("lengths is empty; pass at least one, as in lengths=[500, 5000]")
    return np.array(distinct)


def _validate_measures(measures: Sequence[str]) -> tuple[str, ...]:
    names = [measures] if isinstance(measures, str) else list(measures)
    for name in names:
        if name not in MEASURES:
            raise EvaluationError(
                f"there is no measure {format_value(name)}; the accuracy is always measured, and measures names "
                f"further ones: {', '.join(MEASURES)}"
            )
    return tuple(name for name in MEASURES if name in names)


def _validate_range(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise EvaluationError(f"{name} is {format_value(value)}; it must be a whole number from {least} to {most:,}")
    return number
