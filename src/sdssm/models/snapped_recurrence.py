"""A linear recurrence whose state is moved to the nearest of given prototypes every m symbols."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: From this state size on, a CPU multiplies all rows with the same symbol at once.
LARGE = 128


class SnappedRecurrence(nn.Module):
    """A linear recurrence that corrects its state: every `every` symbols it becomes the nearest prototype.

    The state x_t = A_s x_{t-1} / |A_s x_{t-1}| starts at `start` (N,). After every m-th symbol of a string it is
    replaced by the prototype, a row of `points` (P, N) of norm 1, with the largest product with it. The logits after a
    symbol are `rows` x_t, before that; with `centres`, the largest of the rows of each class. A linear recurrence
    without this step cannot correct an error in its state.

    It is built by `sdssm.snap(model, every=m)`.
    """

    A: Tensor
    start: Tensor
    rows: Tensor
    points: Tensor
    row_labels: Tensor | None

    def __init__(
        self, n_symbols: int, n_classes: int, state: int = 1, prototypes: int = 1, every: int = 1, centres: int = 0
    ) -> None:
        super().__init__()
        self.every, self.n_classes = every, n_classes
        self.register_buffer("A", torch.eye(state).repeat(n_symbols, 1, 1))
        self.register_buffer("start", torch.ones(state) / state**0.5)
        self.register_buffer("rows", torch.ones(centres or n_classes, state))
        # Of several centres for a class, the best counts.
        self.register_buffer("row_labels", torch.arange(centres) % n_classes if centres else None)
        self.register_buffer("points", torch.ones(prototypes, state) / state**0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits after every symbol: tokens (B, L) -> (B, L, C)."""
        return self.advance(tokens, None)[0]

    def advance(self, tokens: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Read the next piece of strings: tokens (B, L), state -> logits (B, L, C), state.

        The state is x (B, N) and the number of symbols since it was last a prototype, (B, 1).
        """
        if state is None:
            x, since = self.start.expand(len(tokens), -1), tokens.new_zeros(len(tokens), 1)
        else:
            x, since = state
        logits = []
        for symbols in tokens.unbind(1):
            x = self._multiply(symbols, x)
            x = x / x.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
            logits.append(self._logits(x))
            since = (since + 1) % self.every
            nearest = self.points[(x @ self.points.T).argmax(-1)]
            x = nearest if self.every == 1 else torch.where(since == 0, nearest, x)
        return torch.stack(logits, 1), (x, since)

    def _logits(self, x: Tensor) -> Tensor:
        scores = x @ self.rows.T
        if self.row_labels is None:
            return scores
        norms: Tensor = self.rows.norm(dim=1)
        lowest = -norms.max().expand(len(x), self.n_classes)  # no score is lower: states have norm 1
        return lowest.scatter_reduce(-1, self.row_labels.expand_as(scores), scores, "amax")

    def _multiply(self, symbols: Tensor, x: Tensor) -> Tensor:
        """Return A_s x for each row: (B,), (B, N) -> (B, N)."""
        if x.device.type != "cpu" or x.shape[1] < LARGE:
            return torch.bmm(self.A[symbols], x[..., None])[..., 0]
        after = torch.empty_like(x, memory_format=torch.contiguous_format)
        for symbol in set(symbols.tolist()):  # large matrices are not copied for each row
            rows = symbols == symbol
            after[rows] = x[rows] @ self.A[symbol].T
        return after
