"""Attention with randomised rotary positions: the mixer of a transformer that has met every position in training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sdssm.errors import ModelError, SettingsError
from sdssm.layers.channels import cached_table, integers
from sdssm.layers.mixer import Mixer, MixerSettings, State
from sdssm.ops.products import linear
from sdssm.settings import check_between, check_settings

#: How long a string is thought to be where memory is estimated for heads whose weights are kept.
TYPICAL_LENGTH = 512
#: Pair i of a head of size S turns by position * BASE^(-2i / S).
BASE = 10_000.0
#: 2^31 - 1. x^5 permutes the residues of this prime, since 5 does not divide PRIME - 1; products fit 64 bits.
PRIME = 2_147_483_647


@dataclass(frozen=True, kw_only=True)
class AttentionSettings(MixerSettings):
    """What tells one attention from another. The defaults are the published ones."""

    heads: int = 8  #: each of size D / heads
    positions: int = 2_048  #: to draw from; also the longest sequence
    causal_mask: bool = False  #: look at earlier inputs only; published: at all

    def __post_init__(self) -> None:
        check_settings(self)
        check_between("heads", self.heads, 1, 4_096)
        check_between("positions", self.positions, 1, 1 << 20)


class Attention(Mixer):
    """softmax(Q K^T / sqrt(S)) V in heads of size S, then a linear map; no biases. Q and K turn with their positions.

    A sequence of length l does not stand at 0..l-1 but at l sorted places drawn without replacement from
    0..positions-1, so that training on short strings meets the distances of long ones: one draw for each layer and
    call, shared by rows and heads. Rotary encoding on adjacent pairs: entries (2i, 2i+1) turn by
    place * 10000^(-2i/S). Ruoss et al. 2023 (arXiv 2305.16843), "Randomized Positional Encodings Boost Length
    Generalization of Transformers".

    The draw comes from `noise`. Without it, as in evaluation, the places depend on the length of the row and on a
    number that is drawn with the weights and saved with them: the same string gives the same outputs, alone or
    beside longer ones, and other lengths and layers have draws of their own.

    >>> layer = Attention(16, AttentionSettings(heads=2), generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1))
    >>> outputs, _ = layer(u)
    >>> short, _ = layer(u, lengths=torch.tensor([5, 4, 2]))
    >>> outputs.shape, torch.allclose(short[2, :2], layer(u[2, :2])[0], atol=1e-6)
    (torch.Size([3, 5, 16]), True)
    """

    name = "transformer"
    Settings = AttentionSettings
    recurrent = False
    has_output_projection = True
    emulates = (
        "Transformers of log precision compute only functions in TC0 (Merrill and Sabharwal 2023); at each fixed "
        "length T there are some of depth O(log T) for any semiautomaton, and of a depth independent of T for a "
        "solvable one (Liu et al. 2023). Neither is about randomised positions."
    )
    settings: AttentionSettings

    def __init__(self, width: int, settings: AttentionSettings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or AttentionSettings()
        super().__init__(width, settings)
        if width % (2 * settings.heads):
            raise SettingsError(
                f"heads is {settings.heads}, but the width is {width}; heads must divide it into even sizes, since "
                "positions turn pairs of entries"
            )
        self.queries_keys_values = truncated_normal((3 * width, width), generator)
        self.projection = truncated_normal((width, width), generator)
        self.register_buffer("draw", torch.randint(PRIME, (), generator=generator))
        self.draw: Tensor

    @property
    def causal(self) -> bool:  # type: ignore[override]  # here a setting decides
        """Whether an output depends on no later input."""
        return self.settings.causal_mask

    @property
    def outputs(self) -> int:
        """Entries of an output: as many as of an input."""
        return self.width

    @property
    def longest(self) -> int:
        """As many inputs as there are positions."""
        return self.settings.positions

    @property
    def numbers(self) -> int:
        """Queries, keys, values, turned and gathered. Who only reads has weights in memory where heads are narrow:
        fused attention takes vectors that lie a multiple of 16 bytes apart."""
        fused = self.width // self.settings.heads % 4 == 0
        return 8 * self.width + (0 if fused else 2 * self.settings.heads * TYPICAL_LENGTH)

    @property
    def pairs(self) -> int:
        return 2 * self.settings.heads  # scores and weights

    def chance(self, length: int) -> tuple[int]:
        """A number for each position: the sequence stands where the smallest are."""
        return (self.settings.positions,)

    def parts(self, u: Tensor) -> tuple[Tensor]:
        """u (..., D) -> query, key and value of each head, (..., 3, H, S)."""
        heads = self.settings.heads
        found = linear(u, self.queries_keys_values)
        return (found.reshape(*u.shape[:-1], 3, heads, self.width // heads),)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: State = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """Queries, keys and values (B, L, 3, H, S), noise (positions,) -> outputs (B, L, D), and no state."""
        if state is not None:
            raise ModelError(f"{self.name} has no state to go on from; give it whole sequences")
        (found,) = parts
        length, size = found.shape[1], found.shape[-1]
        self.check_length(length)
        places = self.places(length, lengths, noise, found.device)
        turned, v = torch.split(found, [2, 1], dim=2)
        # Both are made shorter as they turn, which costs nothing.
        q, k = rotate(turned, places[..., None, None], size**-0.25).permute(2, 0, 3, 1, 4)  # (B, H, L, S)
        v = v.squeeze(2).transpose(1, 2)
        hidden = self._hidden(length, lengths)
        if hidden is not None:
            # Finite, so that a row without any input is a mean of something and not NaN; and added, since then the
            # gradient has nothing to do: where nobody looks it is 0 already.
            hidden = hidden.to(q.dtype) * torch.finfo(q.dtype).min
        heard = attend(q, k, v, hidden)
        return linear(heard.transpose(1, 2).flatten(2), self.projection), None

    def places(self, length: int, lengths: Tensor | None, noise: Tensor | None, device: torch.device) -> Tensor:
        """Where inputs stand: (1, L) or (B, L), rising along each row. Past its end they stand at `positions`."""
        many = self.settings.positions
        if noise is None:
            ends = torch.full((1,), length, device=device) if lengths is None else lengths
            noise = self._fixed(ends, torch.arange(many, device=device))
        order = noise.argsort(dim=-1, stable=True)[..., :length]
        if lengths is not None:
            order = order.masked_fill(integers(order, 0, length) >= lengths[:, None], many)
        return order.sort(dim=-1).values.reshape(-1, length)

    def _fixed(self, ends: Tensor, places: Tensor) -> Tensor:
        """Numbers (B, P) as if by chance, for rows by their length: whole-number arithmetic, the same on any device.

        A generator would need the lengths on the host, which may not wait for them.
        """
        return _hash(_hash(_hash(self.draw) + ends)[:, None] + places)

    def _hidden(self, length: int, lengths: Tensor | None) -> Tensor | None:
        """Which keys are not looked at, (B or 1, 1, L or 1, L)."""
        steps = integers(self.draw if lengths is None else lengths, 0, length)
        past = None if lengths is None else (steps >= lengths[:, None])[:, None, None]
        later = (steps > steps[:, None])[None, None] if self.settings.causal_mask else None
        if past is None or later is None:
            return later if past is None else past
        return past | later


def attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
    """softmax(q k^T + hidden) v: (..., L, S) each, hidden broadcasts to (..., L, L).

    Where nothing is trained torch's fused attention does it, which has no L x L weights in memory. It runs replicas one
    by one on a CPU, and its gradients on a GPU need not repeat, so training takes plain products.
    """
    if not torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active():
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden, scale=1.0)
    scores = q @ k.mT
    return torch.softmax(scores if hidden is None else scores + hidden, dim=-1) @ v


@cached_table
def frequencies(size: int) -> Tensor:
    """By how much each pair of a head of size S turns from a place to the next, (S / 2,)."""
    return BASE ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)


def rotate(x: Tensor, places: Tensor, length: float = 1.0) -> Tensor:
    """Vectors (..., S) with their adjacent pairs turned by their places (...), and `length` times as long.

    >>> quarter = torch.tensor(torch.pi / 2)
    >>> rotate(torch.tensor([1.0, 0.0]), quarter).round(decimals=3).tolist()
    [-0.0, 1.0]
    """
    # A pair is a complex number: one product turns it, and one more its gradient. There are none of 16 bits.
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    angles = places[..., None] * frequencies(wide, x.shape[-1])
    turn = torch.polar(torch.full_like(angles, length), angles)
    pairs = torch.view_as_complex(wide.reshape(*x.shape[:-1], x.shape[-1] // 2, 2))
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


def _hash(x: Tensor) -> Tensor:
    """x^5 modulo a prime: different numbers stay different, and neighbours part."""
    x = x % PRIME
    square = x * x % PRIME
    return square * square % PRIME * x % PRIME


def truncated_normal(shape: tuple[int, int], generator: torch.Generator) -> nn.Parameter:
    """N(0, 1 / inputs) without what lies beyond two standard deviations, as Haiku starts a linear map."""
    std = shape[1] ** -0.5
    drawn = torch.nn.init.trunc_normal_(torch.empty(shape), std=std, a=-2 * std, b=2 * std, generator=generator)
    return nn.Parameter(drawn)
