"""Operations with gradient kernels: the one place that builds their autograd functions.

`DifferentiableOperation` describes an operation: its tensor arguments, its results, what its gradient needs. From that
it creates all that torch requires: the autograd function, the rule for `torch.func.vmap`, and the refusal of a second
gradient. With a `LibraryEntry` it also registers `sdssm::<name>` and `sdssm::<name>_backward` with `torch.library`, so
that `torch.compile` can trace the operation.

All tensors are canonical here (see `layout`): contiguous, and their first dimension is the one that vmap may enlarge.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.errors import OpsError

_library = torch.library.Library("sdssm", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's own
#: Compiled code passes contiguous tensors to the operators, as the kernels require. torch before 2.7 only has a tag for
#: the order of strides, and by default guarantees not even that.
_LAYOUT_TAG = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)

#: Tensors without code of their own for torch's operations.
PLAIN_TENSORS = (Tensor, torch.nn.Parameter)

_ANY_ARGUMENTS = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])


@dataclasses.dataclass(frozen=True)
class LibraryEntry:
    """What `torch.library` needs to register an operation, beyond its description.

    optional: names of the tensor arguments that may be None.
    settings: the arguments after the tensors with their types, for example "bool rescale".
    forward_settings: further ones that only the forward pass takes.
    n_saved: the number of outputs of the forward pass after the results; they are saved for the gradient.
    fake_forward, fake_backward: return empty outputs of the right shapes and dtypes, for tracing.
    """

    optional: frozenset[str]
    settings: tuple[str, ...]
    forward_settings: tuple[str, ...]
    n_saved: int
    fake_forward: Callable[..., tuple[Tensor, ...]]
    fake_backward: Callable[..., tuple[Tensor, ...]]


class DifferentiableOperation:
    """An operation with its own gradient formula.

    `operation(*tensors, *settings)` returns the results. The last setting is the backend; by default its implementation
    `sdssm.ops.<kind>.<backend>` computes

        forward(*tensors, *settings) -> results, then further tensors that the gradient needs
        backward(*result_gradients, *tensors, *saved_outputs, *settings) -> gradients, None for arguments that are None

    name: the public function, used in messages and for the registered operator.
    tensors: names of the tensor arguments, each of which may be None.
    differentiable: names of the tensors that receive a gradient, in the order of the results of `backward`.
    results: names of the outputs that the caller receives.
    constant_results: names of the results without a gradient; they are the last ones.
    unsaved_results: names of the results that `backward` does not need.
    library: register the operation as well. A subclass may override `run_forward` and `run_backward`.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        tensors: tuple[str, ...],
        differentiable: tuple[str, ...],
        results: tuple[str, ...],
        constant_results: tuple[str, ...] = (),
        unsaved_results: tuple[str, ...] = (),
        library: LibraryEntry | None = None,
    ) -> None:
        self.name, self.kind = name, kind
        self.tensors, self.differentiable, self.results = tensors, differentiable, results
        self.saved_results = [at for at, result in enumerate(results) if result not in unsaved_results]
        self.n_tensors, self.n_results = len(tensors), len(results)
        self.n_with_gradient = len(results) - len(constant_results)
        self.positions = [tensors.index(argument) for argument in differentiable]
        self.settings_end = None if library is None else self.n_tensors + len(library.settings)
        forward = (name, self.run_forward, self._save, self._gradient)
        backward = (f"{name}_backward", self.run_backward, _save_nothing, self._refuse)
        if library is None:
            self._forward, self._backward = _Pass(*forward), _Pass(*backward)
        else:
            schemas = self._schemas(library)
            self._forward = _RegisteredPass(*forward, schemas[0], library.fake_forward)
            self._backward = _RegisteredPass(*backward, schemas[1], library.fake_backward)

    def __call__(self, *args: Any) -> tuple[Tensor, ...]:
        """Return the results, without the outputs that are saved for the gradient."""
        outputs: tuple[Tensor, ...] = self._forward(*args)
        return outputs[: self.n_results]

    def run_forward(self, *args: Any) -> tuple[Tensor, ...]:
        """Compute the outputs, all of them tensors."""
        return tuple(backend.implementation(self.kind, args[-1]).forward(*args[:-1]))

    def run_backward(self, *args: Any) -> tuple[Tensor, ...]:
        """Compute the gradients, with an empty tensor in place of None."""
        gradients = backend.implementation(self.kind, args[-1]).backward(*args[:-1])
        like = next(gradient for gradient in gradients if gradient is not None)
        # Some of torch's transforms do not accept None as an output.
        return tuple(empty_placeholder(like) if gradient is None else gradient for gradient in gradients)

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        # Without materialised gradients a loss on one result leaves the others' None, and kernels skip reading zeros.
        ctx.set_materialize_grads(False)
        n_tensors = self.n_tensors
        ctx.settings = inputs[n_tensors : self.settings_end]
        saved = [output[at] for at in self.saved_results]
        ctx.save_for_backward(*inputs[:n_tensors], *saved, *output[self.n_results :])
        ctx.mark_non_differentiable(*output[self.n_with_gradient :])

    def _gradient(self, ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad
        result: list[Any] = [None] * len(needed)
        arriving = [None if grad is None else grad.contiguous() for grad in grads[: self.n_with_gradient]]
        if any(grad is not None for grad in arriving):
            gradients = self._backward(*arriving, *ctx.saved_tensors, *ctx.settings)
            for at, gradient in zip(self.positions, gradients, strict=True):
                if needed[at]:
                    result[at] = gradient
        return tuple(result)

    def _refuse(self, ctx: Any, *grads: Tensor | None) -> None:
        raise OpsError(
            f"{self.name}: the gradient of its gradient is not implemented by the kernels; "
            'compute it under sdssm.ops.use_backend("reference")'
        )

    def _schemas(self, library: LibraryEntry) -> tuple[str, str]:
        """Return the signatures of the forward and the backward operator, in torch's schema language."""

        def arrow(outputs: int) -> str:
            return " -> (" + ", ".join(["Tensor"] * outputs) + ")"

        tensors = [f"Tensor{'?' if name in library.optional else ''} {name}" for name in self.tensors]
        arriving = [f"Tensor? grad_{name}" for name in self.results[: self.n_with_gradient]]
        saved = [f"Tensor saved{i}" for i in range(len(self.saved_results) + library.n_saved)]
        forward = ", ".join([*tensors, *library.settings, *library.forward_settings])
        backward = ", ".join([*arriving, *tensors, *saved, *library.settings])
        return (
            f"{self.name}({forward}){arrow(self.n_results + library.n_saved)}",
            f"{self.name}_backward({backward}){arrow(len(self.differentiable))}",
        )


class _Pass:
    """The forward or the backward pass of an operation: its kernel, and an autograd function around it."""

    def __init__(self, name: str, kernel: Callable[..., Any], setup_context: Any, gradient: Any) -> None:
        self.kernel = kernel

        def forward(*args: Any) -> Any:
            return kernel(*args)

        # torch inspects the signature of `forward` at every call, which is fast if it is stored.
        forward.__signature__ = _ANY_ARGUMENTS  # type: ignore[attr-defined]
        members = {"forward": forward, "setup_context": setup_context, "backward": gradient, "vmap": self._vmap}
        statics = {key: staticmethod(member) for key, member in members.items()}
        self.function: Any = type(f"{name}_function", (torch.autograd.Function,), statics)

    def __call__(self, *args: Any) -> Any:
        # The autograd function costs time, and is needed only for gradients and transforms.
        if torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            return self.function.apply(*args)
        return self.kernel(*args)

    def _vmap(self, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return split_mapped(info, self(*merge_mapped(info, in_dims, args)))


class _RegisteredPass(_Pass):
    """A pass that is registered with `torch.library`, for compiled code and tracing.

    Elsewhere the autograd function is called: the dispatcher of a registered operator costs 0.1 ms a call on a CPU.
    """

    def __init__(
        self, name: str, kernel: Callable[..., Any], setup_context: Any, gradient: Any, schema: str, fake: Any
    ) -> None:
        _library.define(schema, tags=(_LAYOUT_TAG,))  # type: ignore[no-untyped-call]  # torch's own
        _library.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]  # torch's own
        super().__init__(name, kernel, setup_context, gradient)
        self.operator = getattr(torch.ops.sdssm, name)
        torch.library.register_fake(f"sdssm::{name}", fake, lib=_library)
        torch.library.register_vmap(f"sdssm::{name}", self._vmap, lib=_library)
        torch.library.register_autograd(f"sdssm::{name}", gradient, setup_context=setup_context, lib=_library)

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling() or _is_traced(args):
            return self.operator(*args)
        return super().__call__(*args)


def _is_traced(args: Sequence[Any]) -> bool:
    """Whether a mode of torch records or replaces operations, or the tensors are not plain ones, such as fake tensors.

    Under torch.func they are wrapped, and its transforms know the autograd function, not the registered operator.
    """
    if torch._C._are_functorch_transforms_active():
        return False
    is_mode_active = torch._C._len_torch_dispatch_stack() > 0
    return is_mode_active or any(isinstance(arg, Tensor) and type(arg) not in PLAIN_TENSORS for arg in args)


def _save_nothing(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Save nothing: the backward pass has no gradient."""


def empty_placeholder(like: Tensor) -> Tensor:
    """Return an empty tensor (R, 0) in place of None.

    It has the first dimension of `like`, which vmap splits.
    """
    return like.new_empty((like.shape[0], 0))


def needs_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """Whether a gradient may be computed later.

    Always true under torch.func, where tensors do not carry this information.
    """
    if torch._C._are_functorch_transforms_active():
        return True
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def merge_mapped(info: Any, in_dims: Sequence[int | None], args: Sequence[Any]) -> list[Any]:
    """Merge the dimension mapped by vmap into the first one.

    Tensors that are not mapped are copied for each entry of it.
    """
    merged = []
    for arg, dim in zip(args, in_dims, strict=True):
        if isinstance(arg, Tensor):
            arg = arg.expand(info.batch_size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            arg = arg.reshape(arg.shape[0] * arg.shape[1], *arg.shape[2:]).contiguous()
        merged.append(arg)
    return merged


def split_mapped(info: Any, outputs: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Split the mapped dimension off the first one: the outputs, and its position in each, 0."""
    size = info.batch_size
    return tuple(out.reshape(size, out.shape[0] // size, *out.shape[1:]) for out in outputs), (0,) * len(outputs)
