"""A GRU of torch as a whole model."""

from __future__ import annotations

from torch import Tensor, nn


class Gru(nn.Module):
    """The GRU of torch with a linear readout."""

    def __init__(self, n_symbols: int, n_classes: int, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.readout = nn.Linear(width, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.advance(tokens, None)[0]

    def advance(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Read the next piece of a string: tokens (B, L), state (B, N) -> logits (B, L, C), state (B, N)."""
        outputs, last = self.gru(self.embedding(tokens), None if state is None else state[None])
        return self.readout(outputs), last[0]
