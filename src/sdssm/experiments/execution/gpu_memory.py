"""The GPU memory that trainings and evaluations need, so that several can share one GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sdssm.evaluation.correct_counts import MOST_NUMBERS
from sdssm.evaluation.sampled_accuracy import choose_lengths
from sdssm.runs.schema import RunConfig
from sdssm.tasks.evaluation_strings import MOST_SYMBOLS
from sdssm.training.engine import new_model

#: Bytes that a process occupies on a GPU at start: CUDA context, kernels, library workspaces.
CONTEXT_BYTES = 2**30
#: Copies of the activations of one symbol in a step: forward, saved for the gradient, and the gradient itself.
#: Measured on an H200: 6.8 MiB for one sd-ssm, 20.8 MiB for one lstm, with 128 strings of 40 symbols.
ACTIVATION_COPIES = 8
#: Copies of the parameters: themselves, two moments, gradients separate and joined, and one in reserve.
PARAMETER_COPIES = 6
#: Copies of the numbers of a piece of strings in an evaluation: states, parts of the readout, logits. Not measured.
READING_COPIES = 8
#: Bytes of a symbol of an evaluation: a token and its label, and copies of both in pieces.
SYMBOL_BYTES = 32
#: The part of a GPU's memory that is assigned; the rest is for memory that this estimate leaves out.
USABLE = 0.9
#: The smallest share: a GPU runs processes in turns, and more than eight at a time gain nothing.
LEAST_SHARE = 1 / 8


def bytes_needed(runs: Sequence[RunConfig]) -> int:
    """Return an estimate of the peak GPU memory of a group of runs that train side by side.

    >>> from sdssm.runs.schema import create_config, resolve_settings
    >>> from sdssm.tasks import get_task
    >>> run = create_config(get_task("a5"), 0, resolve_settings("sd-ssm", "paper", "a5"), "paper")
    >>> bytes_needed([run]) < bytes_needed([run] * 3) < 2 * 2**30
    True
    """
    first = runs[0]
    model = new_model(first)
    length = max(run.train_length for run in runs) + 1  # a query symbol may follow
    symbols = len(runs) * first.train.batch * length
    parameters = len(runs) * sum(leaf.numel() for leaf in model.parameters())
    pairs = symbols * length * model.numbers_per_pair
    return CONTEXT_BYTES + 4 * (
        ACTIVATION_COPIES * symbols * model.numbers_per_symbol + pairs + PARAMETER_COPIES * parameters
    )


def share_of(needed: int, memory: int) -> float:
    """Return the share of a GPU with `memory` bytes that `needed` bytes take.

    It is rounded up to thousandths and at most 1.

    >>> share_of(20 * 2**30, 80 * 2**30), share_of(2**20, 80 * 2**30), share_of(2**40, 80 * 2**30)
    (0.278, 0.125, 1.0)
    """
    share = max(LEAST_SHARE, needed / (USABLE * memory))
    return min(1.0, math.ceil(share * 1000) / 1000)


def evaluation_bytes(run: RunConfig, count: int, lengths: Sequence[int], strings: int) -> int:
    """Return an estimate of the peak GPU memory of runs that are evaluated side by side, without tables of strings.

    Args:
        run: the configuration of one of them.
        count: their number.
        lengths: the lengths of the evaluation.
        strings: the number of strings at each length.
    """
    model, longest = new_model(run), max(lengths)
    least = 1 if model.is_recurrent else longest  # other models read a whole string at least
    per_symbol = count * model.numbers_per_symbol + least * model.numbers_per_pair
    numbers = max(least * per_symbol, min(MOST_NUMBERS["cuda"], strings * longest * per_symbol))
    symbols = min(strings * longest, max(MOST_SYMBOLS, longest))
    return 4 * READING_COPIES * numbers + SYMBOL_BYTES * symbols


def table_bytes(run: RunConfig, lengths: Sequence[int]) -> int:
    """Return the memory of the tables from which balanced and covering strings of a run's task are drawn.

    >>> from sdssm.runs.schema import create_config, resolve_settings
    >>> from sdssm.tasks import get_task
    >>> run = create_config(get_task("a5"), 0, resolve_settings("sd-ssm", "paper", "a5"), "paper")
    >>> round(table_bytes(run, [5_000, 50_000]) / 2**20)  # in MiB; 60 states, 120 transitions
    58
    """
    machine, longest = run.load_task().minimal, max(choose_lengths(lengths), default=0)
    return 4 * longest * (machine.table.size + 3 * machine.n_states + 4)


def free_memory(device: torch.device) -> float:
    """Return how many bytes of a device evaluations may use; no limit on a CPU."""
    if device.type != "cuda":
        return math.inf
    free, _ = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return USABLE * (free + kept)
