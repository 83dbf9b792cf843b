"""The two recurrent networks that are not linear in their state: a ReLU Elman network and an LSTM."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sdssm.errors import ModelError, SettingsError
from sdssm.layers import initial
from sdssm.layers.mixer import Mixer, MixerSettings, State
from sdssm.ops.backend import TRITON_LARGEST_STATE
from sdssm.ops.elman import elman_scan, elman_step, torch_reads, torch_rnn
from sdssm.ops.lstm import lstm_scan, lstm_step, torch_lstm
from sdssm.ops.products import linear
from sdssm.settings import check_between, check_one_of, check_settings

INITIAL_STATES = ("zero", "learned", "given")


@dataclass(frozen=True, kw_only=True)
class RnnSettings(MixerSettings):
    """What tells one RNN from another."""

    state: int = 64  #: n, entries of the state
    initial_state: str = "zero"  #: zero, learned, or given with each call

    def __post_init__(self) -> None:
        check_settings(self)
        check_between("state", self.state, 1, TRITON_LARGEST_STATE)  # a GPU's kernels take no more
        check_one_of("initial_state", self.initial_state, INITIAL_STATES)


@dataclass(frozen=True, kw_only=True)
class LstmSettings(RnnSettings):
    """What tells one LSTM from another."""


class RecurrentNetwork(Mixer):
    """What the two share: weights as torch has them, all uniform on +-1/sqrt(n), and the drive that an input becomes.

    On the CPU torch's own networks read the inputs, where it is one model that reads (`torch_reads`): a training step
    at batch 128, L = 20, n = 64, two symbols takes 9 ms for an LSTM and 13 ms through `lstm_scan`; an RNN takes 3 ms
    either way. They map inputs to drives themselves, and handing them drives through an identity matrix would more
    than double the time; so there `parts` leaves inputs (..., D) as they are. In all other cases it gives drives
    (..., G, N) of G gates, which for symbols are V rows; `mix` tells one from the other by the number of dimensions.
    """

    gates: ClassVar[int]
    starts: ClassVar[int]  # vectors that make up a state
    settings: RnnSettings

    def __init__(self, width: int, settings: Any = None, *, generator: torch.Generator) -> None:
        settings = settings or self.Settings()
        super().__init__(width, settings)
        n = settings.state
        rows, bound = self.gates * n, n**-0.5
        self.input_weight = initial.uniform((rows, width), bound, generator)
        self.recurrent_weight = initial.uniform((rows, n), bound, generator)
        self.input_bias = initial.uniform((rows,), bound, generator)
        self.recurrent_bias = initial.uniform((rows,), bound, generator)
        learned = settings.initial_state == "learned"
        self.initial_state = initial.uniform((self.starts * n,), bound, generator) if learned else None

    @property
    def outputs(self) -> int:
        """Entries of an output: as many as of the state."""
        return self.settings.state

    @property
    def numbers(self) -> int:
        """The drive, and the vectors of a state."""
        return max(self.width, (self.gates + self.starts) * self.settings.state)

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """In torch's order."""
        return self.input_weight, self.recurrent_weight, self.input_bias, self.recurrent_bias

    def drive(self, u: Tensor) -> Tensor:
        """W_i u + b_i + b_h: (..., D) -> (..., G N)."""
        return linear(u, self.input_weight, self.input_bias + self.recurrent_bias)

    def parts(self, u: Tensor) -> tuple[Tensor]:
        """Drives (..., G, N), or the inputs (..., D) where torch maps them itself."""
        if torch_reads(u):
            return (u,)
        drive = self.drive(u)
        return (drive.reshape(*drive.shape[:-1], self.gates, self.settings.state),)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: State = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Drives (B, L, G, N) or inputs (B, L, D), a state -> h (B, L, N), the state after them."""
        (given,) = parts
        start = self._start(state)
        if given.dim() == 4:
            outputs, after = self.scan(given.flatten(-2), start, lengths)
        else:
            outputs, after = self.read(given, start)
            if lengths is not None:
                past = torch.arange(given.shape[1], device=given.device) >= lengths[:, None]
                outputs = outputs.masked_fill(past[..., None], 0)
        return outputs, after if carry and lengths is None else None

    @abstractmethod
    def scan(self, drive: Tensor, start: list[Tensor | None], lengths: Tensor | None) -> tuple[Tensor, State]:
        """Outputs and the state after them, from drives (B, L, G N)."""

    @abstractmethod
    def read(self, u: Tensor, start: list[Tensor | None]) -> tuple[Tensor, State]:
        """The same from inputs (B, L, D), by torch's own network."""

    def _start(self, state: State) -> list[Tensor | None]:
        """The vectors to start from; None is zero."""
        if state is None:
            if self.settings.initial_state == "given":
                raise SettingsError("initial_state is 'given' but no state was; pass state=")
            return [None] * self.starts if self.initial_state is None else list(self.initial_state.chunk(self.starts))
        # One vector for all: where the state of an automaton is embedded, an LSTM's cell starts from it as well.
        vectors = [state] * self.starts if isinstance(state, Tensor) else list(state)
        n = self.settings.state
        if len(vectors) != self.starts or any(vector.shape[-1] != n for vector in vectors):
            shapes = ", ".join(str(tuple(vector.shape)) for vector in vectors)
            raise ModelError(f"the state of {self.name} is {self.starts} x (..., {n}), and {shapes} was given")
        return vectors

    def _first(self, u: Tensor, state: State) -> list[Tensor]:
        """The same for a step with inputs (B, D): (B, N) each."""
        zero = u.new_zeros(self.settings.state)
        return [(zero if one is None else one).expand(len(u), -1) for one in self._start(state)]


