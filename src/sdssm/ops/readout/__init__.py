"""The loss of a classifier from its states: LayerNorm, linear or cosine logits, and cross-entropy."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.devices import TRITON_LARGEST_PROJECTION, TRITON_LARGEST_STATE
from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation, needs_gradient
from sdssm.ops.backend import uses_reference
from sdssm.ops.checks import (
    check_device,
    check_dtypes,
    check_integers,
    check_last_dimensions,
    check_range,
    check_rank,
)
from sdssm.ops.errors import OpsError
from sdssm.ops.layout import broadcast_leads, flatten_leading
from sdssm.ops.prepare import promote_under_autocast
from sdssm.ops.readout import reference

OPERATION = DifferentiableOperation(
    "readout_loss",
    "readout",
    tensors=("x", "weight", "bias", "gain", "shift", "labels", "scale", "attraction", "projection", "classes"),
    differentiable=("x", "weight", "bias", "gain", "shift", "attraction", "projection"),
    results=("loss", "correct"),
    constant_results=("correct",),
)


def readout_loss(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    gain: Tensor | None = None,
    shift: Tensor | None = None,
    norm: bool = True,
    cosine: bool = False,
    scale: float | Tensor | None = None,
    attraction: float | Tensor | None = None,
    projection: Tensor | None = None,
    unit: bool = False,
    classes: Tensor | None = None,
    exact_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of B states over C classes, and how many are classified correctly.

        h       LayerNorm(x) with epsilon 1e-5, times `gain` plus `shift` if given; x itself with norm=False;
                with a projection P h + h P; with unit=True divided by sqrt(N), so that LayerNorm(x) has norm 1
        logits  scale (h weight^T + bias), or with cosine=True scale cos(h, weight_q) for every class q
        loss    mean over B of cross-entropy, plus with cosine=True the centre loss
                attraction gate |h - weight_label|^2, where gate is the margin of the label's cosine over the best other
                one, clamped to 0..1 and treated as a constant; with `classes` attraction is divided by the variance of
                the rows of weight, the mean of their squared distances from their mean, weighted by `classes`

    x (..., B, N), weight (..., C, N), labels (..., B) integers in 0..C-1, bias and classes (..., C), gain and shift
    (..., N), projection (..., N, N) -> loss (...) and correct (...), int64. `scale` and `attraction` (the weight of the
    centre loss) are numbers or tensors over the leading dimensions, by default 1 and 0. Scale and classes are not
    differentiated. The cosine with a zero vector is 0.
    With `exact_gradient` loss and gradient keep their precision near a loss of zero, see `sdssm.ops.cross_entropy`.

    >>> x = torch.tensor([[3.0, 0.0], [0.0, 0.2]])
    >>> loss, correct = readout_loss(x, torch.eye(2), torch.tensor([0, 0]), norm=False, cosine=True, scale=10)
    >>> round(loss.item(), 4), correct.item()
    (5.0, 1)
    """
    op = "readout_loss"
    check_rank(op, "x", x, ("B", "N"))
    x, weight, bias, gain, shift, projection = promote_under_autocast(x, weight, bias, gain, shift, projection)
    named = [("bias", bias), ("gain", gain), ("shift", shift), ("projection", projection)]
    check_dtypes(op, [("x", x), ("weight", weight), *named])
    check_rank(op, "weight", weight, ("C", "N"))
    check_last_dimensions(op, "weight", weight, x.shape[-1:], ("N",), "x", x)
    check_integers(op, "labels", labels)
    check_last_dimensions(op, "labels", labels, x.shape[-2:-1], ("B",), "x", x)
    check_device(op, "labels", labels, "x", x)
    if bias is not None:
        check_last_dimensions(op, "bias", bias, weight.shape[-2:-1], ("C",), "weight", weight)
    for name, vector in (("gain", gain), ("shift", shift)):
        if vector is not None:
            check_last_dimensions(op, name, vector, x.shape[-1:], ("N",), "x", x)
    if projection is not None:
        check_rank(op, "projection", projection, ("N", "N"))
        check_last_dimensions(op, "projection", projection, (*x.shape[-1:],) * 2, ("N", "N"), "x", x)
    if classes is not None:
        check_last_dimensions(op, "classes", classes, weight.shape[-2:-1], ("C",), "weight", weight)
        classes = classes.detach().to(x.dtype)
    _check_options(op, bias, gain, shift, norm, cosine, attraction, classes)
    scale, attraction = _check_number(op, "scale", scale, x), _check_number(op, "attraction", attraction, x)
    rows = weight.shape[-2]
    check_range(op, "labels", labels, 0, rows - 1, f"weight has {rows} rows, so labels are")
    lead = broadcast_leads(
        op,
        [
            ("x", x, 2),
            ("weight", weight, 2),
            ("labels", labels, 1),
            ("bias", bias, 1),
            ("gain", gain, 1),
            ("shift", shift, 1),
            ("scale", scale if isinstance(scale, Tensor) else None, 0),
            ("attraction", attraction if isinstance(attraction, Tensor) else None, 0),
            ("projection", projection, 2),
            ("classes", classes, 1),
        ],
    )
    chosen = backend.choose(x)
    with backend.no_autocast(x):
        has_kernel = chosen == "cpu" or (chosen == "triton" and x.shape[-1] <= TRITON_LARGEST_PROJECTION)
        is_fused = has_kernel and not uses_reference(chosen, x)
        if not is_fused and (projection is not None or unit):
            x = reference.features(x, gain, shift, projection, norm=norm, unit=unit)
            gain = shift = projection = None
            norm = unit = False
        if not is_fused and classes is not None:
            assert attraction is not None
            attraction, classes = attraction / reference.centre_variance(weight, classes), None
        if uses_reference(chosen, x) or (chosen == "triton" and x.shape[-1] > TRITON_LARGEST_STATE):
            backend.check_backend(op, x, 1)  # the reference computes features that are too wide for the kernels
            return _run_reference(
                x,
                weight,
                labels,
                (bias, gain, shift),
                (scale, attraction),
                lead,
                norm=norm,
                cosine=cosine,
                exact_gradient=exact_gradient,
            )
        backend.check_backend(op, x, x.shape[-1])
        R = (math.prod(lead),)

        def flat(tensor: Tensor | float | None, tail: int) -> Tensor | None:
            if tensor is None:
                return None
            if not isinstance(tensor, Tensor):
                return x.new_full(R, float(tensor))
            return flatten_leading(tensor, lead, tail, R)

        flat_attraction = flat(attraction, 0)
        loss, correct = OPERATION(
            flat(x, 2), flat(weight, 2), flat(bias, 1), flat(gain, 1), flat(shift, 1), flat(labels.long(), 1),
            flat(scale, 0), flat_attraction, flat(projection, 2), flat(classes, 1),
            norm, cosine, unit, exact_gradient,
            needs_gradient((x, weight, bias, gain, shift, flat_attraction, projection)), chosen,
        )  # fmt: skip
    return loss.reshape(lead), correct.reshape(lead)


