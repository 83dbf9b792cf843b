"""The string stream on the CPU, compiled by numba. This module is imported only if numba is installed."""

# Numba infers the types of kernel arguments at each call, so the kernels are not annotated.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from numba import njit
from torch import Tensor

from sdssm.tasks.philox import FACTORS, INCREMENTS, ROUNDS, STARTS, STRINGS, WORD
from sdssm.tasks.stream_tables import StreamTables

M0, M1 = FACTORS
W0, W1 = INCREMENTS


@njit(nogil=True, cache=True)
def philox4x32(c0, c1, c2, c3, seed):
    """Return four random words; as `philox.philox4x32`, for one counter."""
    k0, k1 = seed & WORD, seed >> 32 & WORD
    for _ in range(ROUNDS):
        left, right = c0 * M0, c2 * M1
        c0, c1 = (right >> 32 & WORD) ^ c1 ^ k0, right & WORD
        c2, c3 = (left >> 32 & WORD) ^ c3 ^ k1, left & WORD
        k0, k1 = k0 + W0 & WORD, k1 + W1 & WORD
    return c0, c1, c2, c3


@njit(nogil=True, cache=True)
def draw_kernel(
    table, outputs, start, valid_table, valid_start, thresholds, seeds, first, lengths, tokens, labels, starts
):
    """Fill tokens, labels and starts.

    `thresholds` is empty if every string is valid, `starts` if all strings start in the machine's start state.
    """
    count, replicas, batch, width = tokens.shape
    n_states, n_symbols = table.shape
    for m in range(count):
        step = first + m & WORD
        for r in range(replicas):
            seed, length = seeds[r], lengths[m, r]
            for b in range(batch):
                state, valid_state, row = start[r], valid_start, tokens[m, r, b]
                if starts.shape[0]:
                    state = philox4x32(0, b, step, STARTS, seed)[0] * n_states >> 32
                    starts[m, r, b] = state
                for block in range((length + 3) // 4):
                    w0, w1, w2, w3 = philox4x32(block, b, step, STRINGS, seed)
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
                        state = table[state, token]
                for t in range(length, width):
                    row[t] = 0
                labels[m, r, b] = outputs[state]


@njit(nogil=True, cache=True)
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


def draw(
    tables: StreamTables, seeds: Tensor, first: Tensor, lengths: Tensor, tokens: Tensor, labels: Tensor, starts: Tensor
) -> None:
    """Fill tokens (M, R, B, width), labels (M, R, B) and, unless it is empty, starts (M, R, B)."""
    draw_kernel(
        tables.table.numpy(), tables.outputs.numpy(), tables.start.numpy(),
        tables.valid_table.numpy(), tables.valid_start, tables.thresholds.numpy(),
        seeds.numpy(), int(first), lengths.contiguous().numpy(), tokens.numpy(), labels.numpy(), starts.numpy(),
    )  # fmt: skip


def uniform(seeds: Tensor, step: Tensor, purpose: int, out: Tensor) -> None:
    """Fill out (R, rows, width), float32."""
    uniform_kernel(seeds.numpy(), int(step), purpose, out.numpy())
