"""One step of Adam for R replicas side by side, each with its own rate, decay and clipping, and each stopped alone.

The rule is that of `torch.optim.Adam` (coupled weight decay) after `torch.nn.utils.clip_grad_norm_`. A replica whose
loss or gradient is not finite keeps its parameters and is never updated again.
"""

from __future__ import annotations

import importlib.util
import math

import torch
from torch import Tensor

#: What `torch.nn.utils.clip_grad_norm_` adds to the norm.
CLIP_EPS = 1e-6


@torch.no_grad()
def adam_step(
    parameters: Tensor,
    gradient: Tensor,
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
) -> Tensor:
    """Update parameters and both moments, all (R, P), in place; return the norm (R,) of each gradient before clipping.

    lr, weight_decay, loss and the corrections bias1 = 1 - beta1^t and bias2 = 1 - beta2^t at step t (from 1) are (R,);
    `alive` (R,), bool, is set to False where a replica stops. What `gradient` holds afterwards is not defined.

    >>> p, m, v = torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2)
    >>> alive, ones = torch.tensor([True]), torch.ones(1)
    >>> adam_step(p, torch.tensor([[3.0, 4.0]]), m, v, lr=0.1 * ones, weight_decay=0 * ones, bias1=0.1 * ones,
    ...           bias2=0.001 * ones, betas=(0.9, 0.999), eps=1e-8, clip=1.0, alive=alive, loss=ones)
    tensor([5.])
    >>> p
    tensor([[-0.1000, -0.1000]])
    """
    tensors = parameters, gradient, first, second
    settings = lr, weight_decay, bias1, bias2
    if parameters.is_cuda and importlib.util.find_spec("triton"):
        from sdssm.training import adam_triton

        return adam_triton.adam_step(*tensors, *settings, betas, eps, clip, alive, loss)
    norm = torch.stack([torch.linalg.vector_norm(row) for row in gradient])
    alive &= torch.isfinite(norm) & torch.isfinite(loss)
    # Replica by replica: one fits the cache, and its numbers do not depend on how many there are.
    rows = zip(alive.tolist(), norm.tolist(), *(setting.tolist() for setting in settings), strict=True)
    for replica, (going, size, rate, decay, correction1, correction2) in enumerate(rows):
        if going:
            scale = 1.0 if clip is None else min(1.0, clip / (size + CLIP_EPS))
            root = math.sqrt(correction2)
            p, g, m, v = (tensor[replica] for tensor in tensors)
            _update(p, g, m, v, scale, decay, rate * root / correction1, eps * root, betas)
    return norm


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
    """m and v take g in, then p -= rate m / (sqrt(v) + eps); the corrections are in `rate` and `eps`."""
    if scale < 1.0:
        g.mul_(scale)
    if decay:
        g.add_(p, alpha=decay)
    m.lerp_(g, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    p.addcdiv_(m, torch.sqrt(v, out=g).add_(eps), value=-rate)
