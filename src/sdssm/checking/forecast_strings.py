"""Strings of several lengths with common endings, and the classes of their prefixes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sdssm.exact.extraction.model_reader import trace_states
from sdssm.tasks import Task

#: The number of different endings that the strings have.
ENDINGS = 3
#: The states are measured at this many lengths; an ending is as long as the step from one to the next.
LENGTHS = 4
#: The shortest training strings of which a forecast can be made.
SHORTEST = 10
#: The number of symbols that are read from states of a longer string, to see what the model predicts.
SYMBOLS_AFTER = 4
#: Steps that leave fewer predictions with a label than this share are replaced by shorter ones, if these leave more.
LABELLED = 0.5


@dataclass(frozen=True, eq=False)
class ForecastStrings:
    """Random strings of several lengths, each a prefix of a string of the task and one of a few endings.

    A group are the strings of one class (a state of the task's minimal machine) with the same ending.

    Attributes:
        lengths: the lengths, in steps of `step`; the last is the training length.
        step: also the length of an ending.
        tokens: (B, L - step), the prefixes of the longest strings.
        endings: (B, step).
        n_groups: G, the number of groups.
        groups: for each length, the groups of the strings, (B,).
        after: (B, A), symbols that follow the longest strings.
        labels: (B, A), the labels after each of these symbols; -1 if the string is not valid.
    """

    lengths: tuple[int, ...]
    step: int
    tokens: Tensor
    endings: Tensor
    n_groups: int
    groups: tuple[Tensor, ...]
    after: Tensor
    labels: Tensor


def draw_strings(task: Task, strings: int, seed: int) -> ForecastStrings:
    """Draw strings of a task for a forecast.

    >>> from sdssm.tasks import get_task
    >>> drawn = draw_strings(get_task("parity"), 7, seed=0)
    >>> drawn.lengths, drawn.n_groups, drawn.labels.shape
    ((16, 24, 32, 40), 6, torch.Size([7, 4]))
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = task.sample(strings, task.longest_valid_length(task.train_length), generator=generator).tokens
    widest = tokens.shape[1] // (LENGTHS + 1)
    # If symbols alternate, as digits and signs do, a step of an odd number of symbols gives strings that are not valid.
    tried = (_with_step(task, tokens, step) for step in (widest, widest - 1, widest - 2) if step)
    best = next(tried)
    for other in tried:
        if labelled_share(best) >= LABELLED:
            break
        best = max(best, other, key=labelled_share)
    return best


def labelled_share(drawn: ForecastStrings) -> float:
    """Return the share of the predictions after the strings that have a label."""
    return float((drawn.labels >= 0).float().mean())


def _with_step(task: Task, tokens: Tensor, step: int) -> ForecastStrings:
    table, start, outputs = task.minimal
    strings, longest = tokens.shape
    kinds = torch.arange(strings) % ENDINGS
    endings = tokens[:ENDINGS, -step:][kinds % strings]
    # The symbols that follow are those of the next string at the place where the endings start.
    after = tokens.roll(-ENDINGS, 0)[:, longest - step :][:, :SYMBOLS_AFTER]
    lengths = tuple(longest - step * k for k in reversed(range(LENGTHS)))
    groups, classes, position = [], np.full(strings, start), 0
    for length in lengths:
        classes = trace_states(table, classes, tokens[:, position : length - step].numpy())[:, -1]
        position = length - step
        ended = trace_states(table, classes, endings.numpy())[:, -1]
        groups.append(torch.from_numpy(ended * ENDINGS + kinds.numpy()))
    labels = torch.from_numpy(outputs[trace_states(table, ended, after.numpy())])
    n_groups = len(table) * ENDINGS
    return ForecastStrings(lengths, step, tokens[:, :-step], endings, n_groups, tuple(groups), after, labels)
