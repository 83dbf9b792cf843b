"""A sample of a model's states after strings of several lengths, beside the states of the automaton.

`sdssm evaluate` stores it in the run folder: reports draw the states in two dimensions, and how they drift with length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from sdssm.checksums import add_tensor_checksum
from sdssm.evaluation.correct_counts import split_to_memory
from sdssm.evaluation.group_reading import EvaluatedModel, GroupReading
from sdssm.evaluation.measurement import choose_readers
from sdssm.layers.mixer import flatten_state
from sdssm.models import TokenModel
from sdssm.models.reading import reading_mode
from sdssm.tasks import Task
from sdssm.tasks.evaluation_strings import EvaluationStrings

#: The number of strings, and the number if each length has strings of its own: both cost 5 % of an evaluation.
PREFIX_STRINGS, FRESH_STRINGS = 128, 64
#: The number of lengths up to the training length, and beyond it.
LENGTHS_WITHIN, LENGTHS_BEYOND = 4, 4
#: The most numbers of a state. Larger states are not stored.
MOST_NUMBERS = 1_024


class StateReading(NamedTuple):
    """What is known after S strings of one length: states (R, S, N) and predictions (R, S) of R models, and automaton
    states (S,)."""

    states: Tensor
    machine_states: np.ndarray
    predictions: Tensor


@dataclass(frozen=True, eq=False)
class StateSample:
    """The states of a model after S strings of each of T lengths.

    Attributes:
        lengths: the lengths, (T,).
        states: the states of the model as real vectors, (T, S, N): float16, or float32 if they are too large for it.
        machine_states: the state of the automaton after each string, (T, S).
        labels: its output there, (T, S).
        predictions: the label that the model predicts, (T, S); -1 if its logits are not finite.
        sampling: how the strings were drawn.
    """

    lengths: Tensor
    states: Tensor
    machine_states: Tensor
    labels: Tensor
    predictions: Tensor
    sampling: str

    def encode(self, digest: str) -> bytes:
        """Return the contents of a safetensors file; `digest` is the fingerprint of the task."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return add_tensor_checksum(save(tensors), {"sdssm": json.dumps({"digest": digest, "sampling": self.sampling})})


def sample_states_of_models(
    models: Sequence[TokenModel],
    task: Task,
    longest: int,
    train_length: int,
    *,
    seed: int,
    sampling: str = "uniform",
) -> list[StateSample | None]:
    """Return the states of models with the same settings after strings of lengths up to `longest`.

    The models read the same strings side by side. The strings of a length are prefixes of those of the next, unless the
    task or the sampling needs fresh ones. There is None for a model without a state of fixed shape and at most 1,024
    numbers, and if states are not finite.

    Args:
        models: the models.
        task: their task.
        longest: the greatest length.
        train_length: the greatest length that they were trained on; half of the lengths are up to this one.
        seed: the seed of the strings.
        sampling: how the strings are drawn, as in `Task.sample`.
    """
    first = models[0]
    if not all(model.is_recurrent for model in models):
        return [None] * len(models)
    has_random_start = first.settings.state_embedding is not None
    strings = EvaluationStrings(
        task, PREFIX_STRINGS, seed, first.device, has_random_start, "uniform" if has_random_start else sampling
    )
    shortest = strings.shortest_length
    lengths = sorted({task.longest_valid_length(n) for n in choose_ladder(longest, train_length) if n >= shortest})
    readers, parts = choose_readers(models, strings, longest), list[StateReading]()
    read = _read_prefixes if strings.positions is not None else _read_fresh
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(reading_mode(model))
        for reading in read(readers, strings, lengths):
            size = reading.states.shape[-1]
            if not 0 < size <= MOST_NUMBERS or (parts and size != parts[0].states.shape[-1]):
                return [None] * len(models)
            parts.append(reading)
    if not parts:
        return [None] * len(models)
    all_states = torch.stack([part.states for part in parts], dim=1).cpu()  # (R, T, S, N)
    predictions = torch.stack([part.predictions for part in parts], dim=1).int().cpu()
    machine_states = np.stack([part.machine_states for part in parts]).astype(np.int32)
    kept_lengths = torch.tensor(lengths, dtype=torch.int32)
    return [
        _make_sample(kept_lengths, own_states, machine_states, own_predictions, task, strings.sampling)
        for own_states, own_predictions in zip(all_states, predictions, strict=True)
    ]


