"""The law on replicas: models that are trained in one batch learn as they do alone."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from sdssm.errors import first_line
from sdssm.testing.law import DoesNotApply
from sdssm.testing.law_case import LawCase, describe_largest, require, require_close
from sdssm.testing.reading_laws import SHORT

#: Strings of each model.
BATCH = 3


class LossModule(nn.Module):
    """A module whose `forward` is the loss of a model, for `functional_call`."""

    def __init__(self, case: LawCase) -> None:
        super().__init__()
        self.model, self.case = case.model, case

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        return self.case.loss(tokens, labels)


def check_replicas(case: LawCase) -> str:
    """Compare the losses and gradients of two models computed at once with those of each alone."""
    if case.build_another is None:
        raise DoesNotApply("it needs a factory; use sdssm.testing.check_model")
    require(any(parameter.requires_grad for parameter in case.model.parameters()), "it has no parameters to train")
    dtype = next(case.model.parameters()).dtype
    other = case.build_another(case.seed + 1).to(case.model.device, dtype).eval()
    modules = [LossModule(LawCase(model, case.task, case.seed)) for model in (case.model, other)]
    tokens = case.draw_strings(2 * BATCH, case.length(SHORT)).reshape(2, BATCH, -1)
    labels = case.draw_labels(2 * BATCH).reshape(2, BATCH)
    with torch.enable_grad():
        losses, gradients = _compute_together(modules, tokens, labels)
        largest = 0.0
        for i, module in enumerate(modules):
            when = f"of model {i + 1} when two models are computed at once"
            loss = module(tokens[i], labels[i])
            largest = max(largest, require_close(losses[i], loss, "the loss", when))
            for name, expected in _gradients(loss, dict(module.named_parameters())).items():
                what = f"the gradient of {case.model.file_name(name.removeprefix('model.'))}"
                largest = max(largest, require_close(gradients[name][i], expected, what, when))
    return describe_largest(largest)


def _compute_together(modules: list[LossModule], tokens: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the losses (R,) and the gradients (R, ...) of all models, in one call."""
    parameters, buffers = stack_module_state(nn.ModuleList(modules))

    def run(parameters: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = functional_call(modules[0], (parameters, buffers), (tokens, labels))
        return loss

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an operation may be slow under vmap, which is no question of a law
            losses = vmap(run)(parameters, buffers, tokens, labels)
            return losses, _gradients(losses.sum(), parameters)
    except (RuntimeError, ValueError) as error:
        reason = first_line(error)
        raise DoesNotApply(f"torch.func.vmap cannot run it, so replicas train one after the other: {reason}") from None


def _gradients(loss: Tensor, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradients by name, 0 for a parameter that the loss does not depend on."""
    trained = {name: value for name, value in parameters.items() if value.requires_grad}
    gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    pairs = zip(trained.items(), gradients, strict=True)
    return {name: torch.zeros_like(value) if gradient is None else gradient for (name, value), gradient in pairs}
