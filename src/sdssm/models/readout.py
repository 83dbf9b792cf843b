"""From features to classes: linear, through a hidden layer, or the bounded cosine."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sdssm import ops
from sdssm.layers import initial
from sdssm.models.settings import ModelSettings

#: LayerNorm's epsilon, as published.
EPSILON = 1e-5


class Readout(nn.Module):
    """Logits (..., C) of normalised features (..., F).

    linear: W h + c. mlp: W relu(W' h + c') + c with dropout in between. cosine: s cos(z, W_q), bounded by s, of
    z = h P with a learned P = I + `projection`: what the machine must remember but not yet tell has room beside it.
    """

    def __init__(self, settings: ModelSettings, features: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.kind, self.dropout = settings.readout, settings.dropout
        self.hidden = initial.linear(features, settings.hidden, generator) if self.kind == "mlp" else None
        inner = settings.hidden if self.kind == "mlp" else features
        rows = settings.state_embedding or classes
        self.weight = initial.uniform((rows, inner), inner**-0.5, generator)
        free = self.kind == "cosine" or settings.state_embedding is not None or not settings.readout_bias
        self.bias = None if free else initial.uniform((classes,), inner**-0.5, generator)
        projected = self.kind == "cosine" and settings.projection
        self.projection = nn.Parameter(torch.zeros(features, features)) if projected else None
        self.register_buffer("scale", initial.scalar_buffer(settings.scale) if self.kind == "cosine" else None)
        self.scale: Tensor | None

    def forward(self, h: Tensor, vectors: Tensor | None = None, noise: Tensor | None = None) -> Tensor:
        """Features, the classes' fixed vectors (C, F') if they have such, numbers on [0, 1) for dropout -> logits."""
        weight = self._rows(vectors)
        if self.scale is not None:
            z = self._projected(h)
            return self.scale * functional.linear(functional.normalize(z, dim=-1), functional.normalize(weight, dim=-1))
        if self.hidden is not None:
            h = torch.relu(self.hidden(h))
            h = apply_dropout(h, self.dropout, noise)
        return functional.linear(h, weight, self.bias)

    def loss(
        self,
        x: Tensor,
        labels: Tensor,
        norm: nn.LayerNorm | None,
        *,
        vectors: Tensor | None = None,
        noise: Tensor | None = None,
        attraction: Tensor | None = None,
        classes: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy of features (B, F) before their norm, and how many labels (B,) are right.

        With a cosine, `attraction` times the mean of |z - W_label|^2 over the spread of the W_q is added: strings that
        are told right, the more so the wider their margin, are pulled to one place for each class. It is zero only
        where each of them is there, and so it presses on when every label is already right.
        `classes` (C,) are 1 for those that occur, which alone have a place.
        """
        if self.hidden is not None:
            logits = self(x if norm is None else norm(x), vectors, noise)
            return functional.cross_entropy(logits, labels), (logits.argmax(-1) == labels).sum()
        weight = self._rows(vectors)
        if self.projection is not None or attraction is not None:
            x = self._projected(x if norm is None else norm(x)) * x.shape[-1] ** -0.5  # h has length 1
            norm = None  # done
        return ops.readout_loss(
            x,
            weight,
            labels,
            bias=self.bias,
            gain=None if norm is None else norm.weight,
            shift=None if norm is None else norm.bias,
            norm=norm is not None,
            cosine=self.scale is not None,
            scale=self.scale,
            attraction=None if attraction is None else attraction / spread(weight, classes),
        )

    def _projected(self, h: Tensor) -> Tensor:
        return h if self.projection is None else h + h @ self.projection

    def _rows(self, vectors: Tensor | None) -> Tensor:
        """One row of weights a class: X (M h) is (X M) h."""
        return self.weight if vectors is None else vectors @ self.weight


def spread(weight: Tensor, classes: Tensor | None) -> Tensor:
    """The mean squared distance of the rows (C, F) from their mean, over the classes that count."""
    share = weight.new_ones(len(weight)) if classes is None else classes
    share = (share / share.sum())[:, None]
    return (share * (weight - (share * weight).sum(0)).square()).sum().clamp(min=1e-12)


def apply_dropout(x: Tensor, share: float, noise: Tensor | None) -> Tensor:
    """Without the entries whose noise on [0, 1) is below a share, the others larger by as much; all without noise."""
    return x if noise is None else x * (noise >= share) / (1 - share)


def make_layer_norm(kind: str, width: int) -> nn.LayerNorm | None:
    """The norm before a readout."""
    return None if kind == "none" else nn.LayerNorm(width, eps=EPSILON, elementwise_affine=kind == "affine")
