"""A mixer and what stands around it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from sdssm.errors import SettingsError
from sdssm.layers import MIXERS, Mixer, initial
from sdssm.models.readout import apply_dropout
from sdssm.models.settings import ModelSettings


def new_mixer(settings: ModelSettings, width: int, generator: torch.Generator) -> Mixer:
    """The mixer that the settings name."""
    return MIXERS[settings.name](width, settings.mixer, generator=generator)  # type: ignore[call-arg]  # every one has it


class Block(nn.Module):
    """One layer of a stack: h -> the inputs of the next.

        bare        mixer(h)
        pre-norm    h + W mixer(LayerNorm(h)), then with a feed-forward layer h + F(LayerNorm(h))
        post-norm   LayerNorm(h + W mixer(h)), then LayerNorm(h + F(h))
        last-bare   h + mixer(LayerNorm(h)), and mixer(LayerNorm(h)) alone in the last layer
        mlp         W' relu(W mixer(h)), as wide as a state if it has such, and mixer(h) alone in the last layer

    W is there where the mixer does not end in a linear map itself.
    """

    def __init__(self, settings: ModelSettings, width: int, *, last: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.kind, self.last = settings.blocks, last
        self.dropout = settings.block_dropout
        normed = self.kind in ("pre-norm", "post-norm", "last-bare")
        self.norm = nn.LayerNorm(width) if normed else None
        self.mixer = new_mixer(settings, width, generator)
        features = self.mixer.outputs
        residual = self.kind in ("pre-norm", "post-norm")
        if self.kind == "last-bare" and not last and features != width:
            raise SettingsError(
                f"block last-bare adds outputs of {features} entries to inputs of {width}; make them equally many, "
                "or set block=pre-norm"
            )
        self.projection = (
            initial.linear(features, width, generator) if residual and not self.mixer.has_output_projection else None
        )
        self.hidden = self.back = self.second_norm = None
        if self.kind == "mlp" and not last:
            width = getattr(settings.mixer, "state", width)
            self.hidden, self.back = (initial.linear(features, out, generator) for out in (features, width))
        elif settings.feed_forward is not None:
            self.second_norm = nn.LayerNorm(width)
            self.hidden = initial.linear(width, settings.feed_forward, generator)
            self.back = initial.linear(settings.feed_forward, width, generator)
        self.activation = functional.gelu if settings.activation == "gelu" and residual else torch.relu
        self.outputs = features if self.kind in ("bare", "last-bare") or (self.kind == "mlp" and last) else width

    @property
    def adds(self) -> bool:
        """Whether the outputs need the inputs as well."""
        return not (self.kind in ("bare", "mlp") or (self.kind == "last-bare" and self.last))

    def inputs(self, h: Tensor) -> Tensor:
        """What the mixer reads: (..., D) -> (..., D)."""
        return h if self.norm is None or self.kind == "post-norm" else self.norm(h)

    def after(self, h: Tensor, mixed: Tensor, noise: Sequence[Tensor] | None = None) -> Tensor:
        """The outputs, from inputs h and what the mixer made of them; noise on [0, 1) of h's shape decides on drops."""
        if self.kind == "bare" or (self.last and self.kind in ("last-bare", "mlp")):
            return mixed
        if self.kind == "last-bare":
            return h + mixed
        if self.kind == "mlp":
            return self._forward(mixed)
        first, second = noise or (None, None)
        h = h + apply_dropout(mixed if self.projection is None else self.projection(mixed), self.dropout, first)
        if self.kind == "pre-norm":
            if self.second_norm is not None:
                h = h + apply_dropout(self._forward(self.second_norm(h)), self.dropout, second)
            return h
        assert self.norm is not None
        h = self.norm(h)
        if self.second_norm is not None:
            h = self.second_norm(h + apply_dropout(self._forward(h), self.dropout, second))
        return h

    def _forward(self, h: Tensor) -> Tensor:
        assert self.hidden is not None and self.back is not None
        out: Tensor = self.back(self.activation(self.hidden(h)))
        return out
