"""Functions of tensors (no scans) before the comparison that all implementations face."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sdssm import ops
from tests.ops.cases import assert_same

Leaves = dict[str, Tensor]
Function = Callable[[Leaves], tuple[Tensor, ...]]


def draws(seed: int = 0) -> Callable[..., Tensor]:
    """Normal numbers, drawn in float64 on the CPU, so that every dtype and device sees the same."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def loss_of(outputs: tuple[Tensor, ...]) -> Tensor:
    """A fixed weighting of the first output, all entries different (chance is not allowed under vmap)."""
    first = outputs[0]
    weights = torch.arange(first.numel(), dtype=torch.float64, device=first.device).mul(1.7).add(0.3).cos()
    return (first * weights.reshape(first.shape).to(first.dtype)).sum()


def outputs_and_gradients(function: Function, leaves: Leaves) -> Leaves:
    fresh = {name: leaf.detach().clone().requires_grad_() for name, leaf in leaves.items()}
    outputs = function(fresh)
    grads = torch.autograd.grad(loss_of(outputs), list(fresh.values()))
    found = {f"output {i}": output.detach() for i, output in enumerate(outputs)}
    return found | {f"grad {name}": grad for name, grad in zip(fresh, grads, strict=True)}


def face_reference(function: Function, leaves: Leaves, backend: str, label: str) -> None:
    """Compare outputs and gradients of a backend with the reference, in the dtype of the leaves."""
    with ops.use_backend("reference"):
        wanted = outputs_and_gradients(function, leaves)
    with ops.use_backend(backend):
        found = outputs_and_gradients(function, leaves)
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype, name
    assert_same(found, wanted, next(iter(leaves.values())).dtype, f"{label} {backend}")


def check_transforms(function: Function, leaves: Leaves) -> None:
    """vmap is one more leading dimension; torch.func.grad, its vmap, and the gradient of a vmap agree with autograd."""
    wanted = outputs_and_gradients(function, leaves)
    stacked = {name: torch.stack([leaf * 0.5, leaf], -1) for name, leaf in leaves.items()}  # mapped at the end
    ends = ({name: leaf.dim() for name, leaf in leaves.items()},)

    def loss(given: Leaves) -> Tensor:
        return loss_of(function(given))

    for i, scale in enumerate((0.5, 1)):
        alone = function({name: leaf * scale for name, leaf in leaves.items()})
        mapped = torch.func.vmap(function, in_dims=ends)(stacked)
        torch.testing.assert_close(tuple(out[i] for out in mapped), tuple(alone))
    plain = torch.func.grad(loss)(leaves)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=ends)(stacked)
    summed = torch.func.grad(lambda given: torch.func.vmap(loss, in_dims=ends)(given).sum())(stacked)
    for name in leaves:
        for grad in (plain[name], each[name][1], summed[name][..., 1]):
            torch.testing.assert_close(grad, wanted[f"grad {name}"])


def check_compiled(function: Function, leaves: Leaves) -> None:
    """torch.compile without a graph break gives the same."""
    torch._dynamo.reset()
    wanted = outputs_and_gradients(function, leaves)
    found = outputs_and_gradients(torch.compile(function, fullgraph=True, backend="aot_eager"), leaves)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value)
