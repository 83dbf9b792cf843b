"""One layer of a model: a mixer with its normalisation, residual connection and feed-forward layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sdssm.errors import SettingsError
from sdssm.layers import Mixer, initial
from sdssm.models.recorded_models import find_recorded_entry
from sdssm.models.settings import ModelSettings
from sdssm.ops.linear import linear_map
from sdssm.ops.residual import residual_norm
from sdssm.ops.residual.reference import drop


def build_mixer(settings: ModelSettings, width: int, generator: torch.Generator) -> Mixer:
    """Build the mixer that the settings name."""
    entry = find_recorded_entry(settings.name, settings.import_path, trust=False, source="the config")
    mixer: Mixer = entry.mixer(width, settings.mixer, generator=generator)
    return mixer


class Block(nn.Module):
    """One layer of a model: h (..., D) -> the inputs of the next layer.

        bare        mixer(h)
        pre-norm    h + W mixer(LayerNorm(h)), then with a feed-forward layer h + F(LayerNorm(h))
        post-norm   LayerNorm(h + W mixer(h)), then LayerNorm(h + F(h))
        last-bare   h + mixer(LayerNorm(h)); in the last layer mixer(LayerNorm(h))
        mlp         W' relu(W mixer(h)), as wide as the state if there is one; in the last layer mixer(h)

    W is left out if the mixer ends in a linear map itself.
    """

    def __init__(self, settings: ModelSettings, width: int, *, last: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.kind, self.is_last = settings.blocks, last
        self.dropout = settings.block_dropout
        has_norm = self.kind in ("pre-norm", "post-norm", "last-bare")
        self.norm = initial.LayerNorm(width) if has_norm else None
        self.mixer = build_mixer(settings, width, generator)
        features = self.mixer.outputs
        residual = self.kind in ("pre-norm", "post-norm")
        if self.kind == "last-bare" and not last and features != width:
            raise SettingsError(
                f"block last-bare adds outputs of width {features} to inputs of width {width}; make the widths equal, "
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
            self.second_norm = initial.LayerNorm(width)
            self.hidden = initial.linear(width, settings.feed_forward, generator)
            self.back = initial.linear(settings.feed_forward, width, generator)
        self.activation = settings.activation if residual else "relu"
        self.outputs = features if self.kind in ("bare", "last-bare") or (self.kind == "mlp" and last) else width

    @property
    def is_residual(self) -> bool:
        """Whether `combine` uses the inputs of the block."""
        return not (self.kind in ("bare", "mlp") or (self.kind == "last-bare" and self.is_last))

    def inputs(self, h: Tensor) -> Tensor:
        """Return the inputs of the mixer: (..., D) -> (..., D)."""
        return h if self.norm is None or self.kind == "post-norm" else self.norm(h)

    def combine(self, h: Tensor, mixed: Tensor, noise: Tensor | None = None, slot: int = 0) -> Tensor:
        """Return the outputs of the block, from its inputs h and the outputs of the mixer.

        `noise` are uniform random numbers (L, J, B, D) for the J dropouts of all blocks, of which those of this block
        are `slot` and `slot + 1`; h is then (B, L, D). None: no dropout.
        """
        if self.kind == "bare" or (self.is_last and self.kind in ("last-bare", "mlp")):
            return mixed
        if self.kind == "last-bare":
            return h + mixed
        if self.kind == "mlp":
            return self._feed_forward(mixed)
        if self.projection is not None:
            mixed = self.projection(mixed)
        if self.kind == "pre-norm":
            if self.second_norm is None:
                return h + drop(mixed, noise, slot, self.dropout)
            normal, h = self._add_and_normalise(self.second_norm, h, mixed, noise, slot)
            return h + drop(self._feed_forward(normal), noise, slot + 1, self.dropout)
        assert self.norm is not None
        h, _ = self._add_and_normalise(self.norm, h, mixed, noise, slot)
        if self.second_norm is not None:
            h, _ = self._add_and_normalise(self.second_norm, h, self._feed_forward(h), noise, slot + 1)
        return h

    def _add_and_normalise(
        self, norm: nn.LayerNorm, h: Tensor, x: Tensor, noise: Tensor | None, slot: int
    ) -> tuple[Tensor, Tensor]:
        """Return LayerNorm(h + dropout(x)), and h + dropout(x)."""
        return residual_norm(h, x, norm.weight, norm.bias, noise=noise, slot=slot, rate=self.dropout, epsilon=norm.eps)

    def _feed_forward(self, h: Tensor) -> Tensor:
        assert self.hidden is not None and self.back is not None
        out: Tensor = self.back(linear_map(h, self.hidden.weight, self.hidden.bias, self.activation))
        return out
