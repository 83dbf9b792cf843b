"""Differentiable functions beside the five linear scans: one pair of `torch.autograd.Function` for each.

An implementation (`sdssm.ops.<kind>.<backend>`) has `forward` and `backward` for canonical tensors, whose first
dimension is R, the replicas. From that `Differentiable` makes what torch wants: the gradient, the rule for `vmap` (a
mapped dimension becomes part of the first one) and the refusal of a second gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.checks import OpsError


class Differentiable:
    """The public function `name`, implemented under `kind`, once its arguments are canonical.

    They are `tensors` tensors (or None) and then settings that are no tensors, the backend the last of them.
    `forward(*tensors, *settings)` gives `results` outputs, and then what `backward` needs; all have R first.
    `backward(*grads, *tensors, *outputs, *settings)` gives the gradients of the first tensors from those of the first
    `sources` outputs, None where there is none.
    """

    def __init__(self, name: str, kind: str, *, tensors: int, results: int, sources: int) -> None:
        self.results = results

        def run_forward(*args: Any) -> tuple[Tensor, ...]:
            *rest, chosen = args
            return tuple(backend.implementation(kind, chosen).forward(*rest))

        def run_backward(*args: Any) -> tuple[Tensor, ...]:
            *rest, chosen = args
            found = backend.implementation(kind, chosen).backward(*rest)
            some = next(grad for grad in found if grad is not None)
            # Not every transform of torch takes None for a result: an empty tensor stands in.
            return tuple(absent(some) if grad is None else grad for grad in found)

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            ctx.set_materialize_grads(False)
            ctx.settings = inputs[tensors:]
            ctx.save_for_backward(*inputs[:tensors], *output)
            ctx.mark_non_differentiable(*output[sources:])

        def gradient(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
            result: list[Any] = [None] * (tensors + len(ctx.settings))
            if all(grad is None for grad in grads[:sources]):
                return tuple(result)
            given = [None if grad is None else grad.contiguous() for grad in grads[:sources]]
            # The function within a function is there for transforms and for the refusal, and costs time.
            plain = not torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()
            call = run_backward if plain else backward_function.apply
            found = call(*given, *ctx.saved_tensors, *ctx.settings)
            for at, grad in enumerate(found):
                if ctx.needs_input_grad[at]:
                    result[at] = grad
            return tuple(result)

        def no_second_gradient(ctx: Any, *grads: Tensor | None) -> None:
            raise OpsError(
                f"{name}: a gradient of its gradient was asked for, and the kernels have none; "
                'compute it under sdssm.ops.use_backend("reference")'
            )

        def no_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            """Nothing is kept: a second gradient is refused."""

        def function(title: str, forward: Any, context: Any, backward: Any) -> Any:
            def mapped(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
                return unfold(info, made.apply(*fold(info, in_dims, args)))

            body = {"forward": forward, "setup_context": context, "backward": backward, "vmap": mapped}
            made: Any = type(title, (torch.autograd.Function,), {key: staticmethod(f) for key, f in body.items()})
            return made

        self.forward_function = function(f"{name}_function", run_forward, setup_context, gradient)
        backward_function = function(f"{name}_backward_function", run_backward, no_context, no_second_gradient)

    def __call__(self, *args: Any) -> tuple[Tensor, ...]:
        """The results, without what was kept for the gradient."""
        outputs: tuple[Tensor, ...] = self.forward_function.apply(*args)
        return outputs[: self.results]


def absent(like: Tensor) -> Tensor:
    """Stands for a tensor that there is not, (R, 0): the leading size of `like` stays, so that vmap can unfold it."""
    return like.new_empty((like.shape[0], 0))


def plainly(chosen: str, first: Tensor) -> bool:
    """Whether the reference computes it: asked for, for 16-bit numbers, and in compiled code, which fuses it itself."""
    return chosen == "reference" or first.dtype in backend.NARROW or torch.compiler.is_compiling()


def gradient_is_wanted(tensors: Sequence[Tensor | None]) -> bool:
    """Whether a gradient may be asked for. Under torch.func the tensors do not tell, and the answer is yes."""
    if torch._C._are_functorch_transforms_active():
        return True
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def fold(info: Any, in_dims: Sequence[int | None], args: Sequence[Any]) -> list[Any]:
    """The mapped dimension becomes part of the first one, for tensors that lack it by copying."""
    folded = []
    for arg, dim in zip(args, in_dims, strict=True):
        if isinstance(arg, Tensor):
            arg = arg.expand(info.batch_size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            arg = arg.reshape(arg.shape[0] * arg.shape[1], *arg.shape[2:]).contiguous()
        folded.append(arg)
    return folded


def unfold(info: Any, found: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    many = info.batch_size
    return tuple(out.reshape(many, out.shape[0] // many, *out.shape[1:]) for out in found), (0,) * len(found)
