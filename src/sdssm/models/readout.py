"""The readout from features to logits: linear, with a hidden layer, or by cosine similarity."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sdssm import ops
from sdssm.layers import initial
from sdssm.models.settings import ModelSettings
from sdssm.ops.backend import has_kernels
from sdssm.ops.dropout import dropout
from sdssm.ops.linear import linear_map

#: The epsilon of LayerNorm, as published.
EPSILON = 1e-5


class Readout(nn.Module):
    """Map normalised features h (..., F) to logits (..., C).

        linear   W h + c
        mlp      W relu(W' h + c') + c, with dropout of the hidden units
        cosine   s cos(z, W_q) with z = h P, bounded by the scale s

    P (F, F) is learned, so that a state can hold information that is not yet visible in the output. The parameter, in
    memory and in files, is `projection` = P - I: it is zero at the start, and its decay leads P back to the identity.
    `projection_matrix` returns P.

    With the setting `centres` the cosine readout has several centres W_q for each label, one for each state of the
    automaton. They are not trained. `centre_labels` holds their labels, -1 for a centre that is not used. The logit of
    a label is that of its nearest centre.
    """

    def __init__(self, settings: ModelSettings, features: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.kind, self.dropout = settings.readout, settings.dropout
        self.hidden = initial.linear(features, settings.hidden, generator) if self.kind == "mlp" else None
        inner = settings.hidden if self.kind == "mlp" else features
        rows = settings.centres or settings.state_embedding or classes
        self.weight = initial.uniform((rows, inner), inner**-0.5, generator)
        self.classes = classes
        self.register_buffer("centre_labels", None if settings.centres is None else torch.full((rows,), -1))
        self.centre_labels: Tensor | None
        if settings.centres is not None:
            # Centres that are trained drift towards each other, and exact maps between them are harder to find.
            self.weight = initial.orthogonal_rows(rows, inner, generator)
            self.weight.requires_grad_(False)
        no_bias = self.kind == "cosine" or settings.state_embedding is not None or not settings.readout_bias
        self.bias = None if no_bias else initial.uniform((classes,), inner**-0.5, generator)
        has_projection = self.kind == "cosine" and settings.projection
        self.projection = nn.Parameter(torch.zeros(features, features)) if has_projection else None
        self.register_buffer("scale", initial.scalar_buffer(settings.scale) if self.kind == "cosine" else None)
        self.scale: Tensor | None

    def forward(self, h: Tensor, vectors: Tensor | None = None, noise: Tensor | None = None) -> Tensor:
        """Return logits (..., C) of features h (..., F).

        `vectors` (C, M) are the fixed vectors of the classes with a state embedding; `noise` are uniform random numbers
        on [0, 1) for dropout, None for no dropout.
        """
        weight = self._rows(vectors)
        if self.scale is not None:
            z = self._project(h)
            logits = self.scale * functional.linear(
                functional.normalize(z, dim=-1), functional.normalize(weight, dim=-1)
            )
            return logits if self.centre_labels is None else self._best_of_labels(logits)
        if self.hidden is not None:
            h = self._hidden_units(h, noise)
        return functional.linear(h, weight, self.bias)

    def _hidden_units(self, h: Tensor, noise: Tensor | None) -> Tensor:
        """Return the hidden units after dropout: (..., F) -> (..., H)."""
        assert self.hidden is not None
        return dropout(linear_map(h, self.hidden.weight, self.hidden.bias, "relu"), noise, self.dropout)

    def assign_centres(self, labels: Tensor) -> None:
        """Let the first centres stand for states with these labels, (Q,)."""
        assert self.centre_labels is not None
        self.centre_labels.fill_(-1)
        self.centre_labels[: len(labels)] = labels

    def _best_of_labels(self, logits: Tensor) -> Tensor:
        """Return the logit of the nearest centre of each label: (..., M) -> (..., C)."""
        assert self.scale is not None and self.centre_labels is not None
        lowest = (-self.scale).expand(*logits.shape[:-1], self.classes + 1)  # a cosine is at least -1
        # Centres that are not used are collected in a class of their own, which is left out.
        labels = torch.where(self.centre_labels < 0, self.classes, self.centre_labels).expand_as(logits)
        return lowest.scatter_reduce(-1, labels, logits, "amax")[..., : self.classes]

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
        exact_gradient: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the number of correct predictions, for features x (B, F) before the norm.

        The loss is the cross-entropy of the labels (B,). With the cosine readout a centre loss is added, whose weight
        is the setting `attraction` (): the mean of |z - W_label|^2, weighted by the margin of correctly classified
        strings and divided by the variance of the class centres W_q. It pulls the features of a class to its centre,
        and still has a gradient when all predictions are correct. `classes` (C,) are 1 for the classes that occur in
        the task and 0 for the others, which have no centre. `exact_gradient`: see `ops.cross_entropy`.

        With a centre for each state it is the cross-entropy of the labels alone; `state_targets.state_loss` is the loss
        that such a model is trained with.
        """
        if self.hidden is not None and has_kernels(x):  # on a CPU the operations of torch are faster
            h, bias = self._hidden_units(x if norm is None else norm(x), noise), self.bias
            weight = self._rows(vectors)
            return ops.readout_loss(h, weight, labels, bias=bias, norm=False, exact_gradient=exact_gradient)
        if self.hidden is not None or self.centre_labels is not None:
            logits = self(x if norm is None else norm(x), vectors, noise)
            loss = ops.cross_entropy(logits, labels, exact_gradient=exact_gradient)
            return loss, (logits.argmax(-1) == labels).sum()
        weight = self._rows(vectors)
        if attraction is not None and classes is None:
            classes = weight.new_ones(len(weight))
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
            attraction=attraction,
            projection=self.projection,
            unit=self.projection is not None or attraction is not None,  # h has norm 1
            classes=None if attraction is None else classes,
            exact_gradient=exact_gradient,
        )

    def projection_matrix(self) -> Tensor | None:
        """Return P (F, F) of the cosine readout, z = h P; None if there is no projection.

        >>> readout = Readout(ModelSettings(), 3, 2, torch.Generator().manual_seed(0))
        >>> readout.projection_matrix().tolist()  # before training
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        if self.projection is None:
            return None
        return torch.eye(len(self.projection)).to(self.projection) + self.projection

    def _project(self, h: Tensor) -> Tensor:
        return h if self.projection is None else h + h @ self.projection

    def _rows(self, vectors: Tensor | None) -> Tensor:
        """Return one row of weights for each class; with vectors X, X (W h) is computed as (X W) h."""
        return self.weight if vectors is None else vectors @ self.weight


def make_layer_norm(kind: str, width: int) -> nn.LayerNorm | None:
    """Build the LayerNorm before the readout; None for kind "none"."""
    return None if kind == "none" else initial.LayerNorm(width, eps=EPSILON, elementwise_affine=kind == "affine")
