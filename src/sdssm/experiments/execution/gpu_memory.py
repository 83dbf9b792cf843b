"""The GPU memory that a group of replicas needs, so that Ray can place several groups on one GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sdssm.runs.schema import RunConfig
from sdssm.training.engine import new_model

#: Bytes that a process occupies on a GPU at start: CUDA context, kernels, library workspaces.
CONTEXT_BYTES = 2**30
#: Copies of the activations of one symbol in a step: forward, saved for the gradient, and the gradient itself.
#: Measured on an H200: 6.8 MiB for one sd-ssm, 20.8 MiB for one lstm, with 128 strings of 40 symbols.
ACTIVATION_COPIES = 8
#: Copies of the parameters: themselves, two moments, gradients separate and joined, and one in reserve.
PARAMETER_COPIES = 6
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
