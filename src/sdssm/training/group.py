"""A group in training: its engine, the run folders of its replicas, and what goes from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from time import monotonic

import numpy as np
import torch
from torch import Tensor

from sdssm.devices import device_name
from sdssm.evaluation import evaluate
from sdssm.models.names import file_name, tensors_for_file
from sdssm.runs import RunFolder
from sdssm.runs.folder import Ended
from sdssm.runs.schema import TrainSettings
from sdssm.tasks import Task
from sdssm.training import schedules
from sdssm.training.engine import Engine, Window
from sdssm.training.failures import Failures
from sdssm.training.tensorboard import TensorBoard

#: Seconds between checkpoints where the settings do not say how many steps.
CHECKPOINT_SECONDS = 60.0
#: Steps of one group that a GPU is given before the next group has its turn: it takes only so much work at a time, and
#: with all of it from one group the others would wait.
TURN = 50
#: Events that a run logs where the settings do not say how often.
EVENTS = 200
#: The seed of the strings for validation: not that of the test strings.
VALIDATION_SEED = 2
#: What checkpoints call the best parameters so far, and their score.
BEST, SCORE = "best.", "best_score"


def log_every(train: TrainSettings) -> int:
    """Steps from one event to the next: a multiple of ten by itself, because a GPU trains ten steps at a time."""
    return train.log_every or max(10, train.steps // EVENTS // 10 * 10)


def last_step(train: TrainSettings, share: float = 1.0) -> int:
    """Where a training stops that goes on for a share of its steps: at an event, so that its accuracy there is known.

    >>> last_step(TrainSettings(steps=1000), 0.25), last_step(TrainSettings(steps=1000))
    (250, 1000)
    """
    every = log_every(train)
    return min(train.steps, max(1, ceil(train.steps * share / every)) * every)


class Group:
    """Replicas that train side by side: `advance`, then `report`; `save` and `end` write what must stay."""

    def __init__(
        self,
        members: Sequence[tuple[RunFolder, Task]],
        device: torch.device,
        *,
        tensorboard: bool = False,
        until: float = 1.0,
    ) -> None:
        self.folders, tasks = [folder for folder, _ in members], [of for _, of in members]
        self.engine = Engine(tasks, [folder.config for folder in self.folders], device)
        self._device = device_name(device)
        train = self.engine.train
        self.steps = train.steps
        self.last = last_step(train, until)
        self._log_every = log_every(train)
        self._windows: list[Window] = []
        self.latest: Window | None = None
        self.alive = [True] * len(self.folders)
        self.whole = True  # not so once a step failed: parameters and windows may be of two of them
        self._best = self.engine.replicas.flat.clone() if train.validate_length is not None else None
        self._score = [-1.0] * len(self.folders)
        self._before = [folder.progress.seconds for folder in self.folders]
        self._began = self._saved = monotonic()
        self._tensorboard = tensorboard
        self._board: TensorBoard | None = None
        self._first = 0

    @property
    def done(self) -> bool:
        return self.engine.step >= self.last or not any(self.alive)

    # -- training ----------------------------------------------------------------------------------------------------

    def advance(self, windows: int, stop: Callable[[], bool]) -> Iterator[None]:
        """Train up to so many windows of the log, and no further than the next checkpoint or validation; in turns."""
        train, engine = self.engine.train, self.engine
        end = min(self.last, (engine.step // self._log_every + windows) * self._log_every)
        for every in (train.checkpoint_every, train.validate_every if self._best is not None else None):
            if every is not None:
                end = min(end, (engine.step // every + 1) * every)
        while engine.step < end and not stop():
            upto = min(end, (engine.step // self._log_every + 1) * self._log_every)
            if engine.device.type == "cuda":
                upto = min(upto, (engine.step // TURN + 1) * TURN)
            before = engine.step
            self.whole = False
            engine.advance(upto - before, stop)
            self.whole = True
            # Stopped before it began it is where its last window ended, and has none to close.
            if engine.step > before and (engine.step % self._log_every == 0 or engine.step == self.steps):
                self._windows.append(engine.window())
            yield

    def report(self, message: Callable[[str], None]) -> None:
        """Write what happened since the last report: this waits for the device."""
        self.engine.wait()
        failures = Failures()
        for window in self._windows:
            self._log(window, failures)
            self.latest = window
        self._windows = []
        if self.latest is not None:
            for replica, alive in enumerate(self.latest.alive.tolist()):
                if self.alive[replica] and not alive:
                    with failures:
                        self._diverged(replica, message)
        failures.tell()

    def _log(self, window: Window, failures: Failures) -> None:
        step = np.array([window.step - 1])
        rates = [float(schedules.learning_rate(folder.config, step)[0]) for folder in self.folders]
        loss, accuracy, alive = window.loss.tolist(), window.accuracy.tolist(), window.alive.tolist()
        for replica, folder in enumerate(self.folders):
            if alive[replica]:
                facts = {"accuracy": accuracy[replica], "loss": loss[replica], "lr": rates[replica]}
                with failures:
                    folder.log({"step": window.step, **facts, "seconds": round(self._seconds(replica), 3)})
        if self._tensorboard:
            with failures:
                self._board = self._board or TensorBoard([folder.path for folder in self.folders], first=self._first)
                self._board.update(window.step, loss, accuracy, alive, rates)

    def _diverged(self, replica: int, message: Callable[[str], None]) -> None:
        self.alive[replica] = False
        folder = self.folders[replica]
        step = self.latest.step if self.latest is not None else 0
        folder.log({"step": step, "diverged": True})
        folder.finish("diverged")
        kept = folder.checkpoints()
        message(
            f"{folder.path}: the loss is not finite by step {step:,}; this run ends here"
            + (f" and keeps its checkpoint of step {kept[0]:,}" if kept else "")
        )

    def validate(self) -> None:
        """Keep the best parameters on strings up to the validation length, at the steps that the settings say."""
        train, step = self.engine.train, self.engine.step
        if self._best is None or (step % train.validate_every and step != self.steps):
            return
        failures = Failures()
        for replica, folder in enumerate(self.folders):
            if self.alive[replica]:
                with failures:
                    found = evaluate(
                        self.engine.model(replica),
                        task=self.engine.tasks[replica],
                        max_length=train.validate_length,
                        seed=VALIDATION_SEED,
                    )
                    score = found.runs[0].mean
                    folder.log({"step": step, "validation": score})
                    # Of equals the later: where all is right already, training still makes it last longer.
                    if score is not None and score >= self._score[replica]:
                        self._score[replica] = score
                        self._best[replica] = self.engine.replicas.flat[replica]
        failures.tell()

    # -- what stays --------------------------------------------------------------------------------------------------

    def save_if_due(self) -> None:
        """Save at the steps that the settings say, or else every so often."""
        every = self.engine.train.checkpoint_every
        due = self.engine.step % every == 0 if every is not None else monotonic() - self._saved > CHECKPOINT_SECONDS
        if due and not self.done:
            self.save()

    def save(self) -> None:
        """A checkpoint of every replica that is alive."""
        failures = Failures()
        for replica, alive in enumerate(self.alive):
            if alive:
                with failures:
                    self._save(replica)
        self._saved = monotonic()
        failures.tell()

    def _save(self, replica: int) -> None:
        engine = self.engine
        tensors = tensors_for_file(engine.model(replica)) | engine.replicas.moments(replica)
        tensors |= engine.open_window(replica)
        if self._best is not None:
            best = engine.model(replica, self._best)
            tensors |= {BEST + file_name(best, name): value for name, value in best.named_parameters()}
            tensors[SCORE] = torch.tensor(self._score[replica], dtype=torch.float64)
        host = {name: value.detach().cpu() for name, value in tensors.items()}
        loss, accuracy = self._last(replica)
        self.folders[replica].save_checkpoint(
            engine.step,
            host,
            seconds=self._seconds(replica),
            loss=loss,
            accuracy=accuracy,
            device=self._device,
        )

    def restore(self, step: int) -> None:
        """Go on from a step of which every replica has a checkpoint; one that diverged stays as it was."""
        self.engine.step = step
        self._first = step
        for replica, folder in enumerate(self.folders):
            if folder.status == "diverged":
                self.alive[replica] = False
                self.engine.replicas.alive[replica] = False
                continue
            if step:  # at 0 it is as it was made
                self._take(replica, folder.load_checkpoint(step).tensors)
            folder.forget_after(step)
        if not step:
            self.save()

    def _take(self, replica: int, tensors: Mapping[str, Tensor]) -> None:
        self.engine.replicas.restore(replica, tensors)
        self.engine.set_window(replica, tensors)
        if self._best is not None:
            self._best[replica] = self.engine.replicas.joined(tensors, BEST).to(self._best.device)
            self._score[replica] = float(tensors[SCORE])

    def end(self) -> None:
        """The training is over: a last checkpoint, the weights alone in model.safetensors, and how it ended. Where a
        step failed, the checkpoint before stays the last."""
        status: Ended = "finished" if self.whole and self.done and self.last >= self.steps else "stopped"
        failures = Failures()
        for replica, folder in enumerate(self.folders):
            if self.alive[replica]:
                with failures:
                    if self.whole:
                        self._save(replica)
                        folder.write_model(self.engine.model(replica, self._best).packed())
                    folder.finish(status)
        if self._board is not None:
            self._board.close()
        failures.tell()

    def _last(self, replica: int) -> tuple[float | None, float | None]:
        if self.latest is None:  # nothing seen since it was resumed: what was known then
            before = self.folders[replica].progress
            return before.loss, before.accuracy
        return float(self.latest.loss[replica]), float(self.latest.accuracy[replica])

    def _seconds(self, replica: int) -> float:
        return self._before[replica] + monotonic() - self._began
