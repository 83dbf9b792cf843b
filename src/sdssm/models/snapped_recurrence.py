"""A linear recurrence whose state is moved to the nearest of given prototypes every m symbols."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

#: From this state size on, a CPU multiplies all rows with the same symbol at once.
LARGE = 128
#: Limit on the numbers of a table of all words of m symbols from all prototypes.
MOST_NUMBERS = 1 << 24
#: The state x (B, N), and the number of symbols since it was last a prototype, (B, 1).
SnappedState = tuple[Tensor, Tensor]


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

    def advance(self, tokens: Tensor, state: SnappedState | None) -> tuple[Tensor, SnappedState]:
        """Read the next piece of strings: tokens (B, L), state -> logits (B, L, C), state.

        Long pieces are read block by block (`_read_blocks`), others symbol by symbol.
        """
        if state is None:
            state = self.start.expand(tokens.shape[0], -1), tokens.new_zeros(tokens.shape[0], 1)
        if not self._pays_off(tokens, state):
            return self.read_symbols(tokens, state)
        head = self.every - int(state[1][0, 0])  # to the next prototypes
        blocks = (tokens.shape[1] - head) // self.every
        pieces = torch.split(tokens, [head, blocks * self.every, tokens.shape[1] - head - blocks * self.every], 1)
        parts = []
        for piece, read in zip(pieces, (self.read_symbols, self._read_blocks, self.read_symbols), strict=True):
            logits, state = read(piece, state)
            parts.append(logits)
        return torch.cat(parts, 1), state

    def read_symbols(self, tokens: Tensor, state: SnappedState) -> tuple[Tensor, SnappedState]:
        """Read symbol by symbol, as the class is defined."""
        x, since = state
        logits = [self.start.new_zeros(tokens.shape[0], 0, self.n_classes)]
        for symbols in tokens.unbind(1):
            x = _normalise(self._multiply(symbols, x))
            logits.append(self._logits(x)[:, None])
            since = (since + 1) % self.every
            nearest = self.points[self._nearest(x)]
            x = nearest if self.every == 1 else torch.where(since == 0, nearest, x)
        return torch.cat(logits, 1), (x, since)

    def _pays_off(self, tokens: Tensor, state: SnappedState) -> bool:
        """Whether more symbols are read than a table of all blocks has entries, and all states are as old."""
        if tokens.shape[1] <= 2 * self.every:
            return False
        entries = len(self.points) * len(self.A) ** self.every
        numbers = entries * max(self.A.shape[1], len(self.points), len(self.rows))
        if numbers > MOST_NUMBERS or 2 * entries > tokens.numel():
            return False
        return bool((state[1] == state[1][0]).all())

    def _read_blocks(self, tokens: Tensor, state: SnappedState) -> tuple[Tensor, SnappedState]:
        """Read whole blocks of m symbols (B, K m) from prototypes, by tables.

        What a block does depends only on its first state, which is one of P prototypes, and on its symbols, a word. So
        the logits in all P V^m blocks and the prototypes after them are computed once; a string looks them up.
        """
        symbols, m = len(self.A), self.every
        words = tokens.reshape(len(tokens), -1, m)  # (B, K, m)
        places = symbols ** torch.arange(m, device=tokens.device)
        x, levels = self.points, list[Tensor]()  # the state and the logits after each word from each prototype
        for _ in range(m):  # the symbol that was read first counts least: index = prototype + P (s_1 + V s_2 + ...)
            x = _normalise(torch.matmul(self.A, x.T).mT.flatten(0, 1))
            levels.append(self._logits(x))
        after = self._nearest(x)
        index = (words * places).sum(-1) * len(self.points)  # (B, K)
        now, chain = self._nearest(state[0]), []
        for column in index.unbind(1):
            chain.append(now)
            now = after[now + column]
        first = torch.stack(chain, 1)  # (B, K): the prototype at the start of each block
        prefixes = (words * places).cumsum(-1) * len(self.points) + first[..., None]  # (B, K, m)
        logits = torch.stack([level[prefixes[..., k]] for k, level in enumerate(levels)], 2)
        return logits.flatten(1, 2), (self.points[now], state[1])

    def _nearest(self, x: Tensor) -> Tensor:
        return (x @ self.points.T).argmax(-1)

    def _logits(self, x: Tensor) -> Tensor:
        scores = x @ self.rows.T
        if self.row_labels is None:
            return scores
        norms: Tensor = self.rows.norm(dim=1)
        lowest = -norms.max().expand(x.shape[0], self.n_classes)  # no score is lower: states have norm 1
        return lowest.scatter_reduce(-1, self.row_labels.expand_as(scores), scores, "amax")

    def _multiply(self, symbols: Tensor, x: Tensor) -> Tensor:
        """Return A_s x for each row: (B,), (B, N) -> (B, N)."""
        if x.device.type != "cpu" or x.shape[1] < LARGE or torch.compiler.is_compiling():
            return torch.bmm(self.A[symbols], x[..., None])[..., 0]
        after = torch.empty_like(x, memory_format=torch.contiguous_format)
        for symbol in set(symbols.tolist()):  # large matrices are not copied for each row
            rows = symbols == symbol
            after[rows] = x[rows] @ self.A[symbol].T
        return after


def _normalise(x: Tensor) -> Tensor:
    return functional.normalize(x, dim=-1, eps=torch.finfo(x.dtype).tiny)
