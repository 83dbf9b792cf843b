"""RegularLRNN: a linear recurrence with input-dependent block-diagonal transitions."""

from __future__ import annotations

import torch
from torch import Tensor

from sdssm import ops
from sdssm.layers import initial
from sdssm.layers.settings import RegularLrnnSettings
from sdssm.layers.state_mixer import StateMixer
from sdssm.ops.block_norms import normalised_blocks


class RegularLrnn(StateMixer):
    """RegularLRNN, x_t = A(u_t) x_{t-1} + v(u_t) with a block-diagonal A; MLPs compute A and v.

    A has H = n / S blocks of S x S and comes from Linear(D, n S) -> ReLU -> Linear(n S, n S), v from Linear(D, n) ->
    ReLU -> Linear(n, n); x_0 is learned, and the outputs are x_t (n,). Normalisation "largest" subtracts the mean of
    each column of a block, then divides the block by the largest l_p norm of its columns, as in the published code;
    "columns" divides each column by max(1, its l_p norm), as in the paper. Fan et al. 2024 (arXiv 2309.07412),
    "Advancing Regular Language Reasoning in Linear Recurrent Neural Networks".

    >>> settings = RegularLrnnSettings(state=6, block_size=3)
    >>> layer = RegularLrnn(2, settings, generator=torch.Generator().manual_seed(0))
    >>> A, v = layer.parts(torch.ones(2))
    >>> A.shape, torch.allclose(A.sum(-2), torch.zeros(2, 3), atol=1e-6)
    (torch.Size([2, 3, 3]), True)
    """

    name = "regular-lrnn"
    Settings = RegularLrnnSettings
    emulates = (
        "With normalisation 'columns' every automaton of at most block_size states: the columns of a block can be "
        "one-hot. With 'largest' the columns add up to zero, and nothing is proved."
    )
    settings: RegularLrnnSettings

    def __init__(self, width: int, settings: RegularLrnnSettings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or RegularLrnnSettings()
        super().__init__(width, settings)
        n, entries = settings.state, settings.state * settings.block_size
        self.generator = initial.Mlp(width, entries, entries, generator)
        self.drive = initial.Mlp(width, n, n, generator)
        self.initial_state = initial.normal((n,), generator)

    @property
    def outputs(self) -> int:
        """The width of an output, which is the size of the state."""
        return self.settings.state

    @property
    def numbers_per_symbol(self) -> int:
        """The blocks, before and after normalisation, and the states."""
        return max(self.width, (3 * self.settings.block_size + 3) * self.settings.state)

    @property
    def transition_size(self) -> int:
        """The size of a block."""
        return self.settings.block_size

    def transition_parameters(self) -> int:
        """Return the number of parameters of the generator of A.

        d n S + (n S)^2 and biases, which for S = sqrt(n) is d n sqrt(n) + n^3.
        """
        return sum(parameter.numel() for parameter in self.generator.parameters())

    def parts(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return blocks (..., H, S, S) and v (..., N), from u (..., D)."""
        S = self.settings.block_size
        A = self.generator(u).reshape(*u.shape[:-1], -1, S, S)
        A = normalised_blocks(A, self.settings.column_norm, self.settings.normalisation)
        return A, self.drive(u)

    def scan(self, parts: tuple[Tensor, ...], state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return states: blocks (B, L, H, S, S), v (B, L, N) -> (B, L, N) and (B, N)."""
        A, v = parts
        return ops.block_diagonal_scan(A, v, self.start_state(state), lengths=lengths)

    def mix_step(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run a single step: u (B, D), state (B, N) -> output and next state, which are the same."""
        A, v = self.parts(u)
        x = ops.block_diagonal_step(A, self.start_state(state), v)
        return x, x

    def start_state(self, state: Tensor | None) -> Tensor:
        return self.initial_state if state is None else state
