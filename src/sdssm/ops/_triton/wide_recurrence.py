# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The recurrence and its adjoint for matrices that are read in tiles, through shared memory.

recurrence.py holds two A_t in registers, which have no room for more than 128 x 128 entries each, and of which one is
on its way at a time. Here a program, which has one row as well, reads A_t in tiles: all rows and some columns forward,
all columns and some rows backward. One loop runs over the tiles of all steps, so that two tiles are on their way to
shared memory while one is used, also from one step to the next: the time of a step is that of reading its matrix.

The dimensions of a tile are split such that a thread adds up most entries of a sum itself, and no sum crosses warps. A
sum over 128 adjacent entries of each of 128 rows would take 80 exchanges between the lanes of a warp; it takes 12.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops._triton.tile import l2_norm, matrix_index


@triton.jit
def entries_of_tile(x, tile, TILES: tl.constexpr, TILE: tl.constexpr):
    """Return the TILE entries of x that belong to a tile."""
    if TILES == 1:
        return x
    else:
        by_tile = tl.reshape(x, (TILES, TILE))
        return tl.sum(tl.where(tl.arange(0, TILES)[:, None] == tile, by_tile, 0.0), axis=0)


@triton.jit(do_not_specialize=["L", "rows_per_replica"])
def wide_forward_kernel(
    A, tokens, weights, norms, b, x0, lengths, states, final, factors, L, rows_per_replica,
    count: tl.constexpr, SOURCE: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, TILE: tl.constexpr,
    WIDTH: tl.constexpr, STAGES: tl.constexpr, RESCALE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute x_t = A_t x_{t-1} + b_t, or with RESCALE x_t = z_t / ||z_t|| for z_t = A_t x_{t-1}."""
    row = tl.program_id(0).to(tl.int64)
    replica = row // rows_per_replica
    n = tl.arange(0, SP)
    mask = n < S
    tiles: tl.constexpr = SP // TILE
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)

    x = tl.zeros((SP,), ACC)
    if x0 is not None:
        x = tl.load(x0 + row * S + n, mask=mask, other=0.0).to(ACC)
    # Columns of a tile in groups of WIDTH: lanes have rows and entries of a group, and a thread has several groups.
    groups: tl.constexpr = TILE // WIDTH
    i = tl.arange(0, SP)[None, :, None]
    group = tl.arange(0, groups)[:, None, None] * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    acc = tl.zeros((SP, WIDTH), ACC)
    for number in tl.range(0, length * tiles, num_stages=STAGES):
        t = number // tiles
        tile = number % tiles
        index = matrix_index(tokens, row, replica, t, L, count, SOURCE)
        j = tile * TILE + group
        a = tl.load(A + (index * S + i) * S + j, mask=(i < S) & (j < S), other=0.0).to(ACC)
        entries = tl.reshape(entries_of_tile(x, tile, tiles, TILE), (groups, WIDTH))
        acc += tl.sum(a * entries[:, None, :], axis=0)
        if tile == tiles - 1:
            x = tl.sum(acc, axis=1)
            acc = tl.zeros((SP, WIDTH), ACC)
            if b is not None:
                x += tl.load(b + index * S + n, mask=mask, other=0.0).to(ACC)
            if RESCALE:
                norm = l2_norm(x[None, :], ACC)
                x = tl.where(norm > 0.0, x / norm, 0.0)  # a zero state stays zero
                tl.store(factors + row * L + t, tl.where(norm > 0.0, 1.0 / norm, 0.0))
            tl.store(states + (row * L + t) * S + n, x, mask=mask)

    for t in range(length, L):  # past the length of the row
        tl.store(states + (row * L + t) * S + n, tl.zeros((SP,), ACC), mask=mask)
        if RESCALE:
            tl.store(factors + row * L + t, 0.0)
    tl.store(final + row * S + n, x, mask=mask)


@triton.jit(do_not_specialize=["L", "rows_per_replica"])
def wide_backward_kernel(
    A, tokens, weights, norms, grad_states, grad_final, lengths, factors, adjoints, pullbacks, dx0,
    L, rows_per_replica,
    count: tl.constexpr, SOURCE: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, TILE: tl.constexpr,
    WIDTH: tl.constexpr, LANES: tl.constexpr, STAGES: tl.constexpr, RESCALE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute dz_t = factor_t (g_t + h_{t+1}) and h_t = A_t^T dz_t, backwards in t, as recurrence_backward_kernel does.

    The gradients from outside are without their components along the states, if RESCALE.
    """
    row = tl.program_id(0).to(tl.int64)
    replica = row // rows_per_replica
    n = tl.arange(0, SP)
    mask = n < S
    tiles: tl.constexpr = SP // TILE
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)

    zeros = tl.zeros((SP,), ACC)
    for t in range(length, L):  # past the length of the row
        tl.store(adjoints + (row * L + t) * S + n, zeros, mask=mask)
        if pullbacks is not None:
            tl.store(pullbacks + (row * L + t) * S + n, zeros, mask=mask)

    h = zeros
    if grad_final is not None:
        h += tl.load(grad_final + row * S + n, mask=mask, other=0.0).to(ACC)
    dz = zeros
    # Tiles as (rows, groups of columns, LANES rows, WIDTH columns): a warp has groups of columns, and all their rows.
    below: tl.constexpr = TILE // LANES
    groups: tl.constexpr = SP // WIDTH
    lane = tl.arange(0, below)[:, None, None, None] * LANES + tl.arange(0, LANES)[None, None, :, None]
    j = tl.arange(0, groups)[None, :, None, None] * WIDTH + tl.arange(0, WIDTH)[None, None, None, :]
    acc = tl.zeros((groups, LANES, WIDTH), ACC)
    for number in tl.range(0, length * tiles, num_stages=STAGES):
        t = length - 1 - number // tiles
        tile = number % tiles
        place = (row * L + t) * S
        index = matrix_index(tokens, row, replica, t, L, count, SOURCE)
        i = tile * TILE + lane
        a = tl.load(A + (index * S + i) * S + j, mask=(i < S) & (j < S), other=0.0).to(ACC)
        if tile == 0:
            dz = h
            if grad_states is not None:
                dz += tl.load(grad_states + place + n, mask=mask, other=0.0).to(ACC)
            if RESCALE:
                dz = dz * tl.load(factors + row * L + t).to(ACC)
            tl.store(adjoints + place + n, dz, mask=mask)
        entries = tl.reshape(entries_of_tile(dz, tile, tiles, TILE), (below, LANES))
        acc += tl.sum(a * entries[:, None, :, None], axis=0)
        if tile == tiles - 1:
            h = tl.reshape(tl.sum(acc, axis=1), (SP,))
            acc = tl.zeros((groups, LANES, WIDTH), ACC)
            if pullbacks is not None:
                tl.store(pullbacks + place + n, h, mask=mask)
    tl.store(dx0 + row * S + n, h, mask=mask)
