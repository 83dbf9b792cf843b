"""`extract`: find the automaton that a trained token model implements, with evidence for it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import index
from typing import Any

from sdssm.automata import Machine, to_json
from sdssm.errors import format_value
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction.candidates import CandidateMachines, Fidelity
from sdssm.exact.extraction.lstar import search_by_lstar
from sdssm.exact.extraction.model_reader import ModelReader, Word
from sdssm.exact.extraction.state_search import search_by_states
from sdssm.exact.sources import ModelSource, load_source
from sdssm.settings import check_one_of

METHODS = ("states", "lstar")
#: Lengths at which machine and model are compared at the end.
LENGTHS = (5, 10, 20, 40, 100, 500)
#: Length of the strings to learn from, if the training length of the model is not known.
DEFAULT_LONGEST = 40


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """A machine extracted from a model, and the evidence that it fits."""

    machine: Machine  #: minimised; its outputs for strings that are not valid have no meaning
    valid: Machine | None  #: the machine of valid strings; None if every string is valid
    n_classes: int  #: the labels of the model are 0..n_classes-1; the machine need not have all of them
    fidelity: tuple[Fidelity, ...]  #: on random valid strings of several lengths
    explored: int  #: number of the model's states that were read
    #: The smallest difference between the best and the second logit, at the explored states and after strings of up to
    #: `longest` symbols.
    margin: float
    method: str
    rounds: int  #: number of rounds of counterexamples
    expected: Machine | None = field(default=None, repr=False)  #: the machine of the task, if the model is of a run
    note: str | None = None

    @property
    def faithful(self) -> bool:
        """Whether machine and model agree at every symbol of every string that was compared."""
        return all(fidelity.throughout == fidelity.strings for fidelity in self.fidelity)

    @property
    def difference(self) -> Word | None:
        """A shortest valid string that the machine labels differently from the task, or None.

        It is searched in the product of the two machines, so None is a proof that they agree on every valid string
        except the empty one.
        """
        if self.expected is None:
            raise ExactError(
                "the model is not of a run, so its task is not known; use machine.distinguish(other, valid)"
            )
        return self.machine.distinguish(self.expected, self.valid)

    def to_json(self) -> dict[str, Any]:
        """Return the extraction as plain values; `sdssm.automata.from_json` reads the machines."""
        has_task = self.expected is not None
        word = self.difference if has_task else None
        return {
            "machine": json.loads(to_json(self.machine)),
            "valid": None if self.valid is None else json.loads(to_json(self.valid)),
            "n_classes": self.n_classes,
            "fidelity": [vars(fidelity) for fidelity in self.fidelity],
            "faithful": self.faithful,
            "explored": self.explored,
            "margin": self.margin if math.isfinite(self.margin) else None,
            "method": self.method,
            "rounds": self.rounds,
            "equals_task": word is None if has_task else None,
            "difference": None if word is None else list(word),
            "note": self.note,
        }


def extract(
    model: ModelSource,
    valid: Machine | None = None,
    *,
    method: str = "states",
    lengths: Iterable[int] = LENGTHS,
    strings: int = 512,
    longest: int | None = None,
    max_states: int = 1024,
    seed: int = 0,
) -> Extraction:
    """Find the machine that a recurrent token model of one layer implements on valid strings.

    Args:
        model: a model, a run, or the folder of either. A model with a query is read through it; the query is not a
            symbol of the machine.
        valid: the machine of valid strings; for a run that of its task, otherwise every string is valid.
        method: "states" explores the states of the model and joins those that are near and have the same label;
            counterexamples distinguish further states as long as that gives a better machine. "lstar" uses only
            labels, with Angluin's L* (needs AALpy).
        lengths: at which machine and model are compared at the end.
        strings: number of random strings for each of these lengths.
        longest: length of the strings to learn from; by default the training length of a run, otherwise 40.
        max_states: limit on the number of states that are distinguished.
        seed: of the random strings.

    The result is the smallest machine that disagrees with the model at most twice as often as the best machine found:
    a model that drifts disagrees with every machine.

    >>> from sdssm.exact import compile
    >>> result = extract(compile("d4"), lengths=[5, 100])
    >>> result.machine, result.faithful, result.fidelity[1]
    (Machine(8 states, 2 symbols, 8 outputs), True, Fidelity(length=100, strings=512, agree=512, throughout=512))
    """
    check_one_of("method", method, METHODS)
    for name, number in (
        ("strings", strings),
        ("max_states", max_states),
        ("longest", DEFAULT_LONGEST if longest is None else longest),
    ):
        if index(number) < 1:
            raise ExactError(f"{name} must be at least 1, got {number}")
    classifier, run = load_source(model)
    task = None if run is None else run.config.load_task()
    train_length = DEFAULT_LONGEST if run is None else run.config.train_length
    if valid is not None and task is not None and task.valid is not None and valid != task.valid:
        raise ExactError("a run knows its valid strings; leave valid out, or pass sdssm.load(folder) to use others")
    if valid is None and task is not None:
        valid = task.valid
    reader = ModelReader(classifier, valid)
    symbols = task.machine.symbols if task is not None else None if valid is None else valid.symbols
    candidates = CandidateMachines(reader, symbols, longest or train_length, seed)
    search = search_by_lstar if method == "lstar" else search_by_states
    rounds, note = search(candidates, max_states)
    machine = candidates.best()
    compared = candidates.existing_lengths(_sorted_lengths(lengths))
    return Extraction(
        machine=machine,
        valid=valid,
        n_classes=classifier.n_classes,
        fidelity=tuple(candidates.fidelity(machine, length, strings) for length in compared),
        explored=reader.explored,
        margin=reader.margin,
        method=method,
        rounds=rounds,
        expected=None if task is None else task.machine,
        note=note,
    )


def _sorted_lengths(lengths: Iterable[int]) -> list[int]:
    unique = sorted({index(length) for length in lengths})
    if not unique or unique[0] < 1:
        raise ExactError(f"lengths is {format_value(unique)}; pass at least one length, and none below 1")
    return unique
