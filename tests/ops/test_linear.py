"""linear_map: Triton kernels compared with torch, replicas, precision on a GPU, and errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from sdssm import ops
from sdssm.ops.linear import linear_map
from sdssm.ops.linear.reference import ACTIVATIONS
from tests.interpreted import interpreted
from tests.ops.cases import assert_same
from tests.ops.differentiable import draws

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
#: Rows, inputs, results: smaller than a tile, few rows of many results, and several tiles of each with remainders.
SIZES = [(5, 3, 7), (3, 20, 100), (300, 20, 66), (600, 40, 33)]


def leaves(R: int, M: int, K: int, F: int, bias: bool = True, device: str = "cpu", dtype: Any = None) -> list[Tensor]:
    draw = draws()
    tensors = [draw(R, M, K), draw(R, F, K) * K**-0.5, *([draw(R, F)] if bias else [])]
    return [tensor.to(device, dtype).requires_grad_() for tensor in tensors]


def results(tensors: list[Tensor], activation: str) -> dict[str, Tensor]:
    """Return the results of all replicas under vmap, and the gradients of a weighted sum of them."""
    y = vmap(partial(linear_map, activation=activation))(*tensors)
    weights = torch.arange(y[0].numel(), dtype=torch.float64).mul(1.7).cos().reshape(y.shape[1:]).to(y)
    grads = torch.autograd.grad((y * weights).sum(), tensors)
    return {"y": y.detach(), **{f"grad {i}": grad for i, grad in enumerate(grads)}}


@interpreted
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_agrees_with_torch_in_the_interpreter(sizes: tuple[int, int, int], activation: str, bias: bool) -> None:
    tensors = leaves(2, *sizes, bias)
    expected = results(tensors, activation)
    with ops.use_backend("triton"):
        assert_same(results(tensors, activation), expected, torch.float64)


@interpreted
def test_a_replica_has_the_results_that_it_has_alone() -> None:
    tensors = leaves(3, 600, 20, 24, dtype=torch.float32)
    with ops.use_backend("triton"):
        together = results(tensors, "gelu")
        for replica in range(3):
            alone = results([tensor[replica : replica + 1].detach().requires_grad_() for tensor in tensors], "gelu")
            assert all(torch.equal(alone[name][0], together[name][replica]) for name in together)


@interpreted
def test_a_wrong_gradient_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.linear import triton

    backward, tensors = triton.backward, leaves(2, 5, 3, 7)
    expected = results(tensors, "relu")
    for which in range(3):

        def wrong(*args: Any, which: int = which) -> tuple[Tensor | None, ...]:
            grads = list(backward(*args))
            gradient = grads[which]
            assert gradient is not None
            grads[which] = gradient * (1 + 1e-8)
            return tuple(grads)

        monkeypatch.setattr(triton, "backward", wrong)
        with ops.use_backend("triton"), pytest.raises(AssertionError, match=f"grad {which}"):
            assert_same(results(tensors, "relu"), expected, torch.float64)


@interpreted
def test_relu_keeps_nan() -> None:
    """A replica that has diverged is recognised by its loss."""
    x, weight = (torch.ones(2, 3) * torch.tensor([[torch.nan], [1.0]])).requires_grad_(), -torch.ones(4, 3)
    with ops.use_backend("triton"):
        y = linear_map(x, weight, activation="relu")
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y[0].isnan().all() and not y[1].any()
    assert torch.equal(gradient, torch.tensor([[-4.0] * 3, [0.0] * 3]))


@interpreted
def test_no_rows_have_zero_gradients() -> None:
    with ops.use_backend("triton"):
        assert not any(value.any() for value in results(leaves(2, 0, 3, 7), "none").values())


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
@pytest.mark.parametrize("sizes", [(5248, 64, 192), (5248, 256, 64), (1000, 1000, 300)], ids=str)
def test_products_on_tensor_cores_are_as_precise_as_float32(sizes: tuple[int, int, int]) -> None:
    """The error against float64 is at most twice that of torch's products in float32.

    The gradient of the bias is a sum and no product: torch's has little more than the error of its rounding to float32.
    """
    tensors = leaves(2, *sizes, device="cuda", dtype=torch.float32)
    exact = results([tensor.detach().double().requires_grad_() for tensor in tensors], "none")
    ours = results(tensors, "none")
    with ops.use_backend("reference"):
        plain = results(tensors, "none")
    for name in ("y", "grad 0", "grad 1"):
        error, allowed = (float((result[name] - exact[name]).norm()) for result in (ours, plain))
        assert error <= 2 * allowed, name


@pytest.mark.parametrize("device", DEVICES)
def test_equals_torch(device: str) -> None:
    x, weight, bias = (draws()(*shape).to(device).requires_grad_() for shape in ((16, 32, 6), (5, 6), (5,)))
    ours, plain = linear_map(x, weight, bias), torch.nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(ours, plain)
    gradients = [torch.autograd.grad(out.square().sum(), (x, weight, bias)) for out in (ours, plain)]
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("K", "F", "dtype", "activation"),
    [(64, 192, torch.float32, "none"), (64, 256, torch.float32, "gelu"), (20, 3, torch.float64, "relu")],
)
def test_compiles_ahead_of_time(
    capability: int, K: int, F: int, dtype: torch.dtype, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from sdssm.ops.linear import triton
    from tests.ops.test_triton_compile import compiler, jit

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    kernels = ["linear_product_kernel", "linear_product_kernel", "linear_weight_gradient_kernel"]
    for rows in (600, 3):
        launched.clear()
        x, weight, bias = (tensor.detach() for tensor in leaves(2, rows, K, F, dtype=dtype))
        y, *rest = triton.forward(x, weight, bias, activation)
        triton.backward(y, x, weight, bias, y, *rest, activation)
        assert launched == [*kernels, *(["partial_sums_kernel"] if rows == 600 else [])]


ones = torch.ones
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"activation is 'rely'; did you mean 'relu'", lambda: linear_map(ones(2, 3), ones(4, 3), activation="rely")),
    (r"weight has shape \(3,\); it needs at least 2", lambda: linear_map(ones(2, 3), ones(3))),
    (r"the shapes \(2, 3\), \(4, 2\) do not fit", lambda: linear_map(ones(2, 3), ones(4, 2))),
    (r"the shapes \(2, 3\), \(4, 3\), \(3,\) do not fit", lambda: linear_map(ones(2, 3), ones(4, 3), ones(3))),
]


@pytest.mark.parametrize(("message", "call"), BAD)
def test_bad_input_raises_a_descriptive_error(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ops.OpsError, match=f"linear_map: .*{message}"):
        call()
