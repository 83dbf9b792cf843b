"""The automaton that a model implements, or why none was found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from sdssm.automata import Machine, to_json
from sdssm.exact.extraction import Fidelity
from sdssm.exact.extraction.model_reader import Word
from sdssm.formatting import count_of, format_chance, format_percent, format_symbols

#: How an automaton is searched: through the states of a recurrent model, or with labels alone.
STATES, LSTAR = "states", "L*"
#: Symbols of a string that `describe` prints.
MOST_SYMBOLS = 40


@dataclass(frozen=True, kw_only=True)
class ImplementedAutomaton:
    """The automaton that a model implements, or why none was found."""

    task: str
    method: str  #: "states" (through the states of the model) or "L*" (labels alone)
    machine: Machine | None  #: minimal; None if no automaton was found
    reason: str | None  #: why there is none, or what is not certain about it
    #: Whether the machine has the labels of the task on every valid string (proved); None without a machine.
    is_equivalent: bool | None
    difference: Word | None  #: a shortest valid string on which machine and task differ
    difference_symbols: tuple[str, ...] | None  #: the names of its symbols
    difference_labels: tuple[int, int] | None  #: the output of the task's machine after it, and of this one
    agreement: tuple[Fidelity, ...]  #: of machine and model, on random valid strings that were not learned from
    n_classes: int  #: the number of labels, for the chance level of the agreement
    seed: int
    seconds: float

    @property
    def n_states(self) -> int | None:
        """The number of states of the machine."""
        return None if self.machine is None else self.machine.n_states

    @property
    def validated_length(self) -> int:
        """The length up to which machine and model had the same label after every symbol of all strings read."""
        length = 0
        for fidelity in self.agreement:
            if fidelity.throughout < fidelity.strings:
                break
            length = fidelity.length
        return length

    @property
    def validated_strings(self) -> int:
        """The number of strings up to that length."""
        return sum(fidelity.strings for fidelity in self.agreement if fidelity.length <= self.validated_length)

    def describe(self) -> str:
        """Return the result as one sentence."""
        if self.machine is None:
            return f"no automaton was found ({self.method}): {self.reason}"
        states = f"an automaton of {count_of(self.machine.n_states, 'state')} ({self.method}), "
        note = "" if self.reason is None else f"; {self.reason}"
        return states + self._describe_equivalence() + f"; {self._describe_agreement()}{note}"

    def _describe_equivalence(self) -> str:
        if self.difference is None or self.difference_symbols is None or self.difference_labels is None:
            return f"equivalent to that of {self.task}"
        names = format_symbols(self.difference_symbols, MOST_SYMBOLS)
        expected, actual = self.difference_labels
        return (
            f"not that of {self.task}: they first differ on {names!r} (length {len(self.difference):,}), "
            f"where the task has the label {expected} and the automaton {actual}"
        )

    def _describe_agreement(self) -> str:
        if self.validated_length:
            return (
                f"it agrees with the model on {self.validated_strings:,} random strings "
                f"of up to {self.validated_length:,} symbols{self._describe_disagreement()}"
            )
        return f"it agrees with the model {describe_agreement(self.agreement[0], self.n_classes)}"

    def _describe_disagreement(self) -> str:
        """Return how often the two agree at the first greater length at which they do not always."""
        for fidelity in self.agreement:
            if fidelity.throughout < fidelity.strings:
                return f", but {describe_agreement(fidelity, self.n_classes)}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values; `sdssm.automata.from_json` reads the machine."""
        return {
            "task": self.task,
            "method": self.method,
            "machine": None if self.machine is None else json.loads(to_json(self.machine)),
            "n_states": self.n_states,
            "reason": self.reason,
            "is_equivalent": self.is_equivalent,
            "difference": None if self.difference is None else list(self.difference),
            "difference_symbols": None if self.difference_symbols is None else list(self.difference_symbols),
            "difference_labels": None if self.difference_labels is None else list(self.difference_labels),
            "agreement": [asdict(fidelity) for fidelity in self.agreement],
            "chance": 100 / self.n_classes,
            "validated_length": self.validated_length,
            "validated_strings": self.validated_strings,
            "seed": self.seed,
            "seconds": self.seconds,
        }


def describe_agreement(fidelity: Fidelity, n_classes: int) -> str:
    """Return on how many strings of one length machine and model agree, in words."""
    share = format_percent(100 * fidelity.throughout / fidelity.strings)
    return (
        f"after every symbol on {share} % of strings of length {fidelity.length:,} "
        f"(chance for one symbol is {format_chance(100 / n_classes)} %)"
    )
