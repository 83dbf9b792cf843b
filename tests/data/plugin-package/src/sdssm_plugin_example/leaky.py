"""A leaky integrator as a sequence mixer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sdssm import ops
from sdssm.layers import Mixer, MixerSettings, initial
from sdssm.settings import check_settings, setting


@dataclass(frozen=True, kw_only=True)
class LeakySettings(MixerSettings):
    """Settings of `Leaky`."""

    state: int = setting(16, "N, entries of the state", least=1, most=4_096)

    def __post_init__(self) -> None:
        check_settings(self)


class Leaky(Mixer):
    """A leaky integrator, x_t = sigmoid(a) x_{t-1} + W u_t + b, entrywise."""

    name = "example-leaky"
    Settings = LeakySettings
    settings: LeakySettings
    emulates = "counts with a fading memory; no automaton with a cycle"

    def __init__(self, width: int, settings: LeakySettings | None = None, *, generator: torch.Generator) -> None:
        super().__init__(width, settings or LeakySettings())
        self.decay = initial.normal((self.settings.state,), generator)
        self.drive = initial.linear(width, self.settings.state, generator)

    @property
    def outputs(self) -> int:
        return self.settings.state

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        return (self.drive(u),)  # (..., N)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: Any = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        A = self.decay.sigmoid().expand_as(parts[0])  # (B, L, N)
        states, final = ops.diagonal_scan(A, parts[0], state, lengths=lengths)
        return states, final if carry else None

    def mix_step(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        x = u.new_zeros(len(u), self.settings.state) if state is None else state
        x = ops.diagonal_step(self.decay.sigmoid(), x, *self.parts(u))
        return x, x
