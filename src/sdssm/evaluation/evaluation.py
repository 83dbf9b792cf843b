"""`evaluate`: the accuracy of runs or models at every length."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from sdssm.automata import Machine
from sdssm.devices import resolve_device
from sdssm.errors import ModelError, RunError, RunWarning, SdssmError
from sdssm.evaluation.description import changed_settings
from sdssm.evaluation.measurement import count_symbols, join_notes, measure_model
from sdssm.evaluation.records import Evaluation, RunEvaluation
from sdssm.evaluation.request import EvaluationError, EvaluationRequest, validate_request
from sdssm.evaluation.sampled_accuracy import MEASURES
from sdssm.evaluation.sources import (
    MissingTaskError,
    SavedModel,
    Subject,
    as_token_model,
    expand_source,
    import_code,
    missing_task,
    own_task,
)
from sdssm.evaluation.state_sample import sample_states
from sdssm.evaluation.stored import store_evaluation, write_file
from sdssm.evaluation.symbol_meter import SymbolMeter
from sdssm.files import format_path
from sdssm.models import TokenModel
from sdssm.progress import ProgressOption, report_progress
from sdssm.runs import RunFolder, load
from sdssm.runs.own_files import STATES_FILE
from sdssm.runs.schema import RunConfig, Settings
from sdssm.tasks import Task, get_task

#: The test length of most tasks, for an estimate of the work before the task is known.
USUAL_LENGTH = 500


def evaluate(
    source: Subject | Iterable[Subject],
    *,
    task: str | Task | Machine | None = None,
    max_length: int | None = None,
    lengths: Sequence[int] | int | None = None,
    strings: int = 512,
    seed: int = 1,
    fresh: bool = False,
    measures: Sequence[str] = MEASURES,
    device: str | torch.device = "auto",
    overwrite: bool = False,
    trust: bool = False,
    progress: ProgressOption = False,
    on_result: Callable[[RunEvaluation], None] | None = None,
) -> Evaluation:
    """Measure the accuracy at every length 1..max_length, or at the listed lengths.

    Uniformly drawn strings meet the rarer label of many languages hardly ever, and a constant answer is then nearly
    always right. So each result also has what the best constant answer scores, and the accuracy on balanced and on
    covering strings at a few lengths, see `SampledAccuracy`.

    The result for a run that has ended is also written into its folder, as evaluation.json or, with `lengths`, as
    evaluation-lengths.json; a stored evaluation that covers more is kept, and the note of the result says so. Beside
    evaluation.json goes a sample of the states of a recurrent model, see `StateSample`. A run that diverged is
    evaluated at its last checkpoint and left out of the aggregate.

    Args:
        source: a model, a run, the path of a run, of a folder of runs or of a saved model, or several of these. A
            model may be any `nn.Module` that maps tokens (B, L) to logits (B, L, C) or (B, C).
        task: the task of a model. Runs know their task, and so does a saved model that was stored with one.
        max_length: evaluate every length up to this one. Default: the task's test length.
        lengths: evaluate these lengths instead.
        strings: the number of strings at each length.
        seed: the seed of the strings. It is independent of the training seed.
        fresh: draw new strings for each length, as in the paper. By default short strings are prefixes of long ones.
        measures: the further measures, of "balanced" and "covering"; () for none.
        device: the device, or "auto": the fastest for runs and folders, and the model's own for a model.
        overwrite: replace a stored evaluation even if it has longer strings, or more of them.
        trust: import the code of a model that is not part of this package, as its folder names it.
        progress: True shows how far it is on standard error; a function receives each `ProgressEvent`.
        on_result: called with the result of each run as soon as it is known.

    >>> from sdssm.models import Classifier, ModelSettings
    >>> model = Classifier(ModelSettings(), 2, 2, generator=torch.Generator().manual_seed(0))
    >>> run = evaluate(model, task="parity", max_length=100, strings=64).runs[0]
    >>> len(run.accuracy), 40 < run.mean < 60  # an untrained model is near chance, 50 %
    (100, True)
    """
    request = validate_request(max_length, lengths, strings, seed, fresh, device, measures)
    subjects = expand_source(source)
    import_code(subjects, trust=trust)
    results, left_out = [], dict[str, SdssmError]()
    with report_progress(progress) as reporter:
        names = [_name(subject) for subject in subjects]
        meter = SymbolMeter(names, [_expected_symbols(subject, request) for subject in subjects], reporter)
        for subject, name in zip(subjects, names, strict=True):
            meter.start_next()
            try:
                result = _evaluate_subject(subject, task, request, meter, overwrite=overwrite, trust=trust)
            except (ModelError, RunError, EvaluationError) as error:
                is_asked_for = task is not None or isinstance(error, MissingTaskError)  # the caller must decide
                if len(subjects) == 1 or isinstance(subject, nn.Module) or is_asked_for:
                    raise
                left_out[name] = error
                continue
            results.append(result)
            if on_result is not None:
                on_result(result)
    if left_out:
        name, reason = next(iter(left_out.items()))
        others = f", and so are {len(left_out) - 1} more" if len(left_out) > 1 else ""
        text = str(reason) if name in str(reason) else f"{name}: {reason}"
        warnings.warn(f"{text}; it is left out{others}", RunWarning, stacklevel=2)
    if not results:
        raise EvaluationError("there is nothing to evaluate; pass a model, or the folder of a run that has ended")
    return Evaluation(tuple(results))


def _name(subject: nn.Module | RunFolder | SavedModel) -> str:
    if isinstance(subject, nn.Module):
        return subject.name if isinstance(subject, TokenModel) else type(subject).__name__
    return format_path(subject.path)


def _expected_symbols(subject: nn.Module | RunFolder | SavedModel, request: EvaluationRequest) -> int:
    """Return about how many symbols will be read; the model may turn out to need fresh strings."""
    longest = subject.config.test_length if isinstance(subject, RunFolder) else USUAL_LENGTH
    lengths = np.arange(1, longest + 1) if request.lengths is None else request.lengths
    return count_symbols(lengths, request.strings, request.fresh)


def _evaluate_subject(
    subject: nn.Module | RunFolder | SavedModel,
    task: str | Task | Machine | None,
    request: EvaluationRequest,
    meter: SymbolMeter,
    *,
    overwrite: bool,
    trust: bool,
) -> RunEvaluation:
    if isinstance(subject, RunFolder):
        if task is not None and get_task(task).digest != subject.config.digest:
            raise own_task(subject.path)
        return _evaluate_run(subject, request, meter, overwrite=overwrite, trust=trust)
    if isinstance(subject, nn.Module):
        own = subject.task if isinstance(subject, TokenModel) else None
        chosen = own if task is None else task
        if chosen is None:
            raise missing_task(None)
        return _evaluate_model(as_token_model(subject, chosen), chosen, request, meter)
    model = load(subject.path, device=_device(request), trust=trust)
    known_task = model.task if task is None else task  # a saved model may carry its task
    if known_task is None:
        raise missing_task(subject.path)
    return replace(_evaluate_model(model, known_task, request, meter), folder=str(subject.path))


def _device(request: EvaluationRequest) -> torch.device:
    return request.device or resolve_device("auto")


def _evaluate_model(
    model: TokenModel, task: str | Task | Machine, request: EvaluationRequest, meter: SymbolMeter
) -> RunEvaluation:
    task = get_task(task)
    device_before = model.device
    try:
        result = measure_model(model.to(request.device or device_before), task, task.train_length, request, meter)
        return replace(result, settings=changed_settings(Settings(model=model.settings), None, task.name))
    finally:
        model.to(device_before)


def _evaluate_run(
    run: RunFolder, request: EvaluationRequest, meter: SymbolMeter, *, overwrite: bool, trust: bool
) -> RunEvaluation:
    # The status is read before the weights: if training continues meanwhile, the result is not kept.
    status, step = run.progress, run.step
    model = load(run, device=_device(request), trust=trust)
    config = replace(
        run.config, settings=replace(run.config.settings, model=model.settings)
    )  # its code is imported now
    result = measure_model(model, config.load_task(), config.train_length, request, meter)
    result = replace(
        result,
        seed=config.seed,
        folder=str(run.path),
        preset=config.preset,
        settings=changed_settings(config.settings, config.preset, result.task),
        status=status.status,
        note=join_notes(result.note, _status_note(status.status, step)),
    )
    if status.status == "running":  # the weights of a running training will change
        return result
    note = store_evaluation(run, result, overwrite=overwrite)
    if note is None and result.lengths is None:
        _store_states(run, model, config, result)
    return replace(result, note=join_notes(result.note, note))


def _store_states(run: RunFolder, model: TokenModel, config: RunConfig, result: RunEvaluation) -> None:
    """Write a sample of the model's states into the run folder; the evaluation is complete without it."""
    task, longest, sampling = config.load_task(), result.max_length, config.train.sampling
    try:
        sample = sample_states(model, task, longest, config.train_length, seed=result.string_seed, sampling=sampling)
    except Exception:  # code of others may raise anything, and memory may be too small
        return
    if sample is not None:
        write_file(run, STATES_FILE, sample.encode(task.digest), result.status, stacklevel=6)


def _status_note(status: str, step: int) -> str | None:
    """Return a note on a run that is not finished, or None."""
    if status == "finished":
        return None
    if status == "diverged":
        return f"diverged: read as it was at step {step:,}, and left out of the best, mean and worst"
    return f"not finished: read as it was at step {step:,}"
