"""The string stream on the CPU, compiled by numba; imported only if numba is installed."""

# Numba infers the types of kernel arguments at each call, so the kernels are not annotated.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from numba import int64, njit
from torch import Tensor

from sdssm.tasks.philox import ENDS, FACTORS, INCREMENTS, ROUNDS, STARTS, STRINGS, WORD
from sdssm.tasks.sampling import BALANCED, UNIFORM
from sdssm.tasks.stream_tables import StreamTables
from sdssm.tasks.walk_tables import LARGEST_WORD

M0, M1 = FACTORS
W0, W1 = INCREMENTS
#: Options of kernels, and of functions that only kernels call: no code that other languages, or Python, would call.
KERNEL: dict[str, Any] = {"nogil": True, "cache": True, "no_cfunc_wrapper": True}
INNER = {**KERNEL, "no_cpython_wrapper": True}
# Numbers passed to `philox4x32` and `search` are converted to int64: numba would compile them again for each literal.


@njit(**INNER)
def philox4x32(c0, c1, c2, c3, seed):
    """Return four random words; as `philox.philox4x32`, for one counter."""
    k0, k1 = seed & WORD, seed >> 32 & WORD
    for _ in range(ROUNDS):
        left, right = c0 * M0, c2 * M1
        c0, c1 = (right >> 32 & WORD) ^ c1 ^ k0, right & WORD
        c2, c3 = (left >> 32 & WORD) ^ c3 ^ k1, left & WORD
        k0, k1 = k0 + W0 & WORD, k1 + W1 & WORD
    return c0, c1, c2, c3


