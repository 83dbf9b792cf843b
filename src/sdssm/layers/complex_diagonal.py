"""A complex diagonal recurrence x_t = a(u_t) * x_{t-1} + B u_t with input-dependent phases."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sdssm import ops
from sdssm.layers import initial
from sdssm.layers.settings import ComplexDiagonalSettings
from sdssm.layers.state_mixer import StateMixer
from sdssm.ops.linear import linear_map
from sdssm.ops.phasors import unit_phasors
from sdssm.ops.tables import cached_table


@cached_table
def one() -> Tensor:
    """Return the number 1, (1,)."""
    return torch.ones(1)


class ComplexDiagonal(StateMixer):
    """Complex diagonal SSM, x_t = a_t * x_{t-1} + B u_t with a_t = beta a~(u_t) / |a~(u_t)|, entrywise.

    The outputs are [Re x_t; Im x_t] (2n,). The real and imaginary parts of a~ come from the generator: one MLP
    D -> 4n -> 2n with biases, or two MLPs D -> n -> n without. The initial state is fixed random phasors, exp(i phi).
    Terzić et al. 2025 (arXiv 2412.19350), "On the Expressiveness and Length Generalization of Selective State-Space
    Models on Regular Languages".

    If a~ is exactly zero, its phase is set to 0 with zero gradient; the published code gives NaN. There is no epsilon:
    all other values are as published.

    >>> layer = ComplexDiagonal(3, ComplexDiagonalSettings(state=2), generator=torch.Generator().manual_seed(0))
    >>> outputs, state = layer(torch.ones(5, 3))
    >>> outputs.shape, state.shape, state.dtype
    (torch.Size([5, 4]), torch.Size([2]), torch.complex64)
    """

    name = "complex-diagonal"
    Settings = ComplexDiagonalSettings
    emulates = (
        "One layer with B = 0 ends in the same state for every order of its inputs, so it emulates only commutative "
        "automata (Terzić et al. 2025, Proposition 1). With B, or with more layers, this does not hold."
    )
    settings: ComplexDiagonalSettings

    def __init__(
        self, width: int, settings: ComplexDiagonalSettings | None = None, *, generator: torch.Generator
    ) -> None:
        settings = settings or ComplexDiagonalSettings()
        super().__init__(width, settings)
        n = settings.state
        if settings.generator == "joint":
            sizes, bias = [(4 * n, 2 * n)], True
        else:
            sizes, bias = [(n, n), (n, n)], False
        self.generator = nn.ModuleList(
            initial.Mlp(width, hidden, outputs, generator, bias=bias) for hidden, outputs in sizes
        )
        bound = (3 / (n + width)) ** 0.5
        # Real and imaginary parts, (2, n, D).
        self.input_matrix = initial.uniform((2, n, width), bound, generator) if settings.input_matrix else None
        # Angles rather than cosines: the phasors have absolute value 1 in float64 as well.
        self.register_buffer("phase", torch.rand(n, generator=generator) * (2 * math.pi))
        self.phase: Tensor

    @property
    def outputs(self) -> int:
        """The width of an output: real and imaginary part of each entry of the state."""
        return 2 * self.settings.state

    @property
    def numbers_per_symbol(self) -> int:
        """Transitions, inputs B u, states and outputs, two numbers for each entry."""
        return max(self.width, 4 * self.outputs)

    def transition_parameters(self) -> int:
        """Return the number of parameters of the generator."""
        return sum(parameter.numel() for parameter in self.generator.parameters())

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        """Return transitions (..., n, 2) and, with B, inputs B u (..., n, 2): real and imaginary parts."""
        raw = [mlp(u) for mlp in self.generator]
        a = unit_phasors(raw[0] if len(raw) == 1 else torch.cat(raw, dim=-1), self.settings.radius)
        if self.input_matrix is None:
            return (a,)
        # The rows of B are interleaved, which are fewer numbers than its results.
        drive = linear_map(u, self.input_matrix.transpose(0, 1).flatten(0, 1))
        return a, drive.reshape(a.shape)

    def scan(self, parts: tuple[Tensor, ...], state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return complex states: transitions and inputs (B, L, n, 2) -> (B, L, n) and (B, n)."""
        a, b = self._complex(parts)
        return ops.diagonal_scan(a, b, self.start_state(state), lengths=lengths)

    def read(self, states: Tensor) -> Tensor:
        """Return [Re x; Im x]: (..., n) -> (..., 2n)."""
        return torch.view_as_real(states).mT.flatten(-2)  # in one copy, as its gradient

    def mix_step(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run a single step: u (B, D), complex state (B, n) -> output (B, 2n), next state."""
        a, b = self._complex(self.parts(u))
        x = ops.diagonal_step(a, self.start_state(state), b)
        return self.read(x), x

    def _complex(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        a, *b = (torch.view_as_complex(part.contiguous()) for part in parts)
        return a, b[0] if b else None

    def start_state(self, state: Tensor | None) -> Tensor:
        return torch.polar(one(self.phase), self.phase) if state is None else state
