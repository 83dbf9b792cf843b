# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The string stream on a GPU, with one kernel launch for all steps, seeds and uniform strings, and one for the others.

Each thread generates one string: four words from one counter, four symbols, four steps of the machine. The strings of a
program have the same sampling, also where strings take several samplings in turn. The host reads no value back, so a
launch can be captured in a CUDA graph.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sdssm.tasks.stream_tables import StreamTables

#: Strings or counters of one program: one per thread of a single warp, so that a few strings use many cores.
BLOCK = 32
#: Counters of a program that fills a tensor with numbers, and its warps.
COUNTERS, COUNTER_WARPS = 1_024, 4


@triton.jit
def philox4x32(c0, c1, c2, c3, seed):
    """Return four random words, as `philox.philox4x32`, for uint32 tensors and an int64 seed."""
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
    word, t, length, state, valid_state, previous, table, valid_table, thresholds, n_valid, n_symbols,
    VALID: tl.constexpr,
):  # fmt: skip
    """Return the symbol at position t, 0 past the end, the states of both machines after it, and one before the last.

    `previous` is returned unless t is the last position; then it is the state of the machine before it.
    """
    word = word.to(tl.int64)
    previous = tl.where(t == length - 1, state, previous)
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
    return token, state, valid_state, previous


@triton.jit
def locate(R, B, P, BLOCK: tl.constexpr):
    """Return step and replica as m R + r, which of the P samplings in turn it is, and the strings of this program."""
    blocks = tl.cdiv(tl.cdiv(B, P), BLOCK)
    program = tl.program_id(0)
    turn = (program // blocks) % P
    string = ((program % blocks) * BLOCK + tl.arange(0, BLOCK)) * P + turn
    return (program // (blocks * P)).to(tl.int64), turn, string


@triton.jit(do_not_specialize=["valid_start", "R", "B", "P", "width", "n_states", "n_valid", "n_symbols"])
def draw_kernel(
    table, outputs, valid_table, thresholds, seeds, first, lengths, tokens, labels, states, before, starts,
    start, first_state, kinds, valid_start, R, B, P, width, n_states, n_valid, n_symbols,
    VALID: tl.constexpr, RANDOM: tl.constexpr, KINDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fill tokens (M, R, B, width), labels, and if RANDOM starts, else states and before (M, R, B), int64.

    It fills uniform strings; unless KINDS all strings are uniform.
    """
    pair, turn, string = locate(R, B, P, BLOCK)
    if KINDS:  # noqa: SIM102  # a constant of the compiler, and a value of the device
        if tl.load(kinds + (pair % R) * P + turn) != 0:
            return
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
    previous = state
    for t in range(0, width, 4):
        first_token = tl.zeros((BLOCK,), tl.int64)
        second_token = first_token
        third_token = first_token
        fourth_token = first_token
        if t < length:
            w0, w1, w2, w3 = philox4x32(zero + (t // 4), row, step, zero, seed)
            first_token, state, valid_state, previous = read_symbol(
                w0, t, length, state, valid_state, previous, table, valid_table, thresholds, n_valid, n_symbols,
                VALID,
            )  # fmt: skip
            second_token, state, valid_state, previous = read_symbol(
                w1, t + 1, length, state, valid_state, previous, table, valid_table, thresholds, n_valid, n_symbols,
                VALID,
            )  # fmt: skip
            third_token, state, valid_state, previous = read_symbol(
                w2, t + 2, length, state, valid_state, previous, table, valid_table, thresholds, n_valid, n_symbols,
                VALID,
            )  # fmt: skip
            fourth_token, state, valid_state, previous = read_symbol(
                w3, t + 3, length, state, valid_state, previous, table, valid_table, thresholds, n_valid, n_symbols,
                VALID,
            )  # fmt: skip
        column = t + tl.arange(0, 4)[None, :]
        four = interleave(first_token, second_token, third_token, fourth_token)
        tl.store(tokens + index[:, None] * width + column, four, mask=in_range[:, None] & (column < width))
    tl.store(labels + index, tl.load(outputs + state), mask=in_range)
    if not RANDOM:
        begin = tl.load(first_state + pair % R)
        tl.store(states + index, state - begin, mask=in_range)
        tl.store(before + index, previous - begin, mask=in_range)


@triton.jit
def search(thresholds, low, high, word, depth):
    """Return the first index in low..high whose threshold is above the word; high if there is none."""
    word = tl.minimum(word, 0xFFFFFFFE)  # LARGEST_WORD
    for _ in range(depth):
        middle = (low + high) // 2
        passed = (tl.load(thresholds + middle).to(tl.int64) & 0xFFFFFFFF) <= word
        low = tl.where(passed & (low < high), middle + 1, low)
        high = tl.where(passed, high, middle)
    return low


@triton.jit
def choose_symbol(word, t, remaining, token, state, first_edge, edges, thresholds, n_edges, n_symbols, depth):
    """Return the symbol at position t and the state before it, or `token` and `state` if it is not to be chosen."""
    if t < remaining:
        low = tl.load(first_edge + state)
        high = tl.load(first_edge + state + 1) - 1
        chosen = search(thresholds + t * n_edges, low, high, word.to(tl.int64), depth)
        edge = tl.load(edges + chosen).to(tl.int64)
        token = edge % n_symbols
        state = edge // n_symbols
    return token, state


@triton.jit(do_not_specialize=["R", "B", "P", "width", "n_states", "n_edges", "n_labels", "n_symbols", "depth"])
def walk_kernel(
    table, outputs, first_edge, edges, thresholds, by_label, state_thresholds, first_of_label, last_of_label,
    possible, first_label, possible_counts, pairs, pair_counts, symbols,
    seeds, first, lengths, tokens, labels, states, before, first_state, last_state, kinds,
    R, B, P, width, n_states, n_edges, n_labels, n_symbols, depth, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fill tokens (M, R, B, width), labels, states and before (M, R, B) of balanced and covering strings, backwards."""
    pair, turn, string = locate(R, B, P, BLOCK)
    replica = pair % R
    kind = tl.load(kinds + replica * P + turn)
    if kind == 0:
        return
    in_range = string < B
    index = pair * B + string
    seed = tl.load(seeds + replica)
    length = tl.minimum(tl.load(lengths + pair), width)
    zero = tl.zeros((BLOCK,), tl.uint32)
    row = string.to(tl.uint32)
    step = zero + ((tl.load(first) + pair // R) & 0xFFFFFFFF).to(tl.uint32)
    w0, w1, _, _ = philox4x32(zero, row, step, zero + 65536, seed)  # ENDS
    last_token = tl.zeros((BLOCK,), tl.int64)
    remaining = length
    begin = tl.load(first_state + replica)
    if kind == 1:
        number = (w0.to(tl.int64) * tl.load(possible_counts + (length - 1) * R + replica)) >> 32
        label = tl.load(possible + (length - 1) * n_labels + tl.load(first_label + replica) + number)
        low = tl.load(first_of_label + label).to(tl.int64)
        high = tl.load(last_of_label + label).to(tl.int64)
        place = search(state_thresholds + (length - 1) * n_states, low, high, w1.to(tl.int64), depth)
        state = tl.load(by_label + place).to(tl.int64)
        end = state
    else:
        number = (w0.to(tl.int64) * tl.load(pair_counts + (length - 1) * R + replica)) >> 32
        low = tl.zeros((BLOCK,), tl.int64) + begin
        high = tl.zeros((BLOCK,), tl.int64) + tl.load(last_state + replica)
        cumulative = pairs + (length - 1) * n_states
        state = search(cumulative, low, high, number, depth)
        number -= tl.load(cumulative + state - 1, mask=state > begin, other=0)
        last_token = tl.load(symbols + state * n_symbols + number).to(tl.int64)
        end = tl.load(table + state * n_symbols + last_token)
        remaining = length - 1
    tl.store(labels + index, tl.load(outputs + end), mask=in_range)
    tl.store(states + index, end - begin, mask=in_range)
    none = tl.zeros((BLOCK,), tl.int64)
    previous = state  # of a covering string; the last symbol of a balanced one is still to be chosen
    for back in range(0, width, 4):
        t = (width - 1) // 4 * 4 - back
        # Past the end of a string tokens are 0; the last token of a covering string was chosen before.
        first_token = none + tl.where(t == length - 1, last_token, 0)
        second_token = none + tl.where(t + 1 == length - 1, last_token, 0)
        third_token = none + tl.where(t + 2 == length - 1, last_token, 0)
        fourth_token = none + tl.where(t + 3 == length - 1, last_token, 0)
        if t < remaining:
            w0, w1, w2, w3 = philox4x32(zero + (t // 4), row, step, zero, seed)
            fourth_token, state = choose_symbol(
                w3, t + 3, remaining, fourth_token, state, first_edge, edges, thresholds, n_edges, n_symbols, depth
            )
            previous = tl.where(t + 3 == length - 1, state, previous)
            third_token, state = choose_symbol(
                w2, t + 2, remaining, third_token, state, first_edge, edges, thresholds, n_edges, n_symbols, depth
            )
            previous = tl.where(t + 2 == length - 1, state, previous)
            second_token, state = choose_symbol(
                w1, t + 1, remaining, second_token, state, first_edge, edges, thresholds, n_edges, n_symbols, depth
            )
            previous = tl.where(t + 1 == length - 1, state, previous)
            first_token, state = choose_symbol(
                w0, t, remaining, first_token, state, first_edge, edges, thresholds, n_edges, n_symbols, depth
            )
            previous = tl.where(t == length - 1, state, previous)
        column = t + tl.arange(0, 4)[None, :]
        four = interleave(first_token, second_token, third_token, fourth_token)
        tl.store(tokens + index[:, None] * width + column, four, mask=in_range[:, None] & (column < width))
    tl.store(before + index, previous - begin, mask=in_range)


@triton.jit(do_not_specialize=["purpose", "rows", "width"])
def uniform_kernel(seeds, step, out, purpose, rows, width, FOURS: tl.constexpr, BLOCK: tl.constexpr):
    """Fill out (R, rows, width), float32, from BLOCK counters of a replica, each for four adjacent numbers of a row."""
    blocks = tl.cdiv(width, 4)
    replica = tl.program_id(1).to(tl.int64)
    group = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = group // blocks
    block = group - row * blocks
    zero = tl.zeros((BLOCK,), tl.uint32)
    steps = zero + (tl.load(step) & 0xFFFFFFFF).to(tl.uint32)
    seed = tl.load(seeds + replica)
    four = philox4x32(block.to(tl.uint32), row.to(tl.uint32), steps, zero + purpose, seed)
    words = interleave(four[0], four[1], four[2], four[3])
    column = block[:, None] * 4 + tl.arange(0, 4)[None, :]
    index = (replica * rows + row)[:, None] * width + column
    number = (words >> 8).to(tl.float32) * (1.0 / 16777216.0)
    if FOURS:  # the width is a multiple of four: a thread stores its four numbers at once
        tl.store(out + tl.multiple_of(index, [1, 4]), number, mask=(row < rows)[:, None])
    else:
        tl.store(out + index, number, mask=(row < rows)[:, None] & (column < width))


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
    M, R, B, width = tokens.shape
    if M == 0:
        return
    n_states, n_symbols = tables.table.shape
    lengths, turns, walk = lengths.contiguous(), tables.kinds.shape[1], tables.walk
    programs = M * R * turns * triton.cdiv(triton.cdiv(B, turns), BLOCK)
    draw_kernel[(programs,)](
        tables.table, tables.outputs, tables.valid_table, tables.thresholds,
        seeds, first, lengths, tokens, labels, states, before, starts,
        tables.start, tables.states[0], tables.kinds, tables.valid_start,
        R, B, turns, width, n_states, len(tables.valid_table), n_symbols,
        VALID=tables.thresholds.numel() > 0, RANDOM=starts.numel() > 0, KINDS=walk is not None,
        BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip
    if walk is None:
        return
    walk_kernel[(programs,)](
        tables.table, tables.outputs, walk.first_edge, walk.edges, walk.thresholds, walk.states, walk.state_thresholds,
        walk.first_of_label, walk.last_of_label, walk.labels, walk.first_label, walk.n_labels, walk.pairs,
        walk.n_pairs, walk.symbols, seeds, first, lengths, tokens, labels, states, before,
        tables.states[0], tables.states[1], tables.kinds, R, B, turns, width, n_states, len(walk.edges),
        walk.labels.shape[1], n_symbols, walk.depth, BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip


def fill_uniform(seeds: Tensor, step: Tensor, purpose: int, out: Tensor) -> None:
    """Fill out (R, rows, width), float32."""
    R, rows, width = out.shape
    if out.numel() == 0:
        return
    programs = triton.cdiv(rows * triton.cdiv(width, 4), COUNTERS)
    uniform_kernel[(programs, R)](
        seeds, step, out, purpose, rows, width, FOURS=width % 4 == 0, BLOCK=COUNTERS, num_warps=COUNTER_WARPS
    )
