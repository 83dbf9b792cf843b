"""Uniformly random strings of one length among the strings that end in certain states.

Counting backwards, `ways[r][q]` is the number of strings of length r from state q to an end state. A string is then
drawn symbol by symbol, each with probability proportional to the number of ways to complete it. Counts are kept as
logarithms, which do not overflow at any length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(eq=False)
class StringSampler:
    """Draw strings through a transition table that end in given states.

    The counts, and their copies on other devices, are kept between calls and grow with the lengths that are drawn.

    Args:
        table: the next state for each state and symbol, (Q, V).
        start: the start state.
        ends: whether a string may end in each state, bool (Q,).
    """

    table: Tensor
    start: int
    ends: Tensor
    _ways: list[Tensor] = field(default_factory=list, init=False)  # [r] -> (Q,)
    _copies: dict[torch.device, Tensor] = field(default_factory=dict, init=False)
    _paths: dict[tuple[int, torch.device], Tensor | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._ways.append(torch.where(self.ends, 0.0, -torch.inf).double())

    def draw(self, batch: int, length: int, generator: torch.Generator) -> Tensor:
        """Draw (batch, length) symbols, each row uniform among the strings; there must be one of this length."""
        u = torch.rand(batch, length, generator=generator, device=generator.device, dtype=torch.float64)
        path = self._single_path(length, u.device)
        return self._walk(u) if path is None else _choose(path, u)

    def _walk(self, u: Tensor) -> Tensor:
        """Draw symbols for numbers in [0, 1), (B, L) -> (B, L), one position after the other."""
        batch, length = u.shape
        ways, table = self._ways_on(u.device, length), self.table.to(u.device)
        state = torch.full_like(u[:, 0], self.start, dtype=torch.long)
        tokens = torch.empty(batch, length, dtype=torch.long, device=u.device)
        for t in range(length):
            next_states = table[state]  # (B, V)
            cumulative = _cumulative_probabilities(ways[length - t - 1][next_states])
            tokens[:, t] = _choose(cumulative, u[:, t])
            state = next_states.gather(1, tokens[:, t, None])[:, 0]
        return tokens

    def _count_ways(self, length: int) -> None:
        while len(self._ways) <= length:
            self._ways.append(torch.logsumexp(self._ways[-1][self.table], dim=-1))  # (Q, V) -> (Q,)

    def _ways_on(self, device: torch.device, length: int) -> Tensor:
        """Return the counts for up to `length` more symbols, on a device: (R, Q)."""
        if device not in self._copies or len(self._copies[device]) <= length:
            self._count_ways(length)
            self._copies[device] = torch.stack(self._ways).to(device)
        return self._copies[device]

    def _single_path(self, length: int, device: torch.device) -> Tensor | None:
        """Return cumulative probabilities (L, V) if every string visits the same states, else None.

        All symbols can then be drawn at once.
        """
        key = length, device
        if key not in self._paths:
            self._paths[key] = self._find_single_path(length, device)
        return self._paths[key]

    def _find_single_path(self, length: int, device: torch.device) -> Tensor | None:
        self._count_ways(length)
        state, rows = self.start, []
        for t in range(length):
            ways = self._ways[length - t - 1][self.table[state]]  # (V,)
            next_states = set(self.table[state, ways > -torch.inf].tolist())
            if len(next_states) != 1:
                return None
            rows.append(_cumulative_probabilities(ways))
            state = next_states.pop()
        return torch.stack(rows).to(device)


def _cumulative_probabilities(log_ways: Tensor) -> Tensor:
    """Return the probability of each symbol and the symbols before it, (..., V)."""
    return torch.softmax(log_ways, dim=-1).cumsum(-1)


def _choose(cumulative: Tensor, u: Tensor) -> Tensor:
    """Return the first symbol whose cumulative probability exceeds u.

    A symbol of probability 0 is never chosen.
    """
    total = cumulative[..., -1]
    # Rounding must not reach the total.
    threshold = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
    return (cumulative <= threshold[..., None]).sum(-1)
