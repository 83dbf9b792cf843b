# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The recurrence and its adjoint, step by step inside one kernel.

A program runs one chunk of one row, t = start .. stop-1, with the state in registers; in recurrent mode the chunk is
the complete row. The matrix of the next step is loaded (or mixed) while the current one is applied: it does not depend
on the state, so its latency is hidden.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops._triton.tile import (
    ANY_LENGTH,
    TOKEN,
    coefficients,
    dictionary_tile,
    l2_norm,
    matrix_index,
    outside_gradient,
    transition,
)


@triton.jit(do_not_specialize=ANY_LENGTH)
def recurrence_forward_kernel(
    A, tokens, weights, norms, b, x0, carries, lengths, states, final, factors,
    L, T, C, rows_per_replica,
    count: tl.constexpr, SOURCE: tl.constexpr,
    H: tl.constexpr, S: tl.constexpr, HB: tl.constexpr, SP: tl.constexpr, KP: tl.constexpr,
    RESIDENT: tl.constexpr, PREFETCH: tl.constexpr, RESCALE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute x_t = A_t x_{t-1} + b_t, or with RESCALE z_t = A_t x_{t-1}, x_t = z_t / ||z_t||.

    carries (rows, C, N) holds the state at the end of every chunk: chunk c starts from carries[:, c-1], chunk 0 from
    x0.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // C
    chunk = (program % C).to(tl.int32)
    replica = row // rows_per_replica
    head = tl.program_id(1) * HB
    N: tl.constexpr = H * S

    block = (head + tl.arange(0, HB))[:, None]
    entry = tl.arange(0, SP)[None, :]
    n = block * S + entry
    mask = (block < H) & (entry < S)

    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    start = chunk * T
    end = tl.minimum(start + T, L)
    stop = tl.minimum(end, length)

    x = tl.zeros((HB, SP), ACC)
    if x0 is not None:
        x = tl.load(x0 + row * N + n, mask=mask & (chunk == 0), other=0.0).to(ACC)
    if carries is not None:
        x += tl.load(carries + (program - 1) * N + n, mask=mask & (chunk > 0), other=0.0).to(ACC)

    dictionary = A
    if RESIDENT:
        dictionary = dictionary_tile(A, replica, count, S, SP, KP)

    index = matrix_index(tokens, row, replica, start, L, count, SOURCE)
    ahead = matrix_index(tokens, row, replica, tl.minimum(start + 1, L - 1), L, count, SOURCE)
    w, rho = coefficients(weights, norms, index, count, S, SP, KP, SOURCE, RESIDENT, ACC)
    w_ahead, rho_ahead = coefficients(weights, norms, ahead, count, S, SP, KP, SOURCE, RESIDENT, ACC)
    if PREFETCH:
        a = transition(A, dictionary, w, rho, index, head, SOURCE, H, S, HB, SP, RESIDENT, ACC)
        if b is not None:
            bias = tl.load(b + index * N + n, mask=mask, other=0.0).to(ACC)
    for t in range(start, stop):
        further = matrix_index(tokens, row, replica, tl.minimum(t + 2, L - 1), L, count, SOURCE)
        w_further, rho_further = coefficients(weights, norms, further, count, S, SP, KP, SOURCE, RESIDENT, ACC)
        if PREFETCH:
            a_next = transition(A, dictionary, w_ahead, rho_ahead, ahead, head, SOURCE, H, S, HB, SP, RESIDENT, ACC)
            if b is not None:
                bias_next = tl.load(b + ahead * N + n, mask=mask, other=0.0).to(ACC)
        else:
            a = transition(A, dictionary, w, rho, index, head, SOURCE, H, S, HB, SP, RESIDENT, ACC)
            if b is not None:
                bias = tl.load(b + index * N + n, mask=mask, other=0.0).to(ACC)
        x = tl.sum(a * x[:, None, :], axis=2)
        if b is not None:
            x += bias
        if RESCALE:
            norm = l2_norm(x, ACC)
            inverse = tl.where(norm > 0.0, 1.0 / norm, 0.0)  # a zero state stays zero
            if tl.float64 == ACC:
                x = tl.where(norm > 0.0, x / norm, 0.0)
            else:
                x *= inverse
            tl.store(factors + row * L + t, inverse)
        tl.store(states + (row * L + t) * N + n, x, mask=mask)
        index, w, rho = ahead, w_ahead, rho_ahead
        ahead, w_ahead, rho_ahead = further, w_further, rho_further
        if PREFETCH:
            a = a_next
            if b is not None:
                bias = bias_next

    zeros = tl.zeros((HB, SP), ACC)
    for t in range(tl.maximum(start, stop), end):  # past the length of the row
        tl.store(states + (row * L + t) * N + n, zeros, mask=mask)
        if RESCALE:
            tl.store(factors + row * L + t, 0.0)
    if (length > start) & (length <= end) | (length == 0) & (chunk == 0):
        tl.store(final + row * N + n, x, mask=mask)


@triton.jit(do_not_specialize=ANY_LENGTH)
def recurrence_backward_kernel(
    A, tokens, weights, norms, grad_states, grad_final, carries, lengths, states, factors,
    adjoints, pullbacks, dx0,
    L, T, C, rows_per_replica,
    count: tl.constexpr, SOURCE: tl.constexpr,
    H: tl.constexpr, S: tl.constexpr, HB: tl.constexpr, SP: tl.constexpr, KP: tl.constexpr,
    RESIDENT: tl.constexpr, PREFETCH: tl.constexpr, RESCALE: tl.constexpr, PROJECT: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Compute dz_t = factor_t (g_t + h_{t+1}) and h_t = A_t^T dz_t, backwards in t.

    g_t is the gradient that reaches x_t from outside. adjoints holds dz_t, the gradient of A_t x_{t-1} + b_t;
    pullbacks, if not None, h_t, the gradient that step t passes to x_{t-1}; dx0 is h at the first step.
    carries (rows, C, N) holds the h that enters each chunk from the next one.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // C
    chunk = (program % C).to(tl.int32)
    replica = row // rows_per_replica
    head = tl.program_id(1) * HB
    N: tl.constexpr = H * S

    block = (head + tl.arange(0, HB))[:, None]
    entry = tl.arange(0, SP)[None, :]
    n = block * S + entry
    mask = (block < H) & (entry < S)

    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    start = chunk * T
    end = tl.minimum(start + T, L)
    stop = tl.minimum(end, length)

    zeros = tl.zeros((HB, SP), ACC)
    for t in range(tl.maximum(start, stop), end):  # past the length of the row
        tl.store(adjoints + (row * L + t) * N + n, zeros, mask=mask)
        if pullbacks is not None:
            tl.store(pullbacks + (row * L + t) * N + n, zeros, mask=mask)

    h = zeros
    if carries is not None:
        h += tl.load(carries + program * N + n, mask=mask & (length > end), other=0.0).to(ACC)
    if grad_final is not None:
        if length == 0:  # final is x0 itself
            h += tl.load(grad_final + row * N + n, mask=mask & (chunk == 0), other=0.0).to(ACC)
        else:
            last = mask & (length > start) & (length <= end)
            h += outside_gradient(grad_final + row * N + n, states, (row * L + length - 1) * N + n, last, PROJECT, ACC)

    COLUMNS: tl.constexpr = 16 if SOURCE == TOKEN else 8  # 64 of them are shared by four or eight warps
    dictionary = A
    if RESIDENT:
        dictionary = dictionary_tile(A, replica, count, S, SP, KP, COLUMNS)

    first = tl.maximum(stop - 1, 0)
    index = matrix_index(tokens, row, replica, first, L, count, SOURCE)
    ahead = matrix_index(tokens, row, replica, tl.maximum(first - 1, 0), L, count, SOURCE)
    w, rho = coefficients(weights, norms, index, count, S, SP, KP, SOURCE, RESIDENT, ACC)
    w_ahead, rho_ahead = coefficients(weights, norms, ahead, count, S, SP, KP, SOURCE, RESIDENT, ACC)
    if PREFETCH:
        a = transition(A, dictionary, w, rho, index, head, SOURCE, H, S, HB, SP, RESIDENT, ACC, COLUMNS)
        if grad_states is not None:
            at = (row * L + first) * N + n
            g = outside_gradient(grad_states + at, states, at, mask, PROJECT, ACC)
    for back in range(start, stop):
        t = start + stop - 1 - back
        further = matrix_index(tokens, row, replica, tl.maximum(t - 2, 0), L, count, SOURCE)
        w_further, rho_further = coefficients(weights, norms, further, count, S, SP, KP, SOURCE, RESIDENT, ACC)
        if PREFETCH:
            a_next = transition(
                A, dictionary, w_ahead, rho_ahead, ahead, head, SOURCE, H, S, HB, SP, RESIDENT, ACC, COLUMNS
            )
            if grad_states is not None:
                at = (row * L + tl.maximum(t - 1, 0)) * N + n
                g_next = outside_gradient(grad_states + at, states, at, mask, PROJECT, ACC)
        else:
            a = transition(A, dictionary, w, rho, index, head, SOURCE, H, S, HB, SP, RESIDENT, ACC, COLUMNS)
            if grad_states is not None:
                at = (row * L + t) * N + n
                g = outside_gradient(grad_states + at, states, at, mask, PROJECT, ACC)
        dz = h
        if grad_states is not None:
            dz += g
        if RESCALE:
            dz = dz * tl.load(factors + row * L + t).to(ACC)
        tl.store(adjoints + (row * L + t) * N + n, dz, mask=mask)
        h = tl.sum(a * dz[:, :, None], axis=1)
        if pullbacks is not None:
            tl.store(pullbacks + (row * L + t) * N + n, h, mask=mask)
        index, w, rho = ahead, w_ahead, rho_ahead
        ahead, w_ahead, rho_ahead = further, w_further, rho_further
        if PREFETCH:
            a = a_next
            if grad_states is not None:
                g = g_next
    tl.store(dx0 + row * N + n, h, mask=mask & (chunk == 0))
