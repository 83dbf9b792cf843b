# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Chunk products: each chunk of a row as one affine map, for all chunks at once. For small blocks.

For chunk c over t = start .. stop-1 the forward kernel computes x_end = P_c x_start + r_c,

    P_c = A_{stop-1} ... A_start,    r_c = the state that the chunk reaches from zero,

and the backward kernel h_start = P_c^T h_end + r_c, where r_c is the contribution of the gradients inside the chunk.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops._triton.tile import ANY_LENGTH, coefficients, dictionary_tile, l2_norm, matrix_index, transition


@triton.jit(do_not_specialize=ANY_LENGTH)
def products_kernel(
    A, tokens, weights, norms, b, grad_states, grad_final, lengths, factors,
    products, remainders, scales,
    L, T, C, rows_per_replica,
    count: tl.constexpr, SOURCE: tl.constexpr,
    H: tl.constexpr, S: tl.constexpr, HB: tl.constexpr, SP: tl.constexpr, KP: tl.constexpr,
    RESIDENT: tl.constexpr, PREFETCH: tl.constexpr, RESCALE: tl.constexpr, ADJOINT: tl.constexpr,
    JB: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute products P_c (rows, C, H, S, S), remainders r_c (rows, C, N) and scales (rows, C, H, J).

    The columns of P are independent: a program has JB of them (one of J groups) for HB blocks, as Q = P^T. In a forward
    pass with RESCALE only the direction of the state matters, so P is divided by its Frobenius norm at each step, and
    scales holds the logarithm of the divisors, which differ between programs. In the backward pass the factors are
    known: step t is factor_t A_t, no division is needed, and the outside gradients are already projected.
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

    dictionary = A
    if RESIDENT:
        dictionary = dictionary_tile(A, replica, count, S, SP, KP)

    h = (head + tl.arange(0, HB))[:, None, None]
    i = tl.arange(0, SP)[None, None, :]
    column = tl.program_id(2) * JB
    j = column + tl.arange(0, JB)[None, :, None]
    Q = tl.where((i == j) & (h < H) & (i < S), 1.0, 0.0).to(ACC)
    r = tl.zeros((HB, JB if ADJOINT else SP), ACC)
    log_scale = tl.sum(tl.sum(r, axis=1), axis=0)

    index = matrix_index(tokens, row, replica, start, L, count, SOURCE)
    w, rho = coefficients(weights, norms, index, count, S, SP, KP, SOURCE, RESIDENT, ACC)
    if PREFETCH:
        a = transition(A, dictionary, w, rho, index, head, SOURCE, H, S, HB, SP, RESIDENT, ACC)
    for t in range(start, stop):
        ahead = matrix_index(tokens, row, replica, tl.minimum(t + 1, L - 1), L, count, SOURCE)
        w_ahead, rho_ahead = coefficients(weights, norms, ahead, count, S, SP, KP, SOURCE, RESIDENT, ACC)
        if PREFETCH:
            a_next = transition(A, dictionary, w_ahead, rho_ahead, ahead, head, SOURCE, H, S, HB, SP, RESIDENT, ACC)
        else:
            a = transition(A, dictionary, w, rho, index, head, SOURCE, H, S, HB, SP, RESIDENT, ACC)
        if ADJOINT and RESCALE:
            a = a * tl.load(factors + row * L + t).to(ACC)
        Q = tl.sum(Q[:, :, None, :] * a[:, None, :, :], axis=3)  # Q a^T for each block
        if ADJOINT:
            if grad_states is not None:
                at = (row * L + t) * N + n
                g = tl.load(grad_states + at, mask=mask, other=0.0).to(ACC)
                r += tl.sum(Q * g[:, None, :], axis=2)
        else:
            if b is not None:
                r = tl.sum(a * r[:, None, :], axis=2)
                r += tl.load(b + index * N + n, mask=mask, other=0.0).to(ACC)
            if RESCALE:
                norm = l2_norm(tl.reshape(Q, (HB * JB, SP)), ACC)
                Q = tl.where(norm > 0.0, Q / norm, 0.0)
                log_scale += tl.log(tl.where(norm > 0.0, norm, 1.0))
        index, w, rho = ahead, w_ahead, rho_ahead
        if PREFETCH:
            a = a_next

    if ADJOINT and grad_final is not None:
        last = mask & (length > start) & (length <= end)
        g = tl.load(grad_final + row * N + n, mask=last, other=0.0).to(ACC)
        r += tl.sum(Q * g[:, None, :], axis=2)

    inside = (h < H) & (i < S) & (j < S)
    tl.store(products + ((program * H + h) * S + i) * S + j, Q, mask=inside)
    if ADJOINT:
        entry = column + tl.arange(0, JB)[None, :]
        tl.store(remainders + program * N + block * S + entry, r, mask=(block < H) & (entry < S))
    else:
        tl.store(remainders + program * N + n, r, mask=mask & (column == 0))
        if RESCALE:
            heads = head + tl.arange(0, HB)
            place = scales + (program * H + heads) * tl.num_programs(2) + tl.program_id(2)
            tl.store(place, tl.zeros((HB,), ACC) + log_scale, mask=heads < H)
