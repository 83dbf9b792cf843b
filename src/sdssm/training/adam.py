"""One step of Adam for R replicas side by side.

Each replica has its own learning rate, weight decay and gradient clipping.

The update is that of `torch.optim.Adam` (coupled weight decay) after `torch.nn.utils.clip_grad_norm_`. A replica whose
loss or gradient is not finite keeps its parameters and is never updated again.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sdssm.ops import backend

#: The value that `torch.nn.utils.clip_grad_norm_` adds to the norm.
CLIP_EPS = 1e-6
#: At most so many gradients are read where they are on a GPU, by kernels with code for each; more are joined first.
MOST_PARTS = 32
#: At most so many parameters are written twice on a GPU, by a kernel that compares a number with the start of each.
MOST_PACKED = 256


@torch.no_grad()
def adam_step(
    parameters: Tensor,
    gradients: Tensor | Sequence[Tensor],
    first: Tensor,
    second: Tensor,
    *,
    lr: Tensor,
    weight_decay: Tensor,
    bias1: Tensor,
    bias2: Tensor,
    betas: tuple[float, float],
    eps: float,
    clip: float | None,
    alive: Tensor,
    loss: Tensor,
    packed: Tensor | None = None,
) -> Tensor:
    """Update parameters and moments in place; return the norms (R,) of the unclipped gradients.

    parameters, first, second: (R, P); the last two are Adam's moments.
    gradients: (R, P), or parts (R, ...) of it that follow each other; their contents are undefined afterwards.

    lr, weight_decay, loss: (R,).
    bias1, bias2: (R,), the bias corrections 1 - beta1^t and 1 - beta2^t at step t, counted from 1.
    alive: (R,), bool; set to False for replicas whose loss or gradient is not finite.
    packed: (R * P,), on a GPU only; the new parameters are written to it as well, part after part, (R, ...) each.

    >>> p, m, v = torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2)
    >>> alive, ones = torch.tensor([True]), torch.ones(1)
    >>> adam_step(p, torch.tensor([[3.0, 4.0]]), m, v, lr=0.1 * ones, weight_decay=0 * ones, bias1=0.1 * ones,
    ...           bias2=0.001 * ones, betas=(0.9, 0.999), eps=1e-8, clip=1.0, alive=alive, loss=ones)
    tensor([5.])
    >>> p
    tensor([[-0.1000, -0.1000]])
    """
    parts = [gradients] if isinstance(gradients, Tensor) else list(gradients)
    settings = lr, weight_decay, bias1, bias2
    if backend.is_on_gpu(parameters) and parameters.dtype == torch.float32 and importlib.util.find_spec("triton"):
        from sdssm.training import adam_triton

        return adam_triton.adam_step(
            parameters, parts, first, second, *settings, betas, eps, clip, alive, loss, packed
        )  # fmt: skip
    gradient = join_parts(parts)
    tensors = parameters, gradient, first, second
    norms = torch.stack([torch.linalg.vector_norm(row) for row in gradient])
    alive &= torch.isfinite(norms) & torch.isfinite(loss)
    # Replica by replica: each one fits into the cache, and its numbers do not depend on the number of replicas.
    rows = zip(alive.tolist(), norms.tolist(), *(setting.tolist() for setting in settings), strict=True)
    for replica, (is_alive, norm, rate, decay, correction1, correction2) in enumerate(rows):
        if is_alive:
            scale = 1.0 if clip is None else min(1.0, clip / (norm + CLIP_EPS))
            root = math.sqrt(correction2)
            p, g, m, v = (tensor[replica] for tensor in tensors)
            _update(p, g, m, v, scale, decay, rate * root / correction1, eps * root, betas)
    return norms


def join_parts(parts: Sequence[Tensor]) -> Tensor:
    """Return parts (R, ...) of a gradient as one tensor, (R, P)."""
    return torch.cat([part.reshape(len(part), -1) for part in parts], dim=1)


def _update(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    scale: float,
    decay: float,
    rate: float,
    eps: float,
    betas: tuple[float, float],
) -> None:
    """Update the moments m and v with g, then p -= rate m / (sqrt(v) + eps).

    `rate` and `eps` include the bias corrections.
    """
    if scale < 1.0:
        g.mul_(scale)
    if decay:
        g.add_(p, alpha=decay)
    m.lerp_(g, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    p.addcdiv_(m, torch.sqrt(v, out=g).add_(eps), value=-rate)
