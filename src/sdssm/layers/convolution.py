"""Linear time-invariant maps for each channel, y = K * u + D u, and their state-space systems.

The kernel of a system x_l = Abar x_{l-1} + Bbar u_l, y_l = C x_l is K_l = C Abar^l Bbar. Such a system can also step,
and continue from a state.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sdssm.layers import initial
from sdssm.layers.channels import (
    ChannelsFirst,
    convolve_with_skip,
    integers,
    linear_over_channels,
    reversed_one_hot,
    swap_channels,
    with_skip,
)
from sdssm.layers.mixer import MixerState
from sdssm.layers.settings import ModeSettings
from sdssm.ops.backend import has_fast_kernels, has_kernels
from sdssm.ops.modes import MOST_TAPS, modal_taps
from sdssm.ops.modes.reference import DISCRETISATIONS
from sdssm.ops.products import product
from sdssm.ops.tables import cached_table


class Convolution(nn.Module, ABC):
    """Base class of convolutions y = K * u + D u with a kernel for every length; initially D ~ N(0, 1)."""

    def __init__(self, width: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.skip = initial.normal((width,), generator)

    @abstractmethod
    def kernel(self, length: int) -> Tensor:
        """Return the first taps (D, length), or fewer if the kernel is shorter."""

    def filter_inputs(self, u: Tensor) -> Tensor:
        """Convolve inputs: u (D, L, B) -> (D, L, B)."""
        return convolve_with_skip(u, self.kernel(u.shape[1]), self.skip)

    def query_outputs(self, u: Tensor, query: Tensor) -> Tensor:
        """Return the output for query t after inputs 0..t, for every t: u and query (D, L, B) -> (D, L, B).

        The first tap acts on the query, the others on the inputs before it.
        """
        kernel = self.kernel(u.shape[1] + 1)
        first, others = kernel[:, 0] + self.skip, kernel[:, 1:]
        return first[:, None, None] * query + convolve_with_skip(u, others, torch.zeros_like(self.skip))


class LtiSystem(Convolution):
    """A convolution that is a linear time-invariant (LTI) system; its state can be carried, None is zero."""

    @abstractmethod
    def state_response(self, state: Tensor, length: int) -> Tensor:
        """Return what a state adds to the next outputs, C Abar^{l+1} x: (B, D, N) -> (D, length, B)."""

    @abstractmethod
    def final_state(self, u: Tensor, state: Tensor | None) -> Tensor:
        """Return the state after inputs u (D, L, B)."""

    @abstractmethod
    def advance(self, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Run one step without D u: u (B, D) -> C x (B, D) and the next state x."""

    def run(self, u: Tensor, state: Tensor | None, *, carry: bool) -> tuple[Tensor, Tensor | None]:
        """Run over inputs u (D, L, B) -> y (D, L, B), and with `carry` the final state."""
        y = self.filter_inputs(u)
        if state is not None:
            y = y + self.state_response(state, u.shape[1])
        return y, self.final_state(u, state) if carry else None

    def query_outputs(self, u: Tensor, query: Tensor, state: Tensor | None = None) -> Tensor:
        """As in `Convolution`, with inputs that continue from a state."""
        y = super().query_outputs(u, query)
        return y if state is None else y + self.state_response(state, u.shape[1] + 1)[:, 1:]

    def step(self, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Run one step: u (B, D) -> y (B, D) and the next state."""
        y, state = self.advance(u, state)
        return y + self.skip * u, state


class ModalSystem(LtiSystem):
    """A system x' = A x + B u, y = 2 Re(C x) with M complex modes for each channel and time step dt.

    The eigenvalues of A are -exp(log_decay) + i frequency, so every mode decays. Initially C ~ complex N(0, 1) and dt
    is log-uniform. Complex parameters are stored as (2, D, M): real parts, imaginary parts.
    """

    def __init__(self, width: int, eigenvalues: Tensor, settings: ModeSettings, *, generator: torch.Generator) -> None:
        """Initialise every channel with `eigenvalues` (M,)."""
        super().__init__(width, generator=generator)
        low, high = math.log(settings.dt_min), math.log(settings.dt_max)
        self.log_dt = nn.Parameter(torch.rand(width, generator=generator) * (high - low) + low)
        self.log_decay = repeated((-eigenvalues.real).log(), width)
        self.frequency = repeated(eigenvalues.imag, width)
        self.C = nn.Parameter(torch.randn((2, width, len(eigenvalues)), generator=generator) / 2**0.5)

    @property
    def dt(self) -> Tensor:
        """The time step of each channel."""
        return self.log_dt.exp()[:, None]  # (D, 1)

    @property
    def eigenvalues(self) -> Tensor:
        """The eigenvalues of each channel."""
        return torch.complex(-self.log_decay.exp(), self.frequency)  # (D, M)


class DiagonalSystem(ModalSystem):
    """A system with diagonal A: Abar = exp(rate), so every power of it has a closed form.

    >>> from sdssm.layers.s4d import s4d_lin
    >>> system = DiagonalSystem(3, s4d_lin(8), ModeSettings(), "bilinear", generator=torch.Generator().manual_seed(0))
    >>> system.kernel(100).shape
    torch.Size([3, 100])
    """

    def __init__(
        self,
        width: int,
        eigenvalues: Tensor,
        settings: ModeSettings,
        discretisation: str,
        *,
        input_matrix: bool = False,
        generator: torch.Generator,
    ) -> None:
        """Initialise B to 1; it is trained only with `input_matrix`.

        `discretisation` is "zero-order-hold" or "bilinear".
        """
        super().__init__(width, eigenvalues, settings, generator=generator)
        self.discretisation = discretisation
        ones = torch.ones(len(eigenvalues))
        self.B = repeated(torch.stack([ones, 0 * ones]), width) if input_matrix else None

    def _discrete(self) -> tuple[Tensor, Tensor]:
        """Return log Abar and Bbar, both (D, M)."""
        rate, gain = DISCRETISATIONS[self.discretisation](self.dt, self.eigenvalues)
        return rate, gain if self.B is None else gain * as_complex(self.B)

    def kernel(self, length: int) -> Tensor:
        if length <= MOST_TAPS and has_fast_kernels(self.log_dt):
            parameters = self.log_dt, self.log_decay, self.frequency, self.C, self.B
            return modal_taps(*parameters, length=length, discretisation=self.discretisation)
        # 2 Re(w z) is the real product of (2 Re w, -2 Im w) and (Re z, Im z), which needs no complex kernels.
        rate, gain = self._discrete()
        rows = torch.view_as_real(powers(rate, 0, length)).flatten(-2)  # (D, L, 2M)
        weights = torch.view_as_real(as_complex(self.C) * gain)
        return (rows @ (weights * twice_conjugate(weights)).flatten(-2)[..., None]).squeeze(-1)

    def state_response(self, state: Tensor, length: int) -> Tensor:
        rows = powers(self._discrete()[0], 1, length) * as_complex(self.C)[:, None]  # (D, L, M)
        return 2 * torch.einsum("bdm,dlm->dlb", state, rows).real

    def final_state(self, u: Tensor, state: Tensor | None) -> Tensor:
        length = u.shape[1]
        rate, gain = self._discrete()
        x = torch.einsum("dlb,dlm->bdm", u.flip(1).to(rate.dtype), powers(rate, 0, length)) * gain
        return x if state is None else x + (rate * length).exp() * state

    def advance(self, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        rate, gain = self._discrete()
        x = gain * u[..., None]  # (B, D, M)
        x = x if state is None else x + rate.exp() * state
        return 2 * (as_complex(self.C) * x).real.sum(-1), x


@cached_table
def twice_conjugate() -> Tensor:
    """Return the factors that turn a pair (Re w, Im w) into that of 2 conj(w)."""
    return torch.tensor([2.0, -2.0])


def powers(rate: Tensor, first: int, count: int) -> Tensor:
    """Return exp(rate l) for l = first, first + 1, ..: (..., M) -> (..., count, M).

    On a CPU from real numbers: torch computes the exponential of complex ones without vector instructions.
    """
    steps = integers(rate.real, first, count)[:, None]
    if rate.device.type != "cpu":
        return (rate[..., None, :] * steps).exp()
    sizes, angles = (rate.real[..., None, :] * steps).exp(), rate.imag[..., None, :] * steps
    return torch.complex(sizes * angles.cos(), sizes * angles.sin())


def as_complex(parts: Tensor) -> Tensor:
    """Return real and imaginary parts (2, ...) as a complex tensor (...).

    It is a copy: a parameter that is a slice of a larger buffer may not be aligned for a complex view.
    """
    return torch.view_as_complex(parts.movedim(0, -1).clone(memory_format=torch.contiguous_format))


def repeated(values: Tensor, width: int) -> nn.Parameter:
    """Return a parameter (..., D, M) with the same initial values (..., M) for every channel."""
    return nn.Parameter(values[..., None, :].repeat(*[1] * (values.dim() - 1), width, 1).float())


class LtiMixer(ChannelsFirst):
    """Base class of S4 and S4D: a system for each channel, GELU, and a gated linear map across channels."""

    emulates = (
        "Its transitions do not depend on the inputs. In log precision it is in TC0 and, unless TC0 = NC1, tracks no "
        "non-solvable group such as A5 at all lengths (Merrill et al. 2024)."
    )
    system: LtiSystem

    def __init__(self, width: int, settings: ModeSettings, *, generator: torch.Generator) -> None:
        super().__init__(width, settings)
        self.output = initial.linear(width, 2 * width, generator)

    @property
    def numbers_per_symbol(self) -> int:
        return 12 * self.width  # two spectra of twice the length, the inverse transform, and those of a query

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        return (u,)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, MixerState]:
        y, state = self.system.run(swap_channels(parts[0]), state, carry=carry)
        return self._read(y), state

    def mix_query(self, parts: tuple[Tensor, ...], query_parts: tuple[Tensor, ...], state: MixerState = None) -> Tensor:
        return self._read(self.system.query_outputs(swap_channels(parts[0]), swap_channels(query_parts[0]), state))

    def end(self, table: Tensor, one_hot: Tensor) -> Tensor:
        return self._read_channels(self._end_of_systems(table, one_hot)[:, None])

    def end_of_strings(self, table: Tensor, tokens: Tensor, lengths: Tensor | None) -> Tensor:
        if not has_kernels(table):
            return super().end_of_strings(table, tokens, lengths)
        y = self._end_of_systems(table, reversed_one_hot(tokens, lengths, table)).mT  # (B, D)
        return self._read_rows(y)[:, None]

    def _end_of_systems(self, table: Tensor, one_hot: Tensor) -> Tensor:
        """Return the outputs of the systems at the end of strings, (D, B), see `end`."""
        # The taps act on one-hot vectors, of which there are fewer than channels; then a symbol weights its sum.
        taps = with_skip(self.system.kernel(one_hot.shape[1]), self.system.skip)
        sums = product(taps, one_hot.transpose(0, 1).flatten(1)).reshape(len(taps), len(table), -1)  # (D, V, B)
        return (table.mT[..., None] * sums).sum(1)

    def _read(self, y: Tensor) -> Tensor:
        """Map outputs of the systems (D, L, B) to outputs of the layer (B, L, D)."""
        return swap_channels(self._read_channels(y))

    def _read_channels(self, y: Tensor) -> Tensor:
        """Map outputs of the systems (D, L, B) to outputs of the layer (D, L, B)."""
        return nn.functional.glu(linear_over_channels(self.output, nn.functional.gelu(y)), 0)

    def _read_rows(self, y: Tensor) -> Tensor:
        """Map outputs of the systems (B, D) to outputs of the layer (B, D)."""
        return nn.functional.glu(self.output(nn.functional.gelu(y)))

    def mix_step(self, u: Tensor, state: MixerState = None) -> tuple[Tensor, MixerState]:
        y, state = self.system.step(u, state)
        return self._read_rows(y), state
