"""R models of one shape that are trained one after the other in each step: modules as they are, without vmap."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError, first_line
from sdssm.models import TokenModel
from sdssm.models.names import load_tensors, tensors_for_file
from sdssm.models.randomness import seed_random_numbers
from sdssm.training.parameter_rows import ParameterSlot, check_tensors, zip_slots
from sdssm.training.replicas import HostStep, Replicas, loss_on_inputs


class PlacedParameter:
    """A parameter of a module and its part of a row, which share their memory if they hold the same kind of numbers."""

    def __init__(self, slot: ParameterSlot, parameter: nn.Parameter, part: Tensor) -> None:
        self.slot, self.parameter, self.part = slot, parameter, part
        self.is_shared = parameter.dtype == part.dtype
        self._share()

    def _share(self) -> None:
        if self.is_shared:
            self.parameter.data = self.slot.unpack(self.part)
        self._address = self.parameter.data_ptr()

    @property
    def is_in_place(self) -> bool:
        """Whether the module has left the parameter in its memory."""
        return self.parameter.data_ptr() == self._address

    def update(self) -> None:
        """Copy the row into a parameter that does not share its memory."""
        if not self.is_shared:
            self.parameter.copy_(self.slot.unpack(self.part))

    def take_over(self, model: str) -> None:
        """Copy a parameter that the module has moved, as `parameter.data = ...` does, into the row and share it again.

        Else the module would go on with memory that the optimizer does not know.
        """
        value, slot = self.parameter.data, self.slot
        if value.shape != slot.shape or value.dtype != slot.dtype:
            raise ModelError(
                f"{model} changes its parameter {slot.file_name} to {value.dtype}, {tuple(value.shape)}, in training; "
                f"keep {slot.dtype} and {tuple(slot.shape)}"
            )
        self.part.copy_(slot.pack(value))
        self._share()


class SeparateReplicas(Replicas):
    """Replicas that are called one after the other, each a module of its own.

    This works for any module: it may draw random numbers, change its buffers, branch on its data and call kernels that
    `vmap` does not know. `rebuild` returns the untrained model of a replica. A trained module is never copied, because
    some cannot be: they keep tensors that belong to a graph of gradients.

    In an eager step each replica reads strings of its own length, and its random numbers start from its own seed for
    this step, so its numbers do not depend on the others. In a step that a CUDA graph captures all strings are padded.
    """

    def __init__(
        self, models: Sequence[TokenModel], device: torch.device, rebuild: Callable[[int], TokenModel]
    ) -> None:
        super().__init__(models, device)
        self.models = [model.to(device).train() for model in models]
        self._rebuild = rebuild
        sizes = [slot.size for slot in self.slots]
        self._placed = [
            [
                PlacedParameter(slot, parameter, part)
                for (slot, parameter), part in zip(zip_slots(self.slots, model), torch.split(row, sizes), strict=True)
            ]
            for model, row in zip(self.models, self.flat, strict=True)
        ]

    @torch.no_grad()
    def parameters_changed(self) -> None:
        """Copy the rows into the parameters that cannot share their memory: complex ones and other precisions."""
        for placed in self._placed:
            for parameter in placed:
                parameter.update()

    @torch.no_grad()
    def _take_over_changes(self, replica: int) -> None:
        """Continue with what the module itself made of its parameters: values, and the memory that they are in."""
        for placed in self._placed[replica]:
            if not placed.is_in_place:
                placed.take_over(self.model_name)
        own = dict(self.models[replica].named_parameters())
        for placed in self._placed[replica]:
            if own.get(placed.slot.name) is not placed.parameter:
                raise ModelError(
                    f"{self.model_name} replaces its parameter {placed.slot.file_name} in training, and the new one "
                    "would not be trained; change its values in place"
                )

    # -- losses and gradients ----------------------------------------------------------------------------------------

    def gradient_parts(
        self, inputs: Mapping[str, Tensor], ramped: Mapping[str, Tensor], host: HostStep | None = None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        with warnings.catch_warnings():
            # cuDNN then copies the weights in each call, which is little work in a training step.
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            results = [self._gradient_of(replica, inputs, ramped, host) for replica in range(len(self))]
        loss, correct, gradient = (torch.stack(values) for values in zip(*results, strict=True))
        return loss, correct, [gradient]

    def _gradient_of(
        self, replica: int, inputs: Mapping[str, Tensor], ramped: Mapping[str, Tensor], host: HostStep | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, number of correct predictions and gradient (P,) of one replica."""
        model, parameters = self.models[replica], [placed.parameter for placed in self._placed[replica]]
        own = {name: value[replica] for name, value in inputs.items()}
        if host is not None:
            if self.flat.device.type == "cpu" and not bool(self.alive[replica]):  # a GPU would have to wait
                zero = torch.zeros(())
                return zero, zero.long(), torch.zeros_like(self.flat[replica])
            seed_random_numbers(host.seeds[replica], self.flat.device)
            if not any(name.startswith("noise.") for name in own):
                own["tokens"] = own["tokens"][:, : host.lengths[replica]]
                own.pop("lengths", None)
        try:
            with torch.no_grad():
                for name, values in ramped.items():
                    model.get_buffer(name).copy_(values[replica])
            loss, correct = loss_on_inputs(model, own, exact_gradient=self.exact_gradient)
            if not loss.requires_grad:
                raise ModelError(
                    f"the logits of {self.model_name} depend on none of its trainable parameters; look for detach(), "
                    "no_grad() or argmax() in forward"
                )
            grads = torch.autograd.grad(loss, parameters, allow_unused=True)
            self._take_over_changes(replica)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise _step_error(self.model_name, error, host) from error
        parts = [
            self.flat.new_zeros(slot.size) if grad is None else slot.pack(grad).to(self.flat.dtype)
            for slot, grad in zip(self.slots, grads, strict=True)
        ]
        return loss.detach(), correct, torch.cat(parts)

    def noise_shapes(self, batch: int, length: int) -> dict[str, tuple[int, ...]]:
        return self.models[0].noise_shapes(batch, length)

    # -- single replicas ---------------------------------------------------------------------------------------------

    def model(
        self,
        replica: int,
        ramped: Mapping[str, float],
        row: Tensor | None = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> TokenModel:
        model = self._rebuild(replica).to(self.flat.device)
        model.load_state_dict(self.models[replica].state_dict())
        with torch.no_grad():
            values = self.split(self.flat[replica] if row is None else row)
            for (_, parameter), value in zip(zip_slots(self.slots, model), values, strict=True):
                parameter.copy_(value)
            state = tensors_for_file(model)
            for name, value in (buffers or {}).items():
                state[name].copy_(value)
            for name, number in ramped.items():
                model.get_buffer(name).fill_(number)
        return model.eval()

    def trained_buffers(self, replica: int) -> dict[str, Tensor]:
        model = self.models[replica]
        parameters = {model.file_name(name) for name, _ in model.named_parameters(remove_duplicate=False)}
        return {
            name: value.detach().clone() for name, value in tensors_for_file(model).items() if name not in parameters
        }

    def restore(self, replica: int, tensors: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        model = self.models[replica]
        check_tensors(self.model_name, {name: value.shape for name, value in tensors_for_file(model).items()}, tensors)
        self.restore_rows(replica, tensors, optimizer)
        load_tensors(model, tensors)
        self.parameters_changed()

    @torch.no_grad()
    def restore_values(self, tensors: Mapping[str, Tensor], flat: Tensor) -> None:
        """Load the state dict of a single replica, and its row, as they were."""
        with suppress(RuntimeError):  # a buffer has another shape now
            self.models[0].load_state_dict(dict(tensors))
        self.flat.copy_(flat)
        self.parameters_changed()


def _step_error(name: str, error: Exception, host: HostStep | None) -> ModelError:
    """Return the error for a module that fails in a training step."""
    first = first_line(error, 200)
    text = first if isinstance(error, ModelError) else f"{name} raises {type(error).__name__}: {first}"
    step = "" if host is None else f"; this was step {host.step + 1:,} of the training"
    return ModelError(text + step)
