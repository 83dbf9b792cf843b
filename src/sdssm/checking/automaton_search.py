"""Find the automaton that a model implements: through its states, or with labels alone."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import torch

from sdssm.automata import Machine
from sdssm.checking.implemented import LSTAR, STATES, ImplementedAutomaton, describe_agreement
from sdssm.errors import MissingExtraError, ModelError
from sdssm.exact.defaults import COMPARED_LENGTHS, COMPARED_STRINGS, MAX_STATES
from sdssm.exact.errors import ExactError
from sdssm.exact.extraction import Extraction, Fidelity
from sdssm.exact.extraction.candidates import find_disagreements
from sdssm.exact.extraction.extractor import ExtractionOptions, extract_machine
from sdssm.exact.extraction.model_reader import ModelReader, Word, check_states_readable
from sdssm.exact.sources import LoadedSource
from sdssm.exact.watch import open_watch
from sdssm.formatting import count_of
from sdssm.models import TokenModel
from sdssm.models.modes import evaluation_mode
from sdssm.progress import TimeLimit
from sdssm.tasks import Task

#: Default of the time that the search takes.
MAX_SECONDS = 30.0
#: The share of the time that the search may take; the rest is for the comparison of machine and model.
SEARCH_SHARE = 0.75
#: A machine counts as that of the model if this share of the strings has the same label after every symbol, at the
#: lengths up to the training length.
ENOUGH = 0.99
#: For a model that reads every prefix by itself: the lengths at which it is compared, and the strings.
FEW_LENGTHS, FEW_STRINGS = (5, 10, 20, 40), 128
#: Strings of each length that are read although the time is up.
LEAST_STRINGS = 32


def find_automaton(
    model: TokenModel,
    task: Task,
    *,
    max_seconds: float | None = MAX_SECONDS,
    max_states: int = MAX_STATES,
    hints: Sequence[Word] = (),
    seed: int = 0,
) -> ImplementedAutomaton:
    """Find the automaton that a model implements on the valid strings of a task.

    The states of a recurrent model are explored and merged. Any other model, and one whose states cannot be read, is
    asked for the labels of strings only, by L* (which needs AALpy). A machine counts as that of the model if the two
    agree on at least 99 % of random strings of up to the training length, after every symbol.

    Args:
        model: any model.
        task: the labels that it should predict, its valid strings and its training length.
        max_seconds: about how long to search; None for no limit.
        max_states: the most states of the automaton.
        hints: strings that L* compares with the model, such as a misclassified one.
        seed: of the random strings.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> result = find_automaton(compile("d4"), get_task("d4"))
    >>> result.machine, result.is_equivalent, result.validated_length
    (Machine(8 states, 2 symbols, 8 outputs), True, 500)
    """
    started = monotonic()
    method = STATES if _has_readable_states(model, task) else LSTAR
    is_prefix_reader = model.can_read_prefixes_at_once
    lengths = COMPARED_LENGTHS if is_prefix_reader else FEW_LENGTHS
    strings = COMPARED_STRINGS if is_prefix_reader else FEW_STRINGS
    options = ExtractionOptions(
        method="states" if method == STATES else "lstar",
        lengths=(1,),  # the comparison follows below, with its own share of the time
        strings=1,
        longest=task.train_length,
        max_states=max_states,
        seed=seed,
        hints=tuple(tuple(word) for word in hints),
    )
    machine, reason, agreement = None, None, tuple[Fidelity, ...]()
    try:
        with open_watch("automaton", False, None if max_seconds is None else SEARCH_SHARE * max_seconds) as watch:
            extraction = extract_machine(LoadedSource(model, None, model.name), task.valid, task, options, watch)
    except (ExactError, MissingExtraError) as error:
        reason = str(error)
    else:
        limit = TimeLimit(None if max_seconds is None else max(started + max_seconds - monotonic(), 0.0))
        agreement = compare_on_strings(model, task, extraction.machine, lengths, strings, limit, seed)
        problem = _why_not(extraction, agreement, task, max_states)
        machine, reason = (extraction.machine, extraction.note) if problem is None else (None, problem)
    return _result(model, task, machine, method, reason, agreement, seed, monotonic() - started)


def compare_on_strings(
    model: TokenModel,
    task: Task,
    machine: Machine,
    lengths: Sequence[int],
    strings: int,
    limit: TimeLimit,
    seed: int,
) -> tuple[Fidelity, ...]:
    """Compare a machine and a model on random valid strings of each length.

    When the time is up, longer strings than those of the training length are left out, and fewer strings are read.
    """
    most = max(lengths) if model.longest is None else model.longest
    chosen = {task.longest_valid_length(n) for n in (min(n, most) for n in lengths) if _has_valid(task, n)}
    generator, reader = torch.Generator().manual_seed(seed + 1), ModelReader(model, task.valid)
    results = []
    with evaluation_mode(model):
        for length in sorted(chosen):
            if limit.is_over and length > task.train_length:
                break
            count = LEAST_STRINGS if limit.is_over else strings
            tokens = task.sample(count, length, generator=generator).tokens.numpy()
            try:
                labels = reader.labels(tokens)
            except ModelError:  # such as a module that has no positions for long strings
                if length <= task.train_length:
                    raise
                break
            results.append(Fidelity.count(length, find_disagreements(machine, tokens, labels)))
    return tuple(results)


def _has_valid(task: Task, length: int) -> bool:
    return any(task.has_length(n) for n in range(1, length + 1))


def _has_readable_states(model: TokenModel, task: Task) -> bool:
    """Return whether a model has a state of fixed size that leads to the predictions of whole strings."""
    if not model.is_recurrent:
        return False
    try:
        reader = ModelReader(model, task.valid)
        with evaluation_mode(model):
            check_states_readable(reader)
    except ExactError:
        return False
    return True


def _why_not(extraction: Extraction, agreement: Sequence[Fidelity], task: Task, max_states: int) -> str | None:
    """Return why the extracted machine is not that of the model; None if it is."""
    trained = [fidelity for fidelity in agreement if fidelity.length <= task.train_length] or agreement[:1]
    worst = min(trained, key=lambda fidelity: fidelity.throughout / fidelity.strings)
    if worst.throughout >= ENOUGH * worst.strings:
        return None
    limits = extraction.note if extraction.stopped else f"searched up to {max_states:,} states"
    best = f"the best machine has {count_of(extraction.machine.n_states, 'state')}"
    return f"{best}; it agrees with the model {describe_agreement(worst, extraction.n_classes)}; {limits}"


def _result(
    model: TokenModel,
    task: Task,
    machine: Machine | None,
    method: str,
    reason: str | None,
    agreement: tuple[Fidelity, ...],
    seed: int,
    seconds: float,
) -> ImplementedAutomaton:
    difference = None if machine is None else machine.distinguish(task.machine, task.valid)
    names = task.machine.symbol_names
    labels = None
    if machine is not None and difference is not None:
        labels = (task.machine.output(difference), machine.output(difference))
    return ImplementedAutomaton(
        task=task.name,
        method=method,
        machine=machine,
        reason=reason,
        is_equivalent=None if machine is None else difference is None,
        difference=difference,
        difference_symbols=None if difference is None else tuple(names[symbol] for symbol in difference),
        difference_labels=labels,
        agreement=agreement,
        n_classes=model.n_classes,
        seed=seed,
        seconds=seconds,
    )
