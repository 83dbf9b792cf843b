"""Block-diagonal SLiCE: Euler steps of a linear controlled differential equation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdssm import ops
from sdssm.layers import initial
from sdssm.layers.mixer import Mixer
from sdssm.layers.settings import SliceSettings
from sdssm.ops.products import product


class Slice(Mixer):
    """SLiCE, x_t = x_{t-1} + dt (A_0 + sum_i A_i u_t^i) x_{t-1} with block-diagonal A_i.

    This is an Euler step of dx = sum_i A_i x dw^i along the path w with increments dt [1, u_t], time and the inputs.
    With an input matrix, dt B [1, u_t] is added. The outputs are x_t (n,). With initial_state "input" x_1 = C u_1 + c,
    and the first input makes no Euler step; with "learned" x_0 is a parameter, and the first input is like all others.
    Walker et al. 2025 (arXiv 2505.17761), "Structured Linear CDEs: Maximally Expressive and Parallel-in-Time Sequence
    Models". Sizes and initial values are those of its code: A_i ~ N(0, spread^2 / s); C, c and B ~ N(0, spread^2); its
    last version has no B. Its tanh of each step, which has an effect only for states above 1e10, is left out.

    >>> layer = Slice(3, SliceSettings(state=8), generator=torch.Generator().manual_seed(0))
    >>> u = torch.ones(5, 3)
    >>> outputs, final = layer(u)
    >>> first, state = layer(u[:2])
    >>> rest, state = layer(u[2:], state)
    >>> torch.allclose(outputs, torch.cat([first, rest]), atol=1e-5), outputs.shape
    (True, torch.Size([5, 8]))
    """

    name = "slice"
    Settings = SliceSettings
    emulates = (
        "With enough blocks, linear readouts of block-diagonal SLiCEs approximate every continuous function on a "
        "compact set of paths (Walker et al. 2025); this is about continuous time, not about strings of any length. "
        "With one block of n entries and symbols whose inputs are affinely independent, each symbol can have any n x n "
        "matrix, so one layer emulates any automaton of n states."
    )
    settings: SliceSettings

    def __init__(self, width: int, settings: SliceSettings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or SliceSettings()
        super().__init__(width, settings)
        n, s = settings.state, settings.block_size

        def normal(*shape: int) -> nn.Parameter:
            return initial.normal(shape, generator, std=settings.spread)

        self.field = initial.normal((width + 1, n // s, s, s), generator, std=settings.spread / s**0.5)  # A_0 .. A_D
        self.input_matrix = normal(width + 1, n) if settings.input_matrix else None
        self.start = normal(n, width) if settings.initial_state == "input" else None  # C
        self.initial_state = normal(n)  # c, or the learned state

    @property
    def outputs(self) -> int:
        """The width of an output, which is the size of the state."""
        return self.settings.state

    @property
    def numbers_per_symbol(self) -> int:
        """The blocks of a step, its input term and its state."""
        return max(self.width, self.settings.state * (self.settings.block_size + 2))

    @property
    def transition_size(self) -> int:
        """The size of a block."""
        return self.settings.block_size

    def transition_parameters(self) -> int:
        """Return the number of entries of all A_i."""
        return self.field.numel()

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        """Return matrices (..., H, s, s) and, if present, dt B [1, u] (..., n) and C u + c (..., n).

        The constant 1 of [1, u] is applied as an added row, without appending a column to u.
        """
        shape = self.field.shape[1:]
        steps = product(u, self.field[1:].flatten(1)) + self.field[0].flatten()
        eye = torch.eye(shape[-1], dtype=u.dtype, device=u.device)
        A = eye + self.settings.dt * steps.reshape(*u.shape[:-1], *shape)
        drive = () if self.input_matrix is None else (self._drive(u, self.input_matrix),)
        return A, *drive, *(() if self.start is None else (self._first(u),))

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Scan: parts (B, L, *), state (B, n) -> outputs (B, L, n), final state."""
        A, *rest = parts
        b = rest[0] if self.input_matrix is not None else None
        if state is None and self.start is not None:  # the first step is the identity
            state = rest[-1][:, 0]
            eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device).expand_as(A[:, :1])
            A = torch.cat([eye, A[:, 1:]], dim=1)
            b = None if b is None else torch.cat([torch.zeros_like(b[:, :1]), b[:, 1:]], dim=1)
        states, final = ops.block_diagonal_scan(A, b, self.initial_state if state is None else state, lengths=lengths)
        return states, final if carry else None

    def mix_step(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run a single step: u (B, D), state (B, n) -> output (B, n), next state."""
        if state is None and self.start is not None:
            x = self._first(u)
        else:
            A, *rest = self.parts(u)
            b = rest[0] if self.input_matrix is not None else None
            x = ops.block_diagonal_step(A, self.initial_state if state is None else state, b)
        return x, x

    def _drive(self, u: Tensor, B: Tensor) -> Tensor:
        return self.settings.dt * (product(u, B[1:]) + B[0])

    def _first(self, u: Tensor) -> Tensor:
        assert self.start is not None
        return u @ self.start.mT + self.initial_state
