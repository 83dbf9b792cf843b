"""Causal convolutions along time for each channel, y = K * u + D u.

Long convolutions use FFTs. Short ones multiply by a Toeplitz matrix for each channel: an FFT and its gradient launch
many small kernels that pad, copy and multiply complex numbers. Tensors have channels first, (D, L, B), so that these
products, and linear maps across channels, read and write contiguous memory.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from sdssm.layers.mixer import FEW, Mixer, MixerState, last_position, select_rows
from sdssm.ops.products import product
from sdssm.ops.tables import cached_table

#: The largest length that is convolved by a matrix product. The product costs O(L^2) and building the matrix O(L^3);
#: at this length both still cost less than the memory traffic of an FFT.
SHORT = 64


# -- tables -----------------------------------------------------------------------------------------------------------


@cached_table
def delay_matrices(length: int) -> Tensor:
    """Return matrices (L + 1, L, L): the identity, then delays by 0, 1, .. L - 1 steps."""
    matrices = [torch.eye(length).roll(k, 0).tril() for k in range(length)]
    return torch.stack([torch.eye(length), *matrices])


@cached_table
def advance_matrices(length: int) -> Tensor:
    """Return the transposed `delay_matrices`, for sequences in reverse order."""
    return torch.stack([torch.eye(length), *(torch.eye(length).roll(k, 1).triu() for k in range(length))])


@cached_table
def window_matrices(length: int, taps: int) -> Tensor:
    """Return matrices (1 + taps, L, L + 1) for inputs of length L followed by a constant 1.

    The first matrix selects the constant, which carries the bias; the others delay by taps - 1, .. 1, 0 steps.
    """
    matrices = torch.zeros(1 + taps, length, length + 1)
    matrices[0, :, -1] = 1
    for k in range(taps):
        matrices[taps - k, :, :-1] = torch.eye(length).roll(k, 0).tril() if k < length else 0
    return matrices


@cached_table
def integers(first: int, count: int) -> Tensor:
    """Return first, first + 1, .. as a tensor (count,)."""
    return torch.arange(first, first + count)


@cached_table
def unit() -> Tensor:
    """Return the constant 1 as a tensor (1, 1, 1)."""
    return torch.ones(1, 1, 1)


# -- convolutions -----------------------------------------------------------------------------------------------------


def fft_size(least: int) -> int:
    """Return the smallest even size >= `least` without prime factors above 5, for which FFTs are fast.

    >>> [fft_size(n) for n in (0, 1, 7, 81, 1023)]
    [2, 2, 8, 90, 1024]
    """
    return _fft_size(int(least))  # while a model is traced or exported, sizes are not plain integers


@cache
def _fft_size(least: int) -> int:
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
    """Convolve by FFT, y_l = sum_{m <= l} K_m u_{l-m}.

    u (..., L), kernel (..., at most L taps) -> (..., L).

    >>> convolve(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0])).round().tolist()
    [1.0, 12.0, 23.0]
    """
    length = u.shape[-1]
    size = fft_size(length + kernel.shape[-1] - 1)  # long enough that nothing wraps around
    spectrum = torch.fft.rfft(u, n=size) * torch.fft.rfft(kernel, n=size)
    y: Tensor = torch.fft.irfft(spectrum, n=size)
    return y[..., :length]


def apply_matrices(weights: Tensor, matrices: Tensor, u: Tensor) -> Tensor:
    """Return (sum_w weights_w matrices_w) u for each channel.

    weights (D, W), matrices (W, L, M), u (D, M, B) -> (D, L, B).
    """
    # A product with 0/1 matrices: indexing would cost as much, and its gradient many times more.
    return (weights @ matrices.flatten(1)).reshape(len(weights), *matrices.shape[1:]) @ u


def convolve_with_skip(u: Tensor, kernel: Tensor, skip: Tensor) -> Tensor:
    """Return K * u + D u: u (D, L, B), kernel (D, at most L taps), skip (D,) -> (D, L, B).

    >>> convolve_with_skip(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[1.0, 10.0]]), torch.ones(1)).flatten()
    tensor([ 2., 14., 26.])
    """
    length = u.shape[1]
    if length > SHORT:
        return convolve(u.mT, kernel[:, None]).mT + skip[:, None, None] * u
    weights = torch.cat([skip[:, None], kernel], 1)
    return apply_matrices(weights, delay_matrices(u, length)[: weights.shape[1]], u.contiguous())


def short_convolution(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve with a few taps, the last of which has no delay.

    u (D, L, B), weight (D, W), bias (D,) -> (D, L, B).

    >>> short_convolution(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[10.0, 1.0]]), torch.zeros(1)).flatten()
    tensor([ 1., 12., 23.])
    """
    length, taps = u.shape[1], weight.shape[-1]
    if not taps:  # the earlier inputs of a convolution with a single tap
        return bias[:, None, None].expand_as(u)
    if length <= SHORT:
        longer = torch.cat([u, unit(u).expand_as(u[:, :1])], 1)
        return apply_matrices(torch.cat([bias[:, None], weight], 1), window_matrices(u, length, taps), longer)
    # Shifted products: as fast as a grouped convolution for 3 or 4 taps, and unchanged by vmap.
    padded = nn.functional.pad(u, (0, 0, taps - 1, 0))
    y = bias[:, None, None] + padded[:, :length] * weight[:, 0, None, None]
    for tap in range(1, taps):
        y = y + padded[:, tap : tap + length] * weight[:, tap, None, None]
    return y


