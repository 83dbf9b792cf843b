"""Uniformly random strings of one length, among those that a machine lets end in a wanted state.

Counting backwards, `ways[r][q]` is the number of strings of length r from state q to a wanted state. A string is then
drawn symbol by symbol, each with its share of what is left. Counts are kept as logarithms: there is no length at which
they overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(eq=False)
class StringSampler:
    """Strings through `table` (Q, V) from `start` that end in one of the states `wanted[g]`, (G, Q), for each kind g.

    The counts and their copies on other devices are kept between calls and grow with the lengths asked for.
    """

    table: Tensor
    start: int
    wanted: Tensor
    _ways: list[Tensor] = field(default_factory=list, init=False)  # [r] -> (G, Q)
    _copies: dict[torch.device, Tensor] = field(default_factory=dict, init=False)
    _places: dict[tuple[int, torch.device], Tensor | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._ways.append(torch.where(self.wanted, 0.0, -torch.inf).double())

    def log_ways(self, length: int) -> Tensor:
        """The logarithm of the number of strings of this length of each kind: (G,)."""
        while len(self._ways) <= length:
            self._ways.append(torch.logsumexp(self._ways[-1][:, self.table], dim=-1))  # (G, Q, V) -> (G, Q)
        return self._ways[length][:, self.start]

    def draw(self, kinds: Tensor | None, batch: int, length: int, generator: torch.Generator) -> Tensor:
        """(batch, length) symbols; row i is uniform among the strings of kind kinds[i] (None: all of kind 0)."""
        u = torch.rand(batch, length, generator=generator, device=generator.device, dtype=torch.float64)
        places = self._one_state_a_place(length, u.device) if kinds is None else None
        if places is not None:
            return _choose(places, u)
        kind = torch.zeros_like(u[:, 0], dtype=torch.long) if kinds is None else kinds
        ways, table = self._on(u.device, length), self.table.to(u.device)
        state = torch.full_like(kind, self.start)
        out = torch.empty(batch, length, dtype=torch.long, device=u.device)
        for t in range(length):
            ahead = table[state]  # (B, V)
            cumulative = _cumulative(ways[length - t - 1][kind[:, None], ahead])
            out[:, t] = _choose(cumulative, u[:, t])
            state = ahead.gather(1, out[:, t, None])[:, 0]
        return out

    def _on(self, device: torch.device, length: int) -> Tensor:
        """The counts for up to `length` more symbols, on a device: (R, G, Q)."""
        if device not in self._copies or len(self._copies[device]) <= length:
            self.log_ways(length)
            self._copies[device] = torch.stack(self._ways).to(device)
        return self._copies[device]

    def _one_state_a_place(self, length: int, device: torch.device) -> Tensor | None:
        """(L, V) cumulative shares if only one state is possible at each place, so that all can be drawn at once."""
        key = length, device
        if key not in self._places:
            self._places[key] = self._walk(length, device)
        return self._places[key]

    def _walk(self, length: int, device: torch.device) -> Tensor | None:
        self.log_ways(length)
        state, rows = self.start, []
        for t in range(length):
            ways = self._ways[length - t - 1][0, self.table[state]]  # (V,)
            there = set(self.table[state, ways > -torch.inf].tolist())
            if len(there) != 1:
                return None
            rows.append(_cumulative(ways))
            state = there.pop()
        return torch.stack(rows).to(device)


def _cumulative(log_ways: Tensor) -> Tensor:
    """The share of each symbol and of those before it, (..., V); a symbol without a way adds nothing."""
    return torch.softmax(log_ways, dim=-1).cumsum(-1)


def _choose(cumulative: Tensor, u: Tensor) -> Tensor:
    """The first symbol whose cumulative share exceeds u times the total, so always one with a share of its own."""
    total = cumulative[..., -1]
    wanted = torch.minimum(
        u * total, torch.nextafter(total, torch.zeros_like(total))
    )  # rounding must not reach the end
    return (cumulative <= wanted[..., None]).sum(-1)
