# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The delta rule on NVIDIA GPUs: a program holds some rows of the matrix S of one head in registers.

The rows of S are independent, so in the forward pass several programs of one warp share a head. The forward pass
stores the errors e = v - S k, whose outer products with the keys are all that is added to S, and a checkpoint of S
every T positions. The backward pass needs S before every step. Without a gate it subtracts what was added, at the cost
of rounding only. With a gate that would be a division, so it recomputes S from the checkpoint at most T positions back.

Constants of the kernels: H heads of DK x DV entries, DK padded to KP, VB rows of S per program. T is 1 << SHIFT, since
a division takes 20 instructions.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.autograd import empty_placeholder
from sdssm.ops.padding import next_power_of_two

#: Entries of S, in float32, per program of one warp in the forward pass.
FORWARD_ENTRIES = 1024
#: Rows and entries of S per program in the backward pass (a larger S is divided among programs, whose sums are added
#: afterwards), and entries per warp.
BACKWARD_ROWS, BACKWARD_ENTRIES, BACKWARD_WARP = 64, 4096, 512
#: Positions between two checkpoints of S, without a gate, and the fewest with one: powers of two.
UNGATED_INTERVAL, LEAST_GATED_INTERVAL = 32, 4
#: Arguments whose values must not lead to a new compilation.
ANY_LENGTH = ["L", "SHIFT", "C"]


@triton.jit
def head_tile(H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, KP: tl.constexpr, VB: tl.constexpr):
    """Return which part of S this program holds.

    Returns the index of the (row, head) pair, row, head, rows i and columns j of S, their masks (VB,), (KP,) and
    (VB, KP), and the offsets of S (VB, KP).
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // H
    head = program % H
    i = tl.program_id(1) * VB + tl.arange(0, VB)
    j = tl.arange(0, KP)
    v_mask = i < DV
    k_mask = j < DK
    mask = v_mask[:, None] & k_mask[None, :]
    offsets = i[:, None] * DK + j[None, :]
    return program, row, head, i, j, v_mask, k_mask, mask, offsets


@triton.jit(do_not_specialize=ANY_LENGTH)
def delta_forward_kernel(
    q, k, v, beta, gate, S0, lengths, outputs, final, checkpoints, errors, L, SHIFT, C,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, KP: tl.constexpr, VB: tl.constexpr, STEPS: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Compute S_t = gate_t S_{t-1}, then STEPS times S += beta (v - S k) k^T, and o_t = S_t q_t.

    checkpoints (rows, H, C, DV, DK) receives S before positions 0, T, 2 T ..., errors (like v) receives v - S k; both
    may be None. Without q no outputs are stored.
    """
    program, row, head, i, j, v_mask, k_mask, mask, offsets = head_tile(H, DK, DV, KP, VB)
    mask, offsets = tl.trans(mask), tl.trans(offsets)
    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    S = tl.zeros((KP, VB), ACC)  # transposed: most of a sum over a row of S is then inside a thread
    if S0 is not None:
        S = tl.load(S0 + program * DV * DK + offsets, mask=mask, other=0.0)

    first_step = row * L * STEPS * H + head  # consecutive steps are H apart
    key = tl.load(k + first_step * DK + j, mask=k_mask, other=0.0)
    value = tl.load(v + first_step * DV + i, mask=v_mask, other=0.0)
    strength = tl.load(beta + first_step)
    for t in range(length):
        if checkpoints is not None:
            is_first = (t >> SHIFT) << SHIFT == t
            tl.store(checkpoints + (program * C + (t >> SHIFT)) * DV * DK + offsets, S, mask=mask & is_first)
        position = (row * L + t) * H + head
        if gate is not None:
            S = S * tl.load(gate + position)
        for n in range(STEPS):
            # The vectors of the next step do not depend on S: they are loaded while this step is applied.
            s = t * STEPS + n
            next_step = (row * L * STEPS + tl.minimum(s + 1, L * STEPS - 1)) * H + head
            next_key = tl.load(k + next_step * DK + j, mask=k_mask, other=0.0)
            next_value = tl.load(v + next_step * DV + i, mask=v_mask, other=0.0)
            next_strength = tl.load(beta + next_step)
            error = value - tl.sum(S * key[:, None], axis=0)
            if errors is not None:
                tl.store(errors + ((row * L * STEPS + s) * H + head) * DV + i, error, mask=v_mask)
            S += key[:, None] * (strength * error)[None, :]
            key, value, strength = next_key, next_value, next_strength
        if q is not None:
            query = tl.load(q + position * DK + j, mask=k_mask, other=0.0)
            tl.store(outputs + position * DV + i, tl.sum(S * query[:, None], axis=0), mask=v_mask)

    if q is not None:
        for t in range(length, L):  # past the end of the row
            tl.store(outputs + ((row * L + t) * H + head) * DV + i, tl.zeros((VB,), ACC), mask=v_mask)
    tl.store(final + program * DV * DK + offsets, S, mask=mask)


