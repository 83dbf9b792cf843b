"""The training engine: draw strings, compute losses and gradients, and update R replicas at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sdssm import ops
from sdssm.errors import SettingsError
from sdssm.models import Classifier, ModelSettings, TokenModel
from sdssm.models.building import untrained_model
from sdssm.models.module_settings import ModuleSettings
from sdssm.models.randomness import preserved_random_numbers
from sdssm.models.state_targets import compares_all_centres
from sdssm.models.train_settings import TrainSettings
from sdssm.ops.compiled import kernel_threads
from sdssm.runs.schema import RunConfig
from sdssm.tasks import Task
from sdssm.tasks.philox import DROPOUT
from sdssm.tasks.sampling import MIXED
from sdssm.tasks.stream import StringBatch, StringStream, uniform_numbers
from sdssm.training.adam import adam_step
from sdssm.training.execution import plan_execution
from sdssm.training.graphs import CudaGraph
from sdssm.training.logging_window import LoggingWindow, WindowMeans
from sdssm.training.replicas import HostStep
from sdssm.training.step_plan import StepPlan
from sdssm.training.step_values import occurring_classes, ramp_value, transition_tables

#: Steps whose strings are sampled at once: on a CPU enough to hide the cost of sampling, on a GPU those of one graph.
STEPS_PER_BLOCK = {"cpu": 32, "cuda": 10}
#: The random stream of each kind of dropout noise, by the name that a model gives it.
NOISE_STREAMS = {"readout": DROPOUT, "blocks": DROPOUT + 1, "mixers": DROPOUT + 2}
#: The weight of the newest step in the moving average of the training accuracy.
MOVING_AVERAGE_WEIGHT = 0.02


class TrainingEngine:
    """Trains replicas of one model shape for the same number of steps.

    All replicas have the same task, or each has its own.

    `step` is the number of steps done. All randomness is a function of a replica's seed and the step. The configs
    `runs` must agree in `group_key`.
    """

    def __init__(self, task: Task | Sequence[Task], runs: Sequence[RunConfig], device: torch.device) -> None:
        self.runs, self.device = list(runs), device
        self.tasks = [task] * len(self.runs) if isinstance(task, Task) else list(task)
        if len({group_key(run, task) for run, task in zip(self.runs, self.tasks, strict=True)}) != 1:
            raise SettingsError(
                "the runs of an engine must have the same `group_key`, and these differ; "
                "train each shape in its own engine"
            )
        first = runs[0]
        self.train = first.train
        self._labels_per_step = first.train.batch * first.train.prefixes
        self.step = 0
        self.width = max(run.train_length for run in runs)
        self.stream = StringStream(
            self.tasks,
            seeds=[run.seed for run in runs],
            batch=first.train.batch,
            max_length=self.width,
            device=device,
            random_start=first.model.state_embedding is not None,
            sampling=[MIXED if run.train.sampling == "covering" else run.train.sampling for run in runs],
            prefixes=first.train.prefixes,
        )
        self.execution = plan_execution(self.runs, device, self.width, has_one_length=self._has_one_length())
        models = [new_model(run, task) for run, task in zip(self.runs, self.tasks, strict=True)]
        self.replicas = self.execution.build_replicas(models, device, self._new_model)
        self.replicas.exact_gradient = first.train.exact_gradient
        self.ramped_buffers = list(first.model.ramps())  # by their names inside the module
        self._window = LoggingWindow(len(runs), self._labels_per_step, device)
        self._moving_accuracy = torch.zeros(len(runs), device=device)
        self._weight_decay = torch.tensor([run.train.weight_decay for run in runs], device=device)
        self._has_centre_loss = first.model.has_cosine_readout and first.train.attraction > 0
        penalties = [run.train.gain_penalty for run in runs]
        self._gain_penalty = torch.tensor(penalties, device=device) if first.train.gain_penalty > 0 else None
        occurring = occurring_classes(self.tasks, self.runs)
        # With a single class there is nothing to distinguish, and every centre would do.
        attractions = [run.train.attraction * (len(classes) > 1) for run, classes in zip(runs, occurring, strict=True)]
        labels = range(first.n_classes)
        self._classes = torch.tensor(
            [[float(label in classes) for label in labels] for classes in occurring], device=device
        )
        has_projection = first.model.has_cosine_readout and first.train.projection_decay > 0
        self._projection = self.replicas.leaf("readout.projection") if has_projection else None
        self._transitions = transition_tables(self.tasks, device) if first.train.targets == "state" else None
        self._plan = StepPlan(
            self.runs,
            self.stream,
            device,
            ramped_buffers=self.ramped_buffers,
            attractions=attractions,
            has_module_seeds=not self.execution.is_side_by_side,
        )
        self._drawn: tuple[range, StringBatch] | None = None  # of eager steps: some steps and their strings
        self._cuda_stream = None if device.type == "cpu" else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own
        self._graphs: dict[int, CudaGraph] = {}
        if self.execution.is_captured and self._cuda_stream is not None:
            for count in (1, STEPS_PER_BLOCK["cuda"]):
                self._graphs[count] = CudaGraph(partial(self._run_captured, count), self._cuda_stream)

    # -- many steps --------------------------------------------------------------------------------------------------

    def advance(self, steps: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Train `steps` more steps, or fewer if `stop()` becomes true.

        On a GPU this returns before the steps are done.
        """
        end = self.step + steps
        with self._on_device(), ops.unchecked(), self._random_numbers_kept():
            while self.step < end and not stop():
                self._plan.cover(self.step)
                count = min(end - self.step, self._plan.steps_left(self.step))
                if not self.execution.is_captured:
                    self._run_eagerly(min(count, STEPS_PER_BLOCK["cpu"]), stop)
                else:
                    count = STEPS_PER_BLOCK["cuda"] if count >= STEPS_PER_BLOCK["cuda"] else 1
                    self._graphs[count]()
                    self._window.steps += count
                    self.step += count

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Use this engine's CUDA stream on a GPU, and at most one thread of torch for each replica on a CPU.

        The tensors of one model are so small that more threads mostly wait for each other, and many times longer than
        they work if other programs run on the same cores. Compiled kernels have long enough pieces of work for all
        threads, and their results do not depend on the number.
        """
        if self._cuda_stream is not None:
            with torch.cuda.stream(self._cuda_stream):
                yield
            return
        threads = torch.get_num_threads()
        # One after the other they have one thread each, so that the numbers of each do not depend on the others.
        torch.set_num_threads(min(threads, len(self.runs) if self.execution.is_side_by_side else 1))
        try:
            with kernel_threads(threads):
                yield
        finally:
            torch.set_num_threads(threads)

    @contextmanager
    def _random_numbers_kept(self) -> Iterator[None]:
        """Leave the random numbers of the caller as they are if the models may draw some."""
        if self.execution.is_side_by_side or self.execution.is_captured:
            yield
            return
        with preserved_random_numbers():
            yield

    def _run_eagerly(self, count: int, stop: Callable[[], bool]) -> None:
        """Train `count` steps one by one, with strings cut to the lengths that occur."""
        plan = self._plan
        if self._drawn is None or self.step not in self._drawn[0]:
            self._drawn = None  # frees the memory
            row = plan.row(self.step)
            strings = self.stream.draw(
                torch.tensor(self.step, device=self.device),
                plan.lengths[row : row + count],
                plan.longest(self.step, count),
            )
            self._drawn = range(self.step, self.step + count), strings
        steps, strings = self._drawn  # if the last call was stopped, the rest of its strings
        for _ in range(min(count, steps.stop - self.step)):
            if stop():
                return
            row = plan.row(self.step)
            batch = _select_step(strings, self.step - steps.start, plan.longest(self.step))
            values = plan.values[row]
            lengths = None if len(self.runs) == 1 else plan.lengths[row][:, None].expand(-1, self.train.batch)
            host = None if self.execution.is_side_by_side else plan.host_step(self.step)
            self._window.add(*self._train_step(batch, lengths, values, self._shrinking(values), host=host))
            self._window.steps += 1
            self.step += 1

    def _run_captured(self, count: int) -> None:
        """Train `count` steps on the GPU.

        A CUDA graph captures this function, so all that changes between calls is in device memory.
        """
        plan = self._plan
        rows = plan.next_row + torch.arange(count, device=self.device)
        lengths, values = (part.index_select(0, rows) for part in (plan.lengths, plan.values))
        strings = self.stream.draw(plan.next_step, lengths, self.width)
        # Of each string, for all steps at once: the scans copy lengths that share memory, in a kernel for each step.
        lengths = lengths[..., None].expand(-1, -1, self.train.batch).contiguous()
        shrinking = self._shrinking(values)
        results = [
            self._train_step(_select_step(strings, i, self.width), lengths[i], values[i], shrinking[i], offset=i)
            for i in range(count)
        ]
        self._window.add(*(torch.stack(terms).sum(0) for terms in zip(*results, strict=True)))
        plan.next_row += count
        plan.next_step += count

    # -- one step ----------------------------------------------------------------------------------------------------

    def _train_step(
        self,
        batch: StringBatch,
        lengths: Tensor | None,
        values: Tensor,
        shrinking: Tensor,
        offset: int = 0,
        host: HostStep | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Train every replica for one step: strings (R, B, L) of lengths (R, B), scheduled values (R, columns).

        `shrinking` (R,) are the factors of the decay of the projection; without a projection they are ignored. Return
        the loss (R,) before the step and the number of correct predictions (R,), one for each label.
        """
        lr, bias1, bias2, auxiliary, *buffers = values.unbind(-1)
        inputs = self._loss_inputs(batch, lengths, auxiliary, offset)
        ramped = dict(zip(self.ramped_buffers, buffers, strict=True))
        replicas = self.replicas
        loss, correct, gradients = replicas.gradient_parts(inputs, ramped, host)
        if self._projection is not None:
            with torch.no_grad():
                self._projection.mul_(shrinking[:, None, None])
        adam_step(
            replicas.flat,
            gradients,
            replicas.first,
            replicas.second,
            lr=lr,
            weight_decay=self._weight_decay,
            bias1=bias1,
            bias2=bias2,
            betas=self.train.betas,
            eps=self.train.eps,
            clip=self.train.clip,
            alive=replicas.alive,
            loss=loss,
            packed=replicas.packed,
        )
        replicas.parameters_changed()
        if self._has_centre_loss:
            self._moving_accuracy.lerp_(correct / self._labels_per_step, MOVING_AVERAGE_WEIGHT)
        return loss, correct

    def _loss_inputs(
        self, batch: StringBatch, lengths: Tensor | None, auxiliary: Tensor, offset: int
    ) -> dict[str, Tensor]:
        """Return the inputs of the losses (R, ...) by name, see `loss_on_inputs`.

        `auxiliary` (R,) is the scheduled weight of the centre loss, or of the next states. In a CUDA graph, this is the
        step `offset` after the next one of the plan.
        """
        inputs = {"tokens": batch.tokens, "labels": batch.labels}
        if batch.prefix_labels is not None and batch.ends is not None:
            inputs |= {"labels": batch.prefix_labels, "ends": batch.ends[:, None].expand_as(batch.prefix_labels)}
        if lengths is not None and not self.replicas.reads_strings:
            inputs["lengths"] = lengths
        if batch.starts is not None:
            inputs["starts"] = batch.starts
        for name, noise in self.replicas.noise_shapes(*batch.tokens.shape[1:]).items():
            is_captured = self.execution.is_captured
            step = self._plan.next_step + offset if is_captured else torch.tensor(self.step, device=self.device)
            inputs[f"noise.{name}"] = uniform_numbers(self.stream.seeds, step, NOISE_STREAMS[name], noise)
        if self._transitions is not None:
            assert batch.states is not None and batch.before is not None
            inputs |= {"states": batch.states, "before": batch.before, "transitions": self._transitions}
            inputs["next_state"] = auxiliary
        if self._has_centre_loss:
            # Before the model predicts correctly, the centre loss would hold it at the most frequent label.
            strength = auxiliary * self._moving_accuracy**self.train.attraction_gate
            inputs |= {"attraction": strength, "classes": self._classes}
        if self._gain_penalty is not None:
            inputs["gain_penalty"] = self._gain_penalty
        return inputs

    def _shrinking(self, values: Tensor) -> Tensor:
        """Return the factors of the decay of the projection, for the scheduled values (..., columns) of steps."""
        lr = values[..., 0]
        return lr if self._projection is None else torch.exp(-self.train.projection_decay * lr)

    # -- results -----------------------------------------------------------------------------------------------------

    def window(self) -> WindowMeans:
        """Close the logging window and return its means, without waiting for the device."""
        with self._on_device():
            means = WindowMeans(self.step, *self._window.means(), self.replicas.alive.clone())
            self._window.clear()
        if self._cuda_stream is not None:  # a read on the current stream then waits until the means are computed
            torch.cuda.current_stream(self.device).wait_stream(self._cuda_stream)
        return means

    def open_window(self) -> tuple[int, list[float], list[float], list[bool]]:
        """Return steps, mean loss, mean accuracy and `alive` of the current window, which stays open.

        On a GPU this waits for the device.
        """
        self.wait()
        loss, accuracy = self._window.means()
        return self._window.steps, loss.tolist(), accuracy.tolist(), self.replicas.alive.tolist()

    def window_state(self, replica: int) -> dict[str, Tensor]:
        """Return the sums of the current logging window and the moving accuracy, for a checkpoint."""
        self.wait()
        # The name is part of the format of checkpoints.
        return self._window.state(replica) | {"window.told": self._moving_accuracy[replica]}

    def load_window_state(self, replica: int, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `window_state` returned."""
        self._window.load_state(replica, tensors)
        self._moving_accuracy[replica] = tensors["window.told"]

    def wait(self) -> None:
        """Wait until the device has finished all steps."""
        if self._cuda_stream is not None:
            self._cuda_stream.synchronize()

    def model(self, replica: int, row: Tensor | None = None, buffers: Mapping[str, Tensor] | None = None) -> TokenModel:
        """Return a copy of a replica's model; `row` (P,) and `buffers` replace parameters and buffers if given."""
        self.wait()
        step = np.array([max(self.step - 1, 0)])
        ramped = {name: float(ramp_value(self.runs[replica], name, step)[0]) for name in self.ramped_buffers}
        return self.replicas.model(replica, ramped, row, buffers)

    def _new_model(self, replica: int) -> TokenModel:
        return new_model(self.runs[replica], self.tasks[replica])

    def _has_one_length(self) -> bool:
        """Whether all strings of all steps are as long as the longest."""
        lengths = {int(self.stream.longest_valid_lengths[run.train_length]) for run in self.runs}
        return lengths == {self.width} and all(run.train.curriculum == "fixed" for run in self.runs)


def group_key(run: RunConfig, task: Task) -> tuple[Any, ModelSettings | ModuleSettings, TrainSettings]:
    """Return a key that is equal for all runs that can train side by side in one engine.

    It is the run's settings without those that may differ between replicas. Tasks with the same number of symbols, of
    classes and the same usual training length can share an engine, since all replicas take as much memory as the
    longest strings need. If not every string is valid, or the start state is random, the task must be the same. A
    machine that has too many states for `state_loss` to compare all of them does not share one with smaller machines.
    """
    needs_same_task = task.valid is not None or run.model.state_embedding is not None
    tasks: tuple[Any, ...] = (task.digest,) if needs_same_task else (task.n_symbols, task.n_classes, task.train_length)
    if run.train.targets == "state" and not compares_all_centres(task.minimal.table.size):
        tasks = (*tasks, "many states")
    return tasks, run.model.without_replica_values(), run.train.without_replica_values()


def new_model(run: RunConfig, task: Task | None = None) -> TokenModel:
    """Return the untrained model of a run, a function of its seed and settings alone.

    With the task, the centres of a model that is trained on states stand for the states of its minimal machine.
    """
    model = untrained_model(run.model, run.n_symbols, run.n_classes, run.seed)
    if task is not None and isinstance(model, Classifier) and model.readout.centre_labels is not None:
        _, start, labels = task.minimal
        # A state that no valid string reaches has a centre, but no label.
        model.assign_states(torch.from_numpy(np.where(labels < 0, run.n_classes, labels)), start)
    return model


def _select_step(strings: StringBatch, step: int, width: int) -> StringBatch:
    """Return the strings of one step, cut to `width` symbols."""
    parts = (strings.states, strings.before, strings.starts, strings.ends, strings.prefix_labels)
    own = (None if part is None else part[step] for part in parts)
    return StringBatch(strings.tokens[step, :, :, :width], strings.labels[step], *own)
