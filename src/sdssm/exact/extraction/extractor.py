"""`extract`: the automaton that a trained token model implements, with the evidence that it does."""

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
from sdssm.exact.extraction.candidates import CandidateMachines, Fidelity, same_on, search_by_states
from sdssm.exact.extraction.model_reader import ModelReader, Word
from sdssm.exact.sources import ModelSource, load_source
from sdssm.models import Classifier
from sdssm.settings import check_one_of
from sdssm.tasks import Task

__all__ = ["LENGTHS", "METHODS", "Extraction", "Fidelity", "ModelSource", "extract", "same_on"]

METHODS = ("states", "lstar")
#: Lengths at which machine and model are compared at the end.
LENGTHS = (5, 10, 20, 40, 100, 500)
#: The longest strings to learn from, where it is not known which the model was trained on.
LONGEST = 40


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """A machine read from a model, and how far it can be trusted."""

    machine: Machine  #: minimised; what it says of strings that are not valid means nothing
    valid: Machine | None  #: which strings counted; None: all
    n_classes: int  #: the model's labels are 0..n_classes-1; the machine need not know all of them
    fidelity: tuple[Fidelity, ...]  #: on random valid strings of several lengths
    explored: int  #: states of the model that were looked at
    margin: (
        float  #: the least difference between the best and the second logit at them and after strings up to `longest`
    )
    method: str
    rounds: int  #: of counterexamples
    expected: Machine | None = field(default=None, repr=False)  #: that of the task, where the model is of a run
    note: str | None = None

    @property
    def faithful(self) -> bool:
        """Whether machine and model agreed on every string that was tried."""
        return all(one.throughout == one.strings for one in self.fidelity)

    @property
    def difference(self) -> Word | None:
        """A shortest valid string that the task labels otherwise than the machine; None: there is none."""
        if self.expected is None:
            raise ExactError("the model is of no run, so its task is not known; ask same_on(machine, another, valid)")
        return same_on(self.machine, self.expected, self.valid)

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON holds it; `sdssm.automata.from_json` reads the machines."""
        known = self.expected is not None
        word = self.difference if known else None
        return {
            "machine": json.loads(to_json(self.machine)),
            "valid": None if self.valid is None else json.loads(to_json(self.valid)),
            "n_classes": self.n_classes,
            "fidelity": [vars(one) for one in self.fidelity],
            "faithful": self.faithful,
            "explored": self.explored,
            "margin": self.margin if math.isfinite(self.margin) else None,
            "method": self.method,
            "rounds": self.rounds,
            "equals_task": word is None if known else None,
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
    """The machine that a recurrent token model of one layer implements on the strings that `valid` lets end.

    Of a run, `valid` is the task's own. A model with a query is read through it, and the query is no symbol of the
    machine. With `method="states"` the model's states are explored, those that are near and say the same are taken for
    one, and what a string of up to `longest` symbols (40, or those a run was trained on) shows to differ is told
    apart, while that makes a better machine of at most `max_states`; with "lstar" AALpy's L* asks for labels alone.
    Then machine and model are compared on `strings` random strings of each of the `lengths`. Of several machines it is
    the smallest that disagrees at most twice as often as the best: a model that drifts disagrees with every machine.

    >>> from sdssm.exact import compile
    >>> found = extract(compile("d4"), lengths=[5, 100])
    >>> found.machine, found.faithful, found.fidelity[1]
    (Machine(8 states, 2 symbols, 8 outputs), True, Fidelity(length=100, strings=512, agree=512, throughout=512))
    """
    check_one_of("method", method, METHODS)
    for name, number in (
        ("strings", strings),
        ("max_states", max_states),
        ("longest", LONGEST if longest is None else longest),
    ):
        if index(number) < 1:
            raise ExactError(f"{name} is {number}; it must be at least 1")
    classifier, task, trained = _loaded(model)
    if valid is not None and task is not None and task.valid is not None and valid != task.valid:
        raise ExactError("a run knows its valid strings; leave valid out, or pass sdssm.load(folder) to use others")
    if valid is None and task is not None:
        valid = task.valid
    reader = ModelReader(classifier, valid)
    names = task.machine.symbols if task is not None else None if valid is None else valid.symbols
    trial = CandidateMachines(reader, names, longest or trained, seed)
    if method == "lstar":
        from sdssm.exact.extraction.lstar import search_by_lstar

        rounds, note = search_by_lstar(trial, max_states)
    else:
        rounds, note = search_by_states(trial, max_states)
    machine = trial.best()
    return Extraction(
        machine=machine,
        valid=valid,
        n_classes=classifier.n_classes,
        fidelity=tuple(trial.fidelity(machine, length, strings) for length in trial.lengths(_checked(lengths))),
        explored=reader.explored,
        margin=reader.margin,
        method=method,
        rounds=rounds,
        expected=None if task is None else task.machine,
        note=note,
    )


def _loaded(what: ModelSource) -> tuple[Classifier, Task | None, int]:
    """A model, its task where it is of a run, and the longest strings it was trained on."""
    model, run = load_source(what)
    if run is None:
        return model, None, LONGEST
    return model, run.config.known_task(), run.config.train_length


def _checked(lengths: Iterable[int]) -> list[int]:
    found = sorted({index(length) for length in lengths})
    if not found or found[0] < 1:
        raise ExactError(f"lengths is {format_value(found)}; name at least one, and none below 1")
    return found
