"""Where a search looks: values to choose from, or ranges to draw from."""

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

#: Digits of a number that is drawn: enough for a search, and few enough to be typed again.
DIGITS = 4
#: From this ratio of its ends on a range is drawn from on a log scale.
RATIO = 10.0
#: How many candidates that are known already are drawn in a row before a space counts as used up.
PATIENCE = 1_000
#: Beside how many others a value is tried that does not go with those tried first.
TRIES = 64


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`, both included; `log`: as many between 1 and 10 as between 10 and 100.

    >>> Range.read("lr", "1e-5..1e-2")
    Range(low=1e-05, high=0.01, log=True, whole=False)
    >>> Range.read("dropout", "0..0.5").log, Range.read("lr", "1e-5..1e-2:linear").log
    (False, False)
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False  #: whole numbers only

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise SpecError(f"a range is {self.low:g}..{self.high:g}; its first end must be below the second")
        if self.log and not self.low > 0:
            raise SpecError(f"a range on a log scale is {self.low:g}..{self.high:g}; both ends must be above 0")
        if self.whole and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise SpecError(f"a range of whole numbers is {self.low:g}..{self.high:g}; its ends are whole numbers too")

    @classmethod
    def read(cls, name: str, text: str, whole: bool = False) -> Range:
        """As it is typed: 1e-5..1e-2, with :log or :linear behind it where that is not left to the ends.

        Left to them, the scale is a log one if both are above 0 and the second is at least ten times the first.
        """
        found = re.fullmatch(r"\s*([^:]+?)\s*\.\.\s*([^:]+?)\s*(?::\s*(log|linear))?\s*", text)
        try:
            low, high = (float(part) for part in (found[1], found[2])) if found else (0.0, 0.0)
        except ValueError:
            found = None
        if found is None:
            raise SpecError(
                f"the range of {name} is {format_value(text)}; give two ends, as 1e-5..1e-2, maybe with :log or :linear"
            )
        log = found[3] == "log" if found[3] else low > 0 and high / low >= RATIO
        try:
            return cls(low=low, high=high, log=log, whole=whole)
        except SpecError as error:
            raise SpecError(f"{name}: {error}") from None

    def drawn(self, chance: random.Random) -> float:
        """One of its numbers."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        if self.whole and not self.log:
            return chance.randint(int(low), int(high))
        value = low + (high - low) * chance.random()
        return self.rounded(math.exp(value) if self.log else value)

    def rounded(self, value: float) -> float:
        """As it is tried: few digits, within the ends.

        >>> Range(low=1e-5, high=1e-2).rounded(0.00123456)
        0.001235
        """
        near = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        near = min(max(near, self.low), self.high)
        return int(near) if self.whole else float(near)


@dataclass(frozen=True, kw_only=True)
class Space:
    """What candidates are made of: names of settings, each with its values or its range."""

    choices: Mapping[str, Sequence[Any]]
    ranges: Mapping[str, Range]

    def size(self) -> int | None:
        """How many candidates there are; None where a range has no end of them."""
        if any(not one.whole for one in self.ranges.values()):
            return None
        counts = [len(values) for values in self.choices.values()]
        return math.prod([*counts, *(int(one.high - one.low) + 1 for one in self.ranges.values())])

    def grid(self) -> Iterator[dict[str, Any]]:
        """Every candidate, the last name changing fastest."""
        for values in product(*self.choices.values()):
            yield dict(zip(self.choices, values, strict=True))

    def ends(self) -> dict[str, list[Any]]:
        """Every value by its name, and both ends of every range."""
        ends = {name: [of.rounded(of.low), of.rounded(of.high)] for name, of in self.ranges.items()}
        return {**{name: list(values) for name, values in self.choices.items()}, **ends}

    def corners(self) -> list[dict[str, Any]]:
        """Few candidates that have all of the ends between them.

        >>> Space(choices={"state": [32, 64, 96]}, ranges={"lr": Range(low=1e-4, high=1e-2)}).corners()[1:]
        [{'state': 64, 'lr': 0.01}, {'state': 96, 'lr': 0.01}]
        """
        ends = self.ends()
        most = max(map(len, ends.values()), default=1)
        return [{name: values[min(k, len(values) - 1)] for name, values in ends.items()} for k in range(most)]

    def with_each(self, refused: Callable[[dict[str, Any]], Exception | None]) -> list[dict[str, Any]]:
        """Candidates that are not refused, with all of the ends between them; an end that is refused beside all others
        that were tried is raised, as what it was refused for first.

        Ends that do not go together are no mistake: only one that goes with nothing is.
        """
        errors = [(one, refused(one)) for one in self.corners()]
        good = [one for one, error in errors if error is None]
        for name, value in ((name, value) for name, values in self.ends().items() for value in values):
            if any(one[name] == value for one in good):
                continue
            first = next(error for one, error in errors if one[name] == value)
            others = Space(choices={**self.ends(), name: [value]}, ranges={}).draws(seed=0)
            for one in (*({**base, name: value} for base in good), *islice(others, TRIES)):
                if refused(one) is None:
                    good.append(one)
                    break
            else:
                assert first is not None
                raise first
        return good

    def draws(self, seed: int) -> Iterator[dict[str, Any]]:
        """Candidates at random, each once: a function of the seed, so that more of them begin with the same.

        >>> space = Space(choices={"state": [32, 64]}, ranges={"lr": Range(low=1e-4, high=1e-2, log=True)})
        >>> next(space.draws(seed=0))
        {'state': 64, 'lr': 0.00328}
        """
        chance, seen, size, idle = random.Random(seed), set[str](), self.size(), 0
        while (size is None or len(seen) < size) and idle < PATIENCE:
            one = {name: values[chance.randrange(len(values))] for name, values in self.choices.items()}
            one |= {name: of.drawn(chance) for name, of in self.ranges.items()}
            idle = idle + 1 if (told := repr(one)) in seen else 0
            if not idle:
                seen.add(told)
                yield one


def part(candidates: Iterator[dict[str, Any]], first: int, last: int) -> list[dict[str, Any]]:
    """Those from number `first` to below `last`, as far as there are."""
    return list(islice(candidates, first, max(first, last)))
