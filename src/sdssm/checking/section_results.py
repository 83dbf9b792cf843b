"""The lines of the sections whose measurements are also of use without a card."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from sdssm.checking.forecast import Forecast
from sdssm.checking.implemented import ImplementedAutomaton
from sdssm.checking.misclassified import MisclassifiedSearch
from sdssm.exact.measurement.measured_gains import MeasuredGains
from sdssm.formatting import count_of, format_estimate
from sdssm.runs.events import to_json_value
from sdssm.testing import LawResult


@dataclass(frozen=True)
class MisclassifiedSection:
    """The section on the shortest misclassified string."""

    search: MisclassifiedSearch

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values."""
        return self.search.to_json()

    def facts(self) -> dict[str, str]:
        """Return the lines of the card."""
        facts = {"result": self.search.describe(), "strings read": f"{self.search.strings:,}"}
        if self.search.note is not None:
            facts["no longer strings"] = self.search.note
        return facts

    def summary(self) -> str:
        """Return the length of the string in one line."""
        search = self.search
        if search.length is None:
            return f"none found: {search.describe_search()}"
        if search.is_shortest:
            return f"length {search.length:,}, no shorter one exists{search.describe_reading()}"
        return f"length {search.length:,}; all strings to length {search.all_strings_up_to:,} are classified correctly"


@dataclass(frozen=True)
class LawsSection:
    """The section on the laws, with the names of those that were not checked for lack of time."""

    laws: tuple[LawResult, ...]
    unchecked: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values."""
        return {"laws": [asdict(law) for law in self.laws], "unchecked": list(self.unchecked)}

    def facts(self) -> dict[str, str]:
        """Return the lines of the card: one for each law."""
        words = {True: "holds", False: "BROKEN", None: "does not apply"}
        facts = {law.name: f"{words[law.passed]}: {law.title} ({law.detail})" for law in self.laws}
        return {**facts, **dict.fromkeys(self.unchecked, "not checked: the time of this section was up")}

    def summary(self) -> str:
        """Return how many laws hold, and which are broken, in one line."""
        broken = [law.name for law in self.laws if law.passed is False]
        held = sum(law.passed is True for law in self.laws)
        parts = [f"broken: {', '.join(broken)}"] if broken else []
        parts.append(f"{held} of {count_of(held + len(broken), 'law')} hold" + ("s" if held == 1 else ""))
        parts += [f"{len(self.unchecked)} not checked"] if self.unchecked else []
        return "; ".join(parts)


@dataclass(frozen=True)
class AutomatonSection:
    """The section on the automaton that a model implements."""

    automaton: ImplementedAutomaton

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values."""
        return self.automaton.to_json()

    def facts(self) -> dict[str, str]:
        """Return the lines of the card."""
        return {"result": self.automaton.describe(), "searched through": self._method}

    def summary(self) -> str:
        """Return its size and whether it is that of the task, in one line."""
        automaton = self.automaton
        if automaton.machine is None:
            return f"none found through {self._method}"
        states = count_of(automaton.machine.n_states, "state")
        if automaton.difference is None:
            return f"{states}, equivalent to that of the task; through {self._method}"
        length = len(automaton.difference)
        return f"{states}, differs from that of the task at length {length:,}; through {self._method}"

    @property
    def _method(self) -> str:
        return "its states" if self.automaton.method == "states" else "its labels (L*)"


@dataclass(frozen=True)
class ForecastSection:
    """The section on the forecast: where the model should fail, where it does, and how far off that is.

    `failing_length` is the measured length, None if the accuracy does not fall below 90 % up to `measured_to`, which is
    None if the accuracy was not measured. `gains` are those of an SD-SSM at training lengths, None for other models.
    """

    forecast: Forecast
    failing_length: float | None
    measured_to: int | None
    gains: MeasuredGains | None = None

    @property
    def factor(self) -> float | None:
        """Forecast over measured length, or its inverse: at least 1; None unless both are known."""
        if self.forecast.length is None or self.failing_length is None:
            return None
        ratio = float(self.forecast.length / self.failing_length)
        return max(ratio, 1 / ratio)

    def to_json(self) -> dict[str, Any]:
        """Return all values as JSON values."""
        values = asdict(self.forecast)
        measured = {"failing_length": self.failing_length, "measured_to": self.measured_to, "factor": self.factor}
        gains = None if self.gains is None else self.gains.to_json()
        data: dict[str, Any] = to_json_value({**values, **measured, "gains": gains})
        return data

    def facts(self) -> dict[str, str]:
        """Return the lines of the card."""
        facts = {"forecast": str(self.forecast), "measured": self._describe_measured()}
        if self.factor is not None:
            facts["off by a factor"] = f"{self.factor:.2f}"
        if not math.isnan(self.forecast.ratio):
            facts["distances"] = f"within classes over between classes: {self.forecast.ratio:.3g}"
        if not math.isnan(self.forecast.retention):
            share = f"{100 * self.forecast.retention:.0f} %"
            facts["memory"] = f"{share} of the distance within classes is left after a fifth of the training length"
        if self.gains is not None:
            facts["gains"] = self.gains.describe()
        return facts

    def _describe_measured(self) -> str:
        if self.measured_to is None:
            return "the accuracy was not measured"
        if self.failing_length is None:
            return f"not below 90 % up to length {self.measured_to:,}, the longest measured"
        return f"below 90 % from length {self.failing_length:,.0f} on"

    def summary(self) -> str:
        """Return the forecast and the measured length in one line."""
        if self.failing_length is not None:
            measured = f"measured {self.failing_length:,.0f}"
        else:
            measured = "not measured" if self.measured_to is None else f"measured none to {self.measured_to:,}"
        if self.forecast.reason:
            return f"no forecast; {measured}"
        if self.forecast.length is None:
            return f"no failure; {measured}"
        factor = "" if self.factor is None else f", factor {self.factor:.1f}"
        return f"if it fails, near {format_estimate(self.forecast.length)}; {measured}{factor}"
