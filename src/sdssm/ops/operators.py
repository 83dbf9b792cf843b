"""The five scans as registered operators `sdssm::<name>` and `sdssm::<name>_backward`.

A scan differs from the next only in its list of tensors, so it is a value, `ScanOperator`, and everything torch wants
of an operator is written once: the schema, the kernel for every device, the shapes for tracing (fake kernel), the
gradient formula and the rule for `vmap`. All tensors are canonical here (see `layout`); values are checked inside the
kernel, where they exist under `torch.compile` and `vmap` as well.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.checks import OpsError, check_states
from sdssm.ops.functions import absent, fold, unfold

#: None stands for an argument that was not given.
Tensors = Sequence[Tensor | None]

_library = torch.library.Library("sdssm", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's own
_functions: dict[str, Any] = {}
#: Compiled code hands the operators contiguous tensors, as the kernels want them. torch before 2.7 knows only the order
#: of strides, and by default not even that.
_LAYOUT = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)


@dataclasses.dataclass(frozen=True)
class ScanOperator:
    """What tells one scan from another.

    `tensors` are the canonical arguments in the order of every implementation's `forward`; those in `optional` may be
    None, those in `differentiable` receive gradients, in the order of `backward`'s results. `sizes` reads
    ((R, B) or (B,), L, N) from the tensors. `check_values` looks at what the tensors hold.
    """

    kind: str
    tensors: tuple[str, ...]
    differentiable: tuple[str, ...]
    sizes: Callable[[Tensors], tuple[tuple[int, ...], int, int]]
    check_values: Callable[[Tensors], None]
    optional: frozenset[str] = frozenset({"b", "x0", "lengths"})
    normed: bool = False  # a fourth output, the column norms (mixture_scan only)

    @property
    def name(self) -> str:
        return f"{self.kind}_scan"

    @property
    def outputs(self) -> int:
        return 4 if self.normed else 3

    def work(self, tensors: Tensors) -> tuple[int, int, int, int]:
        """What the time depends on: rows, L, N, and S, how many entries of a state one entry of the next needs."""
        lead, length, size = self.sizes(tensors)
        first = tensors[0]
        return math.prod(lead), length, size, 1 if self.kind == "diagonal" or first is None else first.shape[-1]

    def position(self, name: str) -> int:
        return self.tensors.index(name)

    def __call__(self, tensors: Tensors, *, rescale: bool, mode: str, check_finite: bool) -> tuple[Tensor, Tensor]:
        """States and final state of canonical tensors, through the dispatcher."""
        first = tensors[0]
        assert first is not None
        chosen = backend.choose(first)
        results = _call(self.name, *tensors, rescale, mode, chosen, check_finite)
        return results[0], results[1]


def _call(name: str, *args: Any) -> Any:
    """The operator `name`, or under torch.func.grad, which does not see through a registered one, its twin."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return _functions[name].apply(*args)
    return getattr(torch.ops.sdssm, name)(*args)


def _dense(tensor: Tensor | None) -> Any:
    """Contiguous, where compiled code by an old torch padded the strides; else the tensor itself."""
    return None if tensor is None else tensor.contiguous()


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of norms and factors: 16-bit inputs keep them in float32."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype.to_real()


