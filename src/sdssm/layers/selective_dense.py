"""The SD-SSM layer: a softmax mixture of dense transition matrices with l_p-normalised columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sdssm import ops
from sdssm.devices import TRITON_LARGEST_MATRIX
from sdssm.errors import SettingsError
from sdssm.layers import initial
from sdssm.layers.mixer import Mixer, last_position, select_rows
from sdssm.layers.settings import SelectiveDenseSettings
from sdssm.layers.transition_forms import constrained_matrices, constrained_start, scale_initial_values
from sdssm.ops.reference import rescaled
from sdssm.ops.transitions import is_past_length

#: The settings for real inputs, see `SelectiveDense.for_inputs`.
REAL_INPUTS: dict[str, Any] = {"input_matrix": True, "rescale": False, "initial_state": "zero"}

#: With a dictionary that starts at the identity: the share of the usual random matrices that is added to it, and the
#: standard deviation of the logits of the selection.
IDENTITY_NOISE, SHARPNESS = 0.3, 2.0


class SymbolTransitions(NamedTuple):
    """The transition of each symbol: A (V, N, N); B u (V, N) and D u (V, N), or None without them."""

    A: Tensor
    b: Tensor | None
    skip: Tensor | None


class SelectiveDense(Mixer):
    """SD-SSM, x_t = A(u_t) x_{t-1} + B u_t, where A(u) is a softmax mixture of dense matrices A_i.

    A(u) is sum_i softmax(S u + s)_i A_i with each column divided by its l_p norm; other forms of it, such as columns
    that are distributions, are those of the setting `transition` (`sdssm.layers.transition_forms`). Inputs are real
    vectors (..., L, D), outputs the states x_t (..., L, N). The state is an argument and is returned, so a sequence can
    be read in pieces.
    The default settings are for strings of symbols; `for_inputs` builds a layer that learns from time series.
    Terzić et al. 2025 (arXiv 2412.19350), "On the Expressiveness and Length Generalization of Selective State-Space
    Models on Regular Languages".

    >>> layer = SelectiveDense(3, generator=torch.Generator().manual_seed(0))
    >>> u = torch.randn(2, 10, 3)
    >>> outputs, final = layer(u)
    >>> first, state = layer(u[:, :4])
    >>> rest, state = layer(u[:, 4:], state)
    >>> torch.allclose(outputs, torch.cat([first, rest], dim=1), atol=1e-5), outputs.shape
    (True, torch.Size([2, 10, 64]))
    """

    name = "sd-ssm"
    Settings = SelectiveDenseSettings
    emulates = (
        "Every automaton with at most n states, in one layer: a 0/1 matrix for each symbol (Terzić et al. 2025, "
        "section 2)."
    )
    largest_transition = TRITON_LARGEST_MATRIX
    settings: SelectiveDenseSettings

    def __init__(
        self, width: int, settings: SelectiveDenseSettings | None = None, *, generator: torch.Generator
    ) -> None:
        settings = settings or SelectiveDenseSettings()
        super().__init__(width, settings)
        n, k = settings.state, settings.dictionary
        self.dictionary = initial.uniform((k, n, n), (3 / n) ** 0.5, generator)
        self.selection = initial.linear(width, k, generator)
        if settings.initial_dictionary == "identity":
            self._start_at_identity(generator)
        self.input_matrix = initial.uniform((n, width), width**-0.5, generator) if settings.input_matrix else None
        self.initial_state = initial.normal((n,), generator) if settings.initial_state == "learned" else None
        self.skip = initial.uniform((n, width), width**-0.5, generator) if settings.skip else None
        # Values that may differ between replicas, or change during training, are buffers.
        p = settings.column_norm
        self.register_buffer("column_norm", None if p is None else initial.scalar_buffer(p))
        self.register_buffer("temperature", initial.scalar_buffer(settings.temperature))
        self.register_buffer("constraint", initial.scalar_buffer(settings.constraint) if settings.is_annealed else None)
        has_softmax = settings.has_softmax_columns
        self.register_buffer(
            "column_temperature", initial.scalar_buffer(settings.column_temperature) if has_softmax else None
        )
        self.column_norm: Tensor | None
        self.temperature: Tensor
        self.constraint: Tensor | None
        self.column_temperature: Tensor | None
        scale_initial_values(settings, self.dictionary, self.initial_state)

    @torch.no_grad()
    def _start_at_identity(self, generator: torch.Generator) -> None:
        """Move the dictionary near the identity, and let each input mainly select one of its matrices.

        Most symbols of most languages leave most states unchanged. Random matrices forget a state within a few symbols.
        """
        n = self.settings.state
        self.dictionary.mul_(IDENTITY_NOISE).add_(torch.eye(n))
        self.selection.weight.copy_(SHARPNESS * torch.randn(self.selection.weight.shape, generator=generator))
        assert self.selection.bias is not None
        self.selection.bias.zero_()

    @classmethod
    def for_inputs(
        cls,
        width: int,
        *,
        state: int = SelectiveDenseSettings.state,
        dictionary: int = SelectiveDenseSettings.dictionary,
        column_norm: float | None = SelectiveDenseSettings.column_norm,
        skip: bool = SelectiveDenseSettings.skip,
        generator: torch.Generator,
    ) -> SelectiveDense:
        """Build a layer for real inputs, such as time series: with an input matrix, from zero, not rescaled.

        The defaults of the settings are for strings of symbols: the inputs only choose matrices, and each state is
        divided by its norm, so that the size of an input is lost. Here B u_t is added to each state, as published.

        >>> layer = SelectiveDense.for_inputs(3, state=16, generator=torch.Generator().manual_seed(0))
        >>> outputs, final = layer(torch.randn(5, 100, 3))
        >>> outputs.shape, layer.settings.input_matrix, layer.settings.rescale, layer.settings.initial_state
        (torch.Size([5, 100, 16]), True, False, 'zero')
        """
        settings = SelectiveDenseSettings(
            state=state, dictionary=dictionary, column_norm=column_norm, skip=skip, **REAL_INPUTS
        )
        return cls(width, settings, generator=generator)

    @property
    def outputs(self) -> int:
        """The width of an output, which is the size of the state."""
        return self.settings.state

    @property
    def transition_size(self) -> int:
        """The size of a transition matrix."""
        return self.settings.state

    @property
    def numbers_per_input(self) -> int:
        """Estimate of the numbers in memory for each input: a matrix of its own in all forms but the signed one."""
        per_symbol = self.numbers_per_symbol
        return max(per_symbol, self.settings.state**2) if self.settings.is_constrained else per_symbol

    @property
    def first_state(self) -> Tensor | None:
        """The state (N,) before the first input, in the form that the matrices keep; None if none is learned."""
        if self.initial_state is None or not self.settings.is_constrained:
            return self.initial_state
        return constrained_start(self.settings, self.initial_state, self.constraint, self.column_temperature)

    def transition_parameters(self) -> int:
        """Return k (d + n^2), as the paper counts, plus the k biases of the selection."""
        return sum(p.numel() for p in (self.dictionary, *self.selection.parameters()))

    def forward(
        self, u: Tensor, state: Tensor | None = None, lengths: Tensor | None = None, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map inputs u (..., L, D) to outputs (..., L, N) and the final state (..., N).

        `state` (..., N) is the state to continue from, `lengths` (...) are the lengths of the rows. Outputs past the
        end of a row are zero, and the final state is the one at its end.
        """
        self.check_inputs(u)
        if u.dim() == 2:  # a single sequence: the scans need a batch dimension
            rows = [None if value is None else value[None] for value in (state, lengths)]
            outputs, final = self.forward(u[None], *rows)
            return outputs[0], final[0]
        outputs, final = self.mix(self.parts(u), state, lengths=lengths)
        if self.skip is not None and lengths is not None:  # D u of what is past the end of a row
            outputs = outputs.masked_fill(is_past_length(lengths, u.shape[-2])[..., None], 0)
        return outputs, final

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        """Return the weights of the dictionary (..., K) and, if present, B u (..., N) and D u (..., N)."""
        parts = [self._weights(u), product_of(self.input_matrix, u), product_of(self.skip, u)]
        return tuple(part for part in parts if part is not None)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        states, final, added = self._scan(parts, state, lengths)
        return states if added is None else states + added, final

    def mix_end(
        self,
        parts: tuple[Tensor, ...],
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Return the output at the end of each row only, which is the final state: (B, 1, N)."""
        _, final, added = self._scan(parts, state, lengths)
        return final[:, None] if added is None else final[:, None] + last_position(added, lengths)

    def _scan(
        self, parts: tuple[Tensor, ...], state: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return states (B, L, N), final state (B, N), and what is added to the states for the output, if anything."""
        weights, *others = parts
        drive = None if self.input_matrix is None else others.pop(0)
        start, rescale = self.start_state(state), self.settings.rescale
        if self.settings.is_constrained:
            states, final = ops.dense_scan(self._matrices(weights), drive, start, lengths=lengths, rescale=rescale)
        else:
            states, final = ops.mixture_scan(
                self.dictionary, weights, drive, start, p=self.column_norm, lengths=lengths, rescale=rescale
            )
        return states, final, others[0] if others else None

    def step(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run a single step: u (..., D), state (..., N) -> output (..., N), next state (..., N)."""
        self.check_inputs(u)
        if u.dim() == 1:
            output, x = self.mix_step(u[None], None if state is None else state[None])
            return output[0], x[0]
        return self.mix_step(u, state)

    def mix_step(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        start = self.start_state(state)
        start = u.new_zeros(self.settings.state) if start is None else start
        start, rescale = start.expand(*u.shape[:-1], -1), self.settings.rescale
        weights, drive, added = self._weights(u), product_of(self.input_matrix, u), product_of(self.skip, u)
        if self.settings.is_constrained:
            x = ops.dense_step(self._matrices(weights), start, drive, rescale=rescale)
        else:
            x = ops.mixture_step(self.dictionary, weights, drive, start, p=self.column_norm, rescale=rescale)
        return x if added is None else x + added, x

    def symbol_parts(self, table: Tensor | None) -> SymbolTransitions:
        """Return the transitions for a table of inputs (V, D); None is the identity (one-hot inputs)."""
        drive, skip = product_of(self.input_matrix, table), product_of(self.skip, table)
        return SymbolTransitions(self._symbol_matrices(table), drive, skip)

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
        """Scan over tokens (..., L) with only V transition matrices in memory."""
        states, final = self._scan_symbols(symbols, tokens, state, lengths)
        return states if symbols.skip is None else states + select_rows(symbols.skip, tokens), final

    def mix_symbols_end(
        self,
        symbols: SymbolTransitions,
        tokens: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Return the output at the end of each row only, which is the final state: tokens (B, L) -> (B, 1, N)."""
        _, final = self._scan_symbols(symbols, tokens, state, lengths)
        y = final[:, None]
        return y if symbols.skip is None else y + select_rows(symbols.skip, last_position(tokens, lengths))

    def _scan_symbols(
        self, symbols: SymbolTransitions, tokens: Tensor, state: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return states (..., L, N) and final states (..., N) for tokens (..., L)."""
        start, rescale = self.start_state(state), self.settings.rescale
        return ops.token_scan(symbols.A, symbols.b, tokens, start, lengths=lengths, rescale=rescale)

    def step_symbol(self, symbols: SymbolTransitions, symbol: int, states: Tensor) -> Tensor:
        """Apply the transition of one symbol to many states: (..., N) -> (..., N)."""
        x = states @ symbols.A[symbol].mT
        if symbols.b is not None:
            x = x + symbols.b[symbol]
        return rescaled(x) if self.settings.rescale else x

    def _matrices(self, weights: Tensor) -> Tensor:
        """Return the transition matrices (..., N, N) for weights (..., K) of the dictionary."""
        if not self.settings.is_constrained:
            return ops.mixed_matrices(self.dictionary, weights, self.column_norm)
        return constrained_matrices(
            self.settings,
            self.dictionary,
            weights,
            p=self.column_norm,
            constraint=self.constraint,
            column_temperature=self.column_temperature,
        )

    def _symbol_matrices(self, table: Tensor | None) -> Tensor:
        """Return the transition matrices (V, N, N) for a table of inputs (V, D); None is the identity."""
        bias = self.selection.bias
        if table is not None or bias is None or self.settings.is_tempered or self.settings.is_constrained:
            return self._matrices(self._weights(table))
        return ops.selected_matrices(self.dictionary, self.selection.weight, bias, self.column_norm)

    def _weights(self, u: Tensor | None) -> Tensor:
        """Return the weights of the dictionary (..., K) for inputs (..., D); None is the identity."""
        logits = self.selection.weight.mT + self.selection.bias if u is None else self.selection(u)
        return torch.softmax(logits / self.temperature if self.settings.is_tempered else logits, dim=-1)

    def start_state(self, state: Tensor | None) -> Tensor | None:
        """Return the state to start from: `state` if given, else the initial state; None is zero."""
        if state is None and self.settings.initial_state == "given":
            raise SettingsError("initial_state is 'given' but no state was passed; pass state=")
        return self.first_state if state is None else state


def product_of(matrix: Tensor | None, u: Tensor | None) -> Tensor | None:
    """Return a matrix (N, D) times inputs u (..., D), as (..., N); of u None is the identity. None without a matrix."""
    if matrix is None:
        return None
    return matrix.mT if u is None else u @ matrix.mT
