"""Sequence mixers as someone else would write them, for tests of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sdssm.layers import Mixer, MixerSettings
from sdssm.layers.initial import linear


@dataclass(frozen=True, kw_only=True)
class SumSettings(MixerSettings):
    """Settings of `Sum`."""

    state: int = 3


class Sum(Mixer):
    """The sum of all inputs so far."""

    name = "sum"
    Settings = SumSettings

    def __init__(self, width: int, settings: Any = None, *, generator: torch.Generator) -> None:
        super().__init__(width, settings or SumSettings())
        self.drive = linear(width, self.settings.state, generator)

    @property
    def outputs(self) -> int:
        state: int = self.settings.state
        return state

    def parts(self, u: Tensor) -> tuple[Tensor, ...]:
        return (self.drive(u),)

    def mix(
        self,
        parts: tuple[Tensor, ...],
        state: Any = None,
        *,
        lengths: Tensor | None = None,
        carry: bool = True,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        start = torch.zeros_like(parts[0][:, 0]) if state is None else state
        states = start[:, None] + parts[0].cumsum(1)
        return states, states[:, -1] if carry else None

    def mix_step(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        drive = self.parts(u)[0]
        state = drive if state is None else state + drive
        return state, state


class BranchingSum(Sum):
    """The same, with a branch on its data, which vmap does not support."""

    name = "branching-sum"

    def mix(self, parts: tuple[Tensor, ...], state: Any = None, **options: Any) -> tuple[Tensor, Any]:
        if bool(parts[0].abs().max() > 1e9):
            raise ValueError("too large")
        return super().mix(parts, state, **options)
