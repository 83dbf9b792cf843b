"""R models of one shape side by side: parameters in one tensor, losses and gradients in one call."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from sdssm.models import Classifier, TokenModel, WrappedModule
from sdssm.models.names import tensors_for_file
from sdssm.models.state_targets import state_loss
from sdssm.ops import backend
from sdssm.training.adam import MOST_PACKED, join_parts
from sdssm.training.batch_pieces import gradient_of_pieces
from sdssm.training.direct_gradient import DirectGradient, supports
from sdssm.training.parameter_rows import ParameterRows, check_tensors, zip_slots


@dataclass(frozen=True)
class HostStep:
    """What the host knows of a step that runs eagerly: its number, and length and random seed of each replica."""

    step: int
    lengths: tuple[int, ...]
    seeds: tuple[int, ...]


class Replicas(ParameterRows):
    """R replicas of one model shape, with their losses and gradients."""

    def __init__(self, models: Sequence[TokenModel], device: torch.device) -> None:
        super().__init__(models, device)
        #: Whether they read whole strings only, so that strings cannot be padded to a common length.
        self.reads_strings = isinstance(models[0], WrappedModule) and models[0].reads == "strings"
        #: The setting of the training: keep the gradient of the label exact near a loss of zero.
        self.exact_gradient = False

    @abstractmethod
    def gradient_parts(
        self, inputs: Mapping[str, Tensor], ramped: Mapping[str, Tensor], host: HostStep | None = None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return loss (R,), number of correct predictions (R,) and gradients on inputs (R, ...).

        The gradients (R, *shape) of the parameters follow each other as in a row of `flat`; one may stand for several.
        `ramped` are the values (R,) of the buffers that follow a schedule.
        """

    def gradient(
        self, inputs: Mapping[str, Tensor], ramped: Mapping[str, Tensor], host: HostStep | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, number of correct predictions and gradient (R, P), see `gradient_parts`."""
        loss, correct, parts = self.gradient_parts(inputs, ramped, host)
        return loss, correct, join_parts(parts)

    @abstractmethod
    def noise_shapes(self, batch: int, length: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the noise that one model needs for tokens (B, L), by name."""

    @abstractmethod
    def model(
        self,
        replica: int,
        ramped: Mapping[str, float],
        row: Tensor | None = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> TokenModel:
        """Return a replica as a separate model, in evaluation mode, with these values of its ramped buffers.

        `row` (P,) replaces its parameters, and `buffers` what `trained_buffers` returned earlier.
        """

    @abstractmethod
    def restore(self, replica: int, tensors: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Load a replica from a checkpoint: the tensors of the model, and those of the optimizer, by name."""

    def trained_buffers(self, replica: int) -> dict[str, Tensor]:
        """Return copies of the buffers that training may change, such as running means, by their names in files."""
        return {}

    #: The parameters once more, slot after slot, (R * P,), which `adam_step` writes as well; None if there is no copy.
    packed: Tensor | None = None

    def parameters_changed(self) -> None:  # most need nothing
        """Tell the models that `flat` has changed."""


class _Loss(nn.Module):
    """A module whose `forward` is the training loss of a model, for `functional_call`."""

    def __init__(self, model: TokenModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Mapping[str, Tensor], exact_gradient: bool) -> tuple[Tensor, Tensor]:
        return loss_on_inputs(self.model, inputs, exact_gradient=exact_gradient)


def loss_on_inputs(model: TokenModel, inputs: Mapping[str, Tensor], *, exact_gradient: bool) -> tuple[Tensor, Tensor]:
    """Return loss and number of correct predictions of one model on the inputs of one step, by name."""
    if "transitions" in inputs:
        assert isinstance(model, Classifier)
        targets = {name: inputs[name] for name in ("states", "before", "transitions", "next_state")}
        return state_loss(
            model,
            inputs["tokens"],
            inputs["labels"],
            lengths=inputs.get("lengths"),
            exact_gradient=exact_gradient,
            **targets,
        )
    noise = {name.removeprefix("noise."): value for name, value in inputs.items() if name.startswith("noise.")}
    names = ("lengths", "ends", "starts", "attraction", "classes", "gain_penalty")
    options = {name: inputs[name] for name in names if name in inputs}
    return model.loss(inputs["tokens"], inputs["labels"], noise=noise, exact_gradient=exact_gradient, **options)


class SideBySideReplicas(Replicas):
    """Replicas whose losses and gradients are computed in one call.

    A model is written without the replica axis; `torch.func.vmap` adds it. A single replica is called without vmap.
    """

    def __init__(self, models: Sequence[TokenModel], device: torch.device) -> None:
        super().__init__(models, device)
        self.template = _Loss(copy.deepcopy(models[0])).to(device).train()
        # On a GPU the kernels read parameters that are contiguous. Those of several replicas are not in `flat`, and to
        # copy them for each operation takes several kernels a step; `adam_step` writes this copy at once.
        is_on_gpu = backend.is_on_gpu(self.flat)
        is_copied = is_on_gpu and len(models) > 1 and len(self.slots) <= MOST_PACKED
        is_copied = is_copied and all(slot.dtype == torch.float32 for slot in self.slots)
        self.packed = torch.empty_like(self.flat).view(-1) if is_copied else None
        self._copy_leaves()
        # Autograd leaves that share the memory of `packed` or `flat`: there is one gradient for each.
        self.leaves = [part.detach().requires_grad_() for part in self._parameters()]
        self.names = [f"model.{slot.name}" for slot in self.slots]
        self.constants = {  # buffers, and parameters that are not trained
            f"model.{name}": torch.stack([_constants(model)[name] for model in models]).to(device)
            for name in _constants(models[0])
        }
        self._ones = torch.ones(len(models), dtype=self.flat.dtype, device=device)
        is_bound = len(models) == 1 and not is_on_gpu and isinstance(models[0], Classifier)
        self._bound = self._bind() if is_bound and all(slot.dtype == self.flat.dtype for slot in self.slots) else None
        has_direct = self._bound is not None and supports(self._bound.model)
        self._direct = DirectGradient(self._bound.model) if self._bound is not None and has_direct else None

    def _bind(self) -> _Loss:
        """Return the loss of the only replica, whose parameters and buffers share the memory of its row.

        `functional_call` would put every tensor into the module and take it out again, in each step.
        """
        bound = copy.deepcopy(self.template)
        for (_, parameter), part in zip(zip_slots(self.slots, bound.model), self.split(self.flat), strict=True):
            parameter.data = part.squeeze(0)
        for name, tensor in _tensors_held(bound.model).items():
            tensor.data = self.constants[f"model.{name}"].squeeze(0)
        return bound

    def _parameters(self) -> list[Tensor]:
        """Return the parameters of all replicas, (R, *shape) each, that the losses are computed from."""
        if self.packed is None:
            return self.split(self.flat)
        rows = torch.split(self.packed, [len(self) * slot.size for slot in self.slots])
        return [slot.unpack(part.view(len(self), -1)) for slot, part in zip(self.slots, rows, strict=True)]

    @torch.no_grad()
    def _copy_leaves(self) -> None:
        """Copy the parameters in `flat` to `packed`, if there is one."""
        if self.packed is not None:
            rows = torch.split(self.flat, [slot.size for slot in self.slots], dim=-1)
            torch.cat([part.flatten() for part in rows], out=self.packed)

    def gradient_parts(
        self, inputs: Mapping[str, Tensor], ramped: Mapping[str, Tensor], host: HostStep | None = None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        if self._bound is not None:
            return self._bound_gradient_parts(self._bound, inputs, ramped)
        constants = {**self.constants, **{f"model.{name}": value for name, value in ramped.items()}}
        parameters = dict(zip(self.names, self.leaves, strict=True))
        if len(self) == 1:
            # `squeeze` is a view: the backward pass of `value[0]` would fill and copy a tensor for each parameter.
            tensors = {name: value.squeeze(0) for name, value in {**parameters, **constants}.items()}
            loss, correct = self._loss(tensors, {name: value.squeeze(0) for name, value in inputs.items()})
            loss, correct = loss.unsqueeze(0), correct.unsqueeze(0)
        else:
            loss, correct = vmap(self._loss)({**parameters, **constants}, dict(inputs))
        if not backend.is_on_gpu(loss):
            # The same gradients. With gradients of its outputs given, torch imports sympy: a quarter of a second.
            grads = torch.autograd.grad(loss.sum(), self.leaves, allow_unused=True)
        else:  # no kernels for the sum and its gradient
            grads = torch.autograd.grad(loss, self.leaves, self._ones, allow_unused=True)
        parts = [
            torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(self.leaves, grads, strict=True)
        ]
        return loss.detach(), correct, parts

    def _bound_gradient_parts(
        self, bound: _Loss, inputs: Mapping[str, Tensor], ramped: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return what `gradient_parts` does, for a replica that is bound to its row."""
        for name, value in ramped.items():
            self.constants[f"model.{name}"].copy_(value)
        if self._direct is not None and self._direct.applies(inputs):
            return self._direct.gradient_parts(
                inputs["tokens"],
                inputs["labels"],
                attraction=inputs.get("attraction"),
                classes=inputs.get("classes"),
                exact_gradient=self.exact_gradient,
            )
        parameters = [parameter for parameter in bound.parameters() if parameter.requires_grad]

        def gradient(piece: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
            loss, correct = bound(piece, self.exact_gradient)
            grads = torch.autograd.grad(loss, parameters, allow_unused=True)
            parts = [
                torch.zeros_like(parameter) if grad is None else grad
                for parameter, grad in zip(parameters, grads, strict=True)
            ]
            return loss.detach(), correct, parts

        own = {name: value.squeeze(0) for name, value in inputs.items()}
        # Attention consists of large products of torch, which are worth a second thread. Scans have compiled kernels.
        has_attention = self.template.model.numbers_per_pair > 0
        loss, correct, parts = gradient_of_pieces(gradient, own) if has_attention else gradient(own)
        return loss.unsqueeze(0), correct.unsqueeze(0), [part.unsqueeze(0) for part in parts]

    def _loss(self, tensors: dict[str, Tensor], inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return loss and number of correct predictions of one replica with these parameters and buffers."""
        result: tuple[Tensor, Tensor] = functional_call(self.template, tensors, (inputs, self.exact_gradient))
        return result

    def noise_shapes(self, batch: int, length: int) -> dict[str, tuple[int, ...]]:
        return self.template.model.noise_shapes(batch, length)

    def model(
        self,
        replica: int,
        ramped: Mapping[str, float],
        row: Tensor | None = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> TokenModel:
        model = copy.deepcopy(self.template.model)
        values = self.split(self.flat[replica] if row is None else row)
        with torch.no_grad():
            for (_, leaf), value in zip(zip_slots(self.slots, model), values, strict=True):
                leaf.copy_(value)
            for name, constant in _constants(model).items():
                constant.copy_(self.constants[f"model.{name}"][replica])
                if name in ramped:
                    constant.fill_(ramped[name])
        return model.eval()

    def restore(self, replica: int, tensors: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        model = self.template.model
        if isinstance(model, WrappedModule):  # its code may have changed since
            shapes = {name: value.shape for name, value in tensors_for_file(model).items()}
            check_tensors(self.model_name, shapes, tensors)
        self.restore_rows(replica, tensors, optimizer)
        self._copy_leaves()
        for name, constant in self.constants.items():  # random but not trained, such as phases: as they were drawn
            value = tensors.get(model.file_name(name.removeprefix("model.")))
            if value is not None:
                constant[replica] = value.to(self.flat.device)


def _constants(model: TokenModel) -> dict[str, Tensor]:
    """Return the buffers of a model and the values of its parameters that are not trained."""
    return {name: tensor.detach() for name, tensor in _tensors_held(model).items()}


def _tensors_held(model: TokenModel) -> dict[str, Tensor]:
    """Return the tensors of a model that are not trained: buffers, and parameters without gradients."""
    frozen = {name: parameter for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {**frozen, **dict(model.named_buffers())}