@triton.jit
def add_updates(
    S, k, beta, errors, first_step, i, j,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Return S after the STEPS steps of a position, recomputed from their errors."""
    for n in range(STEPS):
        key = tl.load(k + (first_step + n * H) * DK + j, mask=j < DK, other=0.0)
        error = tl.load(errors + (first_step + n * H) * DV + i, mask=i < DV, other=0.0)
        S += (tl.load(beta + first_step + n * H) * error)[:, None] * key[None, :]
    return S


@triton.jit(do_not_specialize=ANY_LENGTH)
def delta_backward_kernel(
    grad_outputs, grad_final, q, k, beta, gate, lengths, final, checkpoints, errors,
    dq, dk, dv, dbeta, dgate, dS0, L, SHIFT, C,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, KP: tl.constexpr, VB: tl.constexpr, STEPS: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Carry dS, the gradient of S, backward in time and store the gradients of all inputs.

    dq, dk, dbeta and dgate are (programs per head, ...), to be summed over the first dimension.
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

    for i_back in range(length):
        t = length - 1 - i_back
        position = (row * L + t) * H + head
        first_step = (row * L + t) * STEPS * H + head
        previous_S = S
        if gate is not None:
            decay = tl.load(gate + position)
            chunk = t >> SHIFT
            previous_S = tl.load(checkpoints + (program * C + chunk) * DV * DK + offsets, mask=mask, other=0.0)
            for r in range(chunk << SHIFT, t):
                previous_S = previous_S * tl.load(gate + (row * L + r) * H + head)
                earlier_step = (row * L + r) * STEPS * H + head
                previous_S = add_updates(previous_S, k, beta, errors, earlier_step, i, j, H, DK, DV, STEPS)
        if q is not None:
            dquery = tl.zeros((KP,), ACC)
            if grad_outputs is not None:
                grad = tl.load(grad_outputs + position * DV + i, mask=v_mask, other=0.0)
                query = tl.load(q + position * DK + j, mask=k_mask, other=0.0)
                dquery = tl.sum(S * grad[:, None], axis=0)
                dS += grad[:, None] * query[None, :]
            tl.store(dq + (part + position) * DK + j, dquery, mask=k_mask)
        for n in range(STEPS):
            s = first_step + (STEPS - 1 - n) * H
            key = tl.load(k + s * DK + j, mask=k_mask, other=0.0)
            error = tl.load(errors + s * DV + i, mask=v_mask, other=0.0)
            strength = tl.load(beta + s)
            update = strength * error
            S -= update[:, None] * key[None, :]  # S before the step
            de = tl.sum(dS * key[None, :], axis=1)
            tl.store(dbeta + part * STEPS + s, tl.sum(de * error, axis=0))
            de = de * strength
            tl.store(dv + s * DV + i, de, mask=v_mask)
            dkey = tl.sum(dS * update[:, None] - S * de[:, None], axis=0)
            tl.store(dk + (part * STEPS + s) * DK + j, dkey, mask=k_mask)
            dS -= de[:, None] * key[None, :]
        if gate is not None:
            tl.store(dgate + part + position, tl.sum(tl.sum(dS * previous_S, axis=1), axis=0))
            dS = dS * decay
            S = previous_S
        else:
            if (t >> SHIFT) << SHIFT == t:  # replace S by its checkpoint, which has no rounding errors from subtraction
                S = tl.load(checkpoints + (program * C + (t >> SHIFT)) * DV * DK + offsets, mask=mask, other=0.0)
    for t in range(length, L):  # past the end of the row
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


def checkpoint_interval(L: int, gated: bool) -> int:
    """Return T, the positions between two checkpoints of S, a power of two."""
    if not gated:
        return UNGATED_INTERVAL
    # Memory grows with L / T, work per position with T / 2.
    return max(LEAST_GATED_INTERVAL, next_power_of_two(int((L / 4) ** 0.5)))


def kernel_constants(k: Tensor, v: Tensor, steps: int, backward: bool) -> dict[str, Any]:
    """Return the compile-time constants of a kernel and its warps; float64 takes half of everything."""
    H, DK, DV = k.shape[-2], k.shape[-1], v.shape[-1]
    KP, VP = next_power_of_two(DK), next_power_of_two(DV)
    words = k.element_size() // 4
    if backward:
        VB = min(VP, BACKWARD_ROWS, max(1, BACKWARD_ENTRIES // (KP * words)))
        warps = min(8, max(1, VB * KP * words // BACKWARD_WARP))
    else:
        VB, warps = min(VP, max(1, FORWARD_ENTRIES // (KP * words))), 1
    accumulator = tl.float64 if k.dtype == torch.float64 else tl.float32
    return {"H": H, "DK": DK, "DV": DV, "KP": KP, "VB": VB, "STEPS": steps, "ACC": accumulator, "num_warps": warps}


def forward(
    q: Tensor | None,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None,
    S0: Tensor | None,
    lengths: Tensor | None,
    steps: int,
    needs_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return outputs (R, B, L, H, Dv), final (R, B, H, Dv, Dk), and what `backward` needs.

    That is S every T positions, (R, B, H, C, Dv, Dk), and the errors, like v; both are empty unless `needs_grad`.
    Without q, nor outputs, only S is computed.
    """
    (R, B, _, H, Dk), L = k.shape, k.shape[2] // steps
    Dv = v.shape[-1]
    outputs = empty_placeholder(k) if q is None else k.new_empty(R, B, L, H, Dv)
    final = k.new_empty(R, B, H, Dv, Dk)
    T = checkpoint_interval(L, gate is not None)
    C = triton.cdiv(L, T)
    checkpoints = k.new_empty(R, B, H, C, Dv, Dk) if needs_grad else empty_placeholder(k)
    errors = torch.empty_like(v) if needs_grad else empty_placeholder(k)
    if not R * B:
        return outputs, final, checkpoints, errors
    constants = kernel_constants(k, v, steps, backward=False)
    saved = (checkpoints, errors) if needs_grad else (None, None)
    delta_forward_kernel[(R * B * H, triton.cdiv(Dv, constants["VB"]))](
        q, k, v, beta, gate, S0, lengths, outputs, final, *saved, L, T.bit_length() - 1, C, **constants
    )
    return outputs, final, checkpoints, errors


def backward(
    grad_outputs: Tensor | None,
    grad_final: Tensor | None,
    q: Tensor | None,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None,
    S0: Tensor | None,
    lengths: Tensor | None,
    outputs: Tensor,
    final: Tensor,
    checkpoints: Tensor,
    errors: Tensor,
    steps: int,
    needs_grad: bool,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of q, k, v, beta, gate and S0."""
    (R, B, _, H, _), L = k.shape, k.shape[2] // steps
    constants = kernel_constants(k, v, steps, backward=True)
    programs = triton.cdiv(v.shape[-1], constants["VB"])  # per head

    def partial_gradients(like: Tensor | None, count: int = programs) -> Tensor | None:
        """Allocate `count` partial sums of a gradient."""
        return None if like is None else like.new_empty((count, *like.shape))

    dq, dk, dbeta, dgate = (partial_gradients(tensor) for tensor in (q, k, beta, gate))
    dv = partial_gradients(v, 1)
    dS0 = None if S0 is None else torch.empty_like(S0)
    if R * B:
        T = checkpoint_interval(L, gate is not None)
        delta_backward_kernel[(R * B * H, programs)](
            grad_outputs, grad_final, q, k, beta, gate, lengths, final, checkpoints, errors,
            dq, dk, dv, dbeta, dgate, dS0, L, T.bit_length() - 1, triton.cdiv(L, T), **constants,
        )  # fmt: skip
    partials = (dq, dk, dv, dbeta, dgate)
    sums = (None if partial is None else partial[0] if len(partial) == 1 else partial.sum(0) for partial in partials)
    return *sums, dS0
