"""H3 (Fu et al., "Hungry Hungry Hippos: Towards Language Modeling with State Space Models", 2023), heads of size 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sdssm.layers import initial
from sdssm.layers.channels import SHORT, ChannelsFirst, cached_table, channels, convolve, linear_over_channels
from sdssm.layers.convolution import DiagonalSystem, LtiSystem, ModeSettings, bilinear
from sdssm.layers.mixer import State
from sdssm.layers.s4d import s4d_lin
from sdssm.ops.products import linear

#: Up to so many places a short kernel is a product too: laying it out is one with a matrix of N^2 L zeros and ones.
FEW_PLACES = 64


@cached_table
def shifted_rows(places: int, taps: int) -> Tensor:
    """(N, taps, N), which takes C to C_{i+l} at (l, i), and to 0 past its end."""
    return torch.stack([torch.eye(places).roll(-l, 1).tril() for l in range(taps)], 1)  # noqa: E741  # a time


class ShiftSystem(LtiSystem):
    """A delay line of N places: x_l = S x_{l-1} + B u_l with S shifting by one place, y = C x.

    Its kernel K_l = sum_i C_{i+l} B_i ends after N taps, so that the last N inputs say as much as x does: they are the
    state (B, D, N), the latest one last. B begins as the first unit vector, C uniform on +-1/sqrt(N).
    """

    def __init__(self, width: int, places: int, *, generator: torch.Generator) -> None:
        super().__init__(width, generator=generator)
        first = torch.zeros(width, places)
        first[:, 0] = 1
        self.B = nn.Parameter(first)
        self.C = initial.uniform((width, places), places**-0.5, generator)

    @property
    def places(self) -> int:
        return self.C.shape[-1]

    def kernel(self, length: int) -> Tensor:
        taps = min(length, self.places)
        if taps <= SHORT and self.places <= FEW_PLACES:
            rows = (self.C @ shifted_rows(self.C, self.places, taps).flatten(1)).reshape(len(self.C), taps, self.places)
            found: Tensor = (rows @ self.B[..., None]).squeeze(-1)
            return found
        # Correlation is convolution with C read backwards, and read backwards again.
        return convolve(self.C.flip(-1), self.B).flip(-1)[..., :length]

    def state_response(self, state: Tensor, length: int) -> Tensor:
        longer = convolve(nn.functional.pad(state, (0, length)), self.kernel(self.places))  # (B, D, N + L)
        return longer[..., self.places :].permute(1, 2, 0)

    def final_state(self, u: Tensor, state: Tensor | None) -> Tensor:
        u = u.permute(2, 0, 1)
        before = u.new_zeros(*u.shape[:-1], self.places) if state is None else state
        return torch.cat([before, u], dim=-1)[..., -self.places :]

    def advance(self, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        inputs = self.final_state(u.mT[:, None], state)
        return (inputs * self.kernel(self.places).flip(-1)).sum(-1), inputs


@dataclass(frozen=True, kw_only=True)
class H3Settings(ModeSettings):
    """What tells one H3 from another: `state` is N of both systems."""


class H3(ChannelsFirst):
    """out = W_o(q * diagonal(shift(k) * v)): q, k and v are linear in u, shift and diagonal are systems with D u added.

    The diagonal system is S4D's with Lin frequencies, the bilinear discretisation and a B that is trained.

    >>> layer = H3(3, generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(2, 10, 3)
    >>> whole, final = layer(u)
    >>> first, state = layer(u[:, :4])
    >>> rest, state = layer(u[:, 4:], state)
    >>> torch.allclose(whole, torch.cat([first, rest], dim=1), atol=1e-5), whole.shape
    (True, torch.Size([2, 10, 3]))
    """

    name = "h3"
    Settings = H3Settings
    has_output_projection = True
    can_query = True
    emulates = (
        "its two recurrences do not depend on its inputs and its products are local, so at precision logarithmic in "
        "the length it stays in TC0 and, unless TC0 = NC1, tracks no non-solvable group such as A5 at all lengths "
        "(after Merrill et al. 2024)"
    )

    def __init__(self, width: int, settings: H3Settings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or H3Settings()
        super().__init__(width, settings)
        self.q, self.k, self.v, self.output = (initial.linear(width, width, generator) for _ in range(4))
        self.shift = ShiftSystem(width, settings.state, generator=generator)
        self.diagonal = DiagonalSystem(
            width, s4d_lin(settings.state), settings, bilinear, input_matrix=True, generator=generator
        )

    @property
    def outputs(self) -> int:
        return self.width

    @property
    def numbers(self) -> int:
        return 16 * self.width  # q, k, v, two spectra of twice the length, what comes back, and a query's beside it

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        # In one product: what follows is paid once for all three.
        maps = (self.q, self.k, self.v)
        weight, bias = torch.cat([one.weight for one in maps]), torch.cat([one.bias for one in maps])
        return (linear(u, weight, bias),)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: State = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        q, k, v = channels(parts[0]).chunk(3)  # (D, L, B)
        inputs, modes = state or (None, None)
        k, inputs = self.shift.run(k, inputs, carry=carry)
        y, modes = self.diagonal.run(k * v, modes, carry=carry)
        return channels(linear_over_channels(self.output, y * q)), (inputs, modes) if carry else None

    def mix_query(self, parts: tuple[Tensor, ...], asked: tuple[Tensor, ...], state: State = None) -> Tensor:
        _, k, v = channels(parts[0]).chunk(3)
        q, own_k, own_v = channels(asked[0]).chunk(3)
        inputs, modes = state or (None, None)
        own = self.shift.mix_query(k, own_k, inputs) * own_v
        past = self.shift.run(k, inputs, carry=False)[0] * v
        return channels(linear_over_channels(self.output, self.diagonal.mix_query(past, own, modes) * q))

    def one(self, u: Tensor, state: State = None) -> tuple[Tensor, State]:
        q, k, v = self.parts(u)[0].chunk(3, -1)
        inputs, modes = state or (None, None)
        k, inputs = self.shift.step(k, inputs)
        y, modes = self.diagonal.step(k * v, modes)
        return self.output(q * y), (inputs, modes)