def _make_sample(
    lengths: Tensor, states: Tensor, machine_states: np.ndarray, predictions: Tensor, task: Task, sampling: str
) -> StateSample | None:
    """Return the sample of one model; None if its states are not finite."""
    if not bool(states.isfinite().all()):
        return None
    is_small = bool(states.abs().max() <= torch.finfo(torch.float16).max)
    return StateSample(
        lengths=lengths,
        states=states.half() if is_small else states.clone(),
        machine_states=torch.from_numpy(machine_states),
        labels=torch.from_numpy(task.machine.outputs[machine_states].astype(np.int32)),
        predictions=predictions.clone(),
        sampling=sampling,
    )


def choose_ladder(longest: int, train_length: int) -> list[int]:
    """Return about eight lengths up to `longest`: half of them up to the training length, each a multiple of the last.

    >>> choose_ladder(500, 40), choose_ladder(20, 40), choose_ladder(41, 40)
    ([5, 10, 20, 40, 75, 141, 266, 500], [2, 5, 10, 20], [5, 10, 20, 40, 41])
    """
    known = min(longest, train_length)
    within = {max(1, known >> k) for k in range(LENGTHS_WITHIN)}
    growth = (longest / known) ** (1 / LENGTHS_BEYOND)
    return sorted(within | {round(known * growth**k) for k in range(1, LENGTHS_BEYOND + 1)})


def _read_prefixes(
    readers: Sequence[EvaluatedModel], strings: EvaluationStrings, lengths: list[int]
) -> Iterator[StateReading]:
    """Read one set of strings, and yield what is known after the prefixes of each length."""
    starts, position = strings.start_states(), 0
    reading = GroupReading(readers, strings.count, starts)
    machine_states = _first_machine_states(strings, starts)
    for block, _ in strings.blocks(lengths[-1]):
        ends = [length - position for length in lengths if position < length <= position + block.shape[1]]
        for first, end in pairwise(sorted({0, *ends, block.shape[1]})):
            piece = block[:, first:end]
            predictions = _read_piece(reading, piece)
            machine_states = _walk(strings, machine_states, piece)
            if end in ends:
                yield StateReading(_join_states(reading), machine_states, predictions)
        position += block.shape[1]


def _read_fresh(
    readers: Sequence[EvaluatedModel], strings: EvaluationStrings, lengths: list[int]
) -> Iterator[StateReading]:
    """Read new strings of each length."""
    strings = replace(strings, count=FRESH_STRINGS)
    for length in lengths:
        tokens, _, starts = next(strings.draw_fresh(length))  # so few strings fit into memory at once
        reading = GroupReading(readers, len(tokens), starts)
        predictions = _read_piece(reading, tokens)
        machine_states = _walk(strings, _first_machine_states(strings, starts), tokens)
        yield StateReading(_join_states(reading), machine_states, predictions)


def _read_piece(reading: GroupReading, tokens: Tensor) -> Tensor:
    """Read the next symbols (S, L) of strings; return the predictions (R, S) after the last of them."""
    before, last = tokens[:, :-1], tokens[:, -1:]
    if before.shape[1]:
        for (piece,) in split_to_memory(reading, before):
            reading.skip(piece)
    parts = dict[int, Tensor]()
    for some_models, logits in reading.advance(last):
        largest, prediction = logits[:, :, -1].max(-1)
        parts[some_models.start] = torch.where(largest.isfinite(), prediction, -1)
    return torch.cat([parts[number] for number in sorted(parts)])


def _join_states(reading: GroupReading) -> Tensor:
    """Return the states of all models as real vectors, (R, S, N)."""
    return torch.stack(
        [torch.cat([value.flatten(1).float() for value in flatten_state(state)], dim=1) for state in reading.states()]
    )


def _first_machine_states(strings: EvaluationStrings, starts: Tensor | None) -> np.ndarray:
    return np.full(strings.count, strings.task.machine.start) if starts is None else starts.cpu().numpy()


def _walk(strings: EvaluationStrings, machine_states: np.ndarray, tokens: Tensor) -> np.ndarray:
    """Return the states of the automaton after further symbols: (S,), (S, L) -> (S,)."""
    table = strings.task.machine.table
    for symbols in tokens.t().cpu().numpy():
        machine_states = table[machine_states, symbols]
    return machine_states
