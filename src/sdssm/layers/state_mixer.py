"""The base class of mixers whose outputs are read from their states."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from sdssm.layers.mixer import Mixer, select_rows


class StateMixer(Mixer):
    """A mixer with y_t = read(x_t): an output depends on the state after its input alone.

    Subclasses define `scan`, which returns the states, and `read`. The output at the end of a string is then read from
    its final state, so that neither it nor its gradient needs the states before.
    """

    @abstractmethod
    def scan(self, parts: tuple[Tensor, ...], state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the states after all inputs, and the final ones: parts (B, L, *) -> (B, L, N) and (B, N).

        `state` (B, N) is the state to continue from, None for the initial state; `lengths` (B,) are those of the rows.
        """

    def scan_symbols(
        self, symbols: Any, tokens: Tensor, state: Tensor | None, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Run `scan` on tokens (B, L), with the result of `symbol_parts`."""
        return self.scan(tuple(select_rows(part, tokens) for part in symbols), state, lengths)

    def read(self, states: Tensor) -> Tensor:
        """Return the outputs for states: (..., N) -> (..., F). By default they are the states."""
        return states

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        states, final = self.scan(parts, state, lengths)
        return self.read(states), final if carry else None

    def mix_end(
        self,
        parts: tuple[Tensor, ...],
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        _, final = self.scan(parts, state, lengths)
        return self.read(final)[:, None]

    def mix_symbols(
        self,
        symbols: Any,
        tokens: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        states, final = self.scan_symbols(symbols, tokens, state, lengths)
        return self.read(states), final if carry else None

    def mix_symbols_end(
        self,
        symbols: Any,
        tokens: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        _, final = self.scan_symbols(symbols, tokens, state, lengths)
        return self.read(final)[:, None]
