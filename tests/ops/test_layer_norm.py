"""layer_norm: Triton kernels compared with torch, replicas, and errors."""

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
from sdssm.ops.layer_norm import layer_norm
from tests.interpreted import interpreted
from tests.ops.cases import assert_same
from tests.ops.differentiable import draws


@dataclasses.dataclass(frozen=True)
class NormCase:
    """Sizes of the vectors of several replicas, and whether there are gain and shift."""

    R: int = 2
    M: int = 15
    D: int = 7
    affine: bool = True


#: One part of the sums, several, several tiles in a program.
CASES = [NormCase(), NormCase(affine=False), NormCase(3, 20, 64), NormCase(2, 600, 64), NormCase(1, 1, 1)]


def leaves(case: NormCase, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    draw = draws()
    tensors = [draw(case.R, case.M, case.D), *([draw(case.R, case.D), draw(case.R, case.D)] if case.affine else [])]
    return [tensor.to(dtype).requires_grad_() for tensor in tensors]


def results(tensors: list[Tensor]) -> dict[str, Tensor]:
    """Return the vectors of all replicas under vmap, and the gradients of a weighted sum of them."""
    y = vmap(layer_norm)(*tensors)
    weights = torch.arange(y[0].numel(), dtype=torch.float64).mul(1.7).cos().reshape(y.shape[1:]).to(y)
    grads = torch.autograd.grad((y * weights).sum(), tensors)
    return {"y": y.detach(), **{f"grad {i}": grad for i, grad in enumerate(grads)}}


@interpreted
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_torch_in_the_interpreter(case: NormCase) -> None:
    expected = results(leaves(case))
    with ops.use_backend("triton"):
        assert_same(results(leaves(case)), expected, torch.float64)


@interpreted
def test_a_replica_has_the_results_that_it_has_alone() -> None:
    tensors = leaves(NormCase(3, 100, 64), torch.float32)
    with ops.use_backend("triton"):
        together = results(tensors)
        for replica in range(3):
            alone = results([tensor[replica : replica + 1].detach().requires_grad_() for tensor in tensors])
            assert all(torch.equal(alone[name][0], together[name][replica]) for name in together)


@interpreted
@pytest.mark.parametrize("which", range(3))
def test_a_wrong_gradient_is_detected(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from sdssm.ops.layer_norm import triton

    backward = triton.backward
    expected = results(leaves(CASES[0]))

    def wrong(*args: Any) -> tuple[Tensor | None, ...]:
        grads = list(backward(*args))
        gradient = grads[which]
        assert gradient is not None
        grads[which] = gradient * (1 + 1e-8)
        return tuple(grads)

    monkeypatch.setattr(triton, "backward", wrong)
    with ops.use_backend("triton"), pytest.raises(AssertionError, match=f"grad {which}"):
        assert_same(results(leaves(CASES[0])), expected, torch.float64)


@interpreted
def test_no_rows_have_zero_gradients_and_a_second_gradient_is_refused() -> None:
    with ops.use_backend("triton"):
        assert not any(value.any() for value in results(leaves(NormCase(M=0))).values())
        x = leaves(CASES[0])[0]
        (gradient,) = torch.autograd.grad(layer_norm(x).square().sum(), x, create_graph=True)
        with pytest.raises(ops.OpsError, match="gradient of its gradient"):
            torch.autograd.grad(gradient.sum(), x)


def test_equals_torch(device: str) -> None:
    x, gain, shift = (draws(seed)(*shape).to(device) for seed, shape in enumerate(((4, 6), (6,), (6,))))
    torch.testing.assert_close(layer_norm(x, gain, shift), functional.layer_norm(x, (6,), gain, shift))
    torch.testing.assert_close(layer_norm(x, epsilon=0.1), functional.layer_norm(x, (6,), eps=0.1))


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("M", "D", "affine"), [(2, 64, True), (128, 64, True), (5248, 100, False)])
def test_compiles_ahead_of_time(capability: int, M: int, D: int, affine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from sdssm.ops.layer_norm import triton
    from tests.ops.test_triton_compile import compiler, jit

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    x, *vectors = (tensor.detach() for tensor in leaves(NormCase(2, M, D, affine), torch.float32))
    gain, shift = vectors or (None, None)
    triton.forward(x, gain, shift, 1e-5)
    triton.backward(x, x, gain, shift, 1e-5)
    has_sum = affine and M > 8  # a tile has eight vectors of this width
    expected = ["residual_forward_kernel", "residual_backward_kernel", *(["partial_sums_kernel"] if has_sum else [])]
    assert launched == expected


BAD: list[tuple[str, Callable[[], Any]]] = [
    (r"shapes \(2, 3\), \(4,\) do not fit", lambda: layer_norm(torch.ones(2, 3), torch.ones(4))),
    (r"x has shape \(\); it needs at least 1", lambda: layer_norm(torch.tensor(1.0))),
]


@pytest.mark.parametrize(("message", "call"), BAD)
def test_bad_input_raises_a_descriptive_error(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ops.OpsError, match=f"layer_norm: .*{message}"):
        call()
