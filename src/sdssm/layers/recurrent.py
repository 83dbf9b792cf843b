"""Two nonlinear recurrent networks: an Elman network with ReLU and an LSTM."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from sdssm.errors import ModelError, SettingsError
from sdssm.layers import initial
from sdssm.layers.mixer import Mixer, MixerState
from sdssm.layers.settings import LstmSettings, RnnSettings
from sdssm.ops.elman import can_use_torch_rnn, elman_scan, elman_step, torch_rnn
from sdssm.ops.linear import linear_map
from sdssm.ops.lstm import lstm_scan, lstm_step, torch_lstm
from sdssm.ops.transitions import is_past_length


class RecurrentNetwork(Mixer):
    """Base class of both: weights in the layout of torch, all initialised uniform on +-1/sqrt(n).

    On the CPU a single model uses torch's own networks (see `can_use_torch_rnn`): a training step at batch 128, L = 20,
    n = 64, two symbols takes 9 ms for an LSTM, and 13 ms with `lstm_scan`; an RNN takes 3 ms either way. These networks
    apply the input weights themselves, and passing an identity matrix for them would more than double the time, so
    `parts` then returns the inputs (..., D) unchanged. In all other cases `parts` returns the input terms of the G
    gates (..., G, N), V rows for symbols; `mix` distinguishes the two by the number of dimensions.
    """

    gates: ClassVar[int]
    starts: ClassVar[int]  # number of vectors in a state
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
        """The width of an output, which is the size of the state."""
        return self.settings.state

    @property
    def numbers_per_symbol(self) -> int:
        """The input terms of the gates, and the vectors of a state."""
        return max(self.width, (self.gates + self.starts) * self.settings.state)

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """The weights in the order of torch."""
        return self.input_weight, self.recurrent_weight, self.input_bias, self.recurrent_bias

    def drive(self, u: Tensor) -> Tensor:
        """Return the input terms of the gates, W_i u + b_i + b_h: (..., D) -> (..., G N)."""
        return linear_map(u, self.input_weight, self.input_bias + self.recurrent_bias)

    def parts(self, u: Tensor) -> tuple[Tensor]:
        """Return the input terms (..., G, N), or the inputs (..., D) if torch's own network reads them."""
        if can_use_torch_rnn(u):
            return (u,)
        drive = self.drive(u)
        return (drive.reshape(*drive.shape[:-1], self.gates, self.settings.state),)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, MixerState]:
        """Run over input terms (B, L, G, N) or inputs (B, L, D) -> h (B, L, N), final state."""
        (x,) = parts
        start = self.start_state(state)
        if x.dim() == 4:
            outputs, after = self.scan(x.flatten(-2), start, lengths)
        else:
            outputs, after = self.run_torch(x, start)
            if lengths is not None:
                outputs = outputs.masked_fill(is_past_length(lengths, x.shape[1])[..., None], 0)
        return outputs, after if carry and lengths is None else None

    def mix_end(
        self,
        parts: tuple[Tensor, ...],
        state: MixerState = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Return the output at the end of each row only, which is the final h: (B, 1, N)."""
        (x,) = parts
        if x.dim() != 4:
            return super().mix_end(parts, state, lengths=lengths)
        after = self.scan(x.flatten(-2), self.start_state(state), lengths)[1]
        final: Tensor = after if isinstance(after, Tensor) else after[0]
        return final[:, None]

    @abstractmethod
    def scan(self, drive: Tensor, start: list[Tensor | None], lengths: Tensor | None) -> tuple[Tensor, MixerState]:
        """Return outputs and final state, from input terms (B, L, G N)."""

    @abstractmethod
    def run_torch(self, u: Tensor, start: list[Tensor | None]) -> tuple[Tensor, MixerState]:
        """Return outputs and final state, from inputs (B, L, D), with torch's own network."""

    def start_state(self, state: MixerState) -> list[Tensor | None]:
        """Return the vectors of the initial state; None is zero."""
        if state is None:
            if self.settings.initial_state == "given":
                raise SettingsError("initial_state is 'given' but no state was passed; pass state=")
            return [None] * self.starts if self.initial_state is None else list(self.initial_state.chunk(self.starts))
        # A single tensor is used for all vectors: an embedded automaton state starts both h and c of an LSTM.
        vectors = [state] * self.starts if isinstance(state, Tensor) else list(state)
        n = self.settings.state
        if len(vectors) != self.starts or any(vector.shape[-1] != n for vector in vectors):
            shapes = ", ".join(str(tuple(vector.shape)) for vector in vectors)
            raise ModelError(f"the state of {self.name} must be {self.starts} x (..., {n}), got {shapes}")
        return vectors

    def _first(self, u: Tensor, state: MixerState) -> list[Tensor]:
        """Return the vectors of the initial state for a step with inputs (B, D): (B, N) each."""
        zero = u.new_zeros(self.settings.state)
        return [(zero if vector is None else vector).expand(u.shape[0], -1) for vector in self.start_state(state)]


class Rnn(RecurrentNetwork):
    """Elman network, h_t = relu(W_i u_t + b_i + W_h h_{t-1} + b_h): `nn.RNN` with one layer and ReLU.

    The outputs are h_t (N,).

    >>> layer = Rnn(3, generator=torch.Generator().manual_seed(0))
    >>> outputs, state = layer(torch.randn(2, 10, 3))
    >>> outputs.shape, torch.equal(outputs[:, -1], state)
    (torch.Size([2, 10, 64]), True)
    """

    name = "rnn"
    Settings = RnnSettings
    emulates = (
        "Every automaton of |Q| states, exactly, with |Q| |V| entries: entry (q, a) is relu([the state is q] + "
        "[the symbol is a] - 1), after the construction of Minsky (1967) with threshold units."
    )
    gates, starts = 1, 1

    def scan(self, drive: Tensor, start: list[Tensor | None], lengths: Tensor | None) -> tuple[Tensor, MixerState]:
        """Return outputs and final state, from input terms (B, L, N)."""
        return elman_scan(self.recurrent_weight, drive, start[0], lengths=lengths)

    def run_torch(self, u: Tensor, start: list[Tensor | None]) -> tuple[Tensor, MixerState]:
        """Return outputs and final state, from inputs (B, L, D)."""
        return torch_rnn(u, self.weights, start[0])

    def mix_step(self, u: Tensor, state: MixerState = None) -> tuple[Tensor, Tensor]:
        """Run a single step: u (B, D), state (B, N) -> output and next state, which are the same."""
        x = elman_step(self.recurrent_weight, self.drive(u), *self._first(u, state))
        return x, x


class Lstm(RecurrentNetwork):
    """LSTM, c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g), h_t = sigmoid(o) tanh(c_t).

    It is `nn.LSTM` with one layer. i, f, g and o are the quarters of W_i u_t + b_i + W_h h_{t-1} + b_h. The outputs are
    h_t (N,). The state is the pair (h, c), each (..., N); a single tensor is used for both.

    >>> layer = Lstm(3, LstmSettings(state=5), generator=torch.Generator().manual_seed(0))
    >>> outputs, (h, c) = layer(torch.randn(2, 10, 3))
    >>> outputs.shape, torch.equal(outputs[:, -1], h), sum(p.numel() for p in layer.parameters())
    (torch.Size([2, 10, 5]), True, 200)
    """

    name = "lstm"
    Settings = LstmSettings
    emulates = (
        "Every automaton, with weights large enough to saturate the gates: h is then a layer of threshold units "
        "(Minsky 1967; Merrill 2019, arXiv 1906.01615)."
    )
    gates, starts = 4, 2
    settings: LstmSettings

    def scan(self, drive: Tensor, start: list[Tensor | None], lengths: Tensor | None) -> tuple[Tensor, MixerState]:
        """Return outputs and final state, from input terms (B, L, 4N)."""
        states, final, cell = lstm_scan(self.recurrent_weight, drive, *start, lengths=lengths)
        return states, (final, cell)

    def run_torch(self, u: Tensor, start: list[Tensor | None]) -> tuple[Tensor, MixerState]:
        """Return outputs and final state, from inputs (B, L, D)."""
        states, final, cell = torch_lstm(u, self.weights, *start)
        return states, (final, cell)

    def mix_step(self, u: Tensor, state: MixerState = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run a single step: u (B, D), state (h, c) -> output h, next state."""
        h, c = lstm_step(self.recurrent_weight, self.drive(u), *self._first(u, state))
        return h, (h, c)