# -- channels first ---------------------------------------------------------------------------------------------------


def swap_channels(u: Tensor) -> Tensor:
    """Transpose (B, L, D) -> (D, L, B), or back."""
    return u.permute(2, 1, 0)


def linear_over_channels(layer: nn.Linear, u: Tensor) -> Tensor:
    """Apply a linear map across channels: (D, L, B) -> (F, L, B)."""
    return (product(layer.weight, u.flatten(1)) + layer.bias[:, None]).reshape(len(layer.weight), *u.shape[1:])


class ChannelsFirst(Mixer):
    """Base class of mixers that select rows of a symbol table in the layout of their convolutions.

    For the output at the end of strings they are given the strings in reverse order, so that all end at index 0. The
    last of several convolutions is then a sum for each channel in place of a product with a matrix. They end in a
    linear map to the width of their inputs.
    """

    has_output_projection = True
    can_query = True

    @property
    def outputs(self) -> int:
        return self.width

    @abstractmethod
    def end(self, table: Tensor, one_hot: Tensor) -> Tensor:
        """Return the output at the end of strings, (F, 1, B).

        table (V, *) is the only part of the symbols. one_hot (V, L, B) are the strings from their ends on; past the
        start of a string all entries are 0.
        """

    def mix_symbols_end(
        self,
        symbols: Any,
        tokens: Tensor,
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        (table,) = symbols
        if state is not None or len(table) > FEW or tokens.shape[1] > SHORT:
            return last_position(self.mix_symbols(symbols, tokens, state, lengths=lengths, carry=False)[0], lengths)
        return self.end_of_strings(table, tokens, lengths)

    def end_of_strings(self, table: Tensor, tokens: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the output at the end of strings (B, L), (B, 1, F). Mixers with a kernel for it override this."""
        return swap_channels(self.end(table, reversed_one_hot(tokens, lengths, table)))

    def mix_symbols(
        self,
        symbols: Any,
        tokens: Tensor,
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, MixerState]:
        parts = tuple(select_rows_channels_first(part, tokens) for part in symbols)
        return self.mix(parts, state, lengths=lengths, carry=carry, noise=noise)


def reversed_one_hot(tokens: Tensor, lengths: Tensor | None, table: Tensor) -> Tensor:
    """Return strings (B, L) from their ends on, as one-hot vectors (V, L, B) for the rows of a table (V, *).

    >>> one_hot = reversed_one_hot(torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.tensor([3, 1]), torch.zeros(2, 5))
    >>> one_hot[1].mT.tolist(), one_hot.sum(0).mT.tolist()
    ([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    """
    times, length = tokens.mT.contiguous(), tokens.shape[1]
    steps = integers(times, 0, length)[:, None]
    if lengths is None:
        times = times.flip(0)
    else:
        index = lengths - 1 - steps  # (L, B)
        times = torch.where(index >= 0, times.gather(0, index.clamp(min=0)), -1)
    return one_hot_vectors(times, table)


def one_hot_vectors(times: Tensor, table: Tensor) -> Tensor:
    """Return tokens (L, B) as one-hot vectors (V, L, B) for the rows of a table (V, *); zeros for a token of -1."""
    return (times == integers(times, 0, len(table))[:, None, None]).to(table.dtype)


def final_sum(u: Tensor, kernel: Tensor, skip: Tensor) -> Tensor:
    """Return K * u + D u at the end, from reversed inputs: u (D, L, B), kernel (D, at most L taps) -> (D, 1, B).

    >>> final_sum(torch.tensor([[[3.0], [2.0], [1.0]]]), torch.tensor([[1.0, 10.0]]), torch.ones(1)).flatten()
    tensor([26.])
    """
    return with_skip(kernel, skip)[:, None] @ u[:, : kernel.shape[1]]


def with_skip(kernel: Tensor, skip: Tensor) -> Tensor:
    """Add D to the tap without delay: kernel (D, taps), skip (D,)."""
    return torch.cat([(kernel[:, 0] + skip)[:, None], kernel[:, 1:]], 1)


def select_rows_channels_first(table: Tensor, tokens: Tensor) -> Tensor:
    """Select rows of a table (V, D) by tokens (B, L): (B, L, D), stored in memory as (D, L, B).

    >>> rows = select_rows_channels_first(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1, 0, 1]]))
    >>> rows.tolist(), swap_channels(rows).is_contiguous()
    ([[[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]], True)
    """
    if len(table) > FEW:
        return select_rows(table, tokens)
    times = tokens.mT.contiguous()
    one_hot = one_hot_vectors(times, table)
    return swap_channels(product(table.mT, one_hot.flatten(1)).reshape(table.shape[1], *times.shape))
