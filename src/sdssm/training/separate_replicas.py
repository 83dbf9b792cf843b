"""R models of one shape that are trained one after the other in each step: modules as they are, without vmap."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError, first_line
from sdssm.models import TokenModel
from sdssm.models.names import load_tensors, tensors_for_file
from sdssm.models.randomness import seed_random_numbers
from sdssm.training.parameter_rows import ParameterSlot, check_tensors, zip_slots
from sdssm.training.replicas import HostStep, Replicas, loss_on_inputs


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
        if device.type == "cuda":  # cuDNN then copies the weights in each call, which is little work in a training step
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        self._rebuild = rebuild
        self._parameters = [self._trained(model) for model in self.models]
        self._copied: list[tuple[nn.Parameter, ParameterSlot, Tensor]] = []
        sizes = [slot.size for slot in self.slots]
        for row, parameters in zip(self.flat, self._parameters, strict=True):
            for parameter, slot, part in zip(parameters, self.slots, torch.split(row, sizes), strict=True):
                if parameter.dtype == part.dtype:
                    parameter.data = slot.unpack(part)  # it shares the memory of the row from now on
                else:
                    self._copied.append((parameter, slot, part))

    def _trained(self, model: TokenModel) -> list[nn.Parameter]:
        return [parameter for _, parameter in zip_slots(self.slots, model)]

    @torch.no_grad()
    def parameters_changed(self) -> None:
        """Copy the rows into the parameters that cannot share their memory: complex ones and other precisions."""
        for parameter, slot, part in self._copied:
            parameter.copy_(slot.unpack(part))

    # -- losses and gradients ----------------------------------------------------------------------------------------

    def gradient(
        self, inputs: Mapping[str, Tensor], ramped: Mapping[str, Tensor], host: HostStep | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        results = [self._gradient_of(replica, inputs, ramped, host) for replica in range(len(self))]
        loss, correct, gradient = (torch.stack(values) for values in zip(*results, strict=True))
        return loss, correct, gradient

    def _gradient_of(
        self, replica: int, inputs: Mapping[str, Tensor], ramped: Mapping[str, Tensor], host: HostStep | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, number of correct predictions and gradient (P,) of one replica."""
        model, parameters = self.models[replica], self._parameters[replica]
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
            loss, correct = loss_on_inputs(model, own)
            if not loss.requires_grad:
                raise ModelError(f"the logits of {self.model_name} depend on none of its trainable parameters")
            grads = torch.autograd.grad(loss, parameters, allow_unused=True)
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
            for parameter, value in zip(
                self._trained(model), self.split(self.flat[replica] if row is None else row), strict=True
            ):
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


def _step_error(name: str, error: Exception, host: HostStep | None) -> ModelError:
    """Return the error for a module that fails in a training step."""
    first = first_line(error, 200)
    text = first if isinstance(error, ModelError) else f"{name} raises {type(error).__name__}: {first}"
    step = "" if host is None else f"; this was step {host.step + 1:,} of the training"
    return ModelError(text + step)
