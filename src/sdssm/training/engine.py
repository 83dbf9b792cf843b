"""The training engine: sample -> loss -> gradient -> step for R replicas side by side, all of it on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sdssm import ops
from sdssm.errors import SettingsError
from sdssm.models import Classifier, ModelSettings
from sdssm.runs.schema import RunConfig, TrainSettings
from sdssm.tasks import Task
from sdssm.tasks.philox import DROPOUT
from sdssm.tasks.stream import Strings, StringStream, uniform
from sdssm.training import schedules
from sdssm.training.adam import adam_step
from sdssm.training.graphs import Graph
from sdssm.training.replicas import Replicas

#: Steps drawn at once: on the CPU enough to hide the cost of a draw, on a GPU those of one graph.
BLOCK = {"cpu": 32, "cuda": 10}
#: Steps whose schedules are laid out on the device at once.
PLAN = 2_000
#: What chance is drawn for, by the names that a model gives it.
PURPOSES = {"readout": DROPOUT, "blocks": DROPOUT + 1, "mixers": DROPOUT + 2}
#: The weight of a step in the share of right answers of late.
OF_LATE = 0.02


class Window(NamedTuple):
    """Means over the steps since the window before, up to `step`: loss and accuracy in percent, (R,) each."""

    step: int
    loss: Tensor
    accuracy: Tensor
    alive: Tensor


class Engine:
    """Trains one group: replicas of one model shape and one number of steps, on one task for all or one for each.

    `step` is how many steps are done. Everything random is a function of a replica's seed and the step.
    """

    def __init__(self, task: Task | Sequence[Task], runs: Sequence[RunConfig], device: torch.device) -> None:
        self.runs, self.device = list(runs), device
        self.tasks = [task] * len(self.runs) if isinstance(task, Task) else list(task)
        if len({shape(run, of) for run, of in zip(self.runs, self.tasks, strict=True)}) != 1:
            raise SettingsError("these runs differ in more than replicas may; train each shape in an engine of its own")
        first = runs[0]
        self.train = first.train
        self.step = 0
        self.width = max(run.train_length for run in runs)
        random_start = first.model.state_embedding is not None
        self.stream = StringStream(
            self.tasks,
            seeds=[run.seed for run in runs],
            batch=first.train.batch,
            max_length=self.width,
            device=device,
            random_start=random_start,
        )
        self.replicas = Replicas([new_model(run) for run in runs], device)
        self.changing = _changing(first)
        # Of the window that is open.
        self._loss, self._count = torch.zeros(len(runs), device=device), 0
        self._right = torch.zeros(len(runs), dtype=torch.int64, device=device)
        self._told = torch.zeros(len(runs), device=device)  # the share of right answers of late
        self._decay = torch.tensor([run.train.weight_decay for run in runs], device=device)
        self._attracted = first.model.readout == "cosine" and first.train.attraction > 0
        asked = [(of, run.train_length, run.train.shortest) for of, run in zip(self.tasks, runs, strict=True)]
        unlike = {(of.digest, longest, shortest): of for of, longest, shortest in asked}
        known = {key: of.classes(*key[1:]) for key, of in unlike.items()}  # once for all seeds
        occurring = [known[of.digest, longest, shortest] for of, longest, shortest in asked]
        # A class that is alone has nothing to be told from: no place would be wrong.
        self._attractions = [run.train.attraction * (len(k) > 1) for run, k in zip(runs, occurring, strict=True)]
        every = range(first.n_classes)
        self._classes = torch.tensor([[float(label in some) for label in every] for some in occurring], device=device)
        self._projection = self.replicas.leaf("readout.projection") if first.train.projection_decay else None
        self._projection_decay = first.train.projection_decay
        self._plan_first = 0
        self._plan: tuple[Tensor, Tensor] | None = None  # lengths and values
        self._graphs: dict[int, Graph] = {}
        self._cuda_stream = None if device.type == "cpu" else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own

    # -- many steps --------------------------------------------------------------------------------------------------

    def advance(self, steps: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Train `steps` more, or fewer when `stop` says so. On a GPU this returns before the work is done."""
        end = self.step + steps
        with self._working(), ops.unchecked():
            while self.step < end and not stop():
                self._lay_out()
                room = min(end, self._plan_first + PLAN) - self.step
                if self._cuda_stream is None:
                    self._block(min(room, BLOCK["cpu"]), stop)
                else:
                    self._replay(BLOCK["cuda"] if room >= BLOCK["cuda"] else 1)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """On the GPU the stream of this group. On the CPU no more threads than replicas: one model's tensors are so
        small that threads wait for each other, and many times longer than they work where other programs run too."""
        if self._cuda_stream is not None:
            with torch.cuda.stream(self._cuda_stream):
                yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(min(before, len(self.runs)))
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _lay_out(self) -> None:
        """Make sure that the plan covers the next step."""
        if self._plan is not None and self._plan_first <= self.step < self._plan_first + PLAN:
            return
        first = self.step
        lengths, values = plan(self.runs, self.stream, first, PLAN, self.changing, self._attractions)
        if self._plan is None:
            self._plan = torch.from_numpy(lengths).to(self.device), torch.from_numpy(values).to(self.device)
            self._at = torch.zeros((), dtype=torch.int64, device=self.device)  # the next step's row of the plan
            self._now = torch.full((), first, dtype=torch.int64, device=self.device)
        else:  # in place: graphs read these tensors
            for old, new in zip(self._plan, (lengths, values), strict=True):
                old.copy_(torch.from_numpy(new), non_blocking=False)
        self._at.zero_()
        self._now.fill_(first)
        self._plan_first = first
        self._host_lengths = lengths

    def _block(self, count: int, stop: Callable[[], bool]) -> None:
        """`count` steps on the CPU, with strings cut to the lengths that occur."""
        assert self._plan is not None
        at = self.step - self._plan_first
        host = self._host_lengths[at : at + count]
        lengths, values = (part[at : at + count] for part in self._plan)
        strings = self.stream.draw(torch.tensor(self.step), lengths, int(host.max()))
        for i in range(count):
            if stop():
                return
            cut = int(host[i].max())
            loss, right = self._one(_at(strings, i, cut), None if len(self.runs) == 1 else lengths[i], values[i])
            self._loss += loss
            self._right += right
            self._count += 1
            self.step += 1

    def _replay(self, count: int) -> None:
        """`count` steps on the GPU: eagerly the first time, which compiles the kernels, then as a captured graph."""
        if count not in self._graphs:
            assert self._cuda_stream is not None
            self._graphs[count] = Graph(lambda: self._captured(count), self._cuda_stream)
        self._graphs[count]()
        self._count += count
        self.step += count

    def _captured(self, count: int) -> None:
        assert self._plan is not None
        rows = self._at + torch.arange(count, device=self.device)
        lengths, values = (part.index_select(0, rows) for part in self._plan)
        strings = self.stream.draw(self._now, lengths, self.width)
        seen = [self._one(_at(strings, i, self.width), lengths[i], values[i], offset=i) for i in range(count)]
        for total, each in zip((self._loss, self._right), zip(*seen, strict=True), strict=True):
            total += torch.stack(each).sum(0)
        self._at += count
        self._now += count

    # -- one step ----------------------------------------------------------------------------------------------------

    def _one(self, strings: Strings, lengths: Tensor | None, values: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        """One step of every replica: strings (R, B, L) of lengths (R,), values (R, columns) of the plan.

        The loss (R,) before it, and how many strings were told right (R,).
        """
        given = {"tokens": strings.tokens, "labels": strings.labels}
        if lengths is not None:
            given["lengths"] = lengths[:, None].expand(-1, strings.tokens.shape[1])
        if strings.starts is not None:
            given["starts"] = strings.starts
        for name, noise in self.replicas.template.model.chance(*strings.tokens.shape[1:]).items():
            step = torch.tensor(self.step) if self._cuda_stream is None else self._now + offset
            given[f"noise.{name}"] = uniform(self.stream.seeds, step, PURPOSES[name], noise)
        lr, bias1, bias2, attraction, *changing = values.unbind(-1)
        if self._attracted:
            # Before a machine is found, attraction would hold on to whatever answer is the most frequent.
            strength = attraction * self._told**self.train.attraction_gate
            given |= {"attraction": strength, "classes": self._classes}
        loss, right, gradient = self.replicas.gradient(given, dict(zip(self.changing, changing, strict=True)))
        replicas = self.replicas
        if self._projection is not None:
            with torch.no_grad():
                self._projection.mul_(torch.exp(-self._projection_decay * lr)[:, None, None])
        adam_step(
            replicas.flat,
            gradient,
            replicas.first,
            replicas.second,
            lr=lr,
            weight_decay=self._decay,
            bias1=bias1,
            bias2=bias2,
            betas=self.train.betas,
            eps=self.train.eps,
            clip=self.train.clip,
            alive=replicas.alive,
            loss=loss,
        )
        if self._attracted:
            self._told.lerp_(right / self.train.batch, OF_LATE)
        return loss, right

    # -- looking at it -----------------------------------------------------------------------------------------------

    def window(self) -> Window:
        """Close a window: the means since the last one. Nothing waits for the device until the values are read."""
        with self._working():
            count = max(self._count, 1)
            accuracy = self._right.double() / (count * self.train.batch) * 100
            found = Window(self.step, self._loss / count, accuracy, self.replicas.alive.clone())
            self._loss.zero_()
            self._right.zero_()
        self._count = 0
        if self._cuda_stream is not None:  # whoever reads these on another stream reads them when they are there
            torch.cuda.current_stream(self.device).wait_stream(self._cuda_stream)
        return found

    def open_window(self, replica: int) -> dict[str, Tensor]:
        """The sums of a window that is not closed yet, for a checkpoint."""
        self.wait()
        sums = {"window.loss": self._loss[replica], "window.right": self._right[replica]}
        return sums | {"window.count": torch.tensor(self._count), "window.told": self._told[replica]}

    def set_window(self, replica: int, tensors: Mapping[str, Tensor]) -> None:
        """The reverse of `open_window`."""
        self._loss[replica] = tensors["window.loss"]
        self._right[replica] = tensors["window.right"]
        self._count = int(tensors["window.count"])
        self._told[replica] = tensors["window.told"]

    def wait(self) -> None:
        """Until the device has done all it was given."""
        if self._cuda_stream is not None:
            self._cuda_stream.synchronize()

    def model(self, replica: int, flat: Tensor | None = None) -> Classifier:
        """A replica as it is now."""
        self.wait()
        done = np.array([max(self.step - 1, 0)])
        now = {name: float(_value(self.runs[replica], name, done)[0]) for name in self.changing}
        return self.replicas.model(replica, now, flat)


def shape(run: RunConfig, of: Task) -> tuple[Any, ModelSettings, TrainSettings]:
    """A run without all that may differ between replicas side by side: the same for all that can share an engine.

    Tasks over one alphabet and with equally many classes share it too. Where not every string is valid, or the start is
    random, they do not; nor where the lengths that are usual for them differ, since all would take the longest's room.
    """
    alone = of.valid is not None or run.model.state_embedding is not None
    tasks = (of.digest,) if alone else (of.n_symbols, of.n_classes, of.train_length)
    train = replace(run.train, lr=0.0, weight_decay=0.0, train_length=None, schedule="constant", warmup=0.0)
    train = replace(train, shortest=1, curriculum="uniform", attraction=float(train.attraction > 0))
    return tasks, run.model.shape(), train


def new_model(run: RunConfig) -> Classifier:
    """The model of a run before training: a function of its seed and settings."""
    generator = torch.Generator().manual_seed(run.seed)
    return Classifier(run.model, run.n_symbols, run.n_classes, generator=generator)


def plan(
    runs: Sequence[RunConfig],
    stream: StringStream,
    first: int,
    count: int,
    changing: Sequence[str],
    attractions: Sequence[float],
) -> tuple[schedules.Ints, np.ndarray]:
    """Lengths (count, R), and float32 (count, R, columns): rate, Adam's two corrections, attraction, buffers."""
    step = np.arange(first, first + count)
    columns = []
    for run, attraction in zip(runs, attractions, strict=True):
        beta1, beta2 = run.train.betas
        one = [schedules.learning_rate(run, step), 1 - beta1 ** (step + 1.0), 1 - beta2 ** (step + 1.0)]
        one.append(schedules.ramp(0.0, attraction, run.train.steps, step))
        columns.append(np.stack([*one, *(_value(run, name, step) for name in changing)], axis=-1))
    return schedules.lengths(runs, stream, first, count), np.stack(columns, axis=1).astype(np.float32)


def _changing(run: RunConfig) -> list[str]:
    """The buffers that training changes, by their names inside the module."""
    found = ["readout.scale"] if run.model.readout == "cosine" else []
    return found + [f"layers.{i}.mixer.{name}" for i in range(run.model.layers) for name in run.model.mixer.ramps()]


def _value(run: RunConfig, name: str, step: schedules.Ints) -> schedules.Floats:
    if name == "readout.scale":
        return schedules.ramp(run.model.scale, run.model.scale_end, run.train.steps, step)
    return schedules.ramp(*run.model.mixer.ramps()[name.rpartition(".")[2]], run.train.steps, step)


def _at(strings: Strings, step: int, width: int) -> Strings:
    """The strings of one step, no wider than needed."""
    starts = None if strings.starts is None else strings.starts[step]
    return Strings(strings.tokens[step, :, :, :width], strings.labels[step], starts)
