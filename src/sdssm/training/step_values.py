"""The values of each step that are computed on the host before: lengths, learning rates, ramps, random seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sdssm.runs.schema import RunConfig
from sdssm.tasks import Task
from sdssm.tasks.philox import DROPOUT, random_words
from sdssm.tasks.stream import StringStream
from sdssm.training import schedules

#: The purpose of the random words that seed someone else's module; the three before it are dropout of our own models.
MODULES = DROPOUT + 3


def occurring_classes(tasks: Sequence[Task], runs: Sequence[RunConfig]) -> list[frozenset[int]]:
    """Return the labels that occur among the training strings of each run, computed once for all seeds."""
    known: dict[tuple[str, int, int], frozenset[int]] = {}
    classes = []
    for task, run in zip(tasks, runs, strict=True):
        key = task.digest, run.train_length, run.train.shortest
        if key not in known:
            known[key] = task.possible_labels(run.train_length, run.train.shortest)
        classes.append(known[key])
    return classes


def plan_steps(
    runs: Sequence[RunConfig],
    stream: StringStream,
    start: int,
    count: int,
    ramped_buffers: Sequence[str],
    attractions: Sequence[float],
) -> tuple[schedules.Ints, np.ndarray]:
    """Return the string lengths (count, R) and scheduled values (count, R, columns) of the next steps.

    The columns are the learning rate, Adam's two bias corrections, the weight of the centre loss or of the next states,
    and the ramped buffers.
    """
    step = np.arange(start, start + count)
    values = []
    for run, attraction in zip(runs, attractions, strict=True):
        beta1, beta2 = run.train.betas
        columns = [schedules.learning_rate(run, step), 1 - beta1 ** (step + 1.0), 1 - beta2 ** (step + 1.0)]
        columns.append(schedules.auxiliary_weight(run.train, attraction, step))
        values.append(np.stack([*columns, *(ramp_value(run, name, step) for name in ramped_buffers)], axis=-1))
    return schedules.lengths(runs, stream, start, count), np.stack(values, axis=1).astype(np.float32)


def transition_tables(tasks: Sequence[Task], device: torch.device) -> torch.Tensor:
    """Return the tables of the minimal machines, int64 (R, Q, V), padded with 0 to as many states as the largest."""
    tables = [torch.from_numpy(task.minimal.table) for task in tasks]
    padded = torch.zeros(len(tables), max(map(len, tables)), tables[0].shape[1], dtype=torch.int64)
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    return padded.to(device)


def ramp_value(run: RunConfig, name: str, step: schedules.Ints) -> schedules.Floats:
    """Return the value of a ramped buffer at each step."""
    return schedules.ramp(*run.model.ramps()[name], run.train.steps, step)


def module_seeds(seeds: torch.Tensor, first: int, count: int) -> schedules.Ints:
    """Return where the random numbers of a module start, (count, R): for seeds (R,) and each of `count` steps."""
    words = random_words(seeds.cpu(), torch.arange(first, first + count), MODULES, 1, 2)[:, :, 0].numpy()
    return np.asarray((words[..., 0] << 31) ^ words[..., 1])
