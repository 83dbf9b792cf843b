"""How the models of a group are executed: side by side or one after the other, in a CUDA graph or eagerly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from sdssm.formatting import count_of
from sdssm.layers.settings import is_catalogue_model
from sdssm.models import ModelSettings, TokenModel
from sdssm.models.module_settings import ModuleSettings
from sdssm.runs.schema import RunConfig
from sdssm.training.replicas import Replicas, SideBySideReplicas
from sdssm.training.separate_replicas import SeparateReplicas


@dataclass(frozen=True)
class ExecutionPlan:
    """How the replicas of a group are executed.

    `is_side_by_side`: one call of `torch.func.vmap` computes the losses of all replicas; else they are called one after
    the other. `is_captured`: the steps are replayed as a CUDA graph; else they run eagerly. `reasons` say why it is not
    the faster one of each. `inexact_resume` is why a training that is resumed may end differently; None if it does not.
    A model of our own needs no test, and then `is_tested` is False.
    """

    model: str
    replicas: int
    is_side_by_side: bool
    is_captured: bool
    reasons: tuple[str, ...] = ()
    is_tested: bool = True
    inexact_resume: str | None = None

    def describe(self) -> str:
        """Return the plan as one line.

        >>> ExecutionPlan("my-gru", 3, False, False, ("nn.GRU does not support vmap",)).describe()
        'my-gru: 3 models one after the other, eager: nn.GRU does not support vmap'
        >>> ExecutionPlan("mine", 1, False, True).describe()
        'mine: 1 model, CUDA graph'
        """
        order = " side by side" if self.is_side_by_side else " one after the other"
        text = f"{self.model}: {count_of(self.replicas, 'model')}{order if self.replicas > 1 else ''}"
        reasons = f": {'; '.join(self.reasons)}" if self.reasons else ""
        resuming = "" if self.inexact_resume is None else f"; resuming will not be exact: {self.inexact_resume}"
        return f"{text}, {'CUDA graph' if self.is_captured else 'eager'}{reasons}{resuming}"

    def build_replicas(
        self, models: Sequence[TokenModel], device: torch.device, rebuild: Callable[[int], TokenModel]
    ) -> Replicas:
        """Return the replicas of these untrained models; `rebuild` returns the untrained model of a replica again."""
        if self.is_side_by_side:
            return SideBySideReplicas(models, device)
        return SeparateReplicas(models, device, rebuild)


def is_in_catalogue(model: ModelSettings | ModuleSettings) -> bool:
    """Return whether the settings are those of one of our own models."""
    return is_catalogue_model(model.name, model.import_path)


def plan_execution(
    runs: Sequence[RunConfig], device: torch.device, width: int, *, has_one_length: bool
) -> ExecutionPlan:
    """Return how the models of these runs are trained on strings of up to `width` symbols.

    `has_one_length` says whether all strings have `width` symbols.
    All models of the catalogue support both; someone else's model is tried out (`sdssm.training.trial`).
    """
    model = runs[0].model
    if is_in_catalogue(model):
        return ExecutionPlan(model.name, len(runs), True, device.type == "cuda", is_tested=False)
    from sdssm.training.trial import Trial

    return Trial(runs, device, width, has_one_length=has_one_length).plan()
