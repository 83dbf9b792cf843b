"""The automaton of a trained model, compared with that of its language by the product of the two.

A proof runs on one core, in a worker process: it gets the weights as arrays and builds the model again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np
import torch

from sdssm.checking.misclassified import find_misclassified
from sdssm.exact import Extraction, extract
from sdssm.exact.errors import ExactError, TimeIsUpError
from sdssm.exact.extraction.token_matrices import TokenMatrices
from sdssm.exact.prototypes import choose_prototypes
from sdssm.exact.watch import open_watch
from sdssm.experiments.mlregtest.records import DIFFERENT, EQUAL, NO_RESULT
from sdssm.models import TokenModel
from sdssm.models.building import untrained_model
from sdssm.runs.schema import RunConfig
from sdssm.tasks.task import Task

#: Lengths and strings with which an extracted automaton is compared with the model; fewer of a model whose state is so
#: large that they would take more multiplications than this.
COMPARED_LENGTHS, COMPARED_STRINGS, LEAST_STRINGS, MOST_WORK = (40, 500), 256, 32, 1 << 34
#: Seconds, and the longest strings, of the search for a misclassified string.
SEARCH_SECONDS, SEARCH_LONGEST = 2.0, 500


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the extracted automaton of a model says about it.

    Attributes:
        verdict: equal (the automata are, by their product), different, or no result.
        is_followed: whether the automata are equal, the model agrees with them at every symbol of random strings, half
            of them uniform and half covering, and no misclassified string is known. This is measured, not proved.
        is_snapped: whether the automata are equal and the model is proved to be exact at every length if its state is
            moved to the nearest prototype after every symbol (`snap` with `every=1`).
        states: the number of states of the extracted automaton; None without a result.
        string: the shortest misclassified string that was found, as names of symbols; None if none was found.
        is_shortest: whether all shorter strings were read, and are classified correctly.
        seconds: the time on one core.
        note: why there is no result, or what to know about it.
    """

    verdict: str
    is_followed: bool = False
    is_snapped: bool = False
    states: int | None = None
    string: tuple[str, ...] | None = None
    is_shortest: bool = False
    seconds: float = 0.0
    note: str | None = None


def model_arrays(model: TokenModel) -> dict[str, np.ndarray]:
    """Return the parameters and buffers of a model as arrays, which other processes take without shared memory."""
    return {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}


def prove_arrays(
    config: RunConfig,
    arrays: Mapping[str, np.ndarray],
    task: Task,
    seconds: float,
    misclassified: tuple[int, ...] | None = None,
) -> Proof:
    """Build the model of a run from arrays, and prove it; for worker processes.

    `misclassified` is a string that the model is known to misclassify, None if none is known. An error is a result
    too: one language must not end a campaign of a thousand.
    """
    model = untrained_model(config.model, config.n_symbols, config.n_classes, config.seed)
    model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in arrays.items()})
    try:
        return prove_language(model.eval(), task, seconds, longest=config.train_length, misclassified=misclassified)
    except (ValueError, ArithmeticError, LookupError, RuntimeError, MemoryError) as error:
        note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        return Proof(verdict=NO_RESULT, note=note)


def prove_language(
    model: TokenModel,
    task: Task,
    seconds: float,
    *,
    longest: int = 40,
    misclassified: tuple[int, ...] | None = None,
) -> Proof:
    """Extract the automaton of a model, and compare it with the language by product construction.

    `longest` is the length of the strings to learn from, `misclassified` a string that the model is known to
    misclassify: then shorter ones are searched.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> prove_language(compile("parity"), get_task("parity"), 10.0).verdict
    'equal'
    """
    start, size = monotonic(), getattr(getattr(model.settings, "mixer", None), "state", 1)
    try:
        strings = int(np.clip(MOST_WORK // (sum(COMPARED_LENGTHS) * size**2), LEAST_STRINGS, COMPARED_STRINGS))
        extraction = extract(
            model, task, lengths=COMPARED_LENGTHS, strings=strings, longest=longest, max_seconds=seconds
        )
    except ExactError as error:
        return Proof(verdict=NO_RESULT, seconds=monotonic() - start, note=str(error))
    difference = extraction.difference
    verdict = DIFFERENT if difference is not None else NO_RESULT if extraction.stopped else EQUAL
    is_followed = verdict == EQUAL and extraction.faithful and misclassified is None
    is_snapped = verdict == EQUAL and _has_exact_prototypes(model, extraction, seconds - (monotonic() - start))
    string, is_shortest = None, False
    if not is_followed:
        limit = min(seconds, SEARCH_SECONDS)
        string, is_shortest = _find_misclassified(model, task, [difference, misclassified], limit)
    if verdict == DIFFERENT and string is None and extraction.stopped:  # the machine was not a final result
        verdict = NO_RESULT
    names = task.machine.symbol_names
    return Proof(
        verdict=verdict,
        is_followed=is_followed,
        is_snapped=is_snapped,
        states=extraction.machine.n_states,
        string=None if string is None else tuple(names[symbol] for symbol in string),
        is_shortest=is_shortest,
        seconds=monotonic() - start,
        note=extraction.note,
    )


def _has_exact_prototypes(model: TokenModel, extraction: Extraction, seconds: float) -> bool:
    """Whether the model is proved to be exact if its state is moved to a prototype after every symbol."""
    if extraction.graph is None:
        return False
    try:
        with open_watch("prove the prototypes", False, max(seconds, 0.0)) as watch:
            choose_prototypes(TokenMatrices.read(model), extraction.graph, extraction.machine, 1, watch)
    except (ExactError, TimeIsUpError):
        return False
    return True


def _find_misclassified(
    model: TokenModel, task: Task, known: Sequence[tuple[int, ...] | None], seconds: float
) -> tuple[tuple[int, ...] | None, bool]:
    """Return the shortest misclassified string that is found, and whether no shorter one exists.

    `known` are strings that the model perhaps misclassifies: one on which its automaton is wrong, one of the test.
    """
    search = find_misclassified(model, task, max_seconds=seconds, longest=SEARCH_LONGEST)
    string = search.string
    for word in known:
        if word is None or (string is not None and len(word) >= len(string)):
            continue
        with torch.no_grad():
            prediction = int(model.last_logits(torch.tensor([word])).argmax())
        if prediction != task.machine.output(word):
            string = word
    return string, string is search.string and search.is_shortest
