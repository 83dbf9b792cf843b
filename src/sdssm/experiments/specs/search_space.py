"""Search spaces: for each setting a list of values to choose from, or a range to sample from."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from sdssm.errors import format_value
from sdssm.experiments.specs.scores import SpecError

#: Significant digits of a sampled number: enough for a search, and few enough to type.
DIGITS = 4
#: A range is sampled on a log scale if its upper end is at least this many times its lower end.
LOG_RATIO = 10.0
#: The number of known candidates sampled in a row after which a space counts as exhausted.
PATIENCE = 1_000
#: The number of other candidates with which a value is tried before it is rejected.
TRIES = 64


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`, both included, sampled uniformly or (`log`) log-uniformly.

    >>> Range.parse("lr", "1e-5..1e-2")
    Range(low=1e-05, high=0.01, log=True, whole=False)
    >>> Range.parse("dropout", "0..0.5").log, Range.parse("lr", "1e-5..1e-2:linear").log
    (False, False)
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False  #: integers only

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise SpecError(f"the range {self.low:g}..{self.high:g} is empty; its first end must be below the second")
        if self.log and not self.low > 0:
            raise SpecError(f"the range {self.low:g}..{self.high:g} has a log scale; both ends must be above 0")
        if self.whole and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise SpecError(f"the range {self.low:g}..{self.high:g} is for an integer; its ends must be integers")

    @classmethod
    def parse(cls, name: str, text: str, whole: bool = False) -> Range:
        """Parse the range of a setting from text such as 1e-5..1e-2, optionally with :log or :linear.

        Without a scale it is :log if both ends are above 0 and the second is at least ten times the first.
        """
        match = re.fullmatch(r"\s*([^:]+?)\s*\.\.\s*([^:]+?)\s*(?::\s*(log|linear))?\s*", text)
        try:
            low, high = (float(part) for part in (match[1], match[2])) if match else (0.0, 0.0)
        except ValueError:
            match = None
        if match is None:
            raise SpecError(
                f"the range of {name} is {format_value(text)}; give two numbers, such as 1e-5..1e-2, and if needed "
                ":log or :linear after them"
            )
        log = match[3] == "log" if match[3] else low > 0 and high / low >= LOG_RATIO
        try:
            return cls(low=low, high=high, log=log, whole=whole)
        except SpecError as error:
            raise SpecError(f"{name}: {error}") from None

    def sample(self, generator: random.Random) -> float:
        """Return a random number of the range."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        if self.whole and not self.log:
            return generator.randint(int(low), int(high))
        value = low + (high - low) * generator.random()
        return self.round(math.exp(value) if self.log else value)

    def round(self, value: float) -> float:
        """Return the value with few digits, or as an integer, and within the range.

        >>> Range(low=1e-5, high=1e-2).round(0.00123456)
        0.001235
        """
        near = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        near = min(max(near, self.low), self.high)
        return int(near) if self.whole else float(near)


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """The settings that a search varies. A candidate assigns a value to each of them."""

    choices: Mapping[str, Sequence[Any]]
    ranges: Mapping[str, Range]

    def size(self) -> int | None:
        """Return the number of candidates, or None if a range is continuous."""
        if any(not bounds.whole for bounds in self.ranges.values()):
            return None
        counts = [len(values) for values in self.choices.values()]
        return math.prod([*counts, *(int(bounds.high - bounds.low) + 1 for bounds in self.ranges.values())])

    def grid(self) -> Iterator[dict[str, Any]]:
        """Yield every combination of the choices, the last setting changing fastest."""
        for values in product(*self.choices.values()):
            yield dict(zip(self.choices, values, strict=True))

    def extremes(self) -> dict[str, list[Any]]:
        """Return by setting every value to choose from, or both ends of its range."""
        ends = {name: [bounds.round(bounds.low), bounds.round(bounds.high)] for name, bounds in self.ranges.items()}
        return {**{name: list(values) for name, values in self.choices.items()}, **ends}

    def corners(self) -> list[dict[str, Any]]:
        """Return a few candidates that together contain all extremes.

        >>> SearchSpace(choices={"state": [32, 64, 96]}, ranges={"lr": Range(low=1e-4, high=1e-2)}).corners()[1:]
        [{'state': 64, 'lr': 0.01}, {'state': 96, 'lr': 0.01}]
        """
        extremes = self.extremes()
        count = max(map(len, extremes.values()), default=1)
        return [{name: values[min(k, len(values) - 1)] for name, values in extremes.items()} for k in range(count)]

    def valid_corners(self, check: Callable[[dict[str, Any]], Exception | None]) -> list[dict[str, Any]]:
        """Return valid candidates that together contain all extremes.

        `check` returns the error of a candidate, or None if it is valid. Two extremes may be invalid together only,
        so each is tried with others. An extreme that is invalid in every candidate tried raises its first error.
        """
        errors = [(corner, check(corner)) for corner in self.corners()]
        valid = [corner for corner, error in errors if error is None]
        for name, value in ((name, value) for name, values in self.extremes().items() for value in values):
            if any(candidate[name] == value for candidate in valid):
                continue
            first = next(error for corner, error in errors if corner[name] == value)
            others = SearchSpace(choices={**self.extremes(), name: [value]}, ranges={}).samples(seed=0)
            for candidate in (*({**base, name: value} for base in valid), *islice(others, TRIES)):
                if check(candidate) is None:
                    valid.append(candidate)
                    break
            else:
                assert first is not None
                raise first
        return valid

    def samples(self, seed: int) -> Iterator[dict[str, Any]]:
        """Yield distinct random candidates.

        The sequence depends only on the seed, so that a longer search extends a shorter one.

        >>> space = SearchSpace(choices={"state": [32, 64]}, ranges={"lr": Range(low=1e-4, high=1e-2, log=True)})
        >>> next(space.samples(seed=0))
        {'state': 64, 'lr': 0.00328}
        """
        generator = random.Random(seed)  # noqa: S311  # no secret: a search that can be repeated
        seen, size, repeats = set[str](), self.size(), 0
        while (size is None or len(seen) < size) and repeats < PATIENCE:
            candidate = {name: values[generator.randrange(len(values))] for name, values in self.choices.items()}
            candidate |= {name: bounds.sample(generator) for name, bounds in self.ranges.items()}
            repeats = repeats + 1 if (key := repr(candidate)) in seen else 0
            if not repeats:
                seen.add(key)
                yield candidate


def take(candidates: Iterator[dict[str, Any]], first: int, last: int) -> list[dict[str, Any]]:
    """Return the candidates from number `first` up to but excluding `last`, or fewer at the end."""
    return list(islice(candidates, first, max(first, last)))
