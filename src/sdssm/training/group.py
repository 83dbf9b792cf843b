"""A group of replicas that train together: its engine, and what it writes to the run folders."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sdssm.devices import device_name
from sdssm.errors import RunError
from sdssm.models.names import tensors_for_file
from sdssm.runs import RunFolder
from sdssm.runs.checkpoint import name_model_tensors, select_model_tensors
from sdssm.runs.folder import EndStatus
from sdssm.tasks import Task
from sdssm.training import schedules
from sdssm.training.deferred_errors import DeferredErrors
from sdssm.training.engine import STEPS_PER_BLOCK, TrainingEngine
from sdssm.training.execution import ExecutionPlan
from sdssm.training.logging_window import WindowMeans
from sdssm.training.memory import empty_device_cache
from sdssm.training.moving_means import MovingMeans
from sdssm.training.scheduled_evaluations import ScheduledEvaluations
from sdssm.training.snapshot import Snapshot
from sdssm.training.tensorboard import TensorBoard

#: Seconds between checkpoints if the settings give no number of steps.
CHECKPOINT_SECONDS = 60.0
#: Steps of one group that are queued on a GPU before the next group's turn. The GPU accepts only a limited number of
#: launches at a time; if all of them came from one group, the others would wait.
STEPS_PER_TURN = 50

GroupState = Literal["waiting", "training", "stopped", "ended"]


class ReplicaGroup:
    """Replicas that train together in one engine, with their run folders.

    In each step they are computed side by side, or one after the other if the model needs that (`execution`).

    A group is created `waiting`. `start` builds its models on the device; then `advance` and `write_results` alternate
    while it is `training`. `end` saves it and frees the device memory: it is `ended`, or `stopped` if steps are left.

    `members` are the run folders and tasks of the replicas. `resume_step` is the checkpoint to resume from, None for a
    new training. `until` is the share of the steps after which it stops.
    """

    def __init__(
        self,
        members: Sequence[tuple[RunFolder, Task]],
        resume_step: int | None = None,
        *,
        tensorboard: bool = False,
        until: float = 1.0,
    ) -> None:
        self.folders = [folder for folder, _ in members]
        self.tasks = [task for _, task in members]
        self.train = self.folders[0].config.train
        self.end_step = schedules.last_step(self.train, until)
        self.state: GroupState = "waiting"
        self.latest: Snapshot | None = None  # means of the last logging window
        self._means = MovingMeans(len(self.folders))
        self.alive = [True] * len(self.folders)
        #: False while a step is running, and after one failed: parameters and window sums may belong to two steps.
        self.is_consistent = True
        self._engine: TrainingEngine | None = None
        self.resume_step, self.until, self.tensorboard = resume_step, until, tensorboard
        self._step = resume_step or 0  # while there is no engine
        self._log_every = schedules.log_every(self.train)
        self._windows: list[WindowMeans] = []  # closed but not yet written
        self._evaluations: ScheduledEvaluations | None = None
        self._board: TensorBoard | None = None

    @property
    def engine(self) -> TrainingEngine:
        """The engine of a group in training."""
        assert self._engine is not None
        return self._engine

    @property
    def evaluations(self) -> ScheduledEvaluations:
        """The evaluations of a group in training."""
        assert self._evaluations is not None
        return self._evaluations

    @property
    def step(self) -> int:
        """The number of steps done."""
        return self._step if self._engine is None else self._engine.step

    @property
    def is_done(self) -> bool:
        """Whether a group in training has no more steps to do, or no replica that has not diverged."""
        return self.engine.step >= self.end_step or not any(self.alive)

    def snapshot(self) -> list[tuple[float, float, bool]] | None:
        """Return loss, accuracy and whether it is alive for each replica; None before the first step.

        Loss and accuracy are moving averages over the last steps, and NaN while the group waits.
        """
        steps, loss, accuracy = 0, list[float](), list[float]()
        alive = self.alive if self.latest is None else list(self.latest.alive)
        if self.state == "training" and self.is_consistent:
            if self._windows:  # on a CPU: it waits for the other groups
                steps = self._windows[-1].step - self._logged_step
                loss, accuracy, alive = (values.tolist() for values in self._windows[-1][1:])
            else:
                steps, loss, accuracy, alive = self.engine.open_window()
        if self.state == "training" and not steps and self.latest is None:
            return None
        return list(zip(*self._means.values(steps, loss, accuracy).tolist(), alive, strict=True))

    @property
    def _logged_step(self) -> int:
        """The last step of the last window that was logged."""
        return self.resume_step or 0 if self.latest is None else self.latest.step

    # -- start and end -----------------------------------------------------------------------------------------------

    def start(self, device: torch.device) -> None:
        """Build the models on the device and restore them, or save a first checkpoint of a new training."""
        try:
            self._engine = TrainingEngine(self.tasks, [folder.config for folder in self.folders], device)
            self._device_name = device_name(device)
            members = list(zip(self.folders, self.tasks, strict=True))
            self._evaluations = ScheduledEvaluations(self._engine, members, self._step)
            self._seconds_before = [0.0] * len(self.folders)
            self._start_time = self._save_time = monotonic()
            if self.resume_step is None:
                self.save()
            else:
                self._restore(self.resume_step)
            self._log_execution()
        except BaseException:
            self._engine = self._evaluations = None
            raise
        self.state = "training"
        if device.type == "cuda":  # the group's own stream must not run ahead of this work on the default stream
            torch.cuda.synchronize(device)

    @property
    def execution(self) -> ExecutionPlan:
        """How the models of a group in training are executed."""
        return self.engine.execution

    def _log_execution(self) -> None:
        """Record how someone else's model is executed, unless the last training of the run recorded the same."""
        if not self.execution.is_tested:
            return
        text = self.execution.describe()
        for folder, is_alive in zip(self.folders, self.alive, strict=True):
            recorded = [event["execution"] for event in folder.events() if "execution" in event]
            if is_alive and recorded[-1:] != [text]:
                folder.log({"step": self.step, "execution": text})

    def end(self) -> None:
        """Save the replicas, mark their folders as finished or stopped, and free the device memory."""
        errors = DeferredErrors()
        if self.state == "training":
            with errors:
                self._finish_runs()
            has_ended = self.is_done and errors.first is None
            self._step = self.end_step if has_ended else self.engine.step
            self.state = "ended" if has_ended else "stopped"
            device = self.engine.device
            self._engine = self._evaluations = None
            self._windows = []
            empty_device_cache(device)
        elif self.state != "ended":
            for folder in self.folders:
                with errors:
                    if folder.status == "running":
                        folder.finish("stopped")
        errors.raise_first()

    def _finish_runs(self) -> None:
        """Write the last checkpoint, model.safetensors and the status of each replica that is alive.

        After a failed step nothing is saved: the previous checkpoint remains the last. All checkpoints are written
        before the first run is marked as finished: if the process is killed in between, the runs that are not saved
        resume beside the others and not alone, and their numbers are the same to the last bit.
        """
        is_finished = self.is_consistent and self.is_done and self.end_step >= self.train.steps
        status: EndStatus = "finished" if is_finished else "stopped"
        errors, means = DeferredErrors(), self._last_means()
        saved = []
        for replica in range(len(self.folders)):
            if self.alive[replica]:
                with errors:
                    if self.is_consistent:
                        self._save_replica(replica, *means[replica][:2])
                    saved.append(replica)
        for replica in saved:
            with errors:
                if self.is_consistent:
                    self.folders[replica].write_model(self.evaluations.best_model(replica).to_safetensors())
                self.folders[replica].finish(status)
        if self._board is not None:
            self._board.close()
        errors.raise_first()

    # -- training ----------------------------------------------------------------------------------------------------

    def advance(self, windows: float, stop: Callable[[], bool], turn_seconds: float = math.inf) -> Iterator[None]:
        """Train up to `windows` logging windows, or a part of one if it is below 1, and yield after each turn.

        It stops earlier at a step with a checkpoint, a validation or an evaluation. On a CPU a turn also ends after
        `turn_seconds`.
        """
        engine = self.engine
        end = min(self.end_step, (engine.step // self._log_every + max(1, int(windows))) * self._log_every)
        if windows < 1:  # whole blocks, so that the steps are divided into CUDA graphs as in a whole window
            block = STEPS_PER_BLOCK["cuda"]
            end = min(end, engine.step + max(1, int(windows * self._log_every) // block) * block)
        end = self.evaluations.next_step(engine.step, end)
        if (every := self.train.checkpoint_every) is not None:
            end = min(end, (engine.step // every + 1) * every)
        while engine.step < end and not stop():
            turn_end = min(end, (engine.step // self._log_every + 1) * self._log_every)
            if engine.device.type == "cuda":
                turn_end = min(turn_end, (engine.step // STEPS_PER_TURN + 1) * STEPS_PER_TURN)
            start, must_pause = engine.step, stop
            if engine.device.type == "cpu":
                must_pause = partial(self._must_pause, stop, start, monotonic() + turn_seconds)
            self.is_consistent = False
            engine.advance(turn_end - start, must_pause)
            self.is_consistent = True
            # If it was stopped before the first step, the window is empty and not closed again.
            if engine.step > start and (engine.step % self._log_every == 0 or engine.step == self.train.steps):
                self._windows.append(engine.window())
            yield

    def _must_pause(self, stop: Callable[[], bool], start: int, deadline: float) -> bool:
        """Return whether a turn on a CPU is over.

        It has at least one step: drawing the first strings may take longer than a turn.
        """
        return stop() or (self.engine.step > start and monotonic() >= deadline)

    def write_results(self, message: Callable[[str], None], errors: DeferredErrors) -> None:
        """Log the windows since the last call, then validate, evaluate and save if due. This waits for the device."""
        if self.is_consistent:
            with errors:
                self._log_windows(message)
            with errors:
                self.evaluations.run_due(self.alive)
            with errors:
                self._save_if_due()

    def _log_windows(self, message: Callable[[str], None]) -> None:
        self.engine.wait()
        errors = DeferredErrors()
        for window in self._windows:
            step, *means = window
            steps = step - self._logged_step
            self.latest = Snapshot(step, *(values.tolist() for values in means))
            self._means.add(steps, self.latest.loss, self.latest.accuracy)
            self._log(self.latest, errors)
        self._windows = []
        if self.latest is not None:
            for replica, is_alive in enumerate(self.latest.alive):
                if self.alive[replica] and not is_alive:
                    with errors:
                        self._end_diverged(replica, self.latest.step, message)
        errors.raise_first()

    def _log(self, means: Snapshot, errors: DeferredErrors) -> None:
        step = np.array([means.step - 1])
        rates = [float(schedules.learning_rate(folder.config, step)[0]) for folder in self.folders]
        for replica, folder in enumerate(self.folders):
            if means.alive[replica]:
                values = {"accuracy": means.accuracy[replica], "loss": means.loss[replica], "lr": rates[replica]}
                with errors:
                    folder.log({"step": means.step, **values, "seconds": round(self._seconds(replica), 3)})
        if self.tensorboard:
            with errors:
                if self._board is None:
                    self._board = TensorBoard([folder.path for folder in self.folders], first=self.resume_step or 0)
                self._board.update(means.step, means.loss, means.accuracy, means.alive, rates)

    def _end_diverged(self, replica: int, step: int, message: Callable[[str], None]) -> None:
        """End a run whose loss or gradient is no longer finite; the other replicas continue."""
        self.alive[replica] = False
        folder = self.folders[replica]
        folder.log({"step": step, "diverged": True})
        folder.finish("diverged")
        checkpoints = folder.checkpoints()
        message(
            f"{folder.path}: the loss is not finite by step {step:,}; this run ends here"
            + (f" and keeps its checkpoint of step {checkpoints[0]:,}" if checkpoints else "")
        )

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        """Save a checkpoint at the steps that the settings say, by default about once a minute."""
        every = self.train.checkpoint_every
        if every is not None:
            is_due = self.engine.step % every == 0
        else:
            is_due = monotonic() - self._save_time > CHECKPOINT_SECONDS
        if is_due and not self.is_done:
            self.save()

    def save(self) -> None:
        """Save a checkpoint of every replica that is alive."""
        errors, means = DeferredErrors(), self._last_means()
        for replica, is_alive in enumerate(self.alive):
            if is_alive:
                with errors:
                    self._save_replica(replica, *means[replica][:2])
        self._save_time = monotonic()
        errors.raise_first()

    def _save_replica(self, replica: int, loss: float, accuracy: float) -> None:
        """Save a checkpoint; loss and accuracy are moving averages, NaN before the first step after a resume."""
        engine, folder = self.engine, self.folders[replica]
        tensors = name_model_tensors(tensors_for_file(engine.model(replica)))
        tensors |= engine.replicas.optimizer_state(replica) | engine.window_state(replica)
        tensors |= self.evaluations.tensors(replica)
        is_known = not math.isnan(accuracy)
        folder.save_checkpoint(
            engine.step,
            {name: value.detach().cpu() for name, value in tensors.items()},
            seconds=self._seconds(replica),
            loss=loss if is_known else folder.progress.loss,
            accuracy=accuracy if is_known else folder.progress.accuracy,
            device=self._device_name,
        )

    def _last_means(self) -> list[tuple[float, float, bool]]:
        """Return `snapshot`, with NaN before the first step; it is read from the device once for all replicas."""
        return self.snapshot() or [(math.nan, math.nan, True)] * len(self.folders)

    def write_progress(self) -> None:
        """Write into the run folders how far the replicas are, for `sdssm runs`."""
        for replica, (loss, accuracy, _) in enumerate(self.snapshot() or []):
            if self.alive[replica]:
                with suppress(RunError):  # the next event or checkpoint raises it: this file is for display only
                    self.folders[replica].write_progress(
                        self.engine.step,
                        seconds=self._seconds(replica),
                        loss=loss,
                        accuracy=accuracy,
                        device=self._device_name,
                    )

    def _restore(self, step: int) -> None:
        """Load the checkpoints of this step; a replica that diverged stays as it was."""
        self.engine.step = step
        for replica, folder in enumerate(self.folders):
            if folder.status == "diverged":
                self.alive[replica] = False
                self.engine.replicas.alive[replica] = False
                continue
            if step:  # at step 0 the new models already have their parameters
                self._load_replica(replica, folder.load_checkpoint(step).tensors)
            folder.rewind(step)
        self._seconds_before = [folder.progress.seconds for folder in self.folders]
        if not step:
            self.save()

    def _load_replica(self, replica: int, tensors: Mapping[str, Tensor]) -> None:
        self.engine.replicas.restore(replica, select_model_tensors(tensors), tensors)
        self.engine.load_window_state(replica, tensors)
        self.evaluations.restore(replica, tensors)

    def _seconds(self, replica: int) -> float:
        """Return the training time of a replica, in this process and before."""
        return self._seconds_before[replica] + monotonic() - self._start_time
