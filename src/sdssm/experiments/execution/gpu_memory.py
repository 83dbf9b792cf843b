"""How much of a GPU a group of replicas needs, by rule: so that Ray puts as many on one as fit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sdssm.runs.schema import RunConfig
from sdssm.training.engine import new_model

#: Bytes that a process holds on a GPU before it does anything: the driver's context, kernels, libraries' own room.
CONTEXT = 2**30
#: Times that the numbers of one symbol are held in a step: forward, for the gradient, and the gradient itself.
#: Measured on an H200: 6.8 MiB for one sd-ssm, 20.8 MiB for one lstm, of 128 strings of 40 symbols.
HELD = 8
#: Times that the parameters are held: themselves, two moments, gradients as leaves and joined, and one to spare.
COPIES = 6
#: The part of a GPU's memory that is shared out: the rest is for what rules do not know.
USABLE = 0.9
#: The least share: a GPU gives processes turns, and more than so many at a time gain nothing.
LEAST = 1 / 8


def bytes_needed(runs: Sequence[RunConfig]) -> int:
    """About the most that a group of runs side by side holds on a GPU.

    >>> from sdssm.runs.schema import configure, resolve
    >>> from sdssm.tasks import get_task
    >>> one = configure(get_task("a5"), 0, resolve("sd-ssm", "paper", "a5"), "paper")
    >>> bytes_needed([one]) < bytes_needed([one] * 3) < 2 * 2**30
    True
    """
    first = runs[0]
    model = new_model(first)
    length = max(run.train_length for run in runs) + 1  # a query may follow
    symbols = len(runs) * first.train.batch * length
    parameters = len(runs) * sum(leaf.numel() for leaf in model.parameters())
    pairs = symbols * length * sum(mixer.pairs for mixer in model.mixers)
    return CONTEXT + 4 * (HELD * symbols * model.numbers + pairs + COPIES * parameters)


def share_of(needed: int, memory: int) -> float:
    """The share of a GPU with so much memory, in thousandths rounded up, the whole at most.

    >>> share_of(20 * 2**30, 80 * 2**30), share_of(2**20, 80 * 2**30), share_of(2**40, 80 * 2**30)
    (0.278, 0.125, 1.0)
    """
    share = max(LEAST, needed / (USABLE * memory))
    return min(1.0, math.ceil(share * 1000) / 1000)
