"""Evaluations during a training, at the steps that the settings say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from sdssm.evaluation import evaluate
from sdssm.models import TokenModel
from sdssm.runs import RunFolder
from sdssm.tasks import Task
from sdssm.training.best_weights import BestWeights
from sdssm.training.deferred_errors import DeferredErrors
from sdssm.training.engine import TrainingEngine

#: The seed of the validation strings, different from that of the test strings.
VALIDATION_SEED = 2


class ScheduledEvaluations:
    """The validation, which keeps the best weights, and evaluations up to the test length, which change nothing.

    Replicas of the same task are evaluated side by side.

    Args:
        engine: the engine of the replicas.
        members: run folder and task of each replica.
        evaluated_step: the step of the checkpoint that the training resumes from. An evaluation there is in the log.
    """

    def __init__(self, engine: TrainingEngine, members: Sequence[tuple[RunFolder, Task]], evaluated_step: int) -> None:
        self._engine, self._members, self._evaluated_step = engine, members, evaluated_step
        self._train = members[0][0].config.train
        self._best = None if self._train.validate_length is None else BestWeights(engine.replicas)

    def next_step(self, step: int, end: int) -> int:
        """Return the first step after this one at which something is due, `end` if nothing is due before it."""
        intervals = [self._train.evaluate_every, None if self._best is None else self._train.validate_every]
        return min([end, *((step // every + 1) * every for every in intervals if every is not None)])

    def run_due(self, alive: Sequence[bool]) -> None:
        """Validate and evaluate the replicas that are alive, if due at this step."""
        errors = DeferredErrors()
        with errors:
            self._validate_if_due(alive)
        with errors:
            self._evaluate_if_due(alive)
        errors.raise_first()

    def best_model(self, replica: int) -> TokenModel:
        """Return a replica with its best weights so far, or its current ones without a validation."""
        if self._best is None:
            return self._engine.model(replica)
        return self._engine.model(replica, self._best.rows[replica], self._best.buffers[replica])

    def tensors(self, replica: int) -> dict[str, Tensor]:
        """Return the best weights of a replica for a checkpoint; empty without a validation."""
        return {} if self._best is None else self._best.tensors(replica)

    def restore(self, replica: int, tensors: Mapping[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        if self._best is not None:
            self._best.restore(replica, tensors)

    def _validate_if_due(self, alive: Sequence[bool]) -> None:
        """Measure the validation accuracy and keep the weights if none were better."""
        if self._best is None or not self._is_due(self._train.validate_every):
            return
        errors = DeferredErrors()
        for task, is_uniform, replicas in self._same_strings(alive):
            # If uniform strings do not cover the machine, a constant answer may be nearly always right on them.
            measures = () if is_uniform else ("balanced",)
            with errors:
                evaluation = evaluate(
                    [self._engine.model(replica) for replica in replicas],
                    task=task,
                    max_length=self._train.validate_length,
                    seed=VALIDATION_SEED,
                    measures=measures,
                )
                for replica, result in zip(replicas, evaluation.runs, strict=True):
                    self._members[replica][0].log({"step": self._engine.step, "validation": result.headline})
                    if result.headline is not None:
                        self._best.update(replica, result.headline)
        errors.raise_first()

    def _evaluate_if_due(self, alive: Sequence[bool]) -> None:
        """Record the accuracy up to the test length; the training ignores it."""
        step = self._engine.step
        if step == self._evaluated_step or not self._is_due(self._train.evaluate_every):
            return
        self._evaluated_step = step
        errors = DeferredErrors()
        for task, _, replicas in self._same_strings(alive):
            with errors:
                evaluation = evaluate([self._engine.model(replica) for replica in replicas], task=task, measures=())
                for replica, result in zip(replicas, evaluation.runs, strict=True):
                    means = {"all": result.mean, "within": result.mean_within, "beyond": result.mean_beyond}
                    self._members[replica][0].log({"step": step, **means})
        errors.raise_first()

    def _is_due(self, every: int | None) -> bool:
        """Whether something that is done every so many steps, and at the end, is due."""
        step = self._engine.step
        return every is not None and (step % every == 0 or step == self._train.steps)

    def _same_strings(self, alive: Sequence[bool]) -> list[tuple[Task, bool, list[int]]]:
        """Return which living replicas read the same strings, with their task and whether it is sampled uniformly."""
        groups: dict[object, tuple[Task, bool, list[int]]] = {}
        for replica, (folder, task) in enumerate(self._members):
            if alive[replica]:
                config = folder.config
                is_uniform = config.train.sampling == "uniform"
                key = task.name, task.digest, config.train_length, task.test_length, is_uniform
                own_task = replace(task, train_length=config.train_length)
                groups.setdefault(key, (own_task, is_uniform, []))[2].append(replica)
        return list(groups.values())
