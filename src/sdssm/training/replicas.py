"""R models of one shape side by side: their parameters in one buffer, their losses in one call."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from sdssm.errors import RunError
from sdssm.models import Classifier
from sdssm.models.names import file_name

#: What the checkpoints call the optimiser's two moments; a parameter's name follows.
MOMENTS = ("adam.first.", "adam.second.")


class _Loss(nn.Module):
    """`functional_call` calls `forward`; this one is the training loss."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        noise = {name.removeprefix("noise."): value for name, value in given.items() if name.startswith("noise.")}
        options = {name: given[name] for name in ("lengths", "starts", "attraction", "classes") if name in given}
        return self.model.loss(given["tokens"], given["labels"], noise=noise, **options)


class Replicas:
    """The models' parameters as rows of `flat` (R, P), Adam's moments beside it, and who is still alive.

    A model is written for one; `torch.func.vmap` makes it many, and a single one is called as it is.
    """

    def __init__(self, models: Sequence[Classifier], device: torch.device) -> None:
        self.template = _Loss(copy.deepcopy(models[0])).to(device).train()
        self.names = [name for name, _ in self.template.named_parameters()]
        self.file_names = [file_name(models[0], name) for name, _ in models[0].named_parameters()]  # in checkpoints
        leaves = [[leaf.detach() for leaf in model.parameters()] for model in models]
        self.flat = torch.stack([torch.cat([leaf.flatten() for leaf in row]) for row in leaves]).to(device)
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.shapes = [leaf.shape for leaf in leaves[0]]
        # Leaves of their own that share the buffer's memory: their gradients come one by one, and are joined again.
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
        """(..., P) -> each parameter, (..., *shape)."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes], dim=-1)
        return [part.view(*flat.shape[:-1], *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def gradient(self, given: Mapping[str, Tensor], changing: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Loss (R,), right answers (R,) and gradient (R, P) on `given` (R, ...), with `changing` buffers (R,)."""
        buffers = {**self.buffers, **{f"model.{name}": value for name, value in changing.items()}}
        parameters = dict(zip(self.names, self.leaves, strict=True))
        if len(self) == 1:
            # Views without a gradient of their own: `value[0]` would fill and copy a tensor for each parameter.
            alone = {name: value.squeeze(0) for name, value in {**parameters, **buffers}.items()}
            loss, right = functional_call(self.template, alone, ({k: value.squeeze(0) for k, value in given.items()},))
            loss, right = loss.unsqueeze(0), right.unsqueeze(0)
        else:
            loss, right = vmap(self._one)({**parameters, **buffers}, dict(given))
        grads = torch.autograd.grad(loss, self.leaves, self._ones)
        return loss.detach(), right, torch.cat([grad.reshape(len(self), -1) for grad in grads], dim=1)

    def _one(self, tensors: dict[str, Tensor], given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = functional_call(self.template, tensors, (given,))
        return found

    def leaf(self, name: str) -> Tensor | None:
        """A parameter of all replicas, (R, *shape), by its name in checkpoints; None if there is none of this name."""
        return self.leaves[self.file_names.index(name)] if name in self.file_names else None

    # -- one of them -------------------------------------------------------------------------------------------------

    def model(self, replica: int, changing: Mapping[str, float], flat: Tensor | None = None) -> Classifier:
        """A replica as a model of its own, with what its changing buffers are now; with other parameters if given."""
        model = copy.deepcopy(self.template.model)
        row = (self.flat if flat is None else flat)[replica]
        with torch.no_grad():
            for leaf, value in zip(model.parameters(), self._split(row), strict=True):
                leaf.copy_(value)
            for name, buffer in model.named_buffers():
                buffer.copy_(self.buffers[f"model.{name}"][replica])
                if name in changing:
                    buffer.fill_(changing[name])
        return model.eval()

    def moments(self, replica: int) -> dict[str, Tensor]:
        """The optimiser's memory of one replica, by name, on the host."""
        return {
            prefix + name: part
            for prefix, flat in zip(MOMENTS, (self.first, self.second), strict=True)
            for name, part in zip(self.file_names, self._split(flat[replica].cpu()), strict=True)
        }

    def restore(self, replica: int, tensors: Mapping[str, Tensor]) -> None:
        """Parameters and moments as a checkpoint holds them."""
        for name, shape in zip(self.file_names, self.shapes, strict=True):
            for prefix in ("", *MOMENTS):
                there = tensors.get(prefix + name)
                if there is None or there.shape != shape:
                    size = "missing" if there is None else tuple(there.shape)
                    raise RunError(f"{prefix}{name} of the checkpoint is {size}, but the config says {tuple(shape)}")
        for prefix, flat in zip(("", *MOMENTS), (self.flat, self.first, self.second), strict=True):
            flat[replica] = self.joined(tensors, prefix).to(flat.device)
        for name, buffer in self.buffers.items():  # random but not trained, such as phases: as they were drawn
            value = tensors.get(file_name(self.template.model, name.removeprefix("model.")))
            if value is not None:
                buffer[replica] = value.to(self.flat.device)

    def joined(self, tensors: Mapping[str, Tensor], prefix: str = "") -> Tensor:
        """Parameters by name as one row (P,)."""
        return torch.cat([tensors[prefix + name].flatten() for name in self.file_names])
