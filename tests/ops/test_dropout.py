"""dropout with given random numbers: the Triton kernel compared with torch, and errors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from sdssm import ops
from sdssm.ops.dropout import dropout
from tests.interpreted import interpreted
from tests.ops.cases import assert_same
from tests.ops.differentiable import draws


def results(x: Tensor, noise: Tensor) -> dict[str, Tensor]:
    """Return the results of all replicas under vmap, and the gradient of a sum of their squares."""
    leaf = x.detach().requires_grad_()
    y = vmap(lambda x, noise: dropout(x, noise, 0.3))(leaf, noise)
    return {"y": y.detach(), "grad": torch.autograd.grad(y.square().sum(), leaf)[0]}


@interpreted
@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("shape", [(2, 5, 7), (3, 40, 33), (2, 0, 7)], ids=str)
def test_agrees_with_torch_in_the_interpreter(shape: tuple[int, ...]) -> None:
    x, noise = draws()(*shape), torch.rand(shape, generator=torch.Generator().manual_seed(0))
    expected = results(x, noise)
    with ops.use_backend("triton"):
        assert_same(results(x, noise), expected, torch.float64)


def test_entries_below_the_rate_are_zero_and_the_others_larger(device: str) -> None:
    noise = torch.tensor([0.0, 0.29, 0.3, 0.9], device=device)
    x = torch.tensor([1.0, 2.0, 7.0, -7.0], device=device)
    torch.testing.assert_close(dropout(x, noise, 0.3), torch.tensor([0.0, 0.0, 10.0, -10.0], device=device))
    assert dropout(x, None, 0.3) is x


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ops.OpsError, match=r"dropout: noise has shape \(3,\) and x \(2, 3\)"):
        dropout(torch.ones(2, 3), torch.ones(3), 0.5)


@pytest.mark.parametrize("capability", [80, 90])
def test_compiles_ahead_of_time(capability: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from sdssm.ops.dropout import triton
    from tests.ops.test_triton_compile import compiler, jit

    launched: list[str] = []
    monkeypatch.setattr(jit.JITFunction, "run", compiler(capability, launched))
    x = torch.zeros(2, 600)
    triton.backward(x, x, x, 0.1)
    assert launched == ["dropout_kernel"]
