"""readout_loss: its cases for the laws of `test_function_laws`, and its own properties."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sdssm import ops
from sdssm.ops.readout import reference
from tests.interpreted import interpreted
from tests.ops.differentiable import (
    Function,
    Leaves,
    Operation,
    Tuning,
    check_compiled,
    compare_with_reference,
    draws,
    fast,
)


@dataclasses.dataclass(frozen=True)
class Readout:
    """The sizes and options of one call.

    `affine`: gain and shift; `numbers`: scale and attraction; `projected`: a projection of the features, of norm 1;
    `classes`: the attraction is divided by the variance of the rows of weight that occur.
    """

    lead: tuple[int, ...] = ()
    B: int = 5
    C: int = 4
    N: int = 6
    bias: bool = False
    affine: bool = False
    norm: bool = True
    cosine: bool = False
    numbers: str = "none"  # or "shared" by all replicas, or "each" its own
    exact: bool = False  # the gradient near a loss of zero
    projected: bool = False
    classes: bool = False


CASES = [
    Readout(bias=True),
    Readout((3,), 17, 5, 7, bias=True, affine=True),
    Readout((2, 2), 4, 1, 3, bias=True, norm=False, numbers="each"),
    Readout((), 33, 3, 16, affine=True),
    Readout(cosine=True, numbers="shared"),
    Readout((3,), 18, 6, 5, cosine=True, affine=True, numbers="each"),
    Readout((2,), 3, 2, 4, cosine=True, norm=False),
    Readout((), 1, 1, 1, norm=False),
    Readout((3,), 17, 5, 7, bias=True, affine=True, exact=True),
    Readout((3,), 18, 6, 5, cosine=True, affine=True, numbers="each", exact=True),
    Readout((2,), 4, 1, 3, bias=True, norm=False, numbers="each", exact=True),
    Readout((3,), 18, 6, 5, cosine=True, numbers="each", projected=True, classes=True),
    Readout((), 17, 3, 4, cosine=True, affine=True, numbers="shared", projected=True),
    Readout((2,), 5, 4, 3, cosine=True, norm=False, numbers="each", classes=True),
    Readout((2,), 9, 4, 7, bias=True, affine=True, projected=True),
]


def build(case: Readout, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Function, Leaves]:
    draw = draws()
    lead, B, C, N = case.lead, case.B, case.C, case.N
    leaves = {"x": draw(*lead, B, N), "weight": draw(*lead, C, N)}
    if case.bias:
        leaves["bias"] = draw(*lead, C)
    if case.affine:
        leaves |= {"gain": draw(*lead, N) + 1, "shift": draw(*lead, N)}
    scale: Any = None
    attraction: Any = None
    if case.numbers == "shared":
        scale, attraction = 7, 0.5
    if case.numbers == "each":
        scale = draw(*lead).abs().to(device) + 2
        if case.cosine:
            leaves["attraction"] = draw(*lead).abs()
    if case.projected:
        leaves["projection"] = draw(*lead, N, N) / 4
    classes = None
    if case.classes:  # the second does not occur in the first replica
        classes = torch.ones(*lead, C, device=device)
        classes.view(-1, C)[0, 1] = 0
    labels = torch.randint(0, C, (*lead, B), generator=torch.Generator().manual_seed(1)).to(device)

    def function(leaves: Leaves) -> tuple[Tensor, ...]:
        return ops.readout_loss(
            leaves["x"],
            leaves["weight"],
            labels,
            bias=leaves.get("bias"),
            gain=leaves.get("gain"),
            shift=leaves.get("shift"),
            norm=case.norm,
            cosine=case.cosine,
            scale=scale,
            attraction=leaves.get("attraction", attraction if case.cosine else None),
            projection=leaves.get("projection"),
            unit=case.projected,
            classes=classes,
            exact_gradient=case.exact,
        )

    return function, {name: leaf.to(device, dtype) for name, leaf in leaves.items()}


#: Losses at which every backend is compared with float64.
SMALL_LOSSES = [10.0**-exponent for exponent in range(11)]


def check_small_loss(loss: float, device: str, *, exact: bool) -> None:
    """Compare loss and gradient in float32 with float64, with a largest logit of 300.

    x is 1 and the logits have few binary digits, so that every backend computes them exactly. What is left is the
    rounding of the softmax: a few units in the last place of 1, and not of 300, where it would be 250 times as large.
    With the exact gradient every number has the relative precision of float32.
    """
    gap = round(-math.log(math.expm1(loss) / 2) * 1024) / 1024
    logits = torch.tensor([300.0, 300.0 - gap, 300.0 - gap])
    labels = torch.tensor([0])

    def run(dtype: torch.dtype, place: str) -> tuple[float, Tensor]:
        weight = logits[:, None].to(place, dtype).requires_grad_()
        x = torch.ones(1, 1, dtype=dtype, device=place)
        value, _ = ops.readout_loss(x, weight, labels.to(place), norm=False, exact_gradient=exact)
        value.backward()  # type: ignore[no-untyped-call]  # torch's own
        assert weight.grad is not None
        return value.item(), weight.grad[:, 0].cpu()

    value, gradient = run(torch.float32, device)
    with ops.use_backend("reference"):
        exact_value, exact_gradient = run(torch.float64, "cpu")
    assert exact_value == pytest.approx(loss, rel=1e-3)  # the gap was rounded
    if exact:
        assert value == pytest.approx(exact_value, rel=1e-5, abs=0)
        torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-5, atol=0)
    ulp = torch.finfo(torch.float32).eps
    assert abs(value - exact_value) <= 4 * ulp
    assert (gradient - exact_gradient).abs().max() <= 4 * ulp
    torch.testing.assert_close(gradient[1:].double(), exact_gradient[1:], rtol=1e-5, atol=0)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", ["reference", "fast"])
@pytest.mark.parametrize("loss", SMALL_LOSSES)
def test_small_losses_keep_their_precision(loss: float, name: str, exact: bool, device: str) -> None:
    with ops.use_backend(fast(device) if name == "fast" else name):
        check_small_loss(loss, device, exact=exact)


@interpreted
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("loss", SMALL_LOSSES)
def test_interpreted_small_losses_keep_their_precision(loss: float, exact: bool) -> None:
    with ops.use_backend("triton"):
        check_small_loss(loss, "cpu", exact=exact)


def test_all_arguments_can_be_mapped(device: str) -> None:
    draw = draws()
    x, weight, bias, gain, shift = (
        draw(3, *shape).to(device).requires_grad_() for shape in ((5, 6), (4, 6), (4,), (6,), (6,))
    )
    labels, scale = torch.randint(0, 4, (3, 5)).to(device), torch.tensor([1.0, 2.0, 3.0], device=device)

    def readout(*args: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, labels, bias, gain, shift, scale = args
        return ops.readout_loss(x, weight, labels, bias=bias, gain=gain, shift=shift, scale=scale)

    args = (x, weight, labels, bias, gain, shift, scale)
    loss, correct = torch.func.vmap(readout)(*args)
    torch.testing.assert_close((loss, correct), readout(*args))
    for gradient, expected in zip(
        torch.autograd.grad(loss.square().sum(), (x, weight, bias, gain, shift)),
        torch.autograd.grad(readout(*args)[0].square().sum(), (x, weight, bias, gain, shift)),
        strict=True,
    ):
        torch.testing.assert_close(gradient, expected)


def test_linear_readout_equals_torch_cross_entropy(device: str) -> None:
    draw = draws()
    x, weight, bias, gain, shift = (draw(*shape).to(device) for shape in ((9, 6), (4, 6), (4,), (6,), (6,)))
    labels = torch.randint(0, 4, (9,), generator=torch.Generator().manual_seed(2)).to(device)
    loss, correct = ops.readout_loss(x, weight, labels, bias=bias, gain=gain, shift=shift)
    logits = functional.linear(functional.layer_norm(x, (6,), gain, shift), weight, bias)
    torch.testing.assert_close(loss, functional.cross_entropy(logits, labels))
    assert correct == (logits.argmax(-1) == labels).sum()


def test_cosine_readout_equals_torch_cosine_similarity(device: str) -> None:
    draw = draws()
    x, weight = draw(9, 6).to(device), draw(4, 6).to(device)
    h = functional.layer_norm(x, (6,))
    cosines = functional.cosine_similarity(h[:, None], weight, dim=-1)
    labels = torch.where(torch.arange(9, device=device) < 5, cosines.argmax(-1), 0)  # some correct, some not
    loss, _ = ops.readout_loss(x, weight, labels, cosine=True, scale=5, attraction=2)
    centre_losses = []
    for row, label, features in zip(cosines.tolist(), labels.tolist(), h, strict=True):
        margin = row[label] - max(value for q, value in enumerate(row) if q != label)
        centre_losses.append(min(max(margin, 0), 1) * float((features - weight[label]).square().sum()))
    assert any(centre_losses)
    expected = functional.cross_entropy(5 * cosines, labels) + 2 * sum(centre_losses) / 9
    torch.testing.assert_close(loss, expected)


def test_parameters_can_be_shared(device: str) -> None:
    draw = draws()
    labels = torch.randint(0, 4, (5,), generator=torch.Generator().manual_seed(2)).to(device)
    leaves = {"x": draw(2, 3, 5, 6).to(device), "weight": draw(4, 6).to(device), "bias": draw(3, 4).to(device)}
    scale = torch.tensor([[1.0], [2.0]], dtype=torch.float64, device=device)
    compare_with_reference(
        lambda leaves: ops.readout_loss(leaves["x"], leaves["weight"], labels, bias=leaves["bias"], scale=scale),
        leaves,
        fast(device),
        "shared",
    )


def test_a_zero_vector_has_cosine_zero_and_no_gradient(device: str) -> None:
    x, weight = torch.zeros(2, 3, device=device), torch.eye(3, device=device)[:2].clone()
    x[0, 0], weight[1] = 2, 0
    for name in ("reference", fast(device)):
        leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
        with ops.use_backend(name):
            loss, correct = ops.readout_loss(
                *leaves, torch.tensor([0, 1], device=device), cosine=True, norm=False, scale=3
            )
            grads = torch.autograd.grad(loss, leaves)
        expected = (torch.tensor([0.0, 3.0]).exp().sum().log() - 3 + torch.tensor(2.0).log()) / 2
        torch.testing.assert_close(loss.cpu(), expected)
        assert correct == 1 and not grads[0][1].any() and not grads[1][1].any()
        assert all(grad.isfinite().all() for grad in grads)


def test_attraction_is_relative_to_the_variance_of_the_classes_that_occur(device: str) -> None:
    draw = draws()
    x, weight = draw(9, 6).to(device), draw(4, 6).to(device)
    labels = torch.randint(0, 3, (9,), generator=torch.Generator().manual_seed(2)).to(device)
    classes = torch.tensor([1.0, 1.0, 1.0, 0.0], device=device)
    variance = weight[:3].sub(weight[:3].mean(0)).square().sum(-1).mean()
    options: Any = {"cosine": True, "norm": False, "scale": 5}
    actual = ops.readout_loss(x, weight, labels, attraction=2, classes=classes, **options)
    torch.testing.assert_close(actual, ops.readout_loss(x, weight, labels, attraction=2 / variance, **options))


@pytest.mark.parametrize("distance", [1.0, 0.0])
def test_the_gradient_of_the_variance_is_that_of_autograd(distance: float) -> None:
    """With equal rows the variance is the least one, a constant."""
    draw = draws()
    weight = (draw(2, 1, 6) + distance * draw(2, 4, 6)).double().requires_grad_()
    classes = torch.tensor([[1.0, 1.0, 0.0, 1.0], [0.5, 0.0, 0.0, 2.0]], dtype=torch.float64)
    expected = reference.centre_variance(weight, classes)
    variance, gradient = reference.centre_variance_gradient(weight.detach(), classes)
    torch.testing.assert_close(variance, expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), weight)[0])
    assert gradient.any() == (distance > 0)


def test_large_logits_do_not_overflow(device: str) -> None:
    function, leaves = build(Readout((), 6, 4, 5, norm=False), device, torch.float32)
    leaves["x"] = leaves["x"] * 1e4
    compare_with_reference(function, leaves, fast(device), "large")


def test_16_bit_dtypes_are_computed_in_float32(device: str) -> None:
    function, leaves = build(CASES[1], device, torch.bfloat16)
    loss, _ = function(leaves)
    assert loss.dtype == torch.bfloat16
    wide = function({name: leaf.float() for name, leaf in leaves.items()})[0]
    torch.testing.assert_close(loss.float(), wide, atol=0, rtol=2**-8)


def test_cosine_compiles_without_graph_breaks(device: str) -> None:
    check_compiled(*build(CASES[5], device))


D = torch.ones
Y = torch.zeros(2, dtype=torch.int64)
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"x has shape \(3,\); it needs at least 2", lambda: ops.readout_loss(D(3), D(4, 3), Y)),
    (r"weight has shape \(4, 2\).*N=3", lambda: ops.readout_loss(D(2, 3), D(4, 2), Y)),
    (r"weight has dtype torch.float64", lambda: ops.readout_loss(D(2, 3), D(4, 3).double(), Y)),
    (r"labels has shape \(2,\).*B=5", lambda: ops.readout_loss(D(5, 3), D(4, 3), Y)),
    (r"labels has dtype torch.float32", lambda: ops.readout_loss(D(2, 3), D(4, 3), D(2))),
    (r"labels\[1\] is 4; weight has 4 rows.*0..3", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y + torch.arange(2) * 4)),
    (r"labels\[0\] is -1", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y - 1)),
    (r"labels is on meta", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y.to("meta"))),
    (r"bias has shape \(3,\).*C=4", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, bias=D(3))),
    (r"gain has shape \(4,\).*N=3", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, gain=D(4))),
    (r"shift has dtype torch.int64", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, shift=D(3).long())),
    (r"gain or shift.*norm=False", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, shift=D(3), norm=False)),
    (r"bias was given with cosine=True", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, bias=D(4), cosine=True)),
    (r"attraction was given with cosine=False", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, attraction=1)),
    (r"scale of shape \(2,\).*broadcast", lambda: ops.readout_loss(D(3, 2, 3), D(4, 3), Y, scale=D(2))),
    (r"scale requires a gradient", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, scale=D(()).requires_grad_())),
    (r"scale has dtype torch.bool", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, scale=D(()).bool())),
    (r"projection has shape \(2, 3\).*N=3", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, projection=D(2, 3))),
    (r"classes was given without attraction", lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, classes=D(4))),
    (
        r"classes has shape \(3,\).*C=4",
        lambda: ops.readout_loss(D(2, 3), D(4, 3), Y, cosine=True, attraction=1, classes=D(3)),
    ),
    (r"x is a list", lambda: ops.readout_loss([1.0], D(4, 3), Y)),  # type: ignore[arg-type]
]


def _use_small_class_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.readout import triton

    monkeypatch.setattr(triton, "CLASS_ENTRIES", 512)  # 16 classes at a time


READOUT = Operation(
    name="readout",
    other_name="readout_loss",
    build=build,
    cases=CASES,
    alone=[],
    wide=[
        Readout((2,), 128, C, N, cosine=cosine, bias=not cosine, affine=True, numbers="each")
        for C, N in ((60, 64), (256, 256), (130, 100))
        for cosine in (False, True)
    ]
    + [Readout((2,), 128, 60, 64, cosine=True, numbers="each", projected=True, classes=True)],
    small=[dataclasses.replace(CASES[i], B=4, N=3) for i in (1, 5, 6, 8, 14)],
    mapped=[*CASES[:7], *CASES[8:]],
    tiny=[CASES[5]],
    full=[CASES[1]],
    many=Readout((3,), 100, 5, 7, bias=True, affine=True),
    bad=BAD,
    tunings=[
        Tuning(
            "several tiles of classes",
            _use_small_class_tiles,
            [
                (Readout((2,), 18, 37, 5, cosine=cosine, bias=not cosine, affine=True, numbers="each", exact=exact), 0)
                for cosine in (False, True)
                for exact in (False, True)
            ]
            + [(Readout((2,), 18, 37, 5, cosine=True, numbers="each", projected=True, classes=True), 0)],
        )
    ],
    sixteen=False,  # its own test has a smaller tolerance
)
