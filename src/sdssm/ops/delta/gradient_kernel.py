# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The gradients of the delta rule on NVIDIA GPUs.

Constants of the kernel as in `triton`: H heads of DK x DV entries, DK padded to KP, VB rows of S per program, STEPS
updates at a position.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sdssm.ops.delta.tiles import ANY_LENGTH, head_tile


@triton.jit
def matrix_after(
    S, k, beta, gate, errors, t, length, row, head, L, i, j,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Return S after position t with a gate, recomputed from the errors; past the end of the row it stays the same."""
    inside = t < length
    S = S * tl.load(gate + (row * L + t) * H + head, mask=inside, other=1.0)
    for n in tl.static_range(STEPS):
        s = ((row * L + t) * STEPS + n) * H + head
        key = tl.load(k + s * DK + j, mask=(j < DK) & inside, other=0.0)
        error = tl.load(errors + s * DV + i, mask=(i < DV) & inside, other=0.0)
        S += (tl.load(beta + s, mask=inside, other=0.0) * error)[:, None] * key[None, :]
    return S


@triton.jit
def steps_backward(
    dS, S, k, beta, errors, dk, dv, dbeta, t, length, row, head, part, L, i, j,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Take dS back through the steps of position t, S being the matrix after them; return dS and S before them.

    Past the end of the row both stay the same and the gradients are 0.
    """
    inside, exists = t < length, t < L
    for n in tl.static_range(STEPS):
        s = ((row * L + t) * STEPS + (STEPS - 1 - n)) * H + head
        key = tl.load(k + s * DK + j, mask=(j < DK) & inside, other=0.0)
        error = tl.load(errors + s * DV + i, mask=(i < DV) & inside, other=0.0)
        strength = tl.load(beta + s, mask=inside, other=0.0)
        update = strength * error
        S -= update[:, None] * key[None, :]  # S before the step
        de = tl.sum(dS * key[None, :], axis=1)
        tl.store(dbeta + part * STEPS + s, tl.sum(de * error, axis=0), mask=exists)
        de = de * strength
        tl.store(dv + s * DV + i, de, mask=(i < DV) & exists)
        dkey = tl.sum(dS * update[:, None] - S * de[:, None], axis=0)
        tl.store(dk + (part * STEPS + s) * DK + j, dkey, mask=(j < DK) & exists)
        dS -= de[:, None] * key[None, :]
    return dS, S


@triton.jit
def query_backward(
    dS, S, grad_outputs, q, dq, t, length, row, head, part, L, i, j,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Add the gradient of S from the output of position t, and store that of its query."""
    position = (row * L + t) * H + head
    dquery = tl.zeros((S.shape[1],), ACC)
    if grad_outputs is not None:
        grad = tl.load(grad_outputs + position * DV + i, mask=(i < DV) & (t < length), other=0.0)
        query = tl.load(q + position * DK + j, mask=(j < DK) & (t < length), other=0.0)
        dquery = tl.sum(S * grad[:, None], axis=0)
        dS += grad[:, None] * query[None, :]
    tl.store(dq + (part + position) * DK + j, dquery, mask=(j < DK) & (t < L))
    return dS


@triton.jit
def gated_position_backward(
    dS, S, previous_S, grad_outputs, q, k, beta, gate, errors, dq, dk, dv, dbeta, dgate,
    t, length, row, head, part, L, i, j,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, STEPS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Take dS back through position t, from the matrices after (S) and before it."""
    if q is not None:
        dS = query_backward(dS, S, grad_outputs, q, dq, t, length, row, head, part, L, i, j, H, DK, DV, ACC)
    dS, _ = steps_backward(dS, S, k, beta, errors, dk, dv, dbeta, t, length, row, head, part, L, i, j, H, DK, DV, STEPS)
    position = (row * L + t) * H + head
    ddecay = tl.sum(tl.sum(dS * previous_S, axis=1), axis=0)
    tl.store(dgate + part + position, tl.where(t < length, ddecay, 0.0), mask=t < L)
    return dS * tl.load(gate + position, mask=t < length, other=1.0)


@triton.jit(do_not_specialize=ANY_LENGTH)
def delta_backward_kernel(
    grad_outputs, grad_final, q, k, beta, gate, lengths, final, checkpoints, errors,
    dq, dk, dv, dbeta, dgate, dS0, L, SHIFT, C,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, KP: tl.constexpr, VB: tl.constexpr, STEPS: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Carry dS, the gradient of S, backward in time and store the gradients of all inputs.

    dq, dk, dbeta and dgate are (programs per head, ...), to be summed over the first dimension. With a gate four
    positions are taken together, whose matrices S are recomputed once.
    """
    program, row, head, i, j, v_mask, k_mask, mask, offsets = head_tile(H, DK, DV, KP, VB)
    part = tl.program_id(1) * tl.num_programs(0).to(tl.int64) * L  # offset of this program's partial sums, in positions
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    dS = tl.zeros((VB, KP), ACC)
    if grad_final is not None:
        dS = tl.load(grad_final + program * DV * DK + offsets, mask=mask, other=0.0)
    S = tl.load(final + program * DV * DK + offsets, mask=mask, other=0.0)

    end = length  # of the positions whose gradients are not zero, or of their groups
    if gate is None:
        for i_back in range(length):
            t = length - 1 - i_back
            if q is not None:
                dS = query_backward(dS, S, grad_outputs, q, dq, t, length, row, head, part, L, i, j, H, DK, DV, ACC)
            dS, S = steps_backward(
                dS, S, k, beta, errors, dk, dv, dbeta, t, length, row, head, part, L, i, j, H, DK, DV, STEPS
            )
            if (t >> SHIFT) << SHIFT == t:  # replace S by its checkpoint, which has no rounding errors from subtraction
                S = tl.load(checkpoints + (program * C + (t >> SHIFT)) * DV * DK + offsets, mask=mask, other=0.0)
    else:
        end = tl.cdiv(length, 4) * 4
        for back in range(tl.cdiv(length, 4)):
            t = end - 4 - back * 4
            chunk = t >> SHIFT
            S0 = tl.load(checkpoints + (program * C + chunk) * DV * DK + offsets, mask=mask, other=0.0)
            for r in range(chunk << SHIFT, t):
                S0 = matrix_after(S0, k, beta, gate, errors, r, length, row, head, L, i, j, H, DK, DV, STEPS)
            S1 = matrix_after(S0, k, beta, gate, errors, t, length, row, head, L, i, j, H, DK, DV, STEPS)
            S2 = matrix_after(S1, k, beta, gate, errors, t + 1, length, row, head, L, i, j, H, DK, DV, STEPS)
            S3 = matrix_after(S2, k, beta, gate, errors, t + 2, length, row, head, L, i, j, H, DK, DV, STEPS)
            dS = gated_position_backward(
                dS, S, S3, grad_outputs, q, k, beta, gate, errors, dq, dk, dv, dbeta, dgate,
                t + 3, length, row, head, part, L, i, j, H, DK, DV, STEPS, ACC,
            )  # fmt: skip
            dS = gated_position_backward(
                dS, S3, S2, grad_outputs, q, k, beta, gate, errors, dq, dk, dv, dbeta, dgate,
                t + 2, length, row, head, part, L, i, j, H, DK, DV, STEPS, ACC,
            )  # fmt: skip
            dS = gated_position_backward(
                dS, S2, S1, grad_outputs, q, k, beta, gate, errors, dq, dk, dv, dbeta, dgate,
                t + 1, length, row, head, part, L, i, j, H, DK, DV, STEPS, ACC,
            )  # fmt: skip
            dS = gated_position_backward(
                dS, S1, S0, grad_outputs, q, k, beta, gate, errors, dq, dk, dv, dbeta, dgate,
                t, length, row, head, part, L, i, j, H, DK, DV, STEPS, ACC,
            )  # fmt: skip
            S = S0
    for t in range(end, L):  # past the end of the row
        position = (row * L + t) * H + head
        if q is not None:
            tl.store(dq + (part + position) * DK + j, tl.zeros((KP,), ACC), mask=k_mask)
        if gate is not None:
            tl.store(dgate + part + position, 0.0)
        for n in range(STEPS):
            s = (row * L + t) * STEPS * H + n * H + head
            tl.store(dk + (part * STEPS + s) * DK + j, tl.zeros((KP,), ACC), mask=k_mask)
            tl.store(dv + s * DV + i, tl.zeros((VB,), ACC), mask=v_mask)
            tl.store(dbeta + part * STEPS + s, 0.0)
    if dS0 is not None:
        tl.store(dS0 + program * DV * DK + offsets, dS, mask=mask)
