"""A scan in pieces: some rows and some of their steps, as many as a workspace holds matrices for.

The matrices of a piece are computed before it is scanned; the next piece overwrites them. A piece starts from the final
state of the one before it, and in the backward pass its final state receives the gradient of the piece after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sdssm.ops._triton.scan import scan_backward, scan_forward
from sdssm.ops._triton.source import Source

#: The most bytes of matrices at once. With the caches of a GPU they are hardly slower than matrices that stay on chip.
WORKSPACE = 1 << 27
#: Rows that are treated at once if not all fit: enough for all multiprocessors of a GPU.
ROWS_AT_ONCE = 128


@dataclass(frozen=True)
class Piece:
    """Steps of rows of replicas: slices of a tensor (R, B, L, ...)."""

    replicas: slice
    rows: slice
    steps: slice

    @property
    def count(self) -> int:
        """The number of steps."""
        count: int = self.steps.stop - self.steps.start
        return count

    def of_steps(self, tensor: Tensor) -> Tensor:
        """Return the part of (R, B, L, ...) as (rows, steps, ...)."""
        return tensor[self.replicas, self.rows, self.steps].flatten(0, 1).contiguous()

    def of_rows(self, tensor: Tensor) -> Tensor:
        """Return the part of (R, B, ...) as (rows, ...)."""
        return tensor[self.replicas, self.rows].flatten(0, 1).contiguous()

    def of_lengths(self, lengths: Tensor | None) -> Tensor | None:
        """Return how many of the steps are within the length of their row, (rows,), for lengths (R, B)."""
        return None if lengths is None else (self.of_rows(lengths) - self.steps.start).clamp(0, self.count)


def cut(R: int, B: int, L: int, matrix_bytes: int) -> list[list[Piece]]:
    """Return groups of rows, each as a list of pieces whose steps follow one another.

    Rows come first, since they are computed side by side: the steps of a row are cut only if the workspace does not
    hold the matrices of ROWS_AT_ONCE complete rows. A group has complete replicas, or rows of one replica.

    >>> [[(piece.rows, piece.steps) for piece in pieces] for pieces in cut(1, 2, 100, WORKSPACE // 150)]
    [[(slice(0, 2, None), slice(0, 75, None)), (slice(0, 2, None), slice(75, 100, None))]]
    """
    fitting = max(1, WORKSPACE // matrix_bytes)
    together = min(R * B, max(ROWS_AT_ONCE, fitting // L))
    replicas, rows = (together // B, B) if together >= B else (1, together)
    steps = min(L, max(1, fitting // (replicas * rows)))
    return [
        [
            Piece(slice(r, min(r + replicas, R)), slice(b, min(b + rows, B)), slice(t, min(t + steps, L)))
            for t in range(0, L, steps)
        ]
        for r in range(0, R, replicas)
        for b in range(0, B, rows)
    ]


def join(parts: list[Tensor], dim: int) -> Tensor:
    """Concatenate tensors; a single one is returned as it is."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def forward_in_pieces(
    groups: list[list[Piece]], source_of: Callable[[Piece], Source], b: Tensor | None, x0: Tensor | None,
    lengths: Tensor | None, rescale: bool, mode: str,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return states (rows, L, N), final (rows, N) and factors (rows, L), None without `rescale`.

    The arguments are (R, B, ...), as those of a mixture scan.
    """
    states: list[Tensor] = []
    final: list[Tensor] = []
    factors: list[Tensor] = []
    for pieces in groups:
        x = None if x0 is None else pieces[0].of_rows(x0)
        own_states: list[Tensor] = []
        own_factors: list[Tensor] = []
        for piece in pieces:
            offsets = None if b is None else piece.of_steps(b)
            part, x, factor = scan_forward(source_of(piece), offsets, x, piece.of_lengths(lengths), rescale, mode)
            own_states.append(part)
            own_factors.append(factor)
        assert x is not None
        states.append(join(own_states, 1))
        final.append(x)
        factors.append(join(own_factors, 1) if rescale else own_factors[0])
    return join(states, 0), join(final, 0), join(factors, 0) if rescale else None


def backward_in_pieces(
    groups: list[list[Piece]], source_of: Callable[[Piece], Source], grad_states: Tensor | None,
    grad_final: Tensor | None, lengths: Tensor | None, states: Tensor, factors: Tensor, rescale: bool, mode: str,
    pullbacks: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return adjoints (rows, L, N), dx0 (rows, N) and pullbacks (rows, L, N) or None, as `scan_backward`."""
    adjoints: list[Tensor] = []
    dx0: list[Tensor] = []
    sent: list[Tensor] = []
    for pieces in groups:
        grad = None if grad_final is None else pieces[0].of_rows(grad_final)
        own_adjoints: list[Tensor] = []
        own_sent: list[Tensor] = []
        for piece in reversed(pieces):
            part, grad, pullback = scan_backward(
                source_of(piece), None if grad_states is None else piece.of_steps(grad_states), grad,
                piece.of_lengths(lengths), piece.of_steps(states), piece.of_steps(factors) if rescale else factors,
                rescale, mode, pullbacks,
            )  # fmt: skip
            own_adjoints.insert(0, part)
            if pullback is not None:
                own_sent.insert(0, pullback)
        assert grad is not None
        adjoints.append(join(own_adjoints, 1))
        dx0.append(grad)
        if own_sent:
            sent.append(join(own_sent, 1))
    return join(adjoints, 0), join(dx0, 0), join(sent, 0) if sent else None
