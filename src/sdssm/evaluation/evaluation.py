"""`evaluate`: the accuracy of runs or models at every length."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from sdssm.automata import Machine
from sdssm.errors import ModelError, RunError, RunWarning, SdssmError
from sdssm.evaluation.measurement import count_symbols, measure_models
from sdssm.evaluation.prepared import (
    EvaluatedSubject,
    PreparedRun,
    group_subjects,
    prepare,
    sample_states_of_runs,
)
from sdssm.evaluation.records import Evaluation, RunEvaluation
from sdssm.evaluation.request import EvaluationError, EvaluationRequest, validate_request
from sdssm.evaluation.sampled_accuracy import MEASURES
from sdssm.evaluation.sources import MissingTaskError, Subject, expand_source, import_code
from sdssm.evaluation.state_sample import StateSample
from sdssm.evaluation.symbol_meter import SymbolMeter
from sdssm.files import format_path
from sdssm.models import TokenModel
from sdssm.progress import ProgressOption, report_progress
from sdssm.runs import RunFolder
from sdssm.tasks import Task

#: The test length of most tasks, for an estimate of the work before the task is known.
USUAL_LENGTH = 500
#: The errors of one run that do not stop the evaluation of others.
EXPECTED = (ModelError, RunError, EvaluationError)


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

    Runs with the same model settings and the same task are read side by side, on strings that are drawn once.

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
        on_result: called with the result of each run as soon as it is known; runs of one group follow each other.

    >>> from sdssm.models import Classifier, ModelSettings
    >>> model = Classifier(ModelSettings(), 2, 2, generator=torch.Generator().manual_seed(0))
    >>> run = evaluate(model, task="parity", max_length=100, strings=64).runs[0]
    >>> len(run.accuracy), 40 < run.mean < 60  # an untrained model is near chance, 50 %
    (100, True)
    """
    request = validate_request(max_length, lengths, strings, seed, fresh, device, measures)
    subjects = expand_source(source)
    import_code(subjects, trust=trust)
    left_out = dict[str, SdssmError]()

    def leave_out(subject: EvaluatedSubject, error: SdssmError) -> None:
        is_asked_for = task is not None or isinstance(error, MissingTaskError)  # the caller must decide
        if len(subjects) == 1 or isinstance(subject, nn.Module) or is_asked_for:
            raise error
        left_out[_name(subject)] = error

    results = evaluate_subjects(
        subjects,
        task,
        request,
        overwrite=overwrite,
        trust=trust,
        progress=progress,
        on_result=on_result,
        on_error=leave_out,
    )
    if left_out:
        name, reason = next(iter(left_out.items()))
        others = f", and so are {len(left_out) - 1} more" if len(left_out) > 1 else ""
        text = str(reason) if name in str(reason) else f"{name}: {reason}"
        warnings.warn(f"{text}; it is left out{others}", RunWarning, stacklevel=2)
    if not results:
        raise EvaluationError("there is nothing to evaluate; pass a model, or the folder of a run that has ended")
    return Evaluation(tuple(results))


def evaluate_subjects(
    subjects: Sequence[EvaluatedSubject],
    task: str | Task | Machine | None,
    request: EvaluationRequest,
    *,
    overwrite: bool,
    trust: bool,
    progress: ProgressOption,
    on_result: Callable[[RunEvaluation], None] | None,
    on_error: Callable[[EvaluatedSubject, SdssmError], None],
) -> list[RunEvaluation]:
    """Evaluate runs and models, side by side where possible; return the results in the order of the subjects.

    `on_error` is called with a subject that cannot be evaluated, and may raise the error.
    """
    groups = group_subjects(subjects, task, request)
    order = [number for group in groups for number in group]
    names = [_name(subjects[number]) for number in order]
    symbols = [_expected_symbols(subjects[number], request) for number in order]
    results = dict[int, RunEvaluation]()
    with report_progress(progress) as reporter:
        meter = SymbolMeter(names, symbols, reporter)
        for group in groups:
            meter.start_next(len(group))
            with _prepare_group(subjects, group, task, request, trust=trust, on_error=on_error) as prepared:
                outcomes = _measure_group(prepared, request, meter)
                states = _sample_states(prepared, outcomes)
                for number, outcome in outcomes.items():
                    if isinstance(outcome, SdssmError):
                        on_error(subjects[number], outcome)
                        continue
                    try:
                        results[number] = prepared[number].finish(outcome, states[number], overwrite=overwrite)
                    except EXPECTED as error:
                        on_error(subjects[number], error)
                        continue
                    if on_result is not None:
                        on_result(results[number])
    return [results[number] for number in sorted(results)]


@contextmanager
def _prepare_group(
    subjects: Sequence[EvaluatedSubject],
    group: Sequence[int],
    task: str | Task | Machine | None,
    request: EvaluationRequest,
    *,
    trust: bool,
    on_error: Callable[[EvaluatedSubject, SdssmError], None],
) -> Iterator[dict[int, PreparedRun]]:
    """Provide the subjects of a group, loaded, by their numbers; models of the caller go back to their device."""
    prepared = dict[int, PreparedRun]()
    try:
        for number in group:
            try:
                prepared[number] = prepare(subjects[number], task, request, trust=trust)
            except EXPECTED as error:
                on_error(subjects[number], error)
        yield prepared
    finally:
        for run in prepared.values():
            run.release()


def _measure_group(
    prepared: dict[int, PreparedRun], request: EvaluationRequest, meter: SymbolMeter
) -> dict[int, RunEvaluation | SdssmError]:
    """Return the result or the error of each run of a group, by its number."""
    if not prepared:
        return {}
    runs = list(prepared.values())
    models = [run.model for run in runs]
    try:
        results = measure_models(models, runs[0].task, runs[0].train_length, request, meter)
    except EXPECTED as error:
        if len(runs) == 1:
            return dict.fromkeys(prepared, error)
        # The error may be that of one run only: measure each alone.
        return {
            number: result
            for own in prepared
            for number, result in _measure_group({own: prepared[own]}, request, meter).items()
        }
    return dict(zip(prepared, results, strict=True))


def _sample_states(
    prepared: Mapping[int, PreparedRun], outcomes: Mapping[int, RunEvaluation | SdssmError]
) -> dict[int, StateSample | None]:
    """Return the states that are stored with each result of a group, by its number."""
    measured = {number: outcome for number, outcome in outcomes.items() if isinstance(outcome, RunEvaluation)}
    samples = sample_states_of_runs([prepared[number] for number in measured], list(measured.values()))
    return dict(zip(measured, samples, strict=True))


def _name(subject: EvaluatedSubject) -> str:
    if isinstance(subject, nn.Module):
        return subject.name if isinstance(subject, TokenModel) else type(subject).__name__
    return format_path(subject.path)


def _expected_symbols(subject: EvaluatedSubject, request: EvaluationRequest) -> int:
    """Return about how many symbols will be read; the model may turn out to need fresh strings."""
    longest = subject.config.test_length if isinstance(subject, RunFolder) else USUAL_LENGTH
    lengths = np.arange(1, longest + 1) if request.lengths is None else request.lengths
    return count_symbols(lengths, request.strings, request.fresh)
