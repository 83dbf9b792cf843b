"""Attention with randomised rotary positions (Ruoss et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.channels import integers
from sdssm.layers.mixer import Mixer, MixerState
from sdssm.layers.settings import AttentionSettings
from sdssm.ops.attention import rotary_attention
from sdssm.ops.linear import linear_map

#: Sequence length assumed when estimating memory for heads that materialise their attention weights.
TYPICAL_LENGTH = 512
#: 2^31 - 1. x^5 permutes the residues of this prime, since 5 does not divide PRIME - 1; products fit 64 bits.
PRIME = 2_147_483_647


class Attention(Mixer):
    """Attention, softmax(Q K^T / sqrt(S)) V in heads of size S, with randomised rotary positions.

    A sequence of length l has l sorted positions drawn without replacement from 0..positions-1 instead of 0..l-1, so
    that training on short strings covers the distances of long ones. There is one draw for each layer and call, shared
    by rows and heads. Rotary encoding rotates the adjacent entries (2i, 2i+1) of Q and K by position * 10000^(-2i/S). A
    linear map of the concatenated heads gives the outputs; there are no biases. Ruoss et al. 2023 (arXiv 2305.16843),
    "Randomized Positional Encodings Boost Length Generalization of Transformers".

    The positions come from `noise`. Without noise, as in evaluation, they depend only on the length of the row and on a
    number that is drawn and saved with the weights. A string then has the same outputs in every batch, while other
    lengths and other layers have other positions.

    >>> layer = Attention(16, AttentionSettings(heads=2), generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1))
    >>> outputs, _ = layer(u)
    >>> short, _ = layer(u, lengths=torch.tensor([5, 4, 2]))
    >>> outputs.shape, torch.allclose(short[2, :2], layer(u[2, :2])[0], atol=1e-6)
    (torch.Size([3, 5, 16]), True)
    """

    name = "transformer"
    Settings = AttentionSettings
    is_recurrent = False
    has_output_projection = True
    emulates = (
        "Transformers of log precision compute only functions in TC0 (Merrill and Sabharwal 2023). For each fixed "
        "length T some transformer of depth O(log T) simulates any semiautomaton, and one of a depth independent of T "
        "any solvable semiautomaton (Liu et al. 2023). Neither result is about randomised positions."
    )
    settings: AttentionSettings

    def __init__(self, width: int, settings: AttentionSettings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or AttentionSettings()
        super().__init__(width, settings)
        if width % (2 * settings.heads):
            raise SettingsError(
                f"heads is {settings.heads}, but the width is {width}; heads must divide it into even sizes, because "
                "rotary positions rotate pairs of entries"
            )
        self.queries_keys_values = truncated_normal((3 * width, width), generator)
        self.projection = truncated_normal((width, width), generator)
        self.register_buffer("draw", torch.randint(PRIME, (), generator=generator))
        self.draw: Tensor

    @property
    def is_causal(self) -> bool:  # type: ignore[override]  # depends on a setting
        """Whether outputs do not depend on later inputs."""
        return self.settings.causal_mask

    @property
    def outputs(self) -> int:
        """The width of an output, which is that of an input."""
        return self.width

    @property
    def longest(self) -> int:
        """The largest sequence length: the number of positions."""
        return self.settings.positions

    @property
    def numbers_per_symbol(self) -> int:
        """Queries, keys and values, before and after rotation.

        Narrow heads also materialise their attention weights: fused attention needs rows aligned to 16 bytes.
        """
        fused = self.width // self.settings.heads % 4 == 0
        return 8 * self.width + (0 if fused else 2 * self.settings.heads * TYPICAL_LENGTH)

    @property
    def numbers_per_pair(self) -> int:
        """The score and the weight of each head."""
        return 2 * self.settings.heads

    def noise_shape(self, length: int) -> tuple[int]:
        """Return the shape of the noise: a number for each position; those with the smallest are used."""
        return (self.settings.positions,)

    def prepare_noise(self, noise: Tensor, length: int, lengths: Tensor | None) -> Tensor:
        """Return the positions of all layers, (layers, 1 or B, L): sorting them together takes as long as one layer."""
        self.check_length(length)
        return self.draw_positions(length, lengths, noise, noise.device)

    def parts(self, u: Tensor) -> tuple[Tensor]:
        """Return query, key and value of each head: u (..., D) -> (..., 3, H, S)."""
        heads = self.settings.heads
        projected = linear_map(u, self.queries_keys_values)
        return (projected.reshape(*u.shape[:-1], 3, heads, self.width // heads),)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """Attend: queries, keys, values (B, L, 3, H, S), noise (positions,) -> outputs (B, L, D), None.

        The noise may also be a layer's positions from `prepare_noise`.
        """
        return self._attend(parts, state, lengths, noise, end=False), None

    def mix_end(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        return self._attend(parts, state, lengths, noise, end=True)

    def _attend(
        self, parts: tuple[Tensor, ...], state: MixerState, lengths: Tensor | None, noise: Tensor | None, *, end: bool
    ) -> Tensor:
        """Return the outputs (B, L, D), or with `end` (B, 1, D)."""
        if state is not None:
            raise ModelError(f"{self.name} has no state to continue from; pass whole sequences")
        (qkv,) = parts
        self.check_length(qkv.shape[1])
        positions = noise
        if positions is None or positions.is_floating_point():
            positions = self.draw_positions(qkv.shape[1], lengths, noise, qkv.device)
        causal = self.settings.causal_mask and not end  # the last input sees all others
        outputs = rotary_attention(qkv, positions, lengths, count=self.settings.positions, causal=causal, end=end)
        return linear_map(outputs.flatten(2), self.projection)

    def draw_positions(self, length: int, lengths: Tensor | None, noise: Tensor | None, device: torch.device) -> Tensor:
        """Return the sorted positions of the inputs, (1, L) or (B, L); for the noise of layers (layers, 1 or B, L).

        Past the end of a row they are `settings.positions`, which is not a position.
        """
        count, is_random = self.settings.positions, noise is not None
        if noise is None:
            ends = torch.full((1,), length, device=device) if lengths is None else lengths
            noise = self._fixed_noise(ends, torch.arange(count, device=device))
        order = noise.argsort(dim=-1, stable=True)[..., :length]
        if is_random:
            order = order[..., None, :]
        if lengths is not None:
            order = order.masked_fill(integers(order, 0, length) >= lengths[:, None], count)
        return order.sort(dim=-1).values

    def _fixed_noise(self, ends: Tensor, positions: Tensor) -> Tensor:
        """Return pseudorandom integers (B, P) that depend on the row lengths, the same on every device.

        A torch.Generator would need the lengths on the host, and the host must not wait for the device here.
        """
        return _hash(_hash(_hash(self.draw) + ends)[:, None] + positions)


def _hash(x: Tensor) -> Tensor:
    """Return x^5 modulo a prime, a permutation of the residues that separates neighbouring numbers."""
    x = x % PRIME
    square = x * x % PRIME
    return square * square % PRIME * x % PRIME


def truncated_normal(shape: tuple[int, int], generator: torch.Generator) -> nn.Parameter:
    """Return N(0, 1 / inputs) truncated at two standard deviations, as Haiku initialises a linear map."""
    std = shape[1] ** -0.5
    values = torch.nn.init.trunc_normal_(torch.empty(shape), std=std, a=-2 * std, b=2 * std, generator=generator)
    return nn.Parameter(values)
