"""The five linear scans as registered operators, `sdssm::dense_scan` and so on.

The scans differ only in their tensors: a `ScanOperator` describes one of them, and what runs for it (value checks, the
backend's kernels in the right mode, shapes for tracing) is written once. Values are checked inside the operator, where
they exist under `torch.compile` and `vmap` as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.autograd import DifferentiableOperation, LibraryEntry, empty_placeholder
from sdssm.ops.checks import check_states

#: The tensor arguments of a scan in order; None for an argument that was not passed.
Tensors = Sequence[Tensor | None]


class ScanOperator(DifferentiableOperation):
    """One linear scan over canonical tensors, registered with torch when it is created.

    kind: the scan is `<kind>_scan`, its implementations are `sdssm.ops.<kind>.<backend>`.
    tensors: names of the arguments, in the order of the implementations' `forward`; "lengths" is one of them.
    differentiable: names of the tensors that receive gradients, in the order of the results of `backward`; x0 is last.
    sizes: returns ((R, B) or (B,), L, N) for the tensors.
    check_values: raises `OpsError` if a tensor holds a value out of range.
    optional: names of the tensors that may be None.
    has_norms: the forward pass has a fourth output, the column norms, if p is not None (mixture_scan).
    """

    def __init__(
        self,
        kind: str,
        *,
        tensors: tuple[str, ...],
        differentiable: tuple[str, ...],
        sizes: Callable[[Tensors], tuple[tuple[int, ...], int, int]],
        check_values: Callable[[Tensors], None],
        optional: frozenset[str] = frozenset({"b", "x0", "lengths"}),
        has_norms: bool = False,
    ) -> None:
        self.sizes, self.check_values, self.has_norms = sizes, check_values, has_norms
        super().__init__(
            f"{kind}_scan",
            kind,
            tensors=tensors,
            differentiable=differentiable,
            results=("states", "final"),
            unsaved_results=("final",),  # it is one of the states
            library=LibraryEntry(
                optional=optional,
                settings=("bool rescale", "str mode", "str backend"),
                forward_settings=("bool check_finite",),
                n_saved=2 if has_norms else 1,
                fake_forward=self._fake_forward,
                fake_backward=self._fake_backward,
            ),
        )

    def scan(self, tensors: Tensors, *, rescale: bool, mode: str, check_finite: bool) -> tuple[Tensor, Tensor]:
        """Return states and final state for canonical tensors."""
        first = tensors[0]
        assert first is not None
        states, final = self(*tensors, rescale, mode, backend.choose(first), check_finite)
        return states, final

    def argument(self, tensors: Tensors, name: str) -> Tensor | None:
        """Return the tensor argument with this name."""
        return tensors[self.tensors.index(name)]

    def _problem_size(self, tensors: Tensors) -> tuple[int, int, int, int]:
        """Return the sizes that the run time depends on: rows, L, N and the block size S."""
        lead, length, size = self.sizes(tensors)
        first = tensors[0]
        return math.prod(lead), length, size, 1 if self.kind == "diagonal" or first is None else first.shape[-1]

    def run_forward(self, *args: Any) -> tuple[Tensor, ...]:
        tensors = [_contiguous(arg) for arg in args[: self.n_tensors]]
        rescale, mode, backend_name, check_finite = args[self.n_tensors :]
        self.check_values(tensors)
        states, final, *saved = backend.run(
            "forward", self.kind, backend_name, mode, self._problem_size(tensors), tensors, rescale=rescale
        )
        if check_finite:
            check_states(self.name, states, self.argument(tensors, "lengths"))
        is_absent = [not rescale, self.has_norms and self.argument(tensors, "p") is None]
        return (
            states,
            final,
            *(empty_placeholder(states) if no else out for out, no in zip(saved, is_absent, strict=False)),
        )

    def run_backward(self, *args: Any) -> tuple[Tensor, ...]:
        *inputs, rescale, mode, backend_name = args
        inputs = [_contiguous(arg) for arg in inputs]
        tensors = inputs[self.n_with_gradient : self.n_with_gradient + self.n_tensors]
        gradients = backend.run(
            "backward", self.kind, backend_name, mode, self._problem_size(tensors), inputs, rescale=rescale
        )
        return tuple(empty_placeholder(tensors[0]) if gradient is None else gradient for gradient in gradients)

    def _fake_forward(self, *args: Any) -> tuple[Tensor, ...]:
        tensors, rescale = args[: self.n_tensors], args[self.n_tensors]
        like = tensors[0]
        lead, length, size = self.sizes(tensors)
        states, final = like.new_empty((*lead, length, size)), like.new_empty((*lead, size))
        dtype = factor_dtype(like.dtype)
        factors = like.new_empty((*lead, length), dtype=dtype) if rescale else empty_placeholder(states)
        if not self.has_norms:
            return states, final, factors
        if self.argument(tensors, "p") is None:
            return states, final, factors, empty_placeholder(states)
        return states, final, factors, like.new_empty((*lead, length, size), dtype=dtype)

    def _fake_backward(self, *args: Any) -> tuple[Tensor, ...]:
        tensors = args[self.n_with_gradient : self.n_with_gradient + self.n_tensors]
        lead, _, size = self.sizes(tensors)
        *others, x0 = (self.argument(tensors, name) for name in self.differentiable)
        gradients = [empty_placeholder(tensors[0]) if tensor is None else torch.empty_like(tensor) for tensor in others]
        # The gradient of x0 is computed even if x0 is None.
        return *gradients, tensors[0].new_empty((*lead, size)) if x0 is None else torch.empty_like(x0)


def _contiguous(tensor: Tensor | None) -> Any:
    """Return a contiguous tensor: compiled code of torch before 2.7 may pad the strides."""
    return None if tensor is None else tensor.contiguous()


def factor_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of norms and of the factors of rescaling: float32 for 16-bit inputs."""
    return torch.float32 if dtype in backend.NARROW else dtype.to_real()