def _check_options(
    op: str,
    bias: Tensor | None,
    gain: Tensor | None,
    shift: Tensor | None,
    norm: bool,
    cosine: bool,
    attraction: float | Tensor | None,
    classes: Tensor | None,
) -> None:
    """Check that the options fit together."""
    if not norm and not (gain is None and shift is None):
        raise OpsError(
            f"{op}: gain or shift was given with norm=False; they are parameters of LayerNorm, leave them None"
        )
    if cosine and bias is not None:
        raise OpsError(f"{op}: bias was given with cosine=True; cosine logits have none, leave it None")
    if not cosine and attraction is not None:
        raise OpsError(f"{op}: attraction was given with cosine=False; its gate is a margin of cosines, leave it None")
    if classes is not None and attraction is None:
        raise OpsError(f"{op}: classes was given without attraction, which is divided by their variance; leave it None")


def _check_number(op: str, name: str, value: float | Tensor | None, x: Tensor) -> float | Tensor | None:
    """Check a scale or attraction: a number, or a real tensor on the device of x; return it in its dtype."""
    if not isinstance(value, Tensor):
        return value
    if value.dtype.is_complex or value.dtype == torch.bool:
        raise OpsError(f"{op}: {name} has dtype {value.dtype}; it must be a real number or a tensor of them")
    if value.requires_grad and name == "scale":
        raise OpsError(f"{op}: {name} requires a gradient and is not differentiated; pass {name}.detach()")
    check_device(op, name, value, "x", x)
    return value.to(x.dtype)


def _run_reference(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    vectors: tuple[Tensor | None, Tensor | None, Tensor | None],
    numbers: tuple[float | Tensor | None, float | Tensor | None],
    lead: torch.Size,
    *,
    norm: bool,
    cosine: bool,
    exact_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Compute the reference, in float32 for 16-bit dtypes."""
    dtype = x.dtype
    wide = torch.float32 if dtype in backend.NARROW else dtype
    bias, gain, shift = (None if vector is None else vector.to(wide) for vector in vectors)
    scale, attraction = (
        None if number is None else torch.as_tensor(number, dtype=wide, device=x.device) for number in numbers
    )
    loss, correct = reference.loss_and_correct(
        x.to(wide).expand(*lead, *x.shape[-2:]), weight.to(wide), labels.long().expand(*lead, -1),
        bias, gain, shift, scale, attraction, norm=norm, cosine=cosine, exact_gradient=exact_gradient,
    )  # fmt: skip
    return loss.to(dtype), correct
