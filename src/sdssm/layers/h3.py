"""H3: a shift system and a diagonal system with two multiplicative gates (Fu et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdssm.layers import initial
from sdssm.layers.channels import (
    SHORT,
    ChannelsFirst,
    advance_matrices,
    apply_matrices,
    convolve,
    final_sum,
    linear_over_channels,
    swap_channels,
)
from sdssm.layers.convolution import DiagonalSystem, LtiSystem
from sdssm.layers.mixer import MixerState
from sdssm.layers.s4d import s4d_lin
from sdssm.layers.settings import H3Settings
from sdssm.ops.backend import has_fast_kernels
from sdssm.ops.gated import gated_end
from sdssm.ops.linear import linear_map
from sdssm.ops.products import product
from sdssm.ops.shift import MOST_STATES, MOST_TAPS, shift_taps
from sdssm.ops.tables import cached_table

#: Up to this state size a short kernel is computed by a product with a 0/1 matrix of N^2 L entries.
SMALL_STATE = 64


@cached_table
def shifted_rows(places: int, taps: int) -> Tensor:
    """Return a tensor (N, taps, N) that maps C to C_{i+l} at (l, i), and to 0 past the end of C."""
    return torch.stack([torch.eye(places).roll(-l, 1).tril() for l in range(taps)], 1)  # noqa: E741  # a time


class ShiftSystem(LtiSystem):
    """The shift SSM, x_l = S x_{l-1} + B u_l and y = C x, where S shifts x by one entry.

    The kernel K_l = sum_i C_{i+l} B_i has N taps, so the last N inputs determine x. They are the state (B, D, N), with
    the latest input last. B is initialised to the first unit vector, C uniform on +-1/sqrt(N).
    """

    def __init__(self, width: int, places: int, *, generator: torch.Generator) -> None:
        super().__init__(width, generator=generator)
        first = torch.zeros(width, places)
        first[:, 0] = 1
        self.B = nn.Parameter(first)
        self.C = initial.uniform((width, places), places**-0.5, generator)

    @property
    def places(self) -> int:
        """The number of taps, N."""
        return self.C.shape[-1]

    def kernel(self, length: int) -> Tensor:
        taps = min(length, self.places)
        if taps <= MOST_TAPS and self.places <= MOST_STATES and has_fast_kernels(self.C):
            return shift_taps(self.B, self.C, length=taps)
        if taps <= SHORT and self.places <= SMALL_STATE:
            rows = (self.C @ shifted_rows(self.C, self.places, taps).flatten(1)).reshape(len(self.C), taps, self.places)
            kernel: Tensor = (rows @ self.B[..., None]).squeeze(-1)
            return kernel
        # A correlation is a convolution of the reversed C, reversed again.
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


class H3(ChannelsFirst):
    """H3, W_o(q * diagonal(shift(k) * v)), where q, k, v are linear in u and both functions are systems.

    Both systems add D u to their outputs. The diagonal system is that of S4D with Lin frequencies, the bilinear
    discretisation and a trained B. Heads have size 1. Fu et al. 2023, "Hungry Hungry
    Hippos: Towards Language Modeling with State Space Models".

    >>> layer = H3(3, generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(2, 10, 3)
    >>> outputs, final = layer(u)
    >>> first, state = layer(u[:, :4])
    >>> rest, state = layer(u[:, 4:], state)
    >>> torch.allclose(outputs, torch.cat([first, rest], dim=1), atol=1e-5), outputs.shape
    (True, torch.Size([2, 10, 3]))
    """

    name = "h3"
    Settings = H3Settings
    emulates = (
        "The transitions of its two recurrences do not depend on the inputs and its products are local. In log "
        "precision it is in TC0 and, unless TC0 = NC1, tracks no non-solvable group such as A5 at all lengths (after "
        "Merrill et al. 2024)."
    )

    def __init__(self, width: int, settings: H3Settings | None = None, *, generator: torch.Generator) -> None:
        settings = settings or H3Settings()
        super().__init__(width, settings)
        self.q, self.k, self.v, self.output = (initial.linear(width, width, generator) for _ in range(4))
        self.shift = ShiftSystem(width, settings.state, generator=generator)
        self.diagonal = DiagonalSystem(
            width, s4d_lin(settings.state), settings, "bilinear", input_matrix=True, generator=generator
        )

    @property
    def numbers_per_symbol(self) -> int:
        return 16 * self.width  # q, k, v, two spectra of twice the length, the inverse transforms, and a query

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        # One product for all three, so that later operations run once.
        maps = (self.q, self.k, self.v)
        weight, bias = torch.cat([layer.weight for layer in maps]), torch.cat([layer.bias for layer in maps])
        return (linear_map(u, weight, bias),)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, MixerState]:
        q, k, v = swap_channels(parts[0]).chunk(3)  # (D, L, B)
        inputs, modes = state or (None, None)
        k, inputs = self.shift.run(k, inputs, carry=carry)
        y, modes = self.diagonal.run(k * v, modes, carry=carry)
        return swap_channels(linear_over_channels(self.output, y * q)), (inputs, modes) if carry else None

    def end_of_strings(self, table: Tensor, tokens: Tensor, lengths: Tensor | None) -> Tensor:
        if not has_fast_kernels(table):
            return super().end_of_strings(table, tokens, lengths)
        shift, diagonal = (system.kernel(tokens.shape[1]) for system in (self.shift, self.diagonal))
        y = gated_end(table, shift, self.shift.skip, diagonal, self.diagonal.skip, tokens, lengths)
        return self.output(y)[:, None]  # type: ignore[no-any-return]  # a module's

    def end(self, table: Tensor, one_hot: Tensor) -> Tensor:
        length = one_hot.shape[1]
        q_table, others = table.mT[: self.width], table.mT[self.width :]
        k, v = product(others, one_hot.flatten(1)).reshape(-1, *one_hot.shape[1:]).chunk(2)  # (D, L, B)
        weights = torch.cat([self.shift.skip[:, None], self.shift.kernel(length)], 1)
        shifted = apply_matrices(weights, advance_matrices(k, length)[: weights.shape[1]], k)
        y = final_sum(shifted * v, self.diagonal.kernel(length), self.diagonal.skip)
        q = product(q_table, one_hot[:, 0])[:, None]  # (D, 1, B)
        return linear_over_channels(self.output, y * q)

    def mix_query(self, parts: tuple[Tensor, ...], query_parts: tuple[Tensor, ...], state: MixerState = None) -> Tensor:
        _, k, v = swap_channels(parts[0]).chunk(3)
        q, query_k, query_v = swap_channels(query_parts[0]).chunk(3)
        inputs, modes = state or (None, None)
        query = self.shift.query_outputs(k, query_k, inputs) * query_v
        past = self.shift.run(k, inputs, carry=False)[0] * v
        return swap_channels(linear_over_channels(self.output, self.diagonal.query_outputs(past, query, modes) * q))

    def mix_step(self, u: Tensor, state: MixerState = None) -> tuple[Tensor, MixerState]:
        q, k, v = self.parts(u)[0].chunk(3, -1)
        inputs, modes = state or (None, None)
        k, inputs = self.shift.step(k, inputs)
        y, modes = self.diagonal.step(k * v, modes)
        return self.output(q * y), (inputs, modes)
