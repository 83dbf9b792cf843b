"""SD-SSM's recurrence: a dictionary of dense matrices, mixed by a softmax of the input, columns l_p-normalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from sdssm import ops
from sdssm.errors import SettingsError
from sdssm.layers import initial
from sdssm.layers.mixer import Mixer, MixerSettings, pick
from sdssm.ops.reference import rescaled
from sdssm.settings import check_between, check_one_of, check_settings

INITIAL_STATES = ("zero", "learned", "given")
#: Powers of small entries beyond this vanish in float32, and with them whole columns.
LARGEST_NORM = 16


@dataclass(frozen=True, kw_only=True)
class SelectiveDenseSettings(MixerSettings):
    """What tells one selective dense recurrence from another. The defaults are the scale-free form."""

    state: int = 64  #: n, entries of the state
    dictionary: int = 16  #: k, matrices to mix
    column_norm: float | None = 1.2  #: p; none: columns as they are
    initial_state: str = "learned"  #: zero, learned, or given with each call
    input_matrix: bool = False  #: B, adding B u_t to each state
    rescale: bool = True  #: divide each state by its l2 norm
    temperature: float = 1.0  #: of the softmax, at the first step of training
    temperature_end: float | None = None  #: and at the last; none: the same
    skip: bool = False  #: D, adding D u_t to each output

    @property
    def is_tempered(self) -> bool:
        """Whether the softmax has a temperature other than 1."""
        return self.temperature != 1 or self.temperature_end is not None

    def shape(self) -> SelectiveDenseSettings:
        """p and the temperature are numbers in buffers: each replica may have its own."""
        norm = None if self.column_norm is None else 1.0
        return replace(self, column_norm=norm, temperature=2.0 if self.is_tempered else 1.0, temperature_end=None)

    def ramps(self) -> Mapping[str, tuple[float, float | None]]:
        """The temperature may fall."""
        return {"temperature": (self.temperature, self.temperature_end)}

    def __post_init__(self) -> None:
        check_settings(self)
        check_between("state", self.state, 1, 4_096)
        check_between("dictionary", self.dictionary, 1, 4_096)
        check_one_of("initial_state", self.initial_state, INITIAL_STATES)
        if self.column_norm is not None and not 1 <= self.column_norm <= LARGEST_NORM:
            raise SettingsError(f"column_norm is {self.column_norm}; it must be from 1 to {LARGEST_NORM}, or none")
        for name in ("temperature", "temperature_end"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SettingsError(f"{name} is {value}; it must be above 0")
        if self.rescale and self.input_matrix:
            raise SettingsError(
                "rescale is on with an input matrix; a rescaled recurrence is homogeneous, set input_matrix=false"
            )
        if self.initial_state == "zero" and not self.input_matrix:
            raise SettingsError(
                "initial_state is 'zero' without an input matrix, so every state would be zero; "
                "set initial_state=learned or input_matrix=true"
            )


class SymbolTransitions(NamedTuple):
    """What each symbol does: matrices A (V, N, N), with an input matrix b (V, N), with a skip term D u (V, N)."""

    A: Tensor
    b: Tensor | None
    skip: Tensor | None


class SelectiveDense(Mixer):
    """x_t = A(u_t) x_{t-1} + B u_t with A(u) = columns of sum_i softmax(S u + s)_i A_i, each divided by its l_p norm.

    A drop-in module for real inputs (..., L, D). A state can be given and is returned: a sequence may come in pieces.

    >>> layer = SelectiveDense(3, generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(2, 10, 3)
    >>> whole, final = layer(u)
    >>> first, state = layer(u[:, :4])
    >>> rest, state = layer(u[:, 4:], state)
    >>> torch.allclose(whole, torch.cat([first, rest], dim=1), atol=1e-5), whole.shape
    (True, torch.Size([2, 10, 64]))
    """

    name = "sd-ssm"
    Settings = SelectiveDenseSettings
    emulates = (
        "every automaton with at most n states, in one layer: a 0/1 matrix for each symbol (On the Expressiveness and "
        "Length Generalization of Selective State-Space Models on Regular Languages, section 2)"
    )
    settings: SelectiveDenseSettings

    def __init__(
        self, width: int, settings: SelectiveDenseSettings | None = None, *, generator: torch.Generator
    ) -> None:
        settings = settings or SelectiveDenseSettings()
        super().__init__(width, settings)
        n, k = settings.state, settings.dictionary
        self.dictionary = initial.uniform((k, n, n), (3 / n) ** 0.5, generator)
        self.selection = initial.linear(width, k, generator)
        self.input_matrix = initial.uniform((n, width), width**-0.5, generator) if settings.input_matrix else None
        self.initial_state = initial.normal((n,), generator) if settings.initial_state == "learned" else None
        self.skip = initial.uniform((n, width), width**-0.5, generator) if settings.skip else None
        # Numbers that may differ between models trained side by side, or change during training, are buffers.
        p = settings.column_norm
        self.register_buffer("column_norm", None if p is None else initial.scalar_buffer(p))
        self.register_buffer("temperature", initial.scalar_buffer(settings.temperature))
        self.column_norm: Tensor | None
        self.temperature: Tensor

    @property
    def outputs(self) -> int:
        """Entries of an output: as many as of the state."""
        return self.settings.state

    @property
    def kernel_size(self) -> int:
        """Those of a transition."""
        return self.settings.state

    def transition_parameters(self) -> int:
        """k (d + n^2), as the paper counts, and the k biases of the selection."""
        return sum(p.numel() for p in (self.dictionary, *self.selection.parameters()))

    def forward(
        self, u: Tensor, state: Tensor | None = None, lengths: Tensor | None = None, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """u (..., L, D), a state (..., N) to go on from, lengths (...) -> outputs (..., L, N), final state (..., N).

        States past the end of a row are zero, and the final state is that at its end.
        """
        self.check_inputs(u)
        if u.dim() == 2:  # one sequence: the scans want a batch
            rows = [None if given is None else given[None] for given in (state, lengths)]
            outputs, final = self.forward(u[None], *rows)
            return outputs[0], final[0]
        return self.mix(self.parts(u), state, lengths=lengths)

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        """The weights of the dictionary, and where there are such what B and D add."""
        found = [self._weights(u), self._drive(u), None if self.skip is None else u @ self.skip.mT]
        return tuple(part for part in found if part is not None)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        weights, *added = parts
        drive = added.pop(0) if self.input_matrix is not None else None
        states, final = ops.mixture_scan(
            self.dictionary,
            weights,
            drive,
            self._start(state),
            p=self.column_norm,
            lengths=lengths,
            rescale=self.settings.rescale,
        )
        return states + added[0] if added else states, final

    def step(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step: u (..., D), state (..., N) -> output (..., N), state (..., N)."""
        self.check_inputs(u)
        if u.dim() == 1:
            output, x = self.one(u[None], None if state is None else state[None])
            return output[0], x[0]
        return self.one(u, state)

    def one(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        start = self._start(state)
        start = u.new_zeros(self.settings.state) if start is None else start
        x = ops.mixture_step(
            self.dictionary,
            self._weights(u),
            self._drive(u),
            start.expand(*u.shape[:-1], -1),
            p=self.column_norm,
            rescale=self.settings.rescale,
        )
        return x if self.skip is None else x + u @ self.skip.mT, x

    def symbols(self, table: Tensor | None) -> SymbolTransitions:
        """The transition of every row of a table of inputs (V, D), or without one of every one-hot input."""
        A = ops.mixed_matrices(self.dictionary, self._weights(table), self.column_norm)
        added = None
        if self.skip is not None:
            added = self.skip.mT if table is None else table @ self.skip.mT
        return SymbolTransitions(A, self._drive(table), added)

    def mix_symbols(
        self,
        symbols: SymbolTransitions,
        tokens: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`mix` where every input is a symbol: tokens (..., L). Only V matrices exist."""
        start = self._start(state)
        states, final = ops.token_scan(
            symbols.A, symbols.b, tokens, start, lengths=lengths, rescale=self.settings.rescale
        )
        return states if symbols.skip is None else states + pick(symbols.skip, tokens), final

    def step_symbol(self, symbols: SymbolTransitions, symbol: int, states: Tensor) -> Tensor:
        """The same symbol after each of many states: (..., N) -> (..., N)."""
        x = states @ symbols.A[symbol].mT
        if symbols.b is not None:
            x = x + symbols.b[symbol]
        return rescaled(x) if self.settings.rescale else x

    # Below, None stands for the identity: the table of one-hot inputs.

    def _weights(self, u: Tensor | None) -> Tensor:
        logits = self.selection.weight.mT + self.selection.bias if u is None else self.selection(u)
        return torch.softmax(logits / self.temperature if self.settings.is_tempered else logits, dim=-1)

    def _drive(self, u: Tensor | None) -> Tensor | None:
        if self.input_matrix is None:
            return None
        return self.input_matrix.mT if u is None else u @ self.input_matrix.mT

    def _start(self, state: Tensor | None) -> Tensor | None:
        """The state to start from; None is zero."""
        if state is None and self.settings.initial_state == "given":
            raise SettingsError("initial_state is 'given' but no state was; pass state=")
        return self.initial_state if state is None else state
