"""One section of a report card, and how the time of a card is shared among its sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Protocol

from sdssm.errors import (
    MissingExtraError,
    SdssmError,
    SettingsError,
    UnknownNameError,
    did_you_mean,
    first_line,
    format_value,
)
from sdssm.runs.events import to_json_value

#: The sections in the order of the card, with their titles.
TITLES = {
    "accuracy": "accuracy by length",
    "misclassified": "shortest misclassified string",
    "automaton": "automaton",
    "forecast": "forecast of the failing length",
    "laws": "laws",
    "costs": "size and speed",
}
#: The share of the time that each section may take, in the order in which they are measured. The forecast is compared
#: with the measured accuracy, and speed is measured last, when all code is compiled.
SHARES = {
    "accuracy": 0.3,
    "laws": 0.15,
    "forecast": 0.15,
    "misclassified": 0.1,
    "automaton": 0.22,
    "costs": 0.08,
}


def check_section_names(sections: Sequence[str] | None) -> list[str]:
    """Return the names of the sections to measure, by default all; an unknown one is an error.

    >>> check_section_names(["law"])
    Traceback (most recent call last):
    sdssm.errors.UnknownNameError: there is no section 'law'; did you mean 'laws'?
    """
    if sections is None:
        return list(TITLES)
    if isinstance(sections, str) or not sections:
        raise SettingsError(f"sections are {format_value(sections)}; pass a list of {', '.join(TITLES)}")
    for name in sections:
        if name not in TITLES:
            raise UnknownNameError(f"there is no section {format_value(name)}; {did_you_mean(str(name), TITLES)}")
    return list(sections)


class SectionTimeUpError(SdssmError):
    """The time of a section is up."""


class SectionResult(Protocol):
    """What a section has measured."""

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values."""

    def facts(self) -> dict[str, str]:
        """Return the lines of the card: a name and what was measured, with its unit."""

    def summary(self) -> str:
        """Return the most important of it in one short line."""


@dataclass(frozen=True, kw_only=True)
class CardSection:
    """One section of a report card: its lines, and the values behind them.

    Attributes:
        name: one of `TITLES`.
        facts: the lines of the section, by name; empty if nothing was measured.
        summary: the most important of them in one short line; empty if nothing was measured.
        data: the values as JSON values; None if nothing was measured.
        reason: why nothing was measured; None if the section was measured.
        seconds: how long it took.
    """

    name: str
    facts: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    data: Mapping[str, Any] | None = None
    reason: str | None = None
    seconds: float = 0.0

    @property
    def title(self) -> str:
        """The title above the section."""
        return TITLES[self.name]

    @property
    def is_measured(self) -> bool:
        """Whether it was measured."""
        return self.data is not None

    @property
    def lines(self) -> dict[str, str]:
        """The lines that are shown: the facts, or why there are none."""
        return dict(self.facts) if self.is_measured else {"not measured": self.reason or "unknown reason"}

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "summary": self.summary,
            "facts": dict(self.facts),
            "data": None if self.data is None else to_json_value(dict(self.data)),
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
        }

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> CardSection:
        """Return the section that `to_json` has written."""
        return cls(
            name=name,
            facts=dict(data["facts"]),
            summary=data["summary"],
            data=data["data"],
            reason=data["reason"],
            seconds=float(data["seconds"]),
        )


def measure_section(name: str, measure: Callable[[float], SectionResult], seconds: float) -> CardSection:
    """Measure a section within a number of seconds; an error becomes the reason why there is none.

    >>> def fail(seconds):
    ...     raise SdssmError("the model has no states")
    >>> measure_section("forecast", fail, 1.0).lines
    {'not measured': 'the model has no states'}
    """
    started = monotonic()
    if seconds <= 0:
        return CardSection(name=name, reason="the time was up before it started; allow more with max_seconds")
    try:
        result = measure(seconds)
        section = CardSection(name=name, facts=result.facts(), summary=result.summary(), data=result.to_json())
    except Exception as error:  # whatever goes wrong, the other sections are worth having
        section = CardSection(name=name, reason=describe_error(error))
    return replace(section, seconds=monotonic() - started)


def describe_error(error: Exception) -> str:
    """Return in one line why a section failed."""
    text = first_line(error, 200)
    if isinstance(error, SdssmError | MissingExtraError):
        return text
    return f"{type(error).__name__}: {text}"


class SectionClock:
    """Shares the time of a card among its sections; what one does not use, the later ones get.

    >>> clock = SectionClock(100.0, ["accuracy", "costs"], clock=lambda: 0.0)
    >>> round(clock.seconds_for("accuracy")), round(clock.seconds_for("costs"))
    (79, 100)
    """

    def __init__(self, seconds: float, names: list[str], *, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._names = clock, names
        self._end = clock() + seconds

    def seconds_for(self, name: str) -> float:
        """Return how long the section of this name may take, if it starts now."""
        later = self._names[self._names.index(name) :]
        return (self._end - self._clock()) * SHARES[name] / sum(SHARES[other] for other in later)
