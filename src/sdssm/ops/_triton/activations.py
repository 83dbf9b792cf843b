# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

"""Activations and their gradients inside of Triton kernels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activation(z, KIND: tl.constexpr):
    """Return relu(z), gelu(z), or z itself for any other kind."""
    if KIND == "relu":
        z = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif KIND == "gelu":
        z = 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    return z


@triton.jit
def activation_slope(saved, KIND: tl.constexpr):
    """Return the derivative at z. `saved` is the activation for relu, and z for gelu."""
    if KIND == "relu":
        slope = tl.where(saved <= 0.0, 0.0, 1.0)  # 1 for NaN, as in torch
    else:
        normal = 0.5 * (1.0 + tl.erf(saved * 0.7071067811865476))
        slope = normal + saved * 0.3989422804014327 * tl.exp(-0.5 * saved * saved)
    return slope
