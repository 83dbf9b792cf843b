# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The recurrence and its adjoint for matrices that do not fit the registers of one multiprocessor.

recurrence.py holds two A_t in registers, which have no room for more than 128 x 128 entries each. Here a program, which
has one row as well, reads A_t in tiles: all rows and a few columns forward, all columns and a few rows backward. One
loop runs over the tiles of all steps, so that the next tiles are on their way to shared memory while one is used, also
from one step to the next: the time of a step is that of reading its matrix.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops._triton.tile import l2_norm, matrix_index


@triton.jit
def entries_of_tile(x, tile, TILES: tl.constexpr, TILE: tl.constexpr):
    """Return the TILE entries of x that belong to a tile."""
    by_tile = tl.reshape(x, (TILES, TILE))
    return tl.sum(tl.where(tl.arange(0, TILES)[:, None] == tile, by_tile, 0.0), axis=0)


@triton.jit(do_not_specialize=["L", "rows_per_replica"])
def wide_forward_kernel(
    A, tokens, weights, norms, b, x0, lengths, states, final, factors, L, rows_per_replica,
    count: tl.constexpr, SOURCE: tl.constexpr, S: tl.constexpr, SP: tl.constexpr, TILE: tl.constexpr,
    STAGES: tl.constexpr, RESCALE: tl.constexpr, ACC: tl.constexpr,
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
    acc = tl.zeros((SP, TILE), ACC)
    for number in tl.range(0, length * tiles, num_stages=STAGES):
        t = number // tiles
        tile = number % tiles
        index = matrix_index(tokens, row, replica, t, L, count, SOURCE)
        j = tile * TILE + tl.arange(0, TILE)
        inside = mask[:, None] & (j < S)[None, :]
        a = tl.load(A + (index * S + n[:, None]) * S + j[None, :], mask=inside, other=0.0).to(ACC)
        acc += a * entries_of_tile(x, tile, tiles, TILE)[None, :]
        if tile == tiles - 1:
            x = tl.sum(acc, axis=1)
            acc = tl.zeros((SP, TILE), ACC)
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
    STAGES: tl.constexpr, RESCALE: tl.constexpr, ACC: tl.constexpr,
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
    acc = tl.zeros((TILE, SP), ACC)
    for number in tl.range(0, length * tiles, num_stages=STAGES):
        t = length - 1 - number // tiles
        tile = number % tiles
        place = (row * L + t) * S
        index = matrix_index(tokens, row, replica, t, L, count, SOURCE)
        i = tile * TILE + tl.arange(0, TILE)
        inside = (i < S)[:, None] & mask[None, :]
        a = tl.load(A + (index * S + i[:, None]) * S + n[None, :], mask=inside, other=0.0).to(ACC)
        if tile == 0:
            dz = h
            if grad_states is not None:
                dz += tl.load(grad_states + place + n, mask=mask, other=0.0).to(ACC)
            if RESCALE:
                dz = dz * tl.load(factors + row * L + t).to(ACC)
            tl.store(adjoints + place + n, dz, mask=mask)
        acc += a * entries_of_tile(dz, tile, tiles, TILE)[:, None]
        if tile == tiles - 1:
            h = tl.sum(acc, axis=0)
            acc = tl.zeros((TILE, SP), ACC)
            if pullbacks is not None:
                tl.store(pullbacks + place + n, h, mask=mask)
    tl.store(dx0 + row * S + n, h, mask=mask)
