"""The prefixes of training strings whose labels are part of the loss."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.tasks.stream_tables import StreamTables


def prefix_ends(lengths: Tensor, count: int) -> Tensor:
    """Return the lengths of `count` evenly spaced prefixes of strings: lengths (...) -> (..., count).

    The last prefix is the whole string. Of a string with fewer symbols than `count` some prefixes occur several times.

    >>> prefix_ends(torch.tensor([8, 3]), 4).tolist()
    [[2, 4, 6, 8], [1, 2, 3, 3]]
    """
    parts = torch.arange(1, count + 1, device=lengths.device)
    return (parts * lengths[..., None] + count - 1) // count


def label_prefixes(tables: StreamTables, tokens: Tensor, ends: Tensor, starts: Tensor | None) -> Tensor:
    """Return the labels (M, R, B, P) of the prefixes with lengths `ends` (M, R, P) of strings (M, R, B, width).

    `starts` (M, R, B) are the states that the strings start from, as in `StringBatch`; None: the start state.
    """
    n_symbols = tables.table.shape[1]
    state = tables.start[None, :, None].expand(tokens.shape[:-1]) if starts is None else starts
    path = []
    for symbol in tokens.unbind(-1):
        state = torch.take(tables.table, state * n_symbols + symbol)
        path.append(tables.outputs[state])
    index = (ends - 1)[:, :, None].expand(*tokens.shape[:-1], -1)
    return torch.stack(path, -1).gather(-1, index)