class Rnn(RecurrentNetwork):
    """h_t = relu(W_i u_t + b_i + W_h h_{t-1} + b_h), the output at every step: `nn.RNN` of one layer with ReLU.

    >>> layer = Rnn(3, generator=torch.Generator().manual_seed(0))
    >>> outputs, state = layer(torch.randn(2, 10, 3))
    >>> outputs.shape, torch.equal(outputs[:, -1], state)
    (torch.Size([2, 10, 64]), True)
    """

    name = "rnn"
    Settings = RnnSettings
    emulates = (
        "Every automaton of |Q| states, exactly, with |Q| |V| entries: entry (q, a) is relu([the state is q] + "
        "[the symbol is a] - 1), as Minsky (1967) did with threshold units."
    )
    gates, starts = 1, 1

    def scan(self, drive: Tensor, start: list[Tensor | None], lengths: Tensor | None) -> tuple[Tensor, State]:
        """Outputs and the state after them, from drives (B, L, N)."""
        return elman_scan(self.recurrent_weight, drive, start[0], lengths=lengths)

    def read(self, u: Tensor, start: list[Tensor | None]) -> tuple[Tensor, State]:
        """The same from inputs (B, L, D), by torch."""
        return torch_rnn(u, self.weights, start[0])

    def one(self, u: Tensor, state: State = None) -> tuple[Tensor, Tensor]:
        """u (B, D), a state (B, N) -> the state after it, twice: it is the output."""
        x = elman_step(self.recurrent_weight, self.drive(u), *self._first(u, state))
        return x, x


class Lstm(RecurrentNetwork):
    """c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g), h_t = sigmoid(o) tanh(c_t): `nn.LSTM` of one layer.

    i, f, g and o are parts of W_i u_t + b_i + W_h h_{t-1} + b_h; h_t is the output at every step.
    The state is the pair (h, c), each (..., N). A single tensor stands for a pair that starts from the same vector.

    >>> layer = Lstm(3, LstmSettings(state=5), generator=torch.Generator().manual_seed(0))
    >>> outputs, (h, c) = layer(torch.randn(2, 10, 3))
    >>> outputs.shape, torch.equal(outputs[:, -1], h), sum(p.numel() for p in layer.parameters())
    (torch.Size([2, 10, 5]), True, 200)
    """

    name = "lstm"
    Settings = LstmSettings
    emulates = (
        "Every automaton, where weights are large enough to saturate the gates: h is then a layer of threshold units "
        "(Minsky 1967; Merrill 2019, arXiv 1906.01615)."
    )
    gates, starts = 4, 2
    settings: LstmSettings

    def scan(self, drive: Tensor, start: list[Tensor | None], lengths: Tensor | None) -> tuple[Tensor, State]:
        """Outputs and the state after them, from drives (B, L, 4N)."""
        states, final, cell = lstm_scan(self.recurrent_weight, drive, *start, lengths=lengths)
        return states, (final, cell)

    def read(self, u: Tensor, start: list[Tensor | None]) -> tuple[Tensor, State]:
        """The same from inputs (B, L, D), by torch."""
        states, final, cell = torch_lstm(u, self.weights, *start)
        return states, (final, cell)

    def one(self, u: Tensor, state: State = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """u (B, D), a state (h, c) -> h after it, and the state."""
        h, c = lstm_step(self.recurrent_weight, self.drive(u), *self._first(u, state))
        return h, (h, c)
