"""A batch in pieces, whose gradients several threads compute and which are added in a fixed order.

The products of torch round differently on another number of threads. Here each piece is computed on one thread, and the
pieces depend on the batch alone, so the weights do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import wait

import torch
from torch import Tensor

from sdssm.ops.compiled import available_threads, thread_pool

#: The strings of a piece at least, and the number of pieces at most.
LEAST_STRINGS, MOST_PIECES = 64, 16
#: The axis of the strings in each input of one model, by its name; None: the same for all strings.
STRING_AXES = {
    "tokens": 0, "labels": 0, "lengths": 0, "ends": 0, "starts": 0, "noise.readout": 0, "noise.blocks": 3,
    "noise.mixers": None, "attraction": None, "classes": None,
}  # fmt: skip

#: Inputs by name; loss, number of correct predictions and gradients.
Inputs = Mapping[str, Tensor]
Gradient = tuple[Tensor, Tensor, list[Tensor]]


def split_batch(inputs: Inputs) -> list[Inputs]:
    """Return the inputs of each piece, or of the whole batch if it is small or its loss is not a mean over strings."""
    count = min(MOST_PIECES, len(inputs["tokens"]) // LEAST_STRINGS)
    if count < 2 or not inputs.keys() <= STRING_AXES.keys():
        return [inputs]
    parts = {
        name: [value] * count if (axis := STRING_AXES[name]) is None else value.tensor_split(count, axis)
        for name, value in inputs.items()
    }
    return [{name: values[i] for name, values in parts.items()} for i in range(count)]


def gradient_of_pieces(compute: Callable[[Inputs], Gradient], inputs: Inputs) -> Gradient:
    """Return what `compute` returns for the inputs of one model, from its results for the pieces.

    The loss is a mean over the strings. torch uses one thread for each piece.
    """
    pieces = split_batch(inputs)
    if len(pieces) == 1:
        return compute(inputs)
    threads = min(available_threads(), len(pieces))
    edges = [len(pieces) * i // threads for i in range(threads + 1)]

    def run(first: int, last: int) -> list[Gradient]:
        torch.set_num_threads(1)  # each thread of the pool has its own number
        return [compute(piece) for piece in pieces[first:last]]

    before = torch.get_num_threads()
    jobs = [thread_pool(threads - 1, "pieces").submit(run, *edges[i : i + 2]) for i in range(1, threads)]
    try:
        results = run(*edges[:2])
        for job in jobs:
            results += job.result()
    finally:
        wait(jobs)  # after an error too: they read parameters that the caller may change
        torch.set_num_threads(before)
    strings = len(inputs["tokens"])
    shares = [len(piece["tokens"]) / strings for piece in pieces]
    losses, counts, gradients = zip(*results, strict=True)
    return (
        _weighted_sum(losses, shares),
        torch.stack(counts).sum(0),
        [_weighted_sum(parts, shares) for parts in zip(*gradients, strict=True)],
    )


def _weighted_sum(values: tuple[Tensor, ...], shares: list[float]) -> Tensor:
    """Return the sum of the values times their shares, in this order."""
    total = values[0] * shares[0]
    for value, share in zip(values[1:], shares[1:], strict=True):
        total.add_(value, alpha=share)
    return total
