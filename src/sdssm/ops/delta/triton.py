# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The delta rule on NVIDIA GPUs: a program takes one head of one row and some rows of its matrix S, kept in registers.

The rows of S do not know of each other, so forwards a head is shared among programs of one warp. Forward keeps the
errors e = v - S k, whose products with the keys are all that is ever added to S, and S itself every T positions.
Backward needs S before every step. Without a gate it takes away again what was added, which only rounds; with one that
would be a division, so it adds up S from the last one that was kept, at most T positions before.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.autograd import absent
from sdssm.ops.padding import power_of_two

#: Entries of S, in float32, that a program of one warp holds forwards.
FORWARD_ENTRIES = 1024
#: Rows of S a program holds backwards (more are shared out, and their sums finished afterwards), entries a warp.
BACKWARD_ROWS, BACKWARD_ENTRIES, BACKWARD_WARP = 64, 4096, 512
#: Positions between the states that are kept, without a gate.
UNGATED_SPACING = 32
ANY_LENGTH = ["L", "T", "C"]


@triton.jit(do_not_specialize=ANY_LENGTH)
def forward_kernel(
    q, k, v, beta, gate, S0, lengths, outputs, final, marks, errors, L, T, C,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, KP: tl.constexpr, VB: tl.constexpr, STEPS: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """S_t = gate_t S_{t-1}, then STEPS times S += beta (v - S k) k^T, and o_t = S_t q_t.

    marks (rows, H, C, DV, DK), where wanted, takes S before positions 0, T, 2 T ...; errors (as v) takes v - S k.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // H
    head = program % H
    i = tl.program_id(1) * VB + tl.arange(0, VB)
    j = tl.arange(0, KP)
    in_v = i < DV
    in_k = j < DK
    mask = in_v[:, None] & in_k[None, :]
    place = i[:, None] * DK + j[None, :]

    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    S = tl.zeros((VB, KP), ACC)
    if S0 is not None:
        S = tl.load(S0 + program * DV * DK + place, mask=mask, other=0.0)

    at = row * L * STEPS * H + head  # the first step; each next one is H further
    key = tl.load(k + at * DK + j, mask=in_k, other=0.0)
    value = tl.load(v + at * DV + i, mask=in_v, other=0.0)
    strength = tl.load(beta + at)
    for t in range(length):
        if marks is not None:
            tl.store(marks + (program * C + t // T) * DV * DK + place, S, mask=mask & (t % T == 0))
        here = (row * L + t) * H + head
        query = tl.load(q + here * DK + j, mask=in_k, other=0.0)
        if gate is not None:
            S = S * tl.load(gate + here)
        for n in range(STEPS):
            # The next step's vectors do not depend on S: they are fetched while this one is applied.
            s = t * STEPS + n
            ahead = (row * L * STEPS + tl.minimum(s + 1, L * STEPS - 1)) * H + head
            next_key = tl.load(k + ahead * DK + j, mask=in_k, other=0.0)
            next_value = tl.load(v + ahead * DV + i, mask=in_v, other=0.0)
            next_strength = tl.load(beta + ahead)
            e = value - tl.sum(S * key[None, :], axis=1)
            if errors is not None:
                tl.store(errors + ((row * L * STEPS + s) * H + head) * DV + i, e, mask=in_v)
            S += (strength * e)[:, None] * key[None, :]
            key, value, strength = next_key, next_value, next_strength
        tl.store(outputs + here * DV + i, tl.sum(S * query[None, :], axis=1), mask=in_v)

    for t in range(length, L):  # past the row's length
        tl.store(outputs + ((row * L + t) * H + head) * DV + i, tl.zeros((VB,), ACC), mask=in_v)
    tl.store(final + program * DV * DK + place, S, mask=mask)


@triton.jit
def add_steps(
    S, k, beta, errors, at, i, j,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """S after the STEPS steps of a position, the first at place `at`, from their errors."""
    for n in range(STEPS):
        key = tl.load(k + (at + n * H) * DK + j, mask=j < DK, other=0.0)
        e = tl.load(errors + (at + n * H) * DV + i, mask=i < DV, other=0.0)
        S += (tl.load(beta + at + n * H) * e)[:, None] * key[None, :]
    return S


@triton.jit(do_not_specialize=ANY_LENGTH)
def backward_kernel(
    grad_outputs, grad_final, q, k, beta, gate, lengths, final, marks, errors,
    dq, dk, dv, dbeta, dgate, dS0, L, T, C,
    H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, KP: tl.constexpr, VB: tl.constexpr, STEPS: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """D, the gradient of S, carried backwards.

    dq, dk, dbeta, dgate are (programs of a head, ...), to be summed over these; nothing is written past a length.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // H
    head = program % H
    i = tl.program_id(1) * VB + tl.arange(0, VB)
    j = tl.arange(0, KP)
    in_v = i < DV
    in_k = j < DK
    mask = in_v[:, None] & in_k[None, :]
    place = i[:, None] * DK + j[None, :]
    part = tl.program_id(1) * tl.num_programs(0).to(tl.int64) * L  # places of the programs before, positions

    length = L
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    D = tl.zeros((VB, KP), ACC)
    if grad_final is not None:
        D = tl.load(grad_final + program * DV * DK + place, mask=mask, other=0.0)
    S = tl.load(final + program * DV * DK + place, mask=mask, other=0.0)

    for back in range(length):
        t = length - 1 - back
        here = (row * L + t) * H + head
        first = (row * L + t) * STEPS * H + head
        before = S
        if gate is not None:
            factor = tl.load(gate + here)
            chunk = t // T
            before = tl.load(marks + (program * C + chunk) * DV * DK + place, mask=mask, other=0.0)
            for r in range(chunk * T, t):
                before = before * tl.load(gate + (row * L + r) * H + head)
                earlier = (row * L + r) * STEPS * H + head
                before = add_steps(before, k, beta, errors, earlier, i, j, H, DK, DV, STEPS)
            S = add_steps(before * factor, k, beta, errors, first, i, j, H, DK, DV, STEPS)
        query_gradient = tl.zeros((KP,), ACC)
        if grad_outputs is not None:
            g = tl.load(grad_outputs + here * DV + i, mask=in_v, other=0.0)
            query = tl.load(q + here * DK + j, mask=in_k, other=0.0)
            query_gradient = tl.sum(S * g[:, None], axis=0)
            D += g[:, None] * query[None, :]
        tl.store(dq + (part + here) * DK + j, query_gradient, mask=in_k)
        for n in range(STEPS):
            s = first + (STEPS - 1 - n) * H
            key = tl.load(k + s * DK + j, mask=in_k, other=0.0)
            e = tl.load(errors + s * DV + i, mask=in_v, other=0.0)
            strength = tl.load(beta + s)
            added = strength * e
            S -= added[:, None] * key[None, :]  # before the step
            de = tl.sum(D * key[None, :], axis=1)
            tl.store(dbeta + part * STEPS + s, tl.sum(de * e, axis=0))
            de = de * strength
            tl.store(dv + s * DV + i, de, mask=in_v)
            key_gradient = tl.sum(D * added[:, None] - S * de[:, None], axis=0)
            tl.store(dk + (part * STEPS + s) * DK + j, key_gradient, mask=in_k)
            D -= de[:, None] * key[None, :]
        if gate is not None:
            tl.store(dgate + part + here, tl.sum(tl.sum(D * before, axis=1), axis=0))
            D = D * factor
        else:
            if t % T == 0:  # as it was, without the rounding since
                S = tl.load(marks + (program * C + t // T) * DV * DK + place, mask=mask, other=0.0)
    if dS0 is not None:
        tl.store(dS0 + program * DV * DK + place, D, mask=mask)


def spacing(L: int, gated: bool) -> int:
    """T, positions between the states that are kept."""
    if not gated:
        return UNGATED_SPACING
    return max(4, power_of_two(int((L / 4) ** 0.5)))  # memory L / T, work T / 2 a position


def constants(q: Tensor, v: Tensor, steps: int, backwards: bool) -> dict[str, Any]:
    """Sizes of the tiles; float64 takes half of everything."""
    H, DK, DV = q.shape[-2], q.shape[-1], v.shape[-1]
    KP, VP = power_of_two(DK), power_of_two(DV)
    half = q.element_size() // 4
    if backwards:
        VB = min(VP, BACKWARD_ROWS, max(1, BACKWARD_ENTRIES // (KP * half)))
        warps = min(8, max(1, VB * KP * half // BACKWARD_WARP))
    else:
        VB, warps = min(VP, max(1, FORWARD_ENTRIES // (KP * half))), 1
    accumulator = tl.float64 if q.dtype == torch.float64 else tl.float32
    return {"H": H, "DK": DK, "DV": DV, "KP": KP, "VB": VB, "STEPS": steps, "ACC": accumulator, "num_warps": warps}


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None,
    S0: Tensor | None,
    lengths: Tensor | None,
    steps: int,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """outputs (R, B, L, H, Dv), final (R, B, H, Dv, Dk), and where `wanted` S every T positions (R, B, H, C, Dv, Dk)
    and the errors, as v.
    """
    R, B, L, H, Dk = q.shape
    Dv = v.shape[-1]
    outputs, final = q.new_empty(R, B, L, H, Dv), q.new_empty(R, B, H, Dv, Dk)
    T = spacing(L, gate is not None)
    C = triton.cdiv(L, T)
    marks = q.new_empty(R, B, H, C, Dv, Dk) if wanted else absent(q)
    errors = torch.empty_like(v) if wanted else absent(q)
    if not R * B:
        return outputs, final, marks, errors
    sizes = constants(q, v, steps, backwards=False)
    forward_kernel[(R * B * H, triton.cdiv(Dv, sizes["VB"]))](
        q, k, v, beta, gate, S0, lengths, outputs, final, marks if wanted else None, errors if wanted else None,
        L, T, C, **sizes,
    )  # fmt: skip
    return outputs, final, marks, errors


def backward(
    grad_outputs: Tensor | None,
    grad_final: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Tensor | None,
    S0: Tensor | None,
    lengths: Tensor | None,
    outputs: Tensor,
    final: Tensor,
    marks: Tensor,
    errors: Tensor,
    steps: int,
    wanted: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v, beta, gate and S0."""
    R, B, L, H, _ = q.shape
    sizes = constants(q, v, steps, backwards=True)
    blocks = triton.cdiv(v.shape[-1], sizes["VB"])

    def parts(like: Tensor | None, count: int = blocks) -> Tensor | None:
        """Room for `count` parts of a gradient, zero where no program writes."""
        if like is None:
            return None
        shape = (count, *like.shape)
        return like.new_empty(shape) if lengths is None else like.new_zeros(shape)

    dq, dk, dv, dbeta, dgate = parts(q), parts(k), parts(v, 1), parts(beta), parts(gate)
    dS0 = None if S0 is None else torch.empty_like(S0)
    if R * B:
        T = spacing(L, gate is not None)
        backward_kernel[(R * B * H, blocks)](
            grad_outputs, grad_final, q, k, beta, gate, lengths, final, marks, errors,
            dq, dk, dv, dbeta, dgate, dS0, L, T, triton.cdiv(L, T), **sizes,
        )  # fmt: skip
    whole = (None if one is None else one[0] if len(one) == 1 else one.sum(0) for one in (dq, dk, dv, dbeta, dgate))
    return *whole, dS0
