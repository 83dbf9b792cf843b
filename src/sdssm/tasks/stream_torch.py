"""The string stream in plain torch, on any device.

The other implementations are tested against this one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm.tasks.philox import ENDS, STARTS, STRINGS, WORD, random_words
from sdssm.tasks.sampling import BALANCED, UNIFORM
from sdssm.tasks.stream_tables import StreamTables
from sdssm.tasks.walk_tables import LARGEST_WORD, WalkTables


def fill_strings(
    tables: StreamTables,
    seeds: Tensor,
    first: Tensor,
    lengths: Tensor,
    tokens: Tensor,
    labels: Tensor,
    states: Tensor,
    starts: Tensor,
) -> None:
    """Fill tokens (M, R, B, width), labels (M, R, B) and, unless they are empty, states and starts (M, R, B)."""
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
    if tables.walk is not None and M:
        kind = tables.kinds[:, torch.arange(batch, device=seeds.device) % tables.kinds.shape[1]]  # (R, B)
        ends = random_words(seeds, steps, ENDS, batch, 2)
        walked = _walk_backwards(tables, tables.walk, kind, ends, word, lengths)
        tokens.copy_(torch.where((kind == UNIFORM)[None, :, :, None], tokens, walked))
    tokens.mul_(inside)
    # Past the end of a string an extra symbol is read that leaves every state unchanged.
    unchanged = torch.arange(n_states, device=seeds.device)[:, None]
    after = (torch.cat([tables.table, unchanged], dim=1) * (n_symbols + 1)).flatten()
    symbols = torch.where(inside, tokens, n_symbols).movedim(-1, 0).contiguous()  # (width, M, R, B)
    state = state * (n_symbols + 1)
    for symbol in symbols:
        state = torch.take(after, state + symbol)
    state = state // (n_symbols + 1)
    labels.copy_(torch.take(tables.outputs, state))
    if states.numel():
        states.copy_(state - tables.states[0, None, :, None])


def _choose_valid_symbols(tables: StreamTables, word: Tensor, lengths: Tensor, tokens: Tensor) -> None:
    """Fill tokens with the symbols of valid strings, position by position.

    Symbols past the end of a string are arbitrary.
    """
    state = torch.full_like(word[..., 0], tables.valid_start)
    for t in range(word.shape[-1]):
        remaining = (lengths - 1 - t).clamp(min=0)[..., None]  # (M, R, 1)
        passed = word[..., t, None] >= tables.thresholds[remaining, state]  # (M, R, B, V)
        tokens[..., t] = symbol = passed[..., :-1].sum(-1)
        state = tables.valid_table[state, symbol]


def _walk_backwards(
    tables: StreamTables, walk: WalkTables, kind: Tensor, ends: Tensor, word: Tensor, lengths: Tensor
) -> Tensor:
    """Return balanced and covering strings (M, R, B, width); symbols past the end of a string are arbitrary.

    `kind` is (R, B), `ends` (M, R, B, 2) and `word` (M, R, B, width). A string of another kind is arbitrary.
    """
    n_symbols = tables.table.shape[1]
    balanced = (kind == BALANCED)[None].expand_as(ends[..., 0])
    last_state = _choose_last_state(walk, ends, lengths)
    before, last_symbol = _choose_last_transition(tables, walk, ends[..., 0], lengths)
    state = torch.where(balanced, last_state, before)
    position = lengths[..., None] - torch.where(balanced, 0, 1)  # how many symbols are still to be chosen
    tokens = torch.zeros_like(word)
    tokens.scatter_(-1, (lengths[..., None, None] - 1).expand_as(tokens[..., :1]), last_symbol[..., None])
    for t in reversed(range(word.shape[-1])):
        low, high = walk.first_edge[state], walk.first_edge[state + 1] - 1
        chosen = _search(walk, walk.thresholds[t], low, high, word[..., t])
        edge = walk.edges[chosen.clamp(max=len(walk.edges) - 1)].long()
        tokens[..., t] = torch.where(t < position, edge % n_symbols, tokens[..., t])
        state = torch.where(t < position, edge // n_symbols, state)
    return tokens


def _choose_last_state(walk: WalkTables, ends: Tensor, lengths: Tensor) -> Tensor:
    """Choose a label among those that occur at each length, and a state with it: (M, R, B)."""
    row, replica = (lengths - 1)[..., None], torch.arange(lengths.shape[1], device=lengths.device)[None, :, None]
    index = ends[..., 0] * walk.n_labels[row, replica] >> 32
    label = walk.labels[row, walk.first_label[replica] + index].long()
    first, last = walk.first_of_label[label].long(), walk.last_of_label[label].long()
    return walk.states[_search(walk, walk.state_thresholds[row], first, last, ends[..., 1])].long()


def _choose_last_transition(
    tables: StreamTables, walk: WalkTables, word: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Choose a state before the last symbol, and this symbol: two tensors (M, R, B)."""
    row, replica = (lengths - 1)[..., None], torch.arange(lengths.shape[1], device=lengths.device)[None, :, None]
    pair = word * walk.n_pairs[row, replica] >> 32
    first, last = (bound[None, :, None].expand_as(pair) for bound in tables.states)
    state = _search(walk, walk.pairs[row], first, last, pair)
    before = torch.where(state > first, walk.pairs[row, (state - 1).clamp(min=0)], 0)
    return state, walk.symbols[state, pair - before].long()


def _search(walk: WalkTables, thresholds: Tensor, low: Tensor, high: Tensor, word: Tensor) -> Tensor:
    """Return the first index in low..high whose threshold is above the word; high if there is none.

    `thresholds` is (E,), or (M, R, 1, E) with a row for each step and replica.
    """
    word = word.clamp(max=LARGEST_WORD)
    for _ in range(walk.depth):
        middle = (low + high) // 2
        if thresholds.ndim == 1:
            value = thresholds[middle.clamp(max=len(thresholds) - 1)]
        else:
            value = thresholds.flatten(2).gather(-1, middle)
        passed = (value.long() & WORD) <= word
        low, high = torch.where(passed & (low < high), middle + 1, low), torch.where(passed, high, middle)
    return low


def fill_uniform(seeds: Tensor, step: Tensor, purpose: int, out: Tensor) -> None:
    """Fill out (R, rows, width), float32, from the upper 24 bits of each word."""
    word = random_words(seeds, step[None], purpose, out.shape[1], out.shape[2])[0]
    out.copy_((word >> 8) * 2.0**-24)
