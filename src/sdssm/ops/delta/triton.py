# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""The delta rule on NVIDIA GPUs: a program holds some rows of the matrix S of one head in registers.

The rows of S are independent, so in the forward pass several programs of one warp share a head. The forward pass
stores the errors e = v - S k, whose outer products with the keys are all that is added to S, and a checkpoint of S
every T positions. The backward pass needs S before every step. Without a gate it subtracts what was added, at the cost
of rounding only. With a gate that would be a division, so it recomputes S from the checkpoint at most T positions back.
Its kernel is in `gradient_kernel`.

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
from sdssm.ops.delta.gradient_kernel import delta_backward_kernel
from sdssm.ops.delta.tiles import ANY_LENGTH, head_tile
from sdssm.ops.padding import next_power_of_two

#: Entries of S, in float32, per program of one warp in the forward pass.
FORWARD_ENTRIES = 1024
#: Rows and entries of S per program in the backward pass (a larger S is divided among programs, whose sums are added
#: afterwards), and entries per warp.
BACKWARD_ROWS, BACKWARD_ENTRIES, BACKWARD_WARP = 64, 4096, 512
#: Registers per thread of the backward kernel in float32, if it has one warp and if it has several: with more of them
#: a GPU would have too few warps at a time.
BACKWARD_REGISTERS, WIDE_BACKWARD_REGISTERS = 168, 128
#: Positions between two checkpoints of S, without a gate, and the fewest with one: powers of two, from 4 on.
UNGATED_INTERVAL, LEAST_GATED_INTERVAL = 32, 4


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
    registers = BACKWARD_REGISTERS if warps == 1 else WIDE_BACKWARD_REGISTERS
    limit = {"maxnreg": registers} if backward and words == 1 else {}
    return {
        "H": H, "DK": DK, "DV": DV, "KP": KP, "VB": VB, "STEPS": steps, "ACC": accumulator, "num_warps": warps, **limit
    }  # fmt: skip


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
