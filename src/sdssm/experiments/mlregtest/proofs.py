"""The automaton of a trained model, compared with that of its language by the product of the two.

A proof runs on one core, in a worker process: it gets the weights as arrays and builds the model again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

import numpy as np
import torch

from sdssm.exact import extract
from sdssm.exact.errors import ExactError
from sdssm.experiments.mlregtest.records import DIFFERENT, EQUAL, NO_RESULT
from sdssm.models import TokenModel
from sdssm.models.building import untrained_model
from sdssm.runs.schema import RunConfig
from sdssm.tasks.task import Task

#: Lengths and strings with which an extracted automaton is compared with the model.
COMPARED_LENGTHS, COMPARED_STRINGS = (40, 100), 256


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the extracted automaton of a model says about it.

    Attributes:
        verdict: equal, different or no result.
        states: the number of states of the extracted automaton; None without a result.
        difference: a shortest string on which it differs from the language, as names of symbols.
        is_misclassified: whether the model itself misclassifies that string.
        seconds: the time on one core.
        note: why there is no result, or what to know about it.
    """

    verdict: str
    states: int | None = None
    difference: tuple[str, ...] | None = None
    is_misclassified: bool | None = None
    seconds: float = 0.0
    note: str | None = None


def model_arrays(model: TokenModel) -> dict[str, np.ndarray]:
    """Return the parameters and buffers of a model as arrays, which other processes take without shared memory."""
    return {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}


def prove_arrays(config: RunConfig, arrays: Mapping[str, np.ndarray], task: Task, seconds: float) -> Proof:
    """Build the model of a run from arrays, and prove it; for worker processes.

    An error is a result too: one language must not end a campaign of a thousand.
    """
    model = untrained_model(config.model, config.n_symbols, config.n_classes, config.seed)
    model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in arrays.items()})
    try:
        return prove_language(model.eval(), task, seconds, longest=config.train_length)
    except (ValueError, ArithmeticError, LookupError, RuntimeError, MemoryError) as error:
        note = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        return Proof(verdict=NO_RESULT, note=note)


def prove_language(model: TokenModel, task: Task, seconds: float, *, longest: int = 40) -> Proof:
    """Extract the automaton of a model, and compare it with the language by product construction.

    `longest` is the length of the strings to learn from.

    >>> from sdssm.exact import compile
    >>> from sdssm.tasks import get_task
    >>> prove_language(compile("parity"), get_task("parity"), 10.0).verdict
    'equal'
    """
    start = monotonic()
    try:
        extraction = extract(
            model,
            task,
            lengths=COMPARED_LENGTHS,
            strings=COMPARED_STRINGS,
            longest=longest,
            max_seconds=seconds,
        )
    except ExactError as error:
        return Proof(verdict=NO_RESULT, seconds=monotonic() - start, note=str(error))
    word = extraction.difference
    states = extraction.machine.n_states
    if word is None:
        if extraction.stopped:
            note = f"the automaton is equal, but its comparison with the model was not: {extraction.note}"
            return Proof(verdict=NO_RESULT, states=states, seconds=monotonic() - start, note=note)
        return Proof(verdict=EQUAL, states=states, seconds=monotonic() - start, note=extraction.note)
    with torch.no_grad():
        predicted = int(model.last_logits(torch.tensor([word], dtype=torch.int64)).argmax())
    names, is_misclassified = task.machine.symbol_names, predicted != task.machine.output(word)
    return Proof(
        verdict=DIFFERENT if is_misclassified or not extraction.stopped else NO_RESULT,
        states=states,
        difference=tuple(names[symbol] for symbol in word),
        is_misclassified=is_misclassified,
        seconds=monotonic() - start,
        note=extraction.note,
    )
