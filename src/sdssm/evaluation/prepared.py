"""Prepare what is evaluated: load it, find its task, and group what can be read side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from sdssm.automata import Machine
from sdssm.devices import resolve_device
from sdssm.errors import SdssmError
from sdssm.evaluation.description import changed_settings
from sdssm.evaluation.measurement import join_notes
from sdssm.evaluation.records import RunEvaluation
from sdssm.evaluation.request import EvaluationRequest
from sdssm.evaluation.sources import SavedModel, as_token_model, missing_task, own_task
from sdssm.evaluation.state_sample import StateSample, sample_states_of_models
from sdssm.evaluation.stored import store_evaluation, write_file
from sdssm.models import Classifier, TokenModel
from sdssm.runs import RunFolder, load
from sdssm.runs.own_files import STATES_FILE
from sdssm.runs.schema import RunConfig, Settings
from sdssm.tasks import Task, get_task

#: The most models that read the same strings side by side. Pieces of strings are shorter if there are more, so that
#: memory is bounded; results are stored after a group, so that an interruption loses one group.
MOST_MODELS = {"cpu": 16, "cuda": 64}
#: What is evaluated: a module, a run, or a saved model.
EvaluatedSubject = nn.Module | RunFolder | SavedModel


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run or a model that is loaded, with its task.

    Attributes:
        model: the model, on the device of the evaluation.
        task: its task.
        train_length: the greatest length that it was trained on.
        device_before: the device of a model that the caller owns; it is moved back to it.
        folder: the folder of a saved model.
        run: the folder of a run, with its configuration, its status and its step before the weights were read.
    """

    model: TokenModel
    task: Task
    train_length: int
    device_before: torch.device | None = None
    folder: str | None = None
    run: RunFolder | None = None
    config: RunConfig | None = None
    status: str = ""
    step: int = 0

    def finish(self, result: RunEvaluation, states: StateSample | None, *, overwrite: bool) -> RunEvaluation:
        """Add the fields that belong to a run, and store the result and the states of a run that is not running."""
        if self.run is None or self.config is None:
            settings = changed_settings(Settings(model=self.model.settings), None, self.task.name)
            return replace(result, settings=settings, folder=self.folder)
        result = replace(
            result,
            seed=self.config.seed,
            folder=str(self.run.path),
            preset=self.config.preset,
            settings=changed_settings(self.config.settings, self.config.preset, result.task),
            status=self.status,
            note=join_notes(result.note, _status_note(self.status, self.step, self.config.train.steps)),
        )
        if self.status == "running":  # the weights of a running training will change
            return result
        note = store_evaluation(self.run, result, overwrite=overwrite)
        if note is None and states is not None:
            write_file(self.run, STATES_FILE, states.encode(self.task.digest), result.status, stacklevel=5)
        return replace(result, note=join_notes(result.note, note))

    def release(self) -> None:
        """Move a model that the caller owns back to its device."""
        if self.device_before is not None:
            self.model.to(self.device_before)


def prepare(
    subject: EvaluatedSubject, task: str | Task | Machine | None, request: EvaluationRequest, *, trust: bool
) -> PreparedRun:
    """Load a run or a model and find its task; `task` is the one that the caller passed."""
    if isinstance(subject, RunFolder):
        if task is not None and get_task(task).digest != subject.config.digest:
            raise own_task(subject.path)
        return _prepare_run(subject, request, trust=trust)
    if isinstance(subject, nn.Module):
        own = subject.task if isinstance(subject, TokenModel) else None
        chosen = own if task is None else task
        if chosen is None:
            raise missing_task(None)
        model, known = as_token_model(subject, chosen), get_task(chosen)
        before = model.device
        return PreparedRun(model.to(request.device or before), known, known.train_length, device_before=before)
    model = load(subject.path, device=_device(request), trust=trust)
    known_task = model.task if task is None else task  # a saved model may carry its task
    if known_task is None:
        raise missing_task(subject.path)
    known = get_task(known_task)
    return PreparedRun(model, known, known.train_length, folder=str(subject.path))


