"""R models of one shape side by side: parameters in one tensor, losses and gradients in one call."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from sdssm.errors import RunError
from sdssm.models import TokenModel

#: The prefixes of the optimizer's two moments in checkpoints, before the name of a parameter.
MOMENTS = ("adam.first.", "adam.second.")


class _Loss(nn.Module):
    """A module whose `forward` is the training loss of a model, for `functional_call`."""

    def __init__(self, model: TokenModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        noise = {name.removeprefix("noise."): value for name, value in inputs.items() if name.startswith("noise.")}
        options = {name: inputs[name] for name in ("lengths", "starts", "attraction", "classes") if name in inputs}
        return self.model.loss(inputs["tokens"], inputs["labels"], noise=noise, **options)


class Replicas:
    """The parameters and optimizer state of R replicas of one model shape.

    `flat` (R, P) are the parameters, `first` and `second` (R, P) Adam's moments, and `alive` (R,) is False for replicas
    that have diverged.

    A model is written without the replica axis; `torch.func.vmap` adds it. A single replica is called without vmap.
    """

    def __init__(self, models: Sequence[TokenModel], device: torch.device) -> None:
        self.template = _Loss(copy.deepcopy(models[0])).to(device).train()
        self.names = [name for name, _ in self.template.named_parameters()]
        self.file_names = [models[0].file_name(name) for name, _ in models[0].named_parameters()]  # in checkpoints
        leaves = [[leaf.detach() for leaf in model.parameters()] for model in models]
        self.flat = torch.stack([torch.cat([leaf.flatten() for leaf in row]) for row in leaves]).to(device)
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.shapes = [leaf.shape for leaf in leaves[0]]
        # Autograd leaves that share the memory of `flat`: there is one gradient for each, and they are concatenated.
        self.leaves = [part.detach().requires_grad_() for part in self._split(self.flat)]
        self.buffers = {
            f"model.{name}": torch.stack([dict(model.named_buffers())[name] for model in models]).to(device)
            for name, _ in models[0].named_buffers()
        }
        self._ones = torch.ones(len(models), device=device)
        self.alive = torch.ones(len(models), dtype=torch.bool, device=device)

    def __len__(self) -> int:
        return len(self.flat)

    def _split(self, flat: Tensor) -> list[Tensor]:
        """Split (..., P) into the parameters, (..., *shape) each."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes], dim=-1)
        return [part.view(*flat.shape[:-1], *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def gradient(self, inputs: Mapping[str, Tensor], ramped: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss (R,), number of correct predictions (R,) and gradient (R, P) on inputs (R, ...).

        `ramped` are the values (R,) of the buffers that follow a schedule.
        """
        buffers = {**self.buffers, **{f"model.{name}": value for name, value in ramped.items()}}
        parameters = dict(zip(self.names, self.leaves, strict=True))
        if len(self) == 1:
            # `squeeze` is a view: the backward pass of `value[0]` would fill and copy a tensor for each parameter.
            tensors = {name: value.squeeze(0) for name, value in {**parameters, **buffers}.items()}
            loss, correct = self._loss(tensors, {name: value.squeeze(0) for name, value in inputs.items()})
            loss, correct = loss.unsqueeze(0), correct.unsqueeze(0)
        else:
            loss, correct = vmap(self._loss)({**parameters, **buffers}, dict(inputs))
        grads = torch.autograd.grad(loss, self.leaves, self._ones)
        return loss.detach(), correct, torch.cat([grad.reshape(len(self), -1) for grad in grads], dim=1)

    def _loss(self, tensors: dict[str, Tensor], inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return loss and number of correct predictions of one replica with these parameters and buffers."""
        result: tuple[Tensor, Tensor] = functional_call(self.template, tensors, (inputs,))
        return result

    def leaf(self, name: str) -> Tensor | None:
        """Return a parameter of all replicas, (R, *shape), by its name in checkpoints; None if unknown."""
        return self.leaves[self.file_names.index(name)] if name in self.file_names else None

    # -- single replicas ---------------------------------------------------------------------------------------------

    def model(self, replica: int, ramped: Mapping[str, float], flat: Tensor | None = None) -> TokenModel:
        """Return a replica as a separate model, with these values of its ramped buffers.

        `flat` (R, P) replaces the parameters of the replicas.
        """
        model = copy.deepcopy(self.template.model)
        row = (self.flat if flat is None else flat)[replica]
        with torch.no_grad():
            for leaf, value in zip(model.parameters(), self._split(row), strict=True):
                leaf.copy_(value)
            for name, buffer in model.named_buffers():
                buffer.copy_(self.buffers[f"model.{name}"][replica])
                if name in ramped:
                    buffer.fill_(ramped[name])
        return model.eval()

    def moments(self, replica: int) -> dict[str, Tensor]:
        """Return the optimizer's moments of one replica by name, on the CPU."""
        return {
            prefix + name: part
            for prefix, flat in zip(MOMENTS, (self.first, self.second), strict=True)
            for name, part in zip(self.file_names, self._split(flat[replica].cpu()), strict=True)
        }

    def restore(self, replica: int, tensors: Mapping[str, Tensor]) -> None:
        """Load the parameters and moments of a replica from the tensors of a checkpoint."""
        for name, shape in zip(self.file_names, self.shapes, strict=True):
            for prefix in ("", *MOMENTS):
                value = tensors.get(prefix + name)
                if value is None or value.shape != shape:
                    size = "missing" if value is None else tuple(value.shape)
                    raise RunError(f"{prefix}{name} of the checkpoint is {size}, but the config says {tuple(shape)}")
        for prefix, flat in zip(("", *MOMENTS), (self.flat, self.first, self.second), strict=True):
            flat[replica] = self.joined(tensors, prefix).to(flat.device)
        for name, buffer in self.buffers.items():  # random but not trained, such as phases: as they were drawn
            value = tensors.get(self.template.model.file_name(name.removeprefix("model.")))
            if value is not None:
                buffer[replica] = value.to(self.flat.device)

    def joined(self, tensors: Mapping[str, Tensor], prefix: str = "") -> Tensor:
        """Return parameters by name as one row (P,)."""
        return torch.cat([tensors[prefix + name].flatten() for name in self.file_names])
