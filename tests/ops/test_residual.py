"""residual_norm: Triton kernels compared with torch, dropout, replicas, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from sdssm import ops
from sdssm.ops.residual import residual_norm
from tests.interpreted import interpreted
from tests.ops.cases import assert_same
from tests.ops.differentiable import draws


@dataclasses.dataclass(frozen=True)
class NormCase:
    """Sizes of one residual connection of several replicas, and whether there is dropout."""

    R: int = 2
    B: int = 3
    L: int = 5
    D: int = 7
    dropout: bool = True


CASES = [NormCase(), NormCase(dropout=False), NormCase(3, 4, 41, 64), NormCase(1, 1, 1, 1)]


def leaves(case: NormCase, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    draw, shape = draws(), (case.R, case.B, case.L, case.D)
    tensors = [draw(*shape), draw(*shape), draw(case.R, case.D), draw(case.R, case.D)]
    return [tensor.to(dtype).requires_grad_() for tensor in tensors]


def noise(case: NormCase) -> Tensor | None:
    shape = (case.R, case.L, 3, case.B, case.D)
    return torch.rand(shape, generator=torch.Generator().manual_seed(3)) if case.dropout else None


def results(case: NormCase, tensors: list[Tensor], numbers: Tensor | None, through: str = "both") -> dict[str, Tensor]:
    """Return the results of all replicas under vmap, and the gradients of a loss through one result or both."""

    def function(h: Tensor, x: Tensor, gain: Tensor, shift: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor]:
        return residual_norm(h, x, gain, shift, noise=own, slot=1, rate=0.3)

    h, x, gain, shift = tensors
    y, total = vmap(function, in_dims=(0, 0, 0, 0, None if numbers is None else 0))(h, x, gain, shift, numbers)
    weights = torch.arange(y[0].numel(), dtype=torch.float64).mul(1.7).cos().reshape(y.shape[1:]).to(y)
    losses = {"y": (y * weights).sum(), "total": (total * weights.flip(0)).sum()}
    loss = losses["y"] + losses["total"] if through == "both" else losses[through]
    grads = torch.autograd.grad(loss, tensors, allow_unused=True, materialize_grads=True)
    return {"y": y.detach(), "total": total.detach(), **{f"grad {i}": grad for i, grad in enumerate(grads)}}


@interpreted
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("through", ["both", "y", "total"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_torch_in_the_interpreter(case: NormCase, through: str) -> None:
    expected = results(case, leaves(case), noise(case), through)
    with ops.use_backend("triton"):
        assert_same(results(case, leaves(case), noise(case), through), expected, torch.float64)


@interpreted
def test_a_replica_has_the_results_that_it_has_alone() -> None:
    case = NormCase(3, 4, 41, 64)
    tensors, numbers = leaves(case, torch.float32), noise(case)
    assert numbers is not None
    with ops.use_backend("triton"):
        together = results(case, tensors, numbers)
        for replica in range(3):
            own = slice(replica, replica + 1)
            alone = results(case, [tensor[own].detach().requires_grad_() for tensor in tensors], numbers[own])
            assert all(torch.equal(alone[name][0], together[name][replica]) for name in together)


@interpreted
def test_a_wrong_gradient_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.residual import triton

    backward, case = triton.backward, CASES[0]
    expected = results(case, leaves(case), noise(case))
    for which in range(4):

        def wrong(*args: Any, which: int = which) -> tuple[Tensor | None, ...]:
            grads = list(backward(*args))
            gradient = grads[which]
            assert gradient is not None
            grads[which] = gradient * (1 + 1e-8)
            return tuple(grads)

        monkeypatch.setattr(triton, "backward", wrong)
        with ops.use_backend("triton"), pytest.raises(AssertionError, match=f"grad {which}"):
            assert_same(results(case, leaves(case), noise(case)), expected, torch.float64)


@interpreted
def test_no_rows_have_zero_gradients() -> None:
    case = NormCase(B=0)
    with ops.use_backend("triton"):
        assert not any(value.any() for value in results(case, leaves(case), noise(case)).values())


def test_is_a_layer_norm_of_the_sum(device: str) -> None:
    h, x, gain, shift = (draws(seed)(*shape).to(device) for seed, shape in enumerate(((4, 6), (4, 6), (6,), (6,))))
    y, total = residual_norm(h, x, gain, shift)
    torch.testing.assert_close(total, h + x)
    torch.testing.assert_close(y, functional.layer_norm(h + x, (6,), gain, shift))


def test_dropout_uses_the_numbers_of_its_slot(device: str) -> None:
    h, x = torch.zeros(2, 3, 4, device=device), torch.ones(2, 3, 4, device=device)
    numbers = torch.rand(3, 5, 2, 4, generator=torch.Generator().manual_seed(0)).to(device)
    _, total = residual_norm(h, x, x[0, 0], h[0, 0], noise=numbers, slot=3, rate=0.25)
    assert torch.equal(total, (numbers[:, 3].transpose(0, 1) >= 0.25) / 0.75)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("D", "dtype"), [(64, torch.float32), (100, torch.float64)])
def test_compiles_ahead_of_time(capability: int, D: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from sdssm.ops.residual import triton
    from tests.ops.test_triton_compile import compiler, jit

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    case = NormCase(2, 4, 41, D)
    h, x, gain, shift = (tensor.detach() for tensor in leaves(case, dtype))
    for numbers in (noise(case), None):
        y, total = triton.forward(h, x, gain, shift, numbers, 1, 0.1, 1e-5)
        triton.backward(y, None, h, x, gain, shift, numbers, total, 1, 0.1, 1e-5)
    assert {"residual_forward_kernel", "residual_backward_kernel"} <= set(launched)


ones = torch.ones
H, G = ones(2, 3, 4), ones(4)
BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"shapes \(2, 3, 4\), \(2, 1, 4\)", lambda: residual_norm(H, H[:, :1], G, G)),
    (r"shapes .*\(3,\)", lambda: residual_norm(H, H, G, G[:3])),
    (r"noise has shape \(2, 1, 3, 4\)", lambda: residual_norm(H, H, G, G, noise=ones(2, 1, 3, 4))),
    (r"slot is 1; noise has 1", lambda: residual_norm(H, H, G, G, noise=ones(3, 1, 2, 4), slot=1)),
    (r"x has dtype torch.float64", lambda: residual_norm(H, H.double(), G, G)),
]


@pytest.mark.parametrize(("message", "call"), BAD)
def test_bad_input_raises_a_descriptive_error(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ops.OpsError, match=f"residual_norm: .*{message}"):
        call()
