"""PD-SSM: transitions P D with P a 0/1 matrix with one 1 in each column, and D complex diagonal."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sdssm.layers import initial
from sdssm.layers.mixer import select_rows
from sdssm.layers.settings import PdSsmSettings
from sdssm.layers.state_mixer import StateMixer
from sdssm.ops.column_mixture import column_mixture_scan, column_softmax
from sdssm.ops.column_one_hot import column_one_hot_scan, column_one_hot_step
from sdssm.ops.linear import linear_map


class PdSsm(StateMixer):
    """PD-SSM: complex x_t = P(u_t) D(u_t) x_{t-1} + B u_t with one 1 in each column of P and D diagonal.

        M(u) = sum_k softmax(S u)_k M_k        a mixture of a dictionary of k real matrices
        P(u) = 1 at the largest entry of each column of M(u), 0 elsewhere
        D(u) = sigmoid(f(u)) exp(2 pi i sigmoid(g(u))), entrywise; f, g MLPs D -> 2n -> n with GELU

    The outputs are [Re x_t; Im x_t] (2n,). The arg max has no gradient: P(u) uses the straight-through gradient of the
    softmax over each column of M(u). Terzić et al. 2025 (arXiv 2509.22284), "Structured Sparse Transition Matrices to
    Enable State Tracking in State-Space Models". Initial values are those of its code: M_k ~ N(0, 1/n), real and
    imaginary part of B ~ N(0, 1/2n), S without bias, x_0 = (1, 0, .., 0). The published PyTorch code for state tracking
    takes the largest entry of each row and multiplies by D from the left, the transpose of this; the paper and the
    published JAX code for time series use columns, as here. The published linear map of [Re x; Im x] back to the width,
    with u_t added, is not part of this layer: it belongs to the block around it.

    >>> layer = PdSsm(3, PdSsmSettings(state=4), generator=torch.Generator().manual_seed(0))
    >>> outputs, state = layer(torch.ones(5, 3))
    >>> outputs.shape, state.shape, state.dtype
    (torch.Size([5, 8]), torch.Size([4]), torch.complex64)
    """

    name = "pd-ssm"
    Settings = PdSsmSettings
    emulates = (
        "One layer with n entries and a linear readout emulates any automaton of n states (Terzić et al. 2025): P is "
        "the automaton's table, D = 1 and B = 0. Here this needs a matrix of the dictionary for each symbol, and "
        "saturated sigmoids, which finite precision reaches."
    )
    settings: PdSsmSettings

    def __init__(self, width: int, settings: PdSsmSettings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or PdSsmSettings()
        super().__init__(width, settings)
        n, k, hidden = settings.state, settings.dictionary, settings.expansion * settings.state

        self.dictionary = initial.normal((k, n, n), generator, std=(1 / n) ** 0.5)
        self.selection = initial.linear(width, k, generator, bias=False)
        self.magnitude, self.phase = (initial.Mlp(width, hidden, n, generator, activation="gelu") for _ in range(2))
        # Real and imaginary parts, (2, n, D) and (2, n).
        std = (1 / (2 * n)) ** 0.5
        self.input_matrix = initial.normal((2, n, width), generator, std=std) if settings.input_matrix else None
        is_learned = settings.initial_state == "learned"
        self.initial_state = initial.normal((2, n), generator, std=std) if is_learned else None

    @property
    def outputs(self) -> int:
        """The width of an output: real and imaginary part of each entry of the state."""
        return 2 * self.settings.state

    @property
    def numbers_per_symbol(self) -> int:
        """Inputs B u, states and outputs."""
        return 4 * self.outputs

    @property
    def numbers_per_input(self) -> int:
        """Also M and its softmax, which a GPU kernel does not write to memory."""
        return self.numbers_per_symbol + (0 if self.dictionary.is_cuda else 2 * self.settings.state**2)

    @property
    def transition_size(self) -> int:
        """The size of a transition matrix."""
        return self.settings.state

    def transition_parameters(self) -> int:
        """Return the number of parameters of P and D: dictionary, selection and the two MLPs."""
        modules = (self.selection, self.magnitude, self.phase)
        return self.dictionary.numel() + sum(value.numel() for module in modules for value in module.parameters())

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        """Return weights of the dictionary (..., k), D (..., n, 2) and, with B, inputs B u (..., n, 2).

        The last axis of complex values holds real and imaginary part.
        """
        weights = torch.softmax(self.selection(u), dim=-1)
        size, angle = torch.sigmoid(self.magnitude(u)), 2 * math.pi * torch.sigmoid(self.phase(u))
        D = torch.stack([size * angle.cos(), size * angle.sin()], dim=-1)
        if self.input_matrix is None:
            return weights, D
        drive = linear_map(u, self.input_matrix.flatten(0, 1))
        return weights, D, torch.stack(drive.chunk(2, dim=-1), dim=-1)

    def scan(self, parts: tuple[Tensor, ...], state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return complex states: parts (B, L, *) -> (B, L, n) and (B, n)."""
        weights, D, *drive = parts
        b = to_complex(drive[0]) if drive else None
        return column_mixture_scan(self.dictionary, weights, to_complex(D), b, self.start_state(state), lengths=lengths)

    def scan_symbols(
        self, symbols: tuple[Tensor, ...], tokens: Tensor, state: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Scan over tokens (B, L) with only V transition matrices in memory."""
        weights, D, *drive = symbols
        P = column_softmax(self.dictionary, weights)
        b = to_complex(select_rows(drive[0], tokens)) if drive else None
        return column_one_hot_scan(P, to_complex(D), tokens, b, self.start_state(state), lengths=lengths)

    def read(self, states: Tensor) -> Tensor:
        """Return [Re x; Im x]: (..., n) -> (..., 2n)."""
        return torch.cat([states.real, states.imag], dim=-1)

    def mix_step(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run a single step: u (B, D), complex state (B, n) -> output (B, 2n), next state."""
        weights, D, *drive = self.parts(u)
        P = column_softmax(self.dictionary, weights)
        x = column_one_hot_step(P, to_complex(D), self.start_state(state), to_complex(drive[0]) if drive else None)
        return self.read(x), x

    def start_state(self, state: Tensor | None) -> Tensor:
        if state is not None:
            return state
        if self.initial_state is not None:
            return torch.complex(*self.initial_state.unbind())
        first = torch.arange(self.settings.state, device=self.dictionary.device) == 0
        real = first.to(self.dictionary.dtype) * float(self.settings.initial_state == "one-hot")
        return torch.complex(real, torch.zeros_like(real))


def to_complex(x: Tensor) -> Tensor:
    """Return pairs of real and imaginary parts (..., 2) as complex numbers (...)."""
    return torch.view_as_complex(x.contiguous())
