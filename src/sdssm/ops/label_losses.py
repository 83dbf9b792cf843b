"""The cross-entropy of logits in plain torch, as published or in a form whose gradient is exact near a loss of zero."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

#: Above this log ratio softplus(x) is x up to the precision of float64; exp(x) is finite in float32.
LARGEST_EXPONENT = 40.0


def cross_entropy(logits: Tensor, labels: Tensor, *, exact_gradient: bool = False) -> Tensor:
    """Return the mean cross-entropy of logits (..., B, C) for labels (..., B), as (...).

        as usual         -log softmax(logits)[label]
        exact_gradient   softplus(logsumexp of the other logits - the logit of the label), the same number

    The gradient of the label's logit is its probability minus 1. Near a loss of zero this difference cancels: in
    float32 it is exactly 0 below a loss of about 3e-8, while the gradients of the other logits, with which it sums to
    zero, are not. In the second form it is minus the sum of the others, at any loss.

    >>> logits = torch.tensor([[20.0, 0.0, 0.0]], requires_grad=True)
    >>> for exact in (False, True):
    ...     loss = cross_entropy(logits, torch.tensor([0]), exact_gradient=exact)
    ...     (gradient,) = torch.autograd.grad(loss, logits)
    ...     print(f"{loss.item():.1e}", *(f"{value:.1e}" for value in gradient[0].tolist()))
    0.0e+00 0.0e+00 2.1e-09 2.1e-09
    4.1e-09 -4.1e-09 2.1e-09 2.1e-09
    """
    if not exact_gradient and logits.dim() == 2:
        return functional.cross_entropy(logits, labels)  # one call, and the rounding that users of torch know
    index = labels[..., None]
    if not exact_gradient:
        return -logits.log_softmax(-1).gather(-1, index)[..., 0].mean(-1)
    if logits.shape[-1] == 1:  # there are no other logits
        return (logits * 0).sum(-1).mean(-1)
    differences = logits - logits.gather(-1, index)  # first: a sum of large logits would be rounded at their size
    ratios = differences.scatter(-1, index, -torch.inf).logsumexp(-1)  # log((1 - p) / p), p the label's probability
    return functional.softplus(ratios, threshold=LARGEST_EXPONENT).mean(-1)
