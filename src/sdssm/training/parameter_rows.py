"""The trained parameters of R replicas as rows of one tensor, with the optimizer's moments beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError, RunError
from sdssm.models import TokenModel

#: The prefixes of the optimizer's two moments in checkpoints, before the name of a parameter.
MOMENTS = ("adam.first.", "adam.second.")
#: The prefix of parameters in the precision that they are trained in, if the model has them in another one.
EXACT = "adam.exact."
#: Parameters of these types are trained in double precision.
DOUBLE = (torch.float64, torch.complex128)


@dataclass(frozen=True)
class ParameterSlot:
    """The place of a trained parameter in a row: a complex number takes two entries."""

    name: str  #: of the parameter in the model
    file_name: str  #: in checkpoints
    shape: torch.Size
    dtype: torch.dtype

    @property
    def stored_shape(self) -> torch.Size:
        """The shape as real numbers, in which it is stored in checkpoints."""
        return torch.Size((*self.shape, 2)) if self.dtype.is_complex else self.shape

    @property
    def size(self) -> int:
        """The number of entries in a row."""
        return self.stored_shape.numel()

    def unpack(self, part: Tensor) -> Tensor:
        """Return entries (..., size) as the parameter, (..., *shape), in the precision of the row."""
        real = part.view(*part.shape[:-1], *self.stored_shape)
        return torch.complex(real[..., 0], real[..., 1]) if self.dtype.is_complex else real

    def pack(self, value: Tensor) -> Tensor:
        """Return a value of the parameter, (*shape), as entries (size,)."""
        return (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).flatten()


class ParameterRows:
    """The trained parameters and the optimizer state of R replicas of one model shape.

    `flat` (R, P) are the parameters that require gradients, `first` and `second` (R, P) Adam's moments, and `alive`
    (R,) is False for replicas that have diverged. Parameters of lower precision than float32 are trained as float32
    numbers and rounded for each step, so that small updates are not lost.
    """

    def __init__(self, models: Sequence[TokenModel], device: torch.device) -> None:
        self.model_name = models[0].name
        self.slots = find_slots(models[0])
        rows = [[slot.pack(parameter) for slot, parameter in zip_slots(self.slots, model)] for model in models]
        dtype = torch.float64 if any(slot.dtype in DOUBLE for slot in self.slots) else torch.float32
        self.flat = torch.stack([torch.cat([part.detach().to(dtype) for part in row]) for row in rows]).to(device)
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.alive = torch.ones(len(models), dtype=torch.bool, device=device)

    def __len__(self) -> int:
        return len(self.flat)

    def split(self, flat: Tensor) -> list[Tensor]:
        """Split (..., P) into the parameters, (..., *shape) each; those that are real share its memory."""
        parts = torch.split(flat, [slot.size for slot in self.slots], dim=-1)
        return [slot.unpack(part) for slot, part in zip(self.slots, parts, strict=True)]

    def named(self, row: Tensor, prefix: str = "") -> dict[str, Tensor]:
        """Return a row (P,) as real tensors by the names of the parameters in checkpoints."""
        parts = torch.split(row, [slot.size for slot in self.slots])
        return {
            prefix + slot.file_name: part.view(slot.stored_shape) for slot, part in zip(self.slots, parts, strict=True)
        }

    def joined(self, tensors: Mapping[str, Tensor], prefix: str = "") -> Tensor:
        """Return tensors by name as one row (P,); the reverse of `named`."""
        shapes = {prefix + slot.file_name: slot.stored_shape for slot in self.slots}
        check_tensors(self.model_name, shapes, tensors, is_complete=False)
        return torch.cat([tensors[name].flatten() for name in shapes])

    def leaf(self, file_name: str) -> Tensor | None:
        """Return a parameter of all replicas, (R, *shape), by its name in checkpoints; None if unknown."""
        names = [slot.file_name for slot in self.slots]
        return self.split(self.flat)[names.index(file_name)] if file_name in names else None

    def optimizer_state(self, replica: int) -> dict[str, Tensor]:
        """Return what the optimizer keeps of a replica beside its parameters, by name, on the CPU.

        These are the moments, and the exact values of parameters that the model itself holds in another precision.
        """
        exact = self.named(self.flat[replica].cpu(), EXACT)
        tensors = {EXACT + slot.file_name: exact[EXACT + slot.file_name] for slot in self.slots if self._is_cast(slot)}
        for prefix, flat in zip(MOMENTS, (self.first, self.second), strict=True):
            tensors |= self.named(flat[replica].cpu(), prefix)
        return tensors

    def restore_rows(self, replica: int, tensors: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Load a row from the tensors of a model in a checkpoint, and those of the optimizer."""
        shapes = {slot.file_name: slot.shape for slot in self.slots}
        check_tensors(self.model_name, shapes, tensors, is_complete=False)
        values = {
            slot.file_name: optimizer[EXACT + slot.file_name] if self._is_cast(slot) else tensors[slot.file_name]
            for slot in self.slots
        }
        self.flat[replica] = self.joined(values).to(self.flat.device)
        for prefix, flat in zip(MOMENTS, (self.first, self.second), strict=True):
            flat[replica] = self.joined(optimizer, prefix).to(flat.device)

    def _is_cast(self, slot: ParameterSlot) -> bool:
        """Whether the model holds a parameter as other numbers than its row."""
        return slot.dtype != self.flat.dtype


def check_tensors(
    model: str, shapes: Mapping[str, torch.Size], tensors: Mapping[str, Tensor], *, is_complete: bool = True
) -> None:
    """Raise an error unless a checkpoint has tensors of these names and shapes and, if `is_complete`, no others."""
    advice = "restore its settings and its code, or train again"
    for name, shape in shapes.items():
        value = tensors.get(name)
        if value is None or value.shape != shape:
            size = "missing" if value is None else f"{tuple(value.shape)}"
            raise RunError(
                f"{name} of the checkpoint is {size}, but the config says {tuple(shape)} for {model}; {advice}"
            )
    unknown = [name for name in tensors if name not in shapes] if is_complete else []
    if unknown:
        raise RunError(f"the checkpoint holds {unknown[0]}, which {model} no longer has; {advice}")


def find_slots(model: TokenModel) -> list[ParameterSlot]:
    """Return the slots of the parameters that are trained; a parameter that occurs twice has one."""
    return [
        ParameterSlot(name, model.file_name(name), parameter.shape, parameter.dtype)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]


def zip_slots(slots: Sequence[ParameterSlot], model: TokenModel) -> list[tuple[ParameterSlot, nn.Parameter]]:
    """Return the slots with the parameters of a model that was built in the same way."""
    parameters = dict(model.named_parameters())
    own = [(name, parameter.shape) for name, parameter in parameters.items() if parameter.requires_grad]
    if own != [(slot.name, slot.shape) for slot in slots]:
        raise ModelError(
            f"{model.name} has other parameters each time it is built; build the same names and shapes for every seed"
        )
    return [(slot, parameters[slot.name]) for slot in slots]
