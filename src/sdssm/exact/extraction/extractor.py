"""`extract`: find the automaton that a trained token model implements, with evidence for it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index
from typing import Any, NamedTuple

from sdssm.automata import Machine, to_json
from sdssm.display import Displayed, ResultTable
from sdssm.errors import format_value
from sdssm.exact.defaults import COMPARED_LENGTHS, COMPARED_STRINGS, MAX_STATES, METHOD
from sdssm.exact.errors import ExactError, TimeIsUpError
from sdssm.exact.extraction.candidates import LEAST_STRINGS, CandidateMachines, Fidelity, SearchResult
from sdssm.exact.extraction.explored_classes import ClassGraph
from sdssm.exact.extraction.lstar import search_by_lstar
from sdssm.exact.extraction.matrix_search import search_by_matrices
from sdssm.exact.extraction.model_reader import ModelReader, Word, check_states_readable
from sdssm.exact.extraction.state_search import search_by_states
from sdssm.exact.extraction.token_matrices import TokenMatrices
from sdssm.exact.sources import LoadedSource, MachineSource, ModelSource, load_source, resolve_machine
from sdssm.exact.watch import Watch, open_watch
from sdssm.formatting import format_chance, format_percent
from sdssm.models.modes import evaluation_mode
from sdssm.progress import ProgressOption
from sdssm.settings import check_one_of
from sdssm.tasks import Task

METHODS = ("states", "lstar")
#: Length of the strings to learn from, if the training length of the model is not known.
DEFAULT_LONGEST = 40


@dataclass(frozen=True, kw_only=True, repr=False)
class Extraction(Displayed):
    """A machine extracted from a model, and the evidence that it fits."""

    machine: Machine  #: minimised; its outputs for strings that are not valid have no meaning
    valid: Machine | None  #: the machine of valid strings; None if every string is valid
    n_classes: int  #: the labels of the model are 0..n_classes-1; the machine need not have all of them
    fidelity: tuple[Fidelity, ...]  #: on random valid strings of several lengths, uniform and covering ones
    explored: int  #: number of the model's states that were read
    #: The smallest difference between the best and the second logit, at the explored states and after strings of up to
    #: `longest` symbols.
    margin: float
    method: str
    rounds: int  #: number of rounds of counterexamples
    expected: Machine | None = None  #: the machine of the task, if the task of the model is known
    note: str | None = None
    task: str | None = None  #: the name of the task
    stopped: bool = False  #: whether the time limit ended the search or the comparison; `note` says which
    digest: str | None = None  #: fingerprint of the task, independent of its name
    #: The states of the model that the machine was read from, if the model is a linear recurrence.
    graph: ClassGraph | None = field(default=None, compare=False)

    @property
    def faithful(self) -> bool:
        """Whether machine and model agree at every symbol of every string, and the time limit stopped nothing."""
        return not self.stopped and all(fidelity.throughout == fidelity.strings for fidelity in self.fidelity)

    @cached_property
    def difference(self) -> Word | None:
        """A shortest valid string that the machine labels differently from the task, or None.

        It is searched in the product of the two machines, so None is a proof that they agree on every valid string
        except the empty one.
        """
        if self.expected is None:
            raise ExactError(
                "the task of the model is not known; pass task= to extract, or use machine.distinguish(other, valid)"
            )
        return self.machine.distinguish(self.expected, self.valid)

    def describe_difference(self) -> str | None:
        """Return where the machine first differs from that of the task, in words; None if it does not or is unknown."""
        if self.expected is None or self.difference is None:
            return None
        word = self.difference
        return (
            f"the extracted machine is not the machine of {self.task or 'the task'}: they first differ on the string "
            f"{self.machine.decode(word)!r} (length {len(word):,}), where the extracted machine has the output "
            f"{self.machine.output(word)} and the task {self.expected.output(word)}"
        )

    def __repr__(self) -> str:
        difference = "" if self.expected is None else f", equals_task={self.difference is None}"
        return f"Extraction({self.machine!r}, faithful={self.faithful}{difference})"

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
            "task": self.task,
            "equals_task": word is None if has_task else None,
            "difference": None if word is None else list(word),
            "note": self.note,
            "stopped": self.stopped,
            "digest": self.digest,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """Return one record for each length at which machine and model were compared."""
        return [{"task": self.task, **vars(fidelity), "share": fidelity.share} for fidelity in self.fidelity]

    def to_table(self, *, with_difference: bool = True) -> ResultTable:
        """Return how often machine and model agree, and what is known about the machine."""
        machine, outputs = self.machine, len(set(self.machine.outputs.tolist()))
        rows = [
            [
                f"{fidelity.length:,}",
                f"{fidelity.strings:,}",
                format_percent(100 * fidelity.agree / fidelity.strings),
                format_percent(100 * fidelity.throughout / fidelity.strings),
            ]
            for fidelity in self.fidelity
        ]
        strings = "strings" if self.valid is None else "valid strings"
        notes = [
            f"Agreement of machine and model on random {strings}, in %; chance is {format_chance(100 / outputs)} %.",
            "Half of the strings are uniform, half cover the transitions of the machine.",
            *self._explain(with_difference),
        ]
        title = f"machine of {machine.n_states:,} states, {machine.n_symbols:,} symbols and {outputs:,} outputs"
        headers = ["length", "strings", "at the end %", "at every symbol %"]
        return ResultTable(headers, rows, title=title, notes=notes, right=headers)

    def _explain(self, with_difference: bool) -> list[str]:
        notes, difference = [], self.describe_difference()
        if self.expected is not None and difference is None:
            notes.append(
                f"The machine is the same as that of {self.task or 'the task'} on every valid string (proved)."
            )
        if difference is not None and with_difference:
            notes.append(f"{difference[0].upper()}{difference[1:]} (proved).")
        if self.note is not None:
            notes.append(f"Note: {self.note}.")
        return notes


def extract(
    model: ModelSource,
    task: MachineSource | None = None,
    *,
    valid: MachineSource | None = None,
    method: str = METHOD,
    lengths: Iterable[int] = COMPARED_LENGTHS,
    strings: int = COMPARED_STRINGS,
    longest: int | None = None,
    max_states: int = MAX_STATES,
    seed: int = 0,
    trust: bool = False,
    max_seconds: float | None = None,
    progress: ProgressOption = False,
) -> Extraction:
    """Find the machine that a model implements on valid strings.

    Args:
        model: a model, a run, or the folder of either; or, with a task, any `nn.Module` that maps tokens (B, L) to
            logits (B, L, C) or (B, C). A model with a query is read through it; the query is not a symbol of the
            machine.
        valid: the machine of valid strings; by default that of the task, and every string is valid without a task.
        task: the task to compare the machine with, and to take the names of the symbols from: a name, a task or a
            machine. By default the task of the run, or the one that the model was saved with.
        method: "states" explores the states of the model and joins those that are near and have the same label;
            counterexamples distinguish further states as long as that gives a better machine. It needs a recurrent
            model. "lstar" uses only labels, of any model, with Angluin's L* (needs AALpy).
        lengths: at which machine and model are compared at the end.
        strings: number of random strings for each of these lengths.
        longest: length of the strings to learn from; by default the training length of a run, otherwise 40.
        max_states: limit on the number of states that are distinguished.
        seed: of the random strings.
        trust: import the code of a model that is not part of this package, as its folder names it.
        max_seconds: stop about then, and return the best machine found so far; the result says `stopped`.
        progress: True shows how far the search is; a function receives every `ProgressEvent`.

    The result is the smallest machine that disagrees with the model at most twice as often as the best machine found:
    a model that drifts disagrees with every machine.

    >>> from sdssm.exact import compile
    >>> result = extract(compile("d4"), lengths=[5, 100])
    >>> result.machine, result.faithful, result.fidelity[1]
    (Machine(8 states, 2 symbols, 8 outputs), True, Fidelity(length=100, strings=512, agree=512, throughout=512))
    >>> print(result)
    machine of 8 states, 2 symbols and 8 outputs
    length  strings  at the end %  at every symbol %
         5      512        100.00             100.00
       100      512        100.00             100.00
    Agreement of machine and model on random strings, in %; chance is 12.5 %.
    Half of the strings are uniform, half cover the transitions of the machine.
    The machine is the same as that of d4 on every valid string (proved).
    """
    check_one_of("method", method, METHODS)
    for name, number in (
        ("strings", strings),
        ("max_states", max_states),
        ("longest", DEFAULT_LONGEST if longest is None else longest),
    ):
        if index(number) < 1:
            raise ExactError(f"{name} must be at least 1, got {number}")
    options = ExtractionOptions(method, tuple(_sorted_lengths(lengths)), strings, longest, max_states, seed)
    source = load_source(model, task, function="extract", trust=trust)
    with open_watch(f"extract {source.name}", progress, max_seconds) as watch:
        return extract_machine(source, resolve_machine(valid), task, options, watch)


class ExtractionOptions(NamedTuple):
    """The options of `extract` that say how a machine is searched and compared.

    `hints` are further strings that L* compares with the model.
    """

    method: str
    lengths: tuple[int, ...]
    strings: int
    longest: int | None
    max_states: int
    seed: int
    hints: tuple[Word, ...] = ()


def _check_state_limit(task: Task | None, max_states: int) -> None:
    """Raise an error at once if the machine of the task is larger than the limit, which takes minutes to find out."""
    states = 0 if task is None else task.machine.n_states
    if task is not None and states > max_states and task.machine.minimise().n_states > max_states:
        problem = f"{task.name} has {states:,} states, more than the limit of {max_states:,}"
        raise ExactError(
            f"{problem}; pass max_states={states}, and expect minutes",
            shell=f"{problem}; add --max-states {states}, and expect minutes",
        )


def extract_machine(
    source: LoadedSource, valid: Machine | None, given: MachineSource | None, options: ExtractionOptions, watch: Watch
) -> Extraction:
    """Extract the machine of a loaded model; `given` is the task that the caller passed, or None."""
    with evaluation_mode(source.model):
        return _extract_machine(source, valid, given, options, watch)


def _extract_machine(
    source: LoadedSource, valid: Machine | None, given: MachineSource | None, options: ExtractionOptions, watch: Watch
) -> Extraction:
    model, run = source.model, source.run
    task = source.task if given is None else source.find_task(given, "extract")
    valid = task.valid if valid is None and task is not None else valid
    _check_state_limit(task, options.max_states)
    reader = ModelReader(model, valid, watch)
    longest = options.longest or (DEFAULT_LONGEST if run is None else run.config.train_length)
    longest = longest if model.longest is None else min(longest, model.longest)
    named = valid if task is None else task.machine
    symbols = None if named is None else named.symbols
    expected = None if task is None else task.machine
    candidates, machine, result, graph = _search(reader, expected, symbols, longest, options)
    fidelity, is_complete = _compare(candidates, machine, options, watch)
    if not is_complete and not result.stopped:
        last = fidelity[-1]
        note = f"{watch.stop_reason}: compared only up to length {last.length:,}, on {last.strings:,} strings"
        result = SearchResult(result.rounds, note if result.note is None else f"{result.note}; {note}", stopped=True)
    return Extraction(
        machine=machine,
        valid=valid,
        n_classes=model.n_classes,
        fidelity=fidelity,
        explored=reader.explored,
        margin=reader.margin,
        method=options.method,
        rounds=result.rounds,
        expected=expected,
        note=result.note,
        task=None if task is None else task.name,
        stopped=result.stopped,
        digest=None if task is None else replace(task, valid=valid).digest,
        graph=graph,
    )


class _FinishedSearch(NamedTuple):
    """The machine that a search found, and where it comes from."""

    candidates: CandidateMachines
    machine: Machine
    result: SearchResult
    graph: ClassGraph | None


def _search(
    reader: ModelReader,
    expected: Machine | None,
    symbols: tuple[str, ...] | None,
    longest: int,
    options: ExtractionOptions,
) -> _FinishedSearch:
    """Search the machine of a model: by its matrices, by its states, or by its labels alone.

    `expected` is the machine of the task, with which L* compares its hypotheses, and `longest` the length of the
    strings to learn from.
    """
    watch, by_states = reader.watch, options.method == "states"
    if by_states:
        check_states_readable(reader)
    matrices = TokenMatrices.find(reader.model) if by_states and reader.are_all_valid else None
    try:
        candidates = CandidateMachines(reader, symbols, longest, options.seed, compare=matrices is None)
        if by_states and matrices is None:
            candidates.fit_scale()
    except TimeIsUpError:
        raise _nothing_known(watch) from None
    try:
        if matrices is not None:
            return _FinishedSearch(
                candidates, *search_by_matrices(candidates, matrices, options.max_states, options.seed)
            )
        if by_states:
            result = search_by_states(candidates, options.max_states)
        else:
            candidates.hints, candidates.expected = list(options.hints), expected
            result = search_by_lstar(candidates, options.max_states)
    except TimeIsUpError:
        if not candidates.machines:
            raise _nothing_known(watch) from None
        note = f"{watch.stop_reason}: the machine is the best one found by then, not a final result"
        result = SearchResult(0, note, stopped=True)
    return _FinishedSearch(candidates, candidates.best(), result, None)


def _compare(
    candidates: CandidateMachines, machine: Machine, options: ExtractionOptions, watch: Watch
) -> tuple[tuple[Fidelity, ...], bool]:
    """Compare machine and model at each length, and say whether all strings were read before the time was up.

    At least the shortest length is compared: on fewer strings if the time is up already.
    """
    reader, results = candidates.reader, list[Fidelity]()
    lengths = candidates.existing_lengths(options.lengths)
    strings = min(options.strings, LEAST_STRINGS) if watch.is_over else options.strings
    reader.watch = watch.without_limit()
    for length in lengths:
        reader.watch.start(f"compare machine and model at length {length:,}")
        try:
            reader.watch.check()
            results.append(candidates.fidelity(machine, length, strings))
        except TimeIsUpError:
            break
        reader.watch = watch  # the following lengths may be left out
    return tuple(results), len(results) == len(lengths) and strings == options.strings


def _nothing_known(watch: Watch) -> ExactError:
    problem = f"{watch.stop_reason}: no machine is known by then"
    return ExactError(f"{problem}; pass a larger max_seconds", shell=f"{problem}; give a larger --max-seconds")


def _sorted_lengths(lengths: Iterable[int]) -> list[int]:
    unique = sorted({index(length) for length in lengths})
    if not unique or unique[0] < 1:
        raise ExactError(f"lengths is {format_value(unique)}; pass at least one length, and none below 1")
    return unique
