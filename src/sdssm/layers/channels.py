"""Convolutions along time, channel by channel: y = K * u + D u.

Long ones go through FFTs. Short ones are products with a matrix for each channel: an FFT pads, copies and multiplies
complex numbers, one small kernel after the other, and its gradient more so. Channels come first, (D, L, B), so that
such a product, and a linear map across channels, read and write their numbers as they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn

from sdssm.layers.mixer import FEW, Mixer, State, pick
from sdssm.ops.products import product

#: The longest convolution that is a product with a matrix. The work for it grows as L^2, and that of laying it out as
#: L^3; at this length both are still small beside the memory that an FFT goes through.
SHORT = 64


# -- tables -----------------------------------------------------------------------------------------------------------


def cached_table(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A table that depends on sizes alone, `make(*sizes)`, made once for each device and dtype and kept for good.

    A CUDA graph reads it where it lies. It is made on the host, so that it is there for every stream once it is
    there at all, and outside of whatever transforms the caller is in.
    """

    @cache
    def kept(device: torch.device, dtype: torch.dtype, *sizes: int) -> Tensor:
        with torch.inference_mode(False), torch._C._DisableFuncTorch():
            return make(*sizes).to(device, dtype)

    @wraps(make)
    def table(like: Tensor, *sizes: int) -> Tensor:
        if torch.compiler.is_compiling():  # a part of what is compiled
            return make(*sizes).to(like.device, like.dtype)
        return kept(like.device, like.dtype, *sizes)

    return table


@cached_table
def delay_matrices(length: int) -> Tensor:
    """(L + 1, L, L): no delay, and delays by 0, 1, .. L - 1, as matrices."""
    matrices = [torch.eye(length).roll(k, 0).tril() for k in range(length)]
    return torch.stack([torch.eye(length), *matrices])


@cached_table
def window(length: int, taps: int) -> Tensor:
    """(1 + taps, L, L + 1): a constant, whose 1 stands after the inputs, and delays by taps - 1, .. 1, 0."""
    matrices = torch.zeros(1 + taps, length, length + 1)
    matrices[0, :, -1] = 1
    for k in range(taps):
        matrices[taps - k, :, :-1] = torch.eye(length).roll(k, 0).tril() if k < length else 0
    return matrices


@cached_table
def integers(first: int, count: int) -> Tensor:
    """first, first + 1, .. (count,)."""
    return torch.arange(first, first + count)


@cached_table
def one() -> Tensor:
    """1 (1, 1, 1)."""
    return torch.ones(1, 1, 1)


# -- convolutions -----------------------------------------------------------------------------------------------------


@cache
def fft_size(least: int) -> int:
    """The first even size from `least` on without prime factors above 5: FFTs are fast there.

    >>> [fft_size(n) for n in (0, 1, 7, 81, 1023)]
    [2, 2, 8, 90, 1024]
    """
    size = max(2, least + least % 2)
    while True:
        rest = size
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return size
        size += 2


def convolve(u: Tensor, kernel: Tensor) -> Tensor:
    """y_l = sum_{m <= l} K_m u_{l-m}: u (..., L), kernel (..., up to L taps) -> (..., L).

    >>> convolve(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0])).round().tolist()
    [1.0, 12.0, 23.0]
    """
    length = u.shape[-1]
    size = fft_size(length + kernel.shape[-1] - 1)  # long enough that no product comes round
    spectrum = torch.fft.rfft(u, n=size) * torch.fft.rfft(kernel, n=size)
    y: Tensor = torch.fft.irfft(spectrum, n=size)
    return y[..., :length]


def apply_matrices(weights: Tensor, matrices: Tensor, u: Tensor) -> Tensor:
    """(sum_w weights_w matrices_w) u for each channel: weights (D, W), matrices (W, L, M), u (D, M, B) -> (D, L, B)."""
    # The sum as a product with zeros and ones: an index would cost as much, and its gradient many times more.
    return (weights @ matrices.flatten(1)).reshape(len(weights), *matrices.shape[1:]) @ u


def convolve_with_skip(u: Tensor, kernel: Tensor, skip: Tensor) -> Tensor:
    """K * u + D u: u (D, L, B), kernel (D, up to L taps), skip (D,) -> (D, L, B).

    >>> convolve_with_skip(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[1.0, 10.0]]), torch.ones(1)).flatten()
    tensor([ 2., 14., 26.])
    """
    length = u.shape[1]
    if length > SHORT:
        return convolve(u.mT, kernel[:, None]).mT + skip[:, None, None] * u
    weights = torch.cat([skip[:, None], kernel], 1)
    return apply_matrices(weights, delay_matrices(u, length)[: weights.shape[1]], u.contiguous())


def short_convolution(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A few taps for each channel: u (D, L, B), weight (D, W), bias (D,) -> (D, L, B); the last tap is the present.

    >>> short_convolution(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[10.0, 1.0]]), torch.zeros(1)).flatten()
    tensor([ 1., 12., 23.])
    """
    length, taps = u.shape[1], weight.shape[-1]
    if not taps:  # what came before the present, for a convolution of one tap
        return bias[:, None, None].expand_as(u)
    if length <= SHORT:
        longer = torch.cat([u, one(u).expand_as(u[:, :1])], 1)
        return apply_matrices(torch.cat([bias[:, None], weight], 1), window(u, length, taps), longer)
    # Shifted products: as quick as a grouped convolution for 3 or 4 taps, and the same under vmap.
    padded = nn.functional.pad(u, (0, 0, taps - 1, 0))
    y = bias[:, None, None] + padded[:, :length] * weight[:, 0, None, None]
    for tap in range(1, taps):
        y = y + padded[:, tap : tap + length] * weight[:, tap, None, None]
    return y


# -- channels first ---------------------------------------------------------------------------------------------------


def channels(u: Tensor) -> Tensor:
    """(B, L, D) -> (D, L, B), and the reverse."""
    return u.permute(2, 1, 0)


def linear_over_channels(layer: nn.Linear, u: Tensor) -> Tensor:
    """A linear map across channels: (D, L, B) -> (F, L, B)."""
    return (product(layer.weight, u.flatten(1)) + layer.bias[:, None]).reshape(len(layer.weight), *u.shape[1:])


class ChannelsFirst(Mixer):
    """A mixer whose inputs, where they are symbols, are laid out from the first as its convolutions read them."""

    def mix_symbols(
        self,
        symbols: Any,
        tokens: Tensor,
        state: State = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        parts = tuple(select_rows_channels_first(part, tokens) for part in symbols)
        return self.mix(parts, state, lengths=lengths, carry=carry, noise=noise)


def select_rows_channels_first(table: Tensor, tokens: Tensor) -> Tensor:
    """The rows of a table (V, D) that tokens (B, L) name: (B, L, D), which lies in memory as (D, L, B).

    >>> found = select_rows_channels_first(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1, 0, 1]]))
    >>> found.tolist(), channels(found).is_contiguous()
    ([[[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]], True)
    """
    if len(table) > FEW:
        return pick(table, tokens)
    times = tokens.mT.contiguous()
    chosen = (times == integers(times, 0, len(table))[:, None, None]).to(table.dtype)  # (V, L, B)
    return channels(product(table.mT, chosen.flatten(1)).reshape(table.shape[1], *times.shape))
