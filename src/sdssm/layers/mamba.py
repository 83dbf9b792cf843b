"""Mamba: a diagonal recurrence for each channel whose coefficients depend on the input.

Gu and Dao, "Mamba: Linear-time sequence modeling with selective state spaces", 2023, section 3, with the sizes and the
initial values of the authors' code (state-spaces/mamba, modules/mamba_simple.py).
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from sdssm.layers import initial
from sdssm.layers.mixer import Mixer, MixerState, last_position, last_window, select_rows
from sdssm.layers.settings import MambaSettings
from sdssm.ops.filter import causal_filter
from sdssm.ops.linear import linear_map
from sdssm.ops.selective import selective_scan, selective_step
from sdssm.ops.selective_ends import selective_end
from sdssm.ops.softplus import softplus_map

#: Initial step sizes are log-uniform between these.
SMALLEST_STEP, LARGEST_STEP = 1e-3, 0.1


class Mamba(Mixer):
    """Mamba: h_t = exp(delta_t A) h_{t-1} + delta_t B_t x_t, y_t = C_t h_t.

    delta_t, B_t and C_t depend on the input. For each of E = expand * D channels, with B_t, C_t in R^N shared by all of
    them:

        (x, z) = W_in u,  x = SiLU(causal convolution of each channel + bias)
        (r, B_t, C_t) = W_x x,  delta_t = softplus(W_dt r + b_dt)
        h_t = exp(delta_t A) h_{t-1} + delta_t B_t x_t,  A = -exp(A_log), h_0 = 0
        output_t = W_out ((C_t h_t + D x_t) * SiLU(z))

    The state is the last inputs of the convolution (B, E, conv - 1) and h (B, E, N). Initially A[d, n] = -n, D = 1, and
    softplus(b_dt) is between 1e-3 and 0.1.

    >>> layer = Mamba(8, MambaSettings(state=4), generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(2, 10, 8)
    >>> outputs, _ = layer(u)
    >>> first, state = layer(u[:, :4])
    >>> rest, state = layer(u[:, 4:], state)
    >>> torch.allclose(outputs, torch.cat([first, rest], dim=1), atol=1e-5), [tuple(part.shape) for part in state]
    (True, [(2, 16, 3), (2, 16, 4)])
    """

    name: ClassVar[str] = "mamba"
    Settings: ClassVar[type[MambaSettings]] = MambaSettings
    has_output_projection: ClassVar[bool] = True
    emulates: ClassVar[str] = (
        "Its transitions are diagonal and positive. In finite precision no number of layers computes parity at all "
        "lengths (Sarrof et al. 2024, Grazzi et al. 2025), and enough layers represent any star-free language (Sarrof "
        "et al. 2024). In log precision it is in TC0 for any number of layers (Merrill et al. 2024)."
    )
    settings: MambaSettings

    def __init__(self, width: int, settings: MambaSettings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or MambaSettings()
        super().__init__(width, settings)
        N = settings.state
        self.channels = E = settings.expand * width
        self.rank = settings.rank or -(-width // 16)
        self.input_projection = initial.linear(width, 2 * E, generator, bias=False)
        self.convolution = initial.uniform((E, settings.conv), settings.conv**-0.5, generator)
        self.convolution_bias = initial.uniform((E,), settings.conv**-0.5, generator)
        self.x_projection = initial.linear(E, self.rank + 2 * N, generator, bias=False)
        self.dt_projection = initial.linear(self.rank, E, generator, bias=False)
        self.dt_bias = nn.Parameter(initial_step_size_bias(E, generator))
        self.A_log = nn.Parameter(torch.arange(1, N + 1, dtype=torch.float32).log().repeat(E, 1))
        self.D = nn.Parameter(torch.ones(E))
        self.output_projection = initial.linear(E, width, generator, bias=False)

    @property
    def outputs(self) -> int:
        return self.width

    @property
    def numbers_per_symbol(self) -> int:
        return 8 * self.channels + self.rank + 4 * self.settings.state

    def transition_parameters(self) -> int:
        """Return the number of parameters of A_log and of the step sizes: their rows of W_x, W_dt and b_dt."""
        return self.A_log.numel() + 2 * self.dt_projection.weight.numel() + self.dt_bias.numel()

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        """Return x and z, (..., E) each."""
        x, z = self.input_projection(u).chunk(2, -1)
        return x, z

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, MixerState]:
        x, z = parts
        before, h = (None, None) if state is None else state
        earlier = None if before is None else before.mT
        x, last = causal_filter(x, self.convolution.mT, self.convolution_bias, earlier)
        delta, B, C = self._selected(x)
        y, h = selective_scan(x, delta, -self.A_log.exp(), B, C, h, lengths=lengths)
        return self._output(y, x, z), (last.mT, h) if carry else None

    def mix_end(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        if state is not None:
            return super().mix_end(parts, state, lengths=lengths)
        x, z = parts
        window, exists = last_window(x, lengths, self.settings.conv)
        return self._end(x, window, exists, last_position(z, lengths), lengths)

    def mix_symbols_end(
        self,
        symbols: tuple[Tensor, ...],
        tokens: Tensor,
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        if state is not None:
            return super().mix_symbols_end(symbols, tokens, state, lengths=lengths)
        x, z = symbols
        window, exists = last_window(tokens, lengths, self.settings.conv)
        last_z = select_rows(z, last_position(tokens, lengths))
        return self._end(select_rows(x, tokens), select_rows(x, window), exists, last_z, lengths)

    def _end(self, x: Tensor, window: Tensor, exists: Tensor | None, z: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the output at the end of each row, (B, 1, D).

        There C_t, the skip connection, the gate and W_out are needed at one step of a row only. x (B, L, E); of the end
        z (B, 1, E) and the inputs of the convolution (B, conv, E), as `last_window` returns them.
        """
        window = window if exists is None else torch.where(exists[..., None], window, 0)
        last = causal_filter(window, self.convolution.mT, self.convolution_bias)[0][:, -1:]
        x, _ = causal_filter(x, self.convolution.mT, self.convolution_bias)
        to_steps, to_C = torch.split(self.x_projection.weight, [self.rank + self.settings.state, self.settings.state])
        r, B = torch.split(linear_map(x, to_steps), [self.rank, self.settings.state], -1)
        C = linear_map(last[:, 0], to_C)
        y = selective_end(x, self._step_sizes(r), -self.A_log.exp(), B, C, lengths=lengths)
        return self._output(y[:, None], last, z)

    def mix_step(self, u: Tensor, state: MixerState = None) -> tuple[Tensor, MixerState]:
        x, z = self.parts(u)
        before, h = (x.new_zeros(*x.shape, self.settings.conv - 1), None) if state is None else state
        window = torch.cat([before, x[..., None]], -1)  # (B, E, conv)
        x = functional.silu((window * self.convolution).sum(-1) + self.convolution_bias)
        delta, B, C = self._selected(x)
        y, h = selective_step(x, delta, -self.A_log.exp(), B, C, h)
        return self._output(y, x, z), (window[..., 1:], h)

    def _selected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input-dependent delta (..., E), B and C (..., N) of the recurrence."""
        N = self.settings.state
        r, B, C = self.x_projection(x).split([self.rank, N, N], -1)
        return self._step_sizes(r), B, C

    def _step_sizes(self, r: Tensor) -> Tensor:
        """Return delta (..., E) for r (..., rank)."""
        return softplus_map(r, self.dt_projection.weight, self.dt_bias)

    def _output(self, y: Tensor, x: Tensor, z: Tensor) -> Tensor:
        out: Tensor = self.output_projection((y + self.D * x) * functional.silu(z))
        return out


def initial_step_size_bias(channels: int, generator: torch.Generator) -> Tensor:
    """Return the inverse softplus of log-uniform random step sizes (channels,).

    >>> sizes = functional.softplus(initial_step_size_bias(1000, torch.Generator().manual_seed(0)))
    >>> bool(sizes.min() > 0.99e-3), bool(sizes.max() < 0.101)
    (True, True)
    """
    low, high = math.log(SMALLEST_STEP), math.log(LARGEST_STEP)
    sizes = (low + torch.rand(channels, generator=generator) * (high - low)).exp()
    return initial.inverse_softplus(sizes)
