# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Chunk products of blocks that are large enough for tl.dot: the same as products.py, one block in each program."""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops._triton.tensor_cores import multiply_transposed, split
from sdssm.ops._triton.tile import ANY_LENGTH, coefficients, dictionary_tile, l2_norm, matrix_index, transition


@triton.jit
def step_vector(vectors, place, n, mask, SP: tl.constexpr, ACC: tl.constexpr):
    """Load b_t or the outside gradient of a step, zeros without it; it is loaded a step ahead."""
    if vectors is None:
        return tl.zeros((SP,), ACC)
    else:
        return tl.load(vectors + place + n, mask=mask, other=0.0).to(ACC)


@triton.jit(do_not_specialize=ANY_LENGTH)
def dot_products_kernel(
    A, tokens, weights, norms, b, grad_states, grad_final, lengths, factors,
    products, remainders, scales,
    L, T, C, rows_per_replica,
    count: tl.constexpr, SOURCE: tl.constexpr,
    H: tl.constexpr, S: tl.constexpr, HB: tl.constexpr, SP: tl.constexpr, KP: tl.constexpr,
    RESIDENT: tl.constexpr, PREFETCH: tl.constexpr, RESCALE: tl.constexpr, ADJOINT: tl.constexpr,
    JB: tl.constexpr, NVIDIA: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Compute the results of products_kernel for one block (HB = 1) and JB columns of its product.

    With Q = P^T each step is Q A_t^T, and the running product Q is the left factor, which stays in registers.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // C
    chunk = (program % C).to(tl.int32)
    replica = row // rows_per_replica
    head = tl.program_id(1)
    N: tl.constexpr = H * S

    n = tl.arange(0, SP)
    mask = n < S
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    start = chunk * T
    end = tl.minimum(start + T, L)
    stop = tl.minimum(end, length)

    dictionary = A
    if RESIDENT:
        dictionary = dictionary_tile(A, replica, count, S, SP, KP)

    j = tl.program_id(2) * JB + tl.arange(0, JB)
    Q = tl.where((j[:, None] == n[None, :]) & mask[None, :], 1.0, 0.0).to(ACC)
    r = tl.zeros((JB if ADJOINT else SP,), ACC)
    log_scale = tl.sum(r, axis=0)
    vectors = grad_states if ADJOINT else b

    index = matrix_index(tokens, row, replica, start, L, count, SOURCE)
    w, rho = coefficients(weights, norms, index, count, S, SP, KP, SOURCE, RESIDENT, ACC)
    place = row * L + start if ADJOINT else index
    vector = step_vector(vectors, place * N + head * S, n, mask, SP, ACC)
    factor = 1.0
    if ADJOINT and RESCALE:
        factor = tl.load(factors + row * L + start).to(ACC)
    if PREFETCH:
        a = transition(A, dictionary, w, rho, index, head, SOURCE, H, S, HB, SP, RESIDENT, ACC)
    for t in range(start, stop):
        t_ahead = tl.minimum(t + 1, L - 1)
        ahead = matrix_index(tokens, row, replica, t_ahead, L, count, SOURCE)
        w_ahead, rho_ahead = coefficients(weights, norms, ahead, count, S, SP, KP, SOURCE, RESIDENT, ACC)
        place = row * L + t_ahead if ADJOINT else ahead
        vector_ahead = step_vector(vectors, place * N + head * S, n, mask, SP, ACC)
        if PREFETCH:
            a_ahead = transition(A, dictionary, w_ahead, rho_ahead, ahead, head, SOURCE, H, S, HB, SP, RESIDENT, ACC)
        else:
            a = transition(A, dictionary, w, rho, index, head, SOURCE, H, S, HB, SP, RESIDENT, ACC)
        a_t = tl.reshape(a, (SP, SP))
        if ADJOINT and RESCALE:
            factor_ahead = tl.load(factors + row * L + t_ahead).to(ACC)
            a_t = a_t * factor
            factor = factor_ahead
        left, left_rest = split(Q, NVIDIA)
        right, right_rest = split(a_t, NVIDIA)
        Q = multiply_transposed(left, left_rest, right, right_rest, NVIDIA, ACC)
        if ADJOINT:
            if grad_states is not None:
                r += tl.sum(Q * vector[None, :], axis=1)
        else:
            if b is not None:
                r = tl.sum(a_t * r[None, :], axis=1) + vector
            if RESCALE:
                norm = l2_norm(Q, ACC)
                Q = Q * tl.where(norm > 0.0, 1.0 / norm, 0.0)
                log_scale += tl.log(tl.where(norm > 0.0, norm, 1.0))
        index, w, rho, vector = ahead, w_ahead, rho_ahead, vector_ahead
        if PREFETCH:
            a = a_ahead

    if ADJOINT and grad_final is not None:
        last = mask & (length > start) & (length <= end)
        g = tl.load(grad_final + row * N + head * S + n, mask=last, other=0.0).to(ACC)
        r += tl.sum(Q * g[None, :], axis=1)

    inside = (j < S)[:, None] & mask[None, :]
    tl.store(products + ((program * H + head) * S + n[None, :]) * S + j[:, None], Q, mask=inside)
    if ADJOINT:
        tl.store(remainders + program * N + head * S + j, r, mask=j < S)
    else:
        tl.store(remainders + program * N + head * S + n, r, mask=mask & (tl.program_id(2) == 0))
        if RESCALE:
            tl.store(scales + (program * H + head) * tl.num_programs(2) + tl.program_id(2), log_scale)
