"""SD-SSM's recurrence: a dictionary of dense matrices, mixed by a softmax of the input, columns l_p-normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sdssm import ops
from sdssm.errors import ModelError, SettingsError
from sdssm.layers import initial
from sdssm.ops.reference import rescaled
from sdssm.settings import at_least, between, check, one_of

INITIAL_STATES = ("zero", "learned", "given")
#: Powers of small entries beyond this vanish in float32, and with them whole columns.
LARGEST_NORM = 16


@dataclass(frozen=True, kw_only=True)
class SelectiveDenseSettings:
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

    def __post_init__(self) -> None:
        check(self)
        between("state", self.state, 1, 4_096)
        between("dictionary", self.dictionary, 1, 4_096)
        one_of("initial_state", self.initial_state, INITIAL_STATES)
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


class Symbols(NamedTuple):
    """The transition of each symbol: matrices A (V, N, N) and, with an input matrix, vectors b (V, N)."""

    A: Tensor
    b: Tensor | None


class SelectiveDense(nn.Module):
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

    def __init__(
        self, width: int, settings: SelectiveDenseSettings | None = None, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        settings = settings or SelectiveDenseSettings()
        at_least("width", width, 1)
        n, k = settings.state, settings.dictionary
        self.width, self.settings = width, settings
        self.dictionary = initial.uniform((k, n, n), (3 / n) ** 0.5, generator)
        self.selection = initial.linear(width, k, generator)
        self.input_matrix = initial.uniform((n, width), width**-0.5, generator) if settings.input_matrix else None
        self.initial_state = initial.normal((n,), generator) if settings.initial_state == "learned" else None
        self.skip = initial.uniform((n, width), width**-0.5, generator) if settings.skip else None
        # Numbers that may differ between models trained side by side, or change during training, are buffers.
        p = settings.column_norm
        self.register_buffer("column_norm", None if p is None else initial.scheduled(p))
        self.register_buffer("temperature", initial.scheduled(settings.temperature))
        self.column_norm: Tensor | None
        self.temperature: Tensor

    @property
    def outputs(self) -> int:
        """Entries of an output: as many as of the state."""
        return self.settings.state

    def forward(self, u: Tensor, state: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """u (..., L, D), a state (..., N) to go on from, lengths (...) -> outputs (..., L, N), final state (..., N).

        States past the end of a row are zero.
        """
        states, final = self.scan(u, state, lengths)
        return self.output(states, u), final

    def step(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step: u (..., D), state (..., N) -> output (..., N), state (..., N)."""
        self._check(u)
        if u.dim() == 1:
            output, x = self.step(u[None], None if state is None else state[None])
            return output[0], x[0]
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
        return self.output(x, u), x

    def scan(self, u: Tensor, state: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All states and the final one."""
        self._check(u)
        if u.dim() == 2:  # one sequence: the scans want a batch
            rows = [None if given is None else given[None] for given in (state, lengths)]
            states, final = self.scan(u[None], *rows)
            return states[0], final[0]
        return ops.mixture_scan(
            self.dictionary,
            self._weights(u),
            self._drive(u),
            self._start(state),
            p=self.column_norm,
            lengths=lengths,
            rescale=self.settings.rescale,
        )

    def _check(self, u: Tensor) -> None:
        if u.shape[-1:] != (self.width,) or u.dtype != self.dictionary.dtype:
            raise ModelError(
                f"inputs are {u.dtype} of shape {tuple(u.shape)}; this layer reads {self.dictionary.dtype} vectors of "
                f"{self.width} entries"
            )

    def symbols(self, table: Tensor | None) -> Symbols:
        """The transition of every row of a table of inputs (V, D), or without one of every one-hot input."""
        A = ops.mixed_matrices(self.dictionary, self._weights(table), self.column_norm)
        return Symbols(A, self._drive(table))

    def scan_symbols(
        self, symbols: Symbols, tokens: Tensor, state: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`scan` where every input is a symbol: tokens (..., L). Only V matrices exist."""
        start = self._start(state)
        return ops.token_scan(symbols.A, symbols.b, tokens, start, lengths=lengths, rescale=self.settings.rescale)

    def step_symbol(self, symbols: Symbols, symbol: int, states: Tensor) -> Tensor:
        """The same symbol after each of many states: (..., N) -> (..., N)."""
        x = states @ symbols.A[symbol].mT
        if symbols.b is not None:
            x = x + symbols.b[symbol]
        return rescaled(x) if self.settings.rescale else x

    def output(self, states: Tensor, u: Tensor) -> Tensor:
        """What is read from states (..., N) reached with inputs (..., D)."""
        return states if self.skip is None else states + u @ self.skip.mT

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

    def extra_repr(self) -> str:
        return f"width={self.width}, {self.settings}"
