"""The string stream in plain torch, on any device. The other implementations are tested against this one."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.tasks.philox import STARTS, STRINGS, random_words
from sdssm.tasks.stream_tables import StreamTables


def draw(
    tables: StreamTables, seeds: Tensor, first: Tensor, lengths: Tensor, tokens: Tensor, labels: Tensor, starts: Tensor
) -> None:
    """Fill tokens (M, R, B, width), labels (M, R, B) and, unless it is empty, starts (M, R, B)."""
    M, _, batch, width = tokens.shape
    n_states, n_symbols = tables.table.shape
    steps = first + torch.arange(M, device=seeds.device)
    word = random_words(seeds, steps, STRINGS, batch, width)  # (M, R, B, width)
    inside = (torch.arange(width, device=seeds.device) < lengths[..., None])[:, :, None, :]  # (M, R, 1, width)
    state = tables.start[None, :, None].expand_as(labels)
    if starts.numel():
        state = random_words(seeds, steps, STARTS, batch, 1)[..., 0] * n_states >> 32
        starts.copy_(state)
    if tables.thresholds.numel():
        _choose_valid_symbols(tables, word, lengths, tokens)
    else:
        torch.bitwise_right_shift(word * n_symbols, 32, out=tokens)
    tokens.mul_(inside)
    # Past the end of a string an extra symbol is read that leaves every state unchanged.
    unchanged = torch.arange(n_states, device=seeds.device)[:, None]
    after = (torch.cat([tables.table, unchanged], dim=1) * (n_symbols + 1)).flatten()
    symbols = torch.where(inside, tokens, n_symbols).movedim(-1, 0).contiguous()  # (width, M, R, B)
    state = state * (n_symbols + 1)
    for symbol in symbols:
        state = torch.take(after, state + symbol)
    labels.copy_(torch.take(tables.outputs, state // (n_symbols + 1)))


def _choose_valid_symbols(tables: StreamTables, word: Tensor, lengths: Tensor, tokens: Tensor) -> None:
    """Fill tokens with the symbols of valid strings, position by position. Those past the end are arbitrary."""
    state = torch.full_like(word[..., 0], tables.valid_start)
    for t in range(word.shape[-1]):
        remaining = (lengths - 1 - t).clamp(min=0)[..., None]  # (M, R, 1)
        passed = word[..., t, None] >= tables.thresholds[remaining, state]  # (M, R, B, V)
        tokens[..., t] = symbol = passed[..., :-1].sum(-1)
        state = tables.valid_table[state, symbol]


def uniform(seeds: Tensor, step: Tensor, purpose: int, out: Tensor) -> None:
    """Fill out (R, rows, width), float32, from the upper 24 bits of each word."""
    word = random_words(seeds, step[None], purpose, out.shape[1], out.shape[2])[0]
    out.copy_((word >> 8) * 2.0**-24)
