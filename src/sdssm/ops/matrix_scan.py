"""Scans with a matrix for every step: dense, block-diagonal and diagonal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from torch import Tensor

from sdssm.ops import backend
from sdssm.ops.checks import check_dtypes, check_last_dimensions, check_rank, check_square, check_states
from sdssm.ops.layout import broadcast_leads, flatten_integers, flatten_leading, lead_of
from sdssm.ops.prepare import (
    check_homogeneous,
    check_length_values,
    check_lengths,
    check_options,
    promote_under_autocast,
    start_state,
)
from sdssm.ops.reference import rescaled
from sdssm.ops.scan_operator import ScanOperator, Tensors


@dataclasses.dataclass(frozen=True)
class MatrixScan:
    """A scan described by the form of its matrices and its reference implementation.

    form: the dimensions of a matrix: ("N", "N"), ("H", "S", "S") or ("N",).
    complex_too: complex dtypes are allowed.
    """

    kind: str
    form: tuple[str, ...]
    reference_step: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    reference_scan: Callable[..., tuple[Tensor, Tensor]]
    complex_too: bool = False

    def register(self) -> ScanOperator:
        """Create the registered operator. Called once for each scan, on import."""

        def sizes(tensors: Tensors) -> tuple[tuple[int, ...], int, int]:
            A = tensors[0]
            assert A is not None
            return (A.shape[0],), A.shape[1], self.size(A)

        def check_values(tensors: Tensors) -> None:
            check_length_values(f"{self.kind}_scan", tensors[3], sizes(tensors)[1])

        return ScanOperator(
            self.kind,
            tensors=("A", "b", "x0", "lengths"),
            differentiable=("A", "b", "x0"),
            sizes=sizes,
            check_values=check_values,
        )

    def size(self, A: Tensor) -> int:
        """Return N: the product of the dimensions of a matrix, without the second of the two square ones."""
        shape = A.shape[A.dim() - len(self.form) :]
        return math.prod(shape[:-1]) if len(shape) > 1 else shape[0]

    def check(
        self, op: str, form: tuple[str, ...], A: Tensor, b: Tensor | None, x: Tensor | None, x_name: str
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Check shapes, dtypes and devices; return the tensors in one dtype."""
        check_rank(op, "A", A, form)
        if len(self.form) > 1:
            check_square(op, "A", A)
        A, b, x = promote_under_autocast(A, b, x)
        check_dtypes(op, [("A", A), ("b", b), (x_name, x)], complex_too=self.complex_too)
        if x is not None:
            check_last_dimensions(op, x_name, x, (self.size(A),), ("N",), "A", A)
        return A, b, x

    def scan(
        self,
        operator: ScanOperator,
        A: Tensor,
        b: Tensor | None,
        x0: Tensor | None,
        lengths: Tensor | None,
        *,
        rescale: bool,
        mode: str,
        check_finite: bool,
    ) -> tuple[Tensor, Tensor]:
        """Compute states and final state with the chosen backend."""
        op, form = f"{self.kind}_scan", ("L", *self.form)
        A, b, x0 = self.check(op, form, A, b, x0, "x0")
        tail, size = len(form), self.size(A)
        length = A.shape[A.dim() - tail]
        if b is not None:
            check_last_dimensions(op, "b", b, (length, size), ("L", "N"), "A", A)
        check_lengths(op, lengths, "A", A)
        check_options(op, A, size, b, rescale, mode)
        lead = broadcast_leads(op, [("A", A, tail), ("b", b, 2), ("x0", x0, 1), ("lengths", lengths, 0)])
        with backend.no_autocast(A):
            if backend.choose(A) == "reference":
                check_length_values(op, lengths, length)
                states, final = self.reference_scan(A, b, start_state(x0, lead, A, size), lengths, rescale=rescale)
                if check_finite:
                    check_states(op, states, lengths)
                return states, final
            rows = (math.prod(lead),)
            tensors = (
                flatten_leading(A, lead, tail, rows),
                flatten_leading(b, lead, 2, rows),
                flatten_leading(x0, lead, 1, rows),
                flatten_integers(lengths, lead, 0, rows),
            )
            states, final = operator.scan(tensors, rescale=rescale, mode=mode, check_finite=check_finite)
        if len(lead) != 1:
            states, final = states.reshape(*lead, length, size), final.reshape(*lead, size)
        return states, final

    def step(self, A: Tensor, x: Tensor, b: Tensor | None, *, rescale: bool) -> Tensor:
        """Compute the next state."""
        op = f"{self.kind}_step"
        A, b, state = self.check(op, self.form, A, b, x, "x")
        assert state is not None
        check_homogeneous(op, b, rescale)
        if b is not None:
            check_last_dimensions(op, "b", b, (self.size(A),), ("N",), "A", A)
        lead = broadcast_leads(op, [("A", A, len(self.form)), ("b", b, 1), ("x", state, 1)])
        with backend.no_autocast(A):
            if tuple(lead_of(state, 1)) != tuple(lead):
                state = state.expand(*lead, -1)
            z = self.reference_step(A, state, b)
            return rescaled(z) if rescale else z
