"""Try out someone else's model before it is trained: does it support vmap, and can a CUDA graph capture it?"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from sdssm.errors import ModelError, first_line
from sdssm.models import TokenModel, WrappedModule
from sdssm.models.building import untrained_model
from sdssm.models.module_probe import check_causal_when_trained
from sdssm.models.randomness import preserved_random_numbers, random_states, seed_random_numbers
from sdssm.runs.schema import RunConfig
from sdssm.training.execution import ExecutionPlan
from sdssm.training.graphs import try_capture
from sdssm.training.memory import empty_device_cache
from sdssm.training.parameter_rows import find_slots
from sdssm.training.replicas import HostStep, Replicas, SideBySideReplicas
from sdssm.training.separate_replicas import SeparateReplicas

#: Strings of a batch in a trial on the CPU.
BATCH = 8
#: Losses and gradients that differ by more than this share of their size do not agree.
TOLERANCE = 1e-3
#: The longest piece of an error message that becomes a reason.
LONGEST_REASON = 120
#: The same for a step that is computed again in the same way.
REPEATED = 1e-5
NOT_FINITE = "its loss or gradient is not finite"
RANDOM, BUFFERS = "it draws random numbers", "it changes its buffers in training"

#: Loss (R,) and gradient (R, P) of a trial step.
Result = tuple[Tensor, Tensor]


class Trial:
    """One training step of someone else's model, computed in several ways on models that are then thrown away.

    The random numbers of the caller, and the models that are trained afterwards, are not touched. `has_one_length` says
    whether all strings of the training have `width` symbols.
    """

    def __init__(
        self, runs: Sequence[RunConfig], device: torch.device, width: int, *, has_one_length: bool = False
    ) -> None:
        self.runs, self.device = list(runs), device
        self.tried = self.runs[:2]  # two show whether replicas mix
        self.inexact: str | None = None  # why a resumed training would not be exact
        first = runs[0]
        self.example = self._build(0)
        reads_strings = isinstance(self.example, WrappedModule) and self.example.reads == "strings"
        self.has_fixed_shape = has_one_length or not reads_strings
        # The second is shorter, which shows whether symbols past the end of a string are ignored.
        shorter = width if has_one_length else max(1, width // 2)
        self.lengths = (width, shorter)[: len(self.tried)]
        # On a GPU as in training: some operations use other kernels, which cannot be captured, for large batches.
        size = len(self.tried), first.train.batch if device.type == "cuda" else min(first.train.batch, BATCH)
        generator = torch.Generator().manual_seed(0)
        self.batches = [
            {
                "tokens": torch.randint(first.n_symbols, (*size, width), generator=generator).to(device),
                "labels": torch.randint(first.n_classes, size, generator=generator).to(device),
            }
            for _ in range(2)
        ]

    def plan(self) -> ExecutionPlan:
        """Return how the runs are executed; raise ModelError if the model cannot be trained at all."""
        with preserved_random_numbers(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            separate = self._separate()
            expected = self._result(separate, is_eager=True)
            obstacle = self._find_obstacle()
            reasons, is_side_by_side, is_captured = list[str | None](), False, False
            if len(self.runs) > 1:
                reasons.append(obstacle or self._why_not_side_by_side(expected))
                is_side_by_side = reasons[-1] is None
            if self.device.type == "cuda":
                reasons.append(obstacle or self._why_not_captured(expected, is_side_by_side))
                is_captured = reasons[-1] is None
        known = tuple(dict.fromkeys(reason for reason in reasons if reason is not None))
        return ExecutionPlan(
            self.example.name, len(self.runs), is_side_by_side, is_captured, known, inexact_resume=self.inexact
        )

    # -- the ways to compute a step ----------------------------------------------------------------------------------

    def _build(self, number: int) -> TokenModel:
        run = self.tried[number]
        return untrained_model(run.model, run.n_symbols, run.n_classes, run.seed)

    def _models(self) -> list[TokenModel]:
        return [self._build(number) for number in range(len(self.tried))]

    def _separate(self) -> SeparateReplicas:
        return SeparateReplicas(self._models(), self.device, self._build)

    def _result(self, replicas: Replicas, *, is_eager: bool, batch: int = 0) -> Result:
        """Return loss and gradient of a step: with strings cut to their lengths if it is eager, else padded."""
        host = HostStep(0, self.lengths, (0,) * len(self.lengths)) if is_eager else None
        loss, _, gradient = replicas.gradient(self._inputs(replicas, batch), {}, host)
        return loss, gradient

    def _inputs(self, replicas: Replicas, batch: int) -> dict[str, Tensor]:
        inputs = dict(self.batches[batch])
        count, size, width = inputs["tokens"].shape
        if not replicas.reads_strings:
            inputs["lengths"] = torch.tensor(self.lengths, device=self.device)[:, None].expand(count, size)
        generator = torch.Generator().manual_seed(batch)
        for name, shape in replicas.noise_shapes(size, width).items():
            inputs[f"noise.{name}"] = torch.rand(count, *shape, generator=generator).to(self.device)
        return inputs

    # -- why a way is not taken --------------------------------------------------------------------------------------

    def _find_obstacle(self) -> str | None:
        """Return why a model can run only eagerly, one after the other; None if nothing speaks against more."""
        replicas = SeparateReplicas([self._build(0)], self.device, self._build)
        model, flat = replicas.models[0], replicas.flat.clone()
        seed_random_numbers(0, self.device)
        before, buffers, saved = random_states(self.device), _buffers(model), _copies(model.state_dict())
        result = self._first_step(replicas)
        draws, after = random_states(self.device) != before, _buffers(model)
        has_new_values = not torch.equal(replicas.flat, flat)
        changed = [name for name in buffers if name not in after or not torch.equal(buffers[name], after[name])]
        # The same step again, from all that a checkpoint holds.
        replicas.restore_values(saved, flat)
        tolerance = REPEATED if self.device.type == "cpu" else TOLERANCE  # sums may have another order on a GPU
        depends = _is_finite(result) and not _agree(self._first_step(replicas), result, tolerance)
        # A buffer that gets another shape is a table of the positions so far, which is computed again.
        unsaved = [
            name for name in changed if name not in saved and name in after and after[name].shape == buffers[name].shape
        ]
        if unsaved:
            name = model.file_name(unsaved[0])
            self.inexact = f"the buffer {name} changes in training and is not saved; make it persistent"
        elif depends:
            self.inexact = (
                "it keeps something between steps that is not saved, such as a counter or a generator; make it a buffer"
            )
        if draws:
            return RANDOM
        if changed or buffers.keys() != after.keys():
            return BUFFERS
        if has_new_values:
            return "it changes its parameters itself"
        if depends:
            return "its loss depends on earlier steps"
        return None if self.has_fixed_shape else "it reads whole strings, of another length in each step"

    def _first_step(self, replicas: SeparateReplicas) -> Result:
        inputs = {name: value[:1] for name, value in self._inputs(replicas, 0).items()}
        loss, _, gradient = replicas.gradient(inputs, {}, HostStep(0, self.lengths[:1], (0,)))
        return loss, gradient

    def _why_not_side_by_side(self, expected: Result) -> str | None:
        if not _is_finite(expected):
            return NOT_FINITE
        if any(slot.dtype != torch.float32 for slot in find_slots(self.example)):
            return "its parameters are not all float32"
        unsupported = [type(part).__name__ for part in self.example.modules() if isinstance(part, nn.RNNBase)]
        if unsupported:  # the message of torch would name an operator
            return f"nn.{unsupported[0]} does not support vmap"
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                replicas = SideBySideReplicas(self._models(), self.device)
                result = self._result(replicas, is_eager=False)
                replicas.model(0, {})
        except torch.OutOfMemoryError:  # one after the other they may fit
            empty_device_cache(self.device)
            return "side by side there is not enough memory"
        except Exception as error:
            return f"vmap does not support it ({_shorten(error)})"
        if any("performance drop" in str(warning.message) for warning in caught):
            return "vmap has no fast rule for one of its operations"
        return None if _agree(result, expected) else "with vmap its loss or gradient would differ"

    def _why_not_captured(self, expected: Result, is_side_by_side: bool) -> str | None:
        if not _is_finite(expected):
            return NOT_FINITE
        if self._separate().flat.dtype != torch.float32:
            return "its parameters are float64"
        replicas: Replicas = SideBySideReplicas(self._models(), self.device) if is_side_by_side else self._separate()
        if not _agree(self._result(replicas, is_eager=False), expected):
            return "its loss depends on symbols past the end of a string"
        inputs = {name: value.clone() for name, value in self._inputs(replicas, 0).items()}
        results: list[Result] = []

        def step() -> None:
            loss, _, gradient = replicas.gradient(inputs, {}, None)
            results[:] = [(loss, gradient)]

        graph, reason = try_capture(step, self.device)
        if graph is None:
            return reason
        for name, value in self._inputs(replicas, 1).items():
            inputs[name].copy_(value)
        graph.replay()
        torch.cuda.synchronize(self.device)
        # On other strings: what the module computed on the host would be the same as before.
        is_equal = _agree(results[0], self._result(replicas, is_eager=False, batch=1))
        return None if is_equal else "in a CUDA graph its loss or gradient would differ"


def check_trainable(config: RunConfig, model: TokenModel) -> None:
    """Raise ModelError if someone else's model cannot do a training step; the model is not to be used afterwards."""
    slots = find_slots(model)
    if not slots:
        raise ModelError(f"{model.name} has no trainable parameters; sdssm.evaluate measures it without training")
    if isinstance(model, WrappedModule):
        model.check_can_be_saved()
    if any(value.dtype == torch.complex128 for value in model.state_dict().values()):
        raise ModelError(f"{model.name} has complex128 parameters, which checkpoints cannot hold; use complex64")
    device = model.device
    if isinstance(model, WrappedModule) and model.needs_gpu:
        device = torch.device("cuda")
    with preserved_random_numbers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        generator = torch.Generator().manual_seed(0)
        size = 1, min(config.train.batch, BATCH)
        inputs = {
            "tokens": torch.randint(config.n_symbols, (*size, config.train_length), generator=generator),
            "labels": torch.randint(config.n_classes, size, generator=generator),
        }
        replicas = SeparateReplicas([model], device, lambda _: model)
        for name, shape in replicas.noise_shapes(size[1], config.train_length).items():
            inputs[f"noise.{name}"] = torch.rand(1, *shape, generator=generator)
        placed = {name: value.to(device) for name, value in inputs.items()}
        replicas.gradient(placed, {}, HostStep(0, (config.train_length,), (0,)))
        if isinstance(model, WrappedModule):
            check_causal_when_trained(model)


def _buffers(model: TokenModel) -> dict[str, Tensor]:
    return _copies(dict(model.named_buffers()))


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in tensors.items()}


def _is_finite(result: Result) -> bool:
    return all(bool(values.isfinite().all()) for values in result)


def _agree(result: Result, expected: Result, tolerance: float = TOLERANCE) -> bool:
    """Return whether losses and gradients of two ways to compute them agree."""
    for values, others in zip(result, expected, strict=True):
        rows, other_rows = values.reshape(len(values), -1), others.reshape(len(others), -1)
        difference, size = (rows - other_rows).norm(dim=1), other_rows.norm(dim=1)
        if not bool((difference <= tolerance * (size + 1e-3)).all()):
            return False
    return True


def _shorten(error: Exception) -> str:
    text = first_line(error)
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]} ..."
