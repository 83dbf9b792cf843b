"""The gradient of a single-layer SD-SSM on a CPU, computed without autograd.

A step of the paper's models is so short that autograd, the checks of arguments and the code between three operations
took more than half of it. Here the same implementations are called one after the other, so that loss and gradient are
bit-identical to those of autograd.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sdssm.layers.selective_dense import SelectiveDense
from sdssm.models import Classifier, TokenModel
from sdssm.ops import backend, compiled
from sdssm.ops.readout import cpu as readout
from sdssm.ops.selected import cpu as selected
from sdssm.ops.token import cpu as token

#: The inputs of a step, without and with a centre loss.
INPUTS = ({"tokens", "labels"}, {"tokens", "labels", "attraction", "classes"})


class DirectGradient:
    """Loss and gradient of a model whose parameters keep their memory.

    The model must satisfy `supports`.
    """

    def __init__(self, model: TokenModel) -> None:
        assert supports(model)
        self._model = model
        # Views with the axis of replicas that the implementations expect.
        self._views = {name: value.detach().unsqueeze(0) for name, value in _tensors(model).items()}
        names = {parameter: name for name, parameter in _tensors(model).items()}
        self._trained = [names[parameter] for parameter in model.parameters() if parameter.requires_grad]

    def applies(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether the loss on these inputs of a step, by name, is computed here, with the backend in use.

        Without numba the mode of the scan depends on its size.
        """
        value = self._views["dictionary"]
        is_on_cpu = backend.choose(value) == "cpu" and not backend.is_autocast_enabled(value)
        return inputs.keys() in INPUTS and is_on_cpu and compiled.is_available()

    @torch.no_grad()
    def gradient_parts(
        self,
        tokens: Tensor,
        labels: Tensor,
        *,
        attraction: Tensor | None = None,
        classes: Tensor | None = None,
        exact_gradient: bool,
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return loss (1,), number of correct predictions (1,) and the gradients (1, *shape) of the parameters.

        tokens (1, B, L), labels (1, B); for the centre loss attraction (1,) and classes (1, C).
        """
        value, tokens, labels = self._views.get, tokens.contiguous(), labels.contiguous()
        mixture = self._views["dictionary"], self._views["selection"], self._views["selection_bias"], value("p")
        A, *saved = selected.forward(*mixture)
        drive, start = value("input_matrix"), value("initial_state")
        b = None if drive is None else drive.mT.contiguous()
        x0 = None if start is None else start.expand(tokens.shape[1], -1)[None].contiguous()
        rescale = self._rescale
        states, final, factors = token.forward(A, b, tokens, x0, None, rescale=rescale, mode="recurrent")
        vectors = value("bias"), value("gain"), value("shift")
        scale, projection = value("scale"), value("projection")
        loss, correct, g_final, g_weight, g_bias, g_gain, g_shift, _, g_projection = readout.forward(
            final.contiguous(), self._views["weight"], *vectors, labels, scale, attraction, projection, classes,
            norm=self._has_norm, cosine=scale is not None, unit=projection is not None or attraction is not None,
            exact_gradient=exact_gradient, with_gradients=True,
        )  # fmt: skip
        g_A, g_b, g_x0 = token.backward(
            None, g_final, A, b, tokens, x0, None, states, factors, rescale=rescale, mode="recurrent"
        )
        gradients = dict(
            zip(("dictionary", "selection", "selection_bias"), selected.backward(g_A, *mixture, A, *saved), strict=True)
        )
        gradients |= {"weight": g_weight, "bias": g_bias, "gain": g_gain, "shift": g_shift, "projection": g_projection}
        gradients["initial_state"] = g_x0.sum(1)
        if g_b is not None:
            gradients["input_matrix"] = g_b.mT
        return loss, correct, [gradients[name] for name in self._trained]

    @property
    def _rescale(self) -> bool:
        return bool(self._model.mixers[0].settings.rescale)

    @property
    def _has_norm(self) -> bool:
        return self._model.norm is not None


def supports(model: TokenModel) -> bool:
    """Whether a model is a single-layer SD-SSM on a CPU with a linear or cosine readout, without further operations."""
    if not isinstance(model, Classifier) or not model.is_single_sd_ssm or model.device.type != "cpu":
        return False
    mixer, out = model.mixers[0], model.readout
    return (
        isinstance(mixer, SelectiveDense)
        and not (mixer.settings.is_constrained or mixer.settings.is_tempered)
        and mixer.settings.initial_state != "given"
        and mixer.selection.bias is not None
        and all(
            part is None for part in (model.query, model.skip, model.start, model.vectors, model._scaled_embedding())
        )
        and model.blocks[0].norm is None
        and out.hidden is None
        and out.centre_labels is None
        and {tensor.dtype for tensor in _tensors(model).values()} <= {torch.float32}
        and all(parameter in set(_tensors(model).values()) for parameter in model.parameters())
    )


def _tensors(model: TokenModel) -> dict[str, Tensor]:
    """Return the parameters of such a model, the exponent of its columns and its scale, by the names of their roles."""
    mixer, out, norm = model.mixers[0], model.readout, model.norm
    tensors = {
        "dictionary": mixer.dictionary, "selection": mixer.selection.weight, "selection_bias": mixer.selection.bias,
        "p": mixer.column_norm, "input_matrix": mixer.input_matrix, "initial_state": mixer.initial_state,
        "weight": out.weight, "bias": out.bias, "scale": out.scale, "projection": out.projection,
        "gain": None if norm is None else norm.weight, "shift": None if norm is None else norm.bias,
    }  # fmt: skip
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}
