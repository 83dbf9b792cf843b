# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The string stream on a GPU, with one kernel launch for all steps, seeds and strings.

Each thread generates one string: four words from one counter, four symbols, four steps of the machine. The host reads
no value back, so a launch can be captured in a CUDA graph.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sdssm.tasks.stream_tables import StreamTables

#: Strings or counters of one program: one per thread of a single warp, so that a few strings use many cores.
BLOCK = 32


@triton.jit
def philox4x32(c0, c1, c2, c3, seed):
    """Return four random words; as `philox.philox4x32`, for uint32 tensors of one shape and an int64 seed."""
    k0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    k1 = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    for _ in tl.static_range(10):
        left = c0.to(tl.uint64) * 0xD2511F53
        right = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (right >> 32).to(tl.uint32) ^ c1 ^ k0
        c2 = (left >> 32).to(tl.uint32) ^ c3 ^ k1
        c1 = right.to(tl.uint32)
        c3 = left.to(tl.uint32)
        k0 = (k0.to(tl.uint64) + 0x9E3779B9).to(tl.uint32)
        k1 = (k1.to(tl.uint64) + 0xBB67AE85).to(tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def interleave(first, second, third, fourth):
    """Interleave four tensors (S,) into one (S, 4)."""
    pairs = tl.join(tl.join(first, third), tl.join(second, fourth))
    return tl.reshape(pairs, (first.shape[0], 4))


@triton.jit
def read_symbol(
    word, t, length, state, valid_state, table, valid_table, thresholds, n_valid, n_symbols, VALID: tl.constexpr
):
    """Return the symbol at position t, 0 past the end, and the states of both machines after it."""
    word = word.to(tl.int64)
    token = (word * n_symbols) >> 32
    if VALID:
        row = thresholds + ((length - 1 - t) * n_valid + valid_state) * n_symbols
        token = tl.zeros_like(word)
        for v in range(n_symbols - 1):
            token += (word >= tl.load(row + v, mask=t < length, other=0)).to(tl.int64)
    token = tl.where(t < length, token, 0)
    state = tl.where(t < length, tl.load(table + state * n_symbols + token), state)
    if VALID:
        valid_state = tl.where(t < length, tl.load(valid_table + valid_state * n_symbols + token), valid_state)
    return token, state, valid_state


@triton.jit(do_not_specialize=["valid_start", "R", "B", "width", "n_states", "n_valid", "n_symbols"])
def draw_kernel(
    table, outputs, valid_table, thresholds, seeds, first, lengths, tokens, labels, starts,
    start, valid_start, R, B, width, n_states, n_valid, n_symbols,
    VALID: tl.constexpr, RANDOM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fill tokens (M, R, B, width), labels and, if RANDOM, starts (M, R, B), all int64."""
    blocks = tl.cdiv(B, BLOCK)
    pair = (tl.program_id(0) // blocks).to(tl.int64)  # m R + r
    string = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    in_range = string < B
    index = pair * B + string
    seed = tl.load(seeds + pair % R)
    length = tl.minimum(tl.load(lengths + pair), width)
    zero = tl.zeros((BLOCK,), tl.uint32)
    row = string.to(tl.uint32)
    step = zero + ((tl.load(first) + pair // R) & 0xFFFFFFFF).to(tl.uint32)
    state = tl.zeros((BLOCK,), tl.int64) + tl.load(start + pair % R)
    valid_state = tl.zeros((BLOCK,), tl.int64) + valid_start
    if RANDOM:
        word, _, _, _ = philox4x32(zero, row, step, zero + 2, seed)
        state = (word.to(tl.int64) * n_states) >> 32
        tl.store(starts + index, state, mask=in_range)
    for t in range(0, width, 4):
        first_token = tl.zeros((BLOCK,), tl.int64)
        second_token = first_token
        third_token = first_token
        fourth_token = first_token
        if t < length:
            w0, w1, w2, w3 = philox4x32(zero + (t // 4), row, step, zero, seed)
            first_token, state, valid_state = read_symbol(
                w0, t, length, state, valid_state, table, valid_table, thresholds, n_valid, n_symbols, VALID
            )
            second_token, state, valid_state = read_symbol(
                w1, t + 1, length, state, valid_state, table, valid_table, thresholds, n_valid, n_symbols, VALID
            )
            third_token, state, valid_state = read_symbol(
                w2, t + 2, length, state, valid_state, table, valid_table, thresholds, n_valid, n_symbols, VALID
            )
            fourth_token, state, valid_state = read_symbol(
                w3, t + 3, length, state, valid_state, table, valid_table, thresholds, n_valid, n_symbols, VALID
            )
        column = t + tl.arange(0, 4)[None, :]
        four = interleave(first_token, second_token, third_token, fourth_token)
        tl.store(tokens + index[:, None] * width + column, four, mask=in_range[:, None] & (column < width))
    tl.store(labels + index, tl.load(outputs + state), mask=in_range)


@triton.jit(do_not_specialize=["purpose", "rows", "width"])
def uniform_kernel(seeds, step, out, purpose, rows, width, BLOCK: tl.constexpr):
    """Fill out (R, rows, width), float32; each thread computes four adjacent numbers of one row."""
    blocks = tl.cdiv(width, 4)
    programs = tl.cdiv(rows * blocks, BLOCK)
    replica = (tl.program_id(0) // programs).to(tl.int64)
    group = (tl.program_id(0) % programs) * BLOCK + tl.arange(0, BLOCK)
    row = group // blocks
    zero = tl.zeros((BLOCK,), tl.uint32)
    steps = zero + (tl.load(step) & 0xFFFFFFFF).to(tl.uint32)
    seed = tl.load(seeds + replica)
    four = philox4x32((group % blocks).to(tl.uint32), row.to(tl.uint32), steps, zero + purpose, seed)
    words = interleave(four[0], four[1], four[2], four[3])
    column = (group % blocks)[:, None] * 4 + tl.arange(0, 4)[None, :]
    index = (replica * rows + row)[:, None] * width + column
    number = (words >> 8).to(tl.float32) * (1.0 / 16777216.0)
    tl.store(out + index, number, mask=(row < rows)[:, None] & (column < width))


def draw(
    tables: StreamTables, seeds: Tensor, first: Tensor, lengths: Tensor, tokens: Tensor, labels: Tensor, starts: Tensor
) -> None:
    """Fill tokens (M, R, B, width), labels (M, R, B) and, unless it is empty, starts (M, R, B)."""
    M, R, B, width = tokens.shape
    if M == 0:
        return
    n_states, n_symbols = tables.table.shape
    draw_kernel[(M * R * triton.cdiv(B, BLOCK),)](
        tables.table, tables.outputs, tables.valid_table, tables.thresholds,
        seeds, first, lengths.contiguous(), tokens, labels, starts,
        tables.start, tables.valid_start, R, B, width, n_states, len(tables.valid_table), n_symbols,
        VALID=tables.thresholds.numel() > 0, RANDOM=starts.numel() > 0, BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip


def uniform(seeds: Tensor, step: Tensor, purpose: int, out: Tensor) -> None:
    """Fill out (R, rows, width), float32."""
    R, rows, width = out.shape
    if out.numel() == 0:
        return
    programs = triton.cdiv(rows * triton.cdiv(width, 4), BLOCK)
    uniform_kernel[(R * programs,)](seeds, step, out, purpose, rows, width, BLOCK=BLOCK, num_warps=1)
