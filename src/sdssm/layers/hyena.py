"""Hyena of order 2: gated long convolutions with an implicit filter (Poli et al. 2023)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError
from sdssm.layers import initial
from sdssm.layers.channels import (
    ChannelsFirst,
    final_sum,
    linear_over_channels,
    short_convolution,
    swap_channels,
)
from sdssm.layers.convolution import Convolution
from sdssm.layers.mixer import MixerState
from sdssm.layers.settings import HyenaSettings
from sdssm.ops.backend import has_fast_kernels
from sdssm.ops.implicit import MOST_TAPS, MOST_UNITS, implicit_taps
from sdssm.ops.products import product
from sdssm.ops.windows import has_window_kernels, window_end

#: Decay rates of the windows: a channel decays to 1 % after 1.5 (slowest) or 0.3 (fastest) of the longest input.
SLOWEST, FASTEST = math.log(100) / 1.5, math.log(100) / 0.3
LOWEST_BAND = 1e-4


class ImplicitFilter(Convolution):
    """A convolution whose kernel a network computes from positional features.

    The network is sin(f W .) three times and a linear map; its outputs are multiplied by a decaying window.
    The features of time t are t / (L - 1), then cos and -sin of 2 pi f t / L for each band f, where L is the largest
    sequence length. All sines share one vector of frequencies.
    """

    features: Tensor
    window: Tensor

    def __init__(self, width: int, settings: HyenaSettings, *, generator: torch.Generator) -> None:
        super().__init__(width, generator=generator)
        longest, hidden = settings.longest, settings.filter_width
        t = torch.arange(longest, dtype=torch.float64)[:, None]
        bands = torch.linspace(LOWEST_BAND, settings.bands - 1, settings.bands, dtype=torch.float64)
        angles = 2 * math.pi / longest * t * bands
        elapsed = t / (longest - 1)
        features = torch.cat([elapsed, angles.cos(), -angles.sin()], dim=-1).float()  # (longest, 2 bands + 1)
        if settings.learned_features:
            self.features = nn.Parameter(features)
        else:
            self.register_buffer("features", features)
        decays = torch.linspace(SLOWEST, FASTEST, width, dtype=torch.float64)
        self.register_buffer("window", torch.exp(-elapsed * decays).float())  # (longest, D)
        self.frequency = nn.Parameter(torch.full((hidden,), settings.frequency))
        sizes = (2 * settings.bands + 1, hidden, hidden)
        self.layers = nn.ModuleList(initial.linear(size, hidden, generator) for size in sizes)
        self.last = initial.linear(hidden, width, generator, bias=False)

    def kernel(self, length: int) -> Tensor:
        units = max(len(self.frequency), self.features.shape[1])
        if length <= MOST_TAPS and units <= MOST_UNITS and has_fast_kernels(self.features):
            layers = [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]
            return implicit_taps(self.features, self.window, self.frequency, layers, self.last.weight, length=length)
        x = self.features[:length]
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            x = torch.sin(self.frequency * layer(x))
        h: Tensor = self.last(x) * self.window[:length]  # (L, D)
        return h.mT


class Hyena(ChannelsFirst):
    """Hyena of order 2, W_o(x1 * (h conv (x2 v) + D x2 v)), where a network computes the filter h.

    x1, x2 and v are linear in u and pass a short convolution. There is no recurrent state: an output depends on all
    earlier inputs, through a filter of `longest` taps. Poli et al. 2023, "Hyena Hierarchy: Towards Larger Convolutional
    Language Models".

    >>> layer = Hyena(3, HyenaSettings(longest=20), generator=torch.Generator().manual_seed(0))
    >>> layer(torch.randn(2, 10, 3))[0].shape
    torch.Size([2, 10, 3])
    >>> layer(torch.randn(2, 21, 3))
    Traceback (most recent call last):
    sdssm.errors.ModelError: hyena reads at most 20 inputs, got 21; pass a shorter sequence
    """

    name = "hyena"
    Settings = HyenaSettings
    is_recurrent = False
    emulates = (
        "It is a fixed number of convolutions and products, which threshold circuits of constant depth compute (TC0). "
        "It is not defined for sequences longer than `longest`."
    )

    def __init__(self, width: int, settings: HyenaSettings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or HyenaSettings()
        super().__init__(width, settings)
        self.input = initial.linear(width, 3 * width, generator)
        bound = settings.conv**-0.5
        self.conv_weight = initial.uniform((3 * width, settings.conv), bound, generator)
        self.conv_bias = initial.uniform((3 * width,), bound, generator)
        self.filter = ImplicitFilter(width, settings, generator=generator)
        self.output = initial.linear(width, width, generator)

    @property
    def longest(self) -> int:
        return self.settings.longest  # type: ignore[no-any-return]  # settings is Any in Mixer

    @property
    def numbers_per_symbol(self) -> int:
        return 20 * self.width  # projections before and after the short convolution, two spectra, and a query

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        return (self.input(u),)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, MixerState]:
        if state is not None:
            raise ModelError("hyena has no state to continue from; pass whole sequences")
        self.check_length(parts[0].shape[1])
        x1, x2, v = short_convolution(swap_channels(parts[0]), self.conv_weight, self.conv_bias).chunk(3)  # (D, L, B)
        return swap_channels(linear_over_channels(self.output, x1 * self.filter.filter_inputs(x2 * v))), None

    def end_of_strings(self, table: Tensor, tokens: Tensor, lengths: Tensor | None) -> Tensor:
        if not has_window_kernels(table, self.settings.conv):
            return super().end_of_strings(table, tokens, lengths)
        kernel = self.filter.kernel(tokens.shape[1])
        y = window_end(table, self.conv_weight, self.conv_bias, kernel, self.filter.skip, tokens, lengths)
        return self.output(y)[:, None]  # type: ignore[no-any-return]  # a module's

    def end(self, table: Tensor, one_hot: Tensor) -> Tensor:
        # The short convolution of symbols is a linear map of windows of one-hot vectors, (T V + 1, L, B). The last row
        # is 1 inside of strings and carries the bias.
        length, taps = one_hot.shape[1], self.settings.conv
        windows = [nn.functional.pad(one_hot[:, delay:], (0, 0, 0, min(delay, length))) for delay in range(taps)]
        inputs = torch.cat([*windows, one_hot.sum(0, keepdim=True)])
        weight = (self.conv_weight.flip(1)[..., None] * table.mT[:, None]).flatten(1)  # (3 D, T V)
        maps = torch.cat([weight, self.conv_bias[:, None]], 1)
        first, others = maps[: self.width], maps[self.width :]
        x2, v = product(others, inputs.flatten(1)).reshape(-1, *one_hot.shape[1:]).chunk(2)  # (D, L, B)
        y = final_sum(x2 * v, self.filter.kernel(length), self.filter.skip)
        return linear_over_channels(self.output, product(first, inputs[:, 0])[:, None] * y)

    def mix_query(self, parts: tuple[Tensor, ...], query_parts: tuple[Tensor, ...], state: MixerState = None) -> Tensor:
        self.check_length(parts[0].shape[1] + 1)
        inputs, weight = swap_channels(parts[0]), self.conv_weight
        _, x2, v = short_convolution(inputs, weight, self.conv_bias).chunk(3)
        # Earlier inputs of a query: the same convolution without its last tap, which acts on the query.
        earlier = short_convolution(inputs, weight[:, :-1], self.conv_bias)
        query = earlier + weight[:, -1, None, None] * swap_channels(query_parts[0])
        x1, query_x2, query_v = query.chunk(3)
        outputs = x1 * self.filter.query_outputs(x2 * v, query_x2 * query_v)
        return swap_channels(linear_over_channels(self.output, outputs))
