# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Selected matrices on NVIDIA GPUs: the softmax is computed in the kernel of the mixture, its gradient in one more."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sdssm.ops.mixed import triton as mixed
from sdssm.ops.padding import next_power_of_two

#: Weights of one iteration of a program, and parts of their gradients that are read at a time.
WEIGHTS, PARTS = 256, 8


@triton.jit(do_not_specialize=["count", "V"])
def softmax_gradient_kernel(
    parts, mixing, dselection, dbias, count, V,
    K: tl.constexpr, KP: tl.constexpr, VB: tl.constexpr, PARTS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Sum the parts (count, R, V, K) of the gradient of the weights in order, and pass it through the softmax.

    A program has one replica. With the weights w of a symbol and their gradient g, the gradient of the logits is
    w (g - <w, g>): dselection (R, K, V); dbias (R, K) is its sum over the symbols.
    """
    replica = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, KP)
    total = tl.zeros((KP,), ACC)
    for first in range(0, V, VB):
        v = first + tl.arange(0, VB)
        inside = (v < V)[:, None] & (k < K)[None, :]
        place = (replica * V + v[:, None]) * K + k[None, :]
        g = tl.zeros((VB, KP), ACC)
        for start in range(0, count, PARTS):
            part = start + tl.arange(0, PARTS)
            offset = part[:, None, None] * (tl.num_programs(0) * V * K) + place[None, :, :]
            g += tl.sum(tl.load(parts + offset, mask=(part < count)[:, None, None] & inside[None], other=0.0), axis=0)
        w = tl.load(mixing + place, mask=inside, other=0.0)
        dlogits = w * (g - tl.sum(w * g, axis=1)[:, None])
        tl.store(dselection + (replica * K + k[None, :]) * V + v[:, None], dlogits, mask=inside)
        total += tl.sum(dlogits, axis=0)
    tl.store(dbias + replica * K + k, total, mask=k < K)


def forward(dictionary: Tensor, selection: Tensor, bias: Tensor, p: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return A (R, V, N, N), norms (R, V, N), empty without p, and the weights of the mixture (R, V, K).

    dictionary (R, K, N, N), selection (R, K, V), bias (R, K), p (R,).
    """
    R, K, V = selection.shape
    mixing = selection.new_empty(R, V, K)
    return *mixed.forward(dictionary, selection, p, bias, mixing), mixing


def backward(
    grad: Tensor, dictionary: Tensor, selection: Tensor, bias: Tensor, p: Tensor | None, matrices: Tensor,
    norms: Tensor, mixing: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of dictionary, selection and bias."""
    R, K, V = selection.shape
    grad_dictionary, parts = mixed.gradient_parts(grad, dictionary, mixing, p, matrices, norms)
    grad_selection, grad_bias = torch.empty_like(selection), torch.empty_like(bias)
    if R:
        padded = next_power_of_two(K)
        softmax_gradient_kernel[(R,)](
            parts, mixing, grad_selection, grad_bias, len(parts), V,
            K=K, KP=padded, VB=min(next_power_of_two(V), max(1, WEIGHTS // padded)), PARTS=PARTS,
            ACC=tl.float64 if parts.dtype == torch.float64 else tl.float32, num_warps=4,
        )  # fmt: skip
    return grad_dictionary, grad_selection, grad_bias