def _prepare_run(run: RunFolder, request: EvaluationRequest, *, trust: bool) -> PreparedRun:
    # The status is read before the weights: if training continues meanwhile, the result is not kept.
    status, step = run.progress, run.step
    model = load(run, device=_device(request), trust=trust)
    settings = replace(run.config.settings, model=model.settings)  # its code is imported now
    config = replace(run.config, settings=settings)
    return PreparedRun(
        model, config.load_task(), config.train_length, run=run, config=config, status=status.status, step=step
    )


def group_subjects(
    subjects: Sequence[EvaluatedSubject], task: str | Task | Machine | None, request: EvaluationRequest
) -> list[list[int]]:
    """Return the numbers of the subjects in groups of the same model settings, task and device, in their first order.

    Saved models, and models that are not part of this package, are alone.
    """
    most = MOST_MODELS[_device(request).type]
    groups, by_key = list[list[int]](), dict[object, list[int]]()
    for number, subject in enumerate(subjects):
        key = _group_key(subject, task)
        group = by_key.get(key) if key is not None else None
        if group is None or len(group) == most:
            group = []
            groups.append(group)
            if key is not None:
                by_key[key] = group
        group.append(number)
    return groups


def _group_key(subject: EvaluatedSubject, task: str | Task | Machine | None) -> object:
    """Return what subjects of a group agree in, None for a subject that is evaluated alone."""
    try:
        if isinstance(subject, RunFolder):
            return run_key(subject)
        if isinstance(subject, Classifier):
            chosen = subject.task if task is None else get_task(task)
            sizes = (subject.n_symbols, subject.n_classes, subject.device)
            if chosen is not None:
                lengths = (chosen.train_length, chosen.test_length)  # not part of the digest
                return "model", chosen.name, chosen.digest, lengths, sizes, repr(subject.settings)
    except SdssmError:  # a damaged folder, or an unknown task: `prepare` raises it again
        pass
    return None


def run_key(run: RunFolder) -> object:
    """Return what runs agree in that are evaluated side by side: task, its lengths, and model settings."""
    config = run.config
    return "run", config.digest, config.train_length, config.test_length, repr(config.settings.model)


def _device(request: EvaluationRequest) -> torch.device:
    return request.device or resolve_device("auto")


def sample_states_of_runs(
    prepared: Sequence[PreparedRun], results: Sequence[RunEvaluation]
) -> list[StateSample | None]:
    """Return a sample of the states of each run that stores one; their results are complete without it.

    Args:
        prepared: runs that are evaluated side by side.
        results: their results.
    """
    samples, by_sampling = list[StateSample | None]([None] * len(prepared)), dict[str, list[int]]()
    for number, (run, result) in enumerate(zip(prepared, results, strict=True)):
        if run.config is not None and run.status != "running" and result.lengths is None:
            by_sampling.setdefault(run.config.train.sampling, []).append(number)
    for sampling, numbers in by_sampling.items():
        found = _sample_states([prepared[number] for number in numbers], results[numbers[0]], sampling)
        for number, sample in zip(numbers, found, strict=True):
            samples[number] = sample
    return samples


def _sample_states(prepared: Sequence[PreparedRun], result: RunEvaluation, sampling: str) -> list[StateSample | None]:
    models, task, train_length = [run.model for run in prepared], prepared[0].task, prepared[0].train_length
    longest, seed = result.max_length, result.string_seed
    try:
        return sample_states_of_models(models, task, longest, train_length, seed=seed, sampling=sampling)
    except Exception:  # code of others may raise anything, and memory may be too small
        if len(prepared) == 1:
            return [None]
    return [sample for run in prepared for sample in _sample_states([run], result, sampling)]


def _status_note(status: str, step: int, steps: int) -> str | None:
    """Return a note on a run that is not finished, or None."""
    if status == "finished":
        return None
    if status == "diverged":
        return f"diverged: read as it was at step {step:,} of {steps:,}, and left out of the best, mean and worst"
    return f"not finished: read as it was at step {step:,} of {steps:,}"