@njit(**KERNEL)
def draw_kernel(
    table, outputs, start, first_state, valid_table, valid_start, thresholds, seeds, first, lengths, kinds,
    tokens, labels, states, before, starts,
):  # fmt: skip
    """Fill tokens, labels, states, before and starts of uniform strings.

    `thresholds` is empty if every string is valid, `starts` if all strings start in the machine's start state; else
    `states` and `before` are empty.
    """
    count, replicas, batch, width = tokens.shape
    n_states, n_symbols = table.shape
    for m in range(count):
        step = first + m & WORD
        for r in range(replicas):
            seed, length = seeds[r], lengths[m, r]
            for b in range(batch):
                if kinds[r, b % kinds.shape[1]] != UNIFORM:
                    continue
                state, valid_state, row = start[r], valid_start, tokens[m, r, b]
                if starts.shape[0]:
                    state = philox4x32(int64(0), b, step, int64(STARTS), seed)[0] * n_states >> 32
                    starts[m, r, b] = state
                previous = state
                for block in range((length + 3) // 4):
                    w0, w1, w2, w3 = philox4x32(block, b, step, int64(STRINGS), seed)
                    for t in range(4 * block, min(4 * block + 4, length)):
                        word, w0, w1, w2 = w0, w1, w2, w3
                        if thresholds.shape[2]:
                            token = 0
                            for v in range(n_symbols - 1):
                                token += word >= thresholds[length - 1 - t, valid_state, v]
                            valid_state = valid_table[valid_state, token]
                        else:
                            token = word * n_symbols >> 32
                        row[t] = token
                        previous, state = state, table[state, token]
                for t in range(length, width):
                    row[t] = 0
                labels[m, r, b] = outputs[state]
                if states.shape[0]:
                    states[m, r, b] = state - first_state[r]
                    before[m, r, b] = previous - first_state[r]


@njit(**KERNEL)
def search(thresholds, low, high, word):
    """Return the first index in low..high whose threshold is above the word; high if there is none."""
    word = min(word, LARGEST_WORD)
    while low < high:
        middle = (low + high) // 2
        if (thresholds[middle] & WORD) <= word:
            low = middle + 1
        else:
            high = middle
    return low


@njit(**KERNEL)
def walk_kernel(
    table, outputs, first_state, last_state,
    first_edge, edges, thresholds, by_label, state_thresholds, first_of_label, last_of_label, possible, first_label,
    n_labels, pairs, n_pairs, symbols,
    seeds, first, lengths, kinds, tokens, labels, states, before,
):  # fmt: skip
    """Fill tokens, labels, states and before of balanced and covering strings, each from its end to its start."""
    count, replicas, batch, width = tokens.shape
    n_symbols = table.shape[1]
    for m in range(count):
        step = first + m & WORD
        for r in range(replicas):
            seed, length = seeds[r], lengths[m, r]
            for b in range(batch):
                kind, row = kinds[r, b % kinds.shape[1]], tokens[m, r, b]
                if kind == UNIFORM:
                    continue
                w0, w1, w2, w3 = philox4x32(int64(0), b, step, int64(ENDS), seed)
                if kind == BALANCED:
                    label = possible[length - 1, first_label[r] + (w0 * n_labels[length - 1, r] >> 32)]
                    low, high = int64(first_of_label[label]), int64(last_of_label[label])
                    end = int(by_label[search(state_thresholds[length - 1], low, high, w1)])
                    state, remaining = end, length
                else:
                    pair = w0 * n_pairs[length - 1, r] >> 32
                    state = search(pairs[length - 1], int64(first_state[r]), int64(last_state[r]), pair)
                    if state > first_state[r]:
                        pair -= pairs[length - 1, state - 1]
                    row[length - 1] = symbols[state, pair]
                    end, remaining = table[state, row[length - 1]], length - 1
                previous = state
                for block in range((remaining - 1) // 4, -1, -1):
                    w0, w1, w2, w3 = philox4x32(block, b, step, int64(STRINGS), seed)
                    for t in range(4 * block + 3, 4 * block - 1, -1):
                        word, w3, w2, w1 = w3, w2, w1, w0
                        if t < remaining:
                            chosen = search(
                                thresholds[t], int64(first_edge[state]), int64(first_edge[state + 1] - 1), word
                            )
                            edge = int(edges[chosen])
                            state, row[t] = edge // n_symbols, edge % n_symbols
                            if t == length - 1:
                                previous = state
                for t in range(length, width):
                    row[t] = 0
                labels[m, r, b] = outputs[end]
                states[m, r, b] = end - first_state[r]
                before[m, r, b] = previous - first_state[r]


@njit(**KERNEL)
def uniform_kernel(seeds, step, purpose, out):
    """Fill out (R, rows, width), float32, from the upper 24 bits of each word."""
    replicas, rows, width = out.shape
    for r in range(replicas):
        for b in range(rows):
            row = out[r, b]
            for block in range((width + 3) // 4):
                w0, w1, w2, w3 = philox4x32(block, b, step & WORD, purpose, seeds[r])
                for t in range(4 * block, min(4 * block + 4, width)):
                    row[t] = (w0 >> 8) * 2.0**-24
                    w0, w1, w2 = w1, w2, w3


def fill_strings(
    tables: StreamTables,
    seeds: Tensor,
    first: Tensor,
    lengths: Tensor,
    tokens: Tensor,
    labels: Tensor,
    states: Tensor,
    before: Tensor,
    starts: Tensor,
) -> None:
    """Fill tokens (M, R, B, width), labels, and unless they are empty states, before and starts, all (M, R, B)."""
    table, outputs, kinds = tables.table.numpy(), tables.outputs.numpy(), tables.kinds.numpy()
    first_state, last_state = tables.states.numpy()
    drawn = seeds.numpy(), int(first), lengths.contiguous().numpy(), kinds, tokens.numpy(), labels.numpy()
    draw_kernel(
        table, outputs, tables.start.numpy(), first_state, tables.valid_table.numpy(), tables.valid_start,
        tables.thresholds.numpy(), *drawn, states.numpy(), before.numpy(), starts.numpy(),
    )  # fmt: skip
    walk = tables.walk
    if walk is None:
        return
    walk_kernel(
        table, outputs, first_state, last_state, walk.first_edge.numpy(), walk.edges.numpy(), walk.thresholds.numpy(),
        walk.states.numpy(), walk.state_thresholds.numpy(), walk.first_of_label.numpy(), walk.last_of_label.numpy(),
        walk.labels.numpy(), walk.first_label.numpy(), walk.n_labels.numpy(), walk.pairs.numpy(),
        walk.n_pairs.numpy(), walk.symbols.numpy(), *drawn, states.numpy(), before.numpy(),
    )  # fmt: skip


def fill_uniform(seeds: Tensor, step: Tensor, purpose: int, out: Tensor) -> None:
    """Fill out (R, rows, width), float32."""
    uniform_kernel(seeds.numpy(), int(step), purpose, out.numpy())