def register(spec: ScanOperator) -> ScanOperator:
    """Make `spec` known to torch. Called once for each scan, on import."""
    count, outputs = len(spec.tensors), spec.outputs
    lengths_at = spec.position("lengths")

    def declare(name: str) -> str:
        return f"Tensor? {name}" if name in spec.optional else f"Tensor {name}"

    arguments = ", ".join(declare(name) for name in spec.tensors)
    results = "(" + ", ".join(["Tensor"] * outputs) + ")"
    gradients = "(" + ", ".join(["Tensor"] * len(spec.differentiable)) + ")"
    saved = ", ".join(f"Tensor out{i}" for i in range(outputs - 1))  # all but `final`, which is one of the states
    schemas = (
        f"{spec.name}({arguments}, bool rescale, str mode, str backend, bool check_finite) -> {results}",
        f"{spec.name}_backward(Tensor? grad_states, Tensor? grad_final, {arguments}, {saved}, "
        f"bool rescale, str mode, str backend) -> {gradients}",
    )
    for schema in schemas:
        _library.define(schema, tags=(_LAYOUT,))  # type: ignore[no-untyped-call]  # torch's own

    def forward(*args: Any) -> tuple[Tensor, ...]:
        tensors, (rescale, mode, chosen, check_finite) = [_dense(arg) for arg in args[:count]], args[count:]
        spec.check_values(tensors)
        found = backend.run("forward", spec.kind, chosen, mode, spec.work(tensors), tensors, rescale=rescale)
        if check_finite:
            check_states(spec.name, found[0], tensors[lengths_at])
        states, final, *kept = found
        empty = [not rescale, spec.normed and tensors[spec.position("p")] is None]
        return states, final, *(absent(states) if none else out for out, none in zip(kept, empty, strict=False))

    def forward_fake(*args: Any) -> tuple[Tensor, ...]:
        tensors, rescale = args[:count], args[count]
        like = tensors[0]
        lead, length, size = spec.sizes(tensors)
        states = like.new_empty((*lead, length, size))
        final = like.new_empty((*lead, size))
        real = wide(like.dtype)
        factors = like.new_empty((*lead, length), dtype=real) if rescale else absent(states)
        if not spec.normed:
            return states, final, factors
        no_norms = tensors[spec.position("p")] is None
        return states, final, factors, absent(states) if no_norms else like.new_empty((*lead, length, size), dtype=real)

    def backward(*args: Any) -> tuple[Tensor, ...]:
        rescale, mode, chosen = args[-3:]
        given = [_dense(arg) for arg in args[:-3]]
        tensors = given[2 : 2 + count]
        found = backend.run("backward", spec.kind, chosen, mode, spec.work(tensors), given, rescale=rescale)
        return tuple(absent(tensors[0]) if grad is None else grad for grad in found)

    def backward_fake(*args: Any) -> tuple[Tensor, ...]:
        tensors = args[2 : 2 + count]
        lead, _, size = spec.sizes(tensors)
        inputs = [tensors[spec.position(name)] for name in spec.differentiable]
        *others, x0 = inputs  # x0 comes last, and its gradient is formed whether it was given or not
        grads = [absent(tensors[0]) if given is None else torch.empty_like(given) for given in others]
        return *grads, tensors[0].new_empty((*lead, size)) if x0 is None else torch.empty_like(x0)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        # A loss on `final` alone leaves grad_states None, and the kernels skip a pass over L x N.
        ctx.set_materialize_grads(False)
        ctx.settings = inputs[count : count + 3]
        ctx.save_for_backward(*inputs[:count], output[0], *output[2:])
        ctx.mark_non_differentiable(*output[2:])

    def gradient(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        saved_tensors = ctx.saved_tensors
        inputs = saved_tensors[:count]
        result: list[Any] = [None] * (count + 4)
        given = [None if grad is None else grad.contiguous() for grad in grads[:2]]
        if given[0] is None and given[1] is None:
            return tuple(result)
        found = _call(f"{spec.name}_backward", *given, *saved_tensors, *ctx.settings)
        for name, grad in zip(spec.differentiable, found, strict=True):
            at = spec.position(name)
            result[at] = grad if inputs[at] is not None and ctx.needs_input_grad[at] else None
        return tuple(result)

    def no_second_gradient(ctx: Any, *grads: Tensor | None) -> None:
        raise OpsError(
            f"{spec.name}: a gradient of its gradient was asked for, and the kernels have none; "
            'compute it under sdssm.ops.use_backend("reference")'
        )

    def no_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept: a second gradient is refused."""

    def announce(name: str, kernel: Any, fake: Any, formula: Any, context: Any) -> None:
        operator = getattr(torch.ops.sdssm, name)

        def mapped(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
            return unfold(info, _call(name, *fold(info, in_dims, args)))

        _library.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]  # torch's own
        torch.library.register_fake(f"sdssm::{name}", fake, lib=_library)
        torch.library.register_vmap(f"sdssm::{name}", mapped, lib=_library)
        torch.library.register_autograd(f"sdssm::{name}", formula, setup_context=context, lib=_library)
        body = {"forward": operator, "setup_context": context, "backward": formula, "vmap": mapped}
        members = {member: staticmethod(function) for member, function in body.items()}
        _functions[name] = type(f"{name}_function", (torch.autograd.Function,), members)

    announce(spec.name, forward, forward_fake, gradient, setup_context)
    announce(f"{spec.name}_backward", backward, backward_fake, no_second_gradient, no_context)
    return spec
