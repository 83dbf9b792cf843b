"""Evaluate the runs of a plan on this machine: one after the other, in processes, or in threads on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial

import torch

from sdssm.devices import resolve_device
from sdssm.errors import ModelError, RunError, SdssmError
from sdssm.evaluation.evaluation import evaluate_subjects
from sdssm.evaluation.prepared import MOST_MODELS, EvaluatedSubject, run_key
from sdssm.evaluation.request import validate_request
from sdssm.evaluation.sources import import_code
from sdssm.evaluation.stored import LENGTHS_FILE
from sdssm.experiments.execution.evaluation_files import STRING_SEED, EvaluationFile, missing_files
from sdssm.experiments.execution.gpu_memory import evaluation_bytes, free_memory, table_bytes
from sdssm.experiments.execution.in_flight import TaskEvaluations, run_in_flight
from sdssm.experiments.execution.workers import worker_pool
from sdssm.experiments.planning.plan import Plan
from sdssm.experiments.specs.spec import EvaluationSpec
from sdssm.models.sent_models import SentModel, import_sent_models, send_models
from sdssm.progress import SILENT, ProgressEvent, ProgressOption, ProgressReporter, report_progress
from sdssm.runs import RunFolder
from sdssm.tasks.streamed_strings import SHARED_STRINGS
from sdssm.training.signals import interrupt_on_signal

#: A process evaluates about this many times a part of the runs.
PARTS = 4
#: Whether evaluations run in threads at the same time: the strings of one leave most of a GPU idle.
HAS_STREAMS = {"cpu": False, "cuda": True}
#: Evaluations at the same time on a GPU, and the tasks that they may belong to.
STREAMS, MOST_TASKS = 6, 3
#: Called after each evaluation with the number of evaluations done and the total.
EvaluationCallback = Callable[[int, int], None]


def evaluate_plan(
    plan: Plan,
    device: str | torch.device = "auto",
    *,
    workers: int = 1,
    on_evaluated: EvaluationCallback | None = None,
    progress: ProgressOption = False,
) -> None:
    """Evaluate the selected runs of a plan that were not yet evaluated as its experiment requires.

    Each result is written as soon as it is computed, so Ctrl-C or SIGTERM loses only the evaluations in progress.

    Args:
        plan: the runs to evaluate.
        device: where to evaluate them.
        workers: the number of processes.
        on_evaluated: called after each evaluation with the number of evaluations done and the total.
        progress: True shows how many are done and an estimate of the time left.
    """
    files = missing_files(plan)
    with report_progress(progress) as reporter:
        start_evaluations(reporter, plan, files)
        evaluate_locally(
            files, plan.spec.evaluate, device, workers=workers, on_evaluated=on_evaluated, reporter=reporter
        )


def start_evaluations(reporter: ProgressReporter, plan: Plan, files: Sequence[EvaluationFile]) -> None:
    """Start the progress of the evaluations of a plan."""
    reporter.start(f"evaluate {plan.spec.name}", total=len(files), unit="evaluations")


def evaluate_locally(
    files: Sequence[EvaluationFile],
    spec: EvaluationSpec,
    device: str | torch.device,
    *,
    workers: int = 1,
    on_evaluated: EvaluationCallback | None = None,
    reporter: ProgressReporter = SILENT,
) -> None:
    """Compute and write evaluation files on this machine, in `workers` processes, or in threads of one on a GPU."""
    device = resolve_device(device)
    most = MOST_MODELS[device.type]
    if workers > 1:  # processes share the runs evenly, in a few parts each
        most = min(most, max(1, len(files) // (PARTS * workers)))
    groups = group_files(files, most)
    call = partial(evaluate_group, spec=spec, device=str(device))
    if len(files) > 1 and workers > 1:
        completed = _call_in_processes(partial(call, models=models_of_files(files)), groups, workers)
    elif len(files) > 1 and HAS_STREAMS[device.type]:
        completed = _call_on_streams(call, groups, spec, device)
    else:
        completed = _call_in_turn(call, groups, reporter)
    done = 0
    with interrupt_on_signal(), closing(completed):
        for group in completed:
            for _ in group:
                done += 1
                if on_evaluated is not None:
                    on_evaluated(done, len(files))
            reporter.update(done)


def _call_in_turn(
    call: Callable[..., None], groups: Sequence[list[EvaluationFile]], reporter: ProgressReporter
) -> Generator[list[EvaluationFile]]:
    """Evaluate groups in this process, and report how far the evaluation of each is; yield it after its evaluation."""
    done = 0
    for group in groups:

        def report_part(event: ProgressEvent, before: int = done, count: int = len(group)) -> None:
            share = min(event.done / event.total, 1.0) if event.total else 0.0
            reporter.update(before + share * count)

        call(group, progress=report_part)
        done += len(group)
        yield group


def _call_in_processes(
    call: Callable[[list[EvaluationFile]], None], groups: Sequence[list[EvaluationFile]], workers: int
) -> Generator[list[EvaluationFile]]:
    """Evaluate groups in worker processes; yield each group in order, after its evaluation."""
    with worker_pool(workers) as pool:
        for group, _ in zip(groups, pool.map(call, groups), strict=True):
            yield group


def _call_on_streams(
    call: Callable[[list[EvaluationFile]], None],
    groups: Sequence[list[EvaluationFile]],
    spec: EvaluationSpec,
    device: torch.device,
) -> Generator[list[EvaluationFile]]:
    """Evaluate groups of several tasks at the same time in threads; yield each group after its evaluation."""

    def call_and_wait(group: list[EvaluationFile]) -> None:
        try:
            call(group)
        finally:  # also after an error: the strings may be freed now
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()

    tasks = (describe_task(task_groups, spec) for task_groups in groups_by_task(groups))
    with stream_pool(device) as pool:
        yield from run_in_flight(pool, call_and_wait, tasks, memory=free_memory(device), most=MOST_TASKS)


def group_files(files: Sequence[EvaluationFile], most: int) -> list[list[EvaluationFile]]:
    """Return the files in groups of at most `most` that are computed side by side, those of a task one after another.

    The files of a group have one name, and their runs agree in task and model settings.
    """
    runs = {folder: RunFolder.open(folder) for folder in dict.fromkeys(folder for folder, _ in files)}
    tasks = list(dict.fromkeys(run.config.digest for run in runs.values()))
    by_key = dict[object, list[EvaluationFile]]()
    for folder, name in files:
        by_key.setdefault((name, run_key(runs[folder])), []).append((folder, name))
    # Task after task: its tables of strings are computed once.
    ordered = sorted(by_key.values(), key=lambda group: tasks.index(runs[group[0][0]].config.digest))
    return [group[first : first + most] for group in ordered for first in range(0, len(group), most)]


def groups_by_task(groups: Sequence[list[EvaluationFile]]) -> list[list[list[EvaluationFile]]]:
    """Return the groups of each task apart."""
    tasks = dict[str, list[list[EvaluationFile]]]()
    for group in groups:
        tasks.setdefault(RunFolder.open(group[0][0]).config.digest, []).append(group)
    return list(tasks.values())


def describe_task(
    groups: Sequence[list[EvaluationFile]], spec: EvaluationSpec
) -> TaskEvaluations[list[EvaluationFile]]:
    """Return the evaluations of one task with the memory that they need."""
    needed, tables = list[float](), 0
    for group in groups:
        run = RunFolder.open(group[0][0]).config
        lengths = spec.lengths if group[0][1] == LENGTHS_FILE else range(1, (spec.max_length or run.test_length) + 1)
        try:
            needed.append(evaluation_bytes(run, len(group), lengths, spec.strings))
            tables = max(tables, table_bytes(run, lengths))
        except Exception:  # of a model of others, or of a damaged run: its evaluation says what is wrong
            needed.append(math.inf)
    return TaskEvaluations(groups, sum(sorted(needed)[-STREAMS:]) + tables, SHARED_STRINGS.keep(run.digest))


@contextmanager
def stream_pool(device: torch.device) -> Iterator[Executor]:
    """Provide threads, each with its own stream of a GPU, so that their kernels run at the same time."""

    def set_stream() -> None:
        if device.type == "cuda":
            torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]  # torch's own

    pool = ThreadPoolExecutor(STREAMS, initializer=set_stream)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # after an interruption, only those in progress are finished


def models_of_files(files: Sequence[EvaluationFile]) -> tuple[SentModel, ...]:
    """Return the models of others that other processes need to evaluate these runs."""
    return send_models(RunFolder.open(folder).config.model for folder in dict.fromkeys(folder for folder, _ in files))


def evaluate_group(
    files: Sequence[EvaluationFile],
    spec: EvaluationSpec,
    device: str,
    progress: ProgressOption = False,
    models: Sequence[SentModel] = (),
) -> None:
    """Evaluate runs side by side and write the evaluation file of one name into each folder.

    Args:
        files: the folders, and the name of the file, which is the same for all.
        spec: what to evaluate.
        device: where.
        progress: receives how far it is.
        models: the models of others to import for the runs.
    """
    import_sent_models(models)
    lengths: Sequence[int] | None = spec.lengths if files[0][1] == LENGTHS_FILE else None
    max_length, fresh = None if lengths else spec.max_length, spec.fresh and not lengths
    request = validate_request(max_length, lengths, spec.strings, STRING_SEED, fresh, device)
    runs = [RunFolder.open(folder) for folder, _ in files]
    import_code(runs, trust=False)
    errors = list[SdssmError]()

    def collect(subject: EvaluatedSubject, error: SdssmError) -> None:
        # A run that diverged at once has no weights to load.
        is_diverged = isinstance(subject, RunFolder) and RunFolder.open(subject.path).status == "diverged"
        if not (is_diverged and isinstance(error, ModelError | RunError)):
            errors.append(error)

    evaluate_subjects(
        runs,
        None,
        request,
        overwrite=True,  # a stored evaluation may be longer, but is not what the experiment requires
        trust=False,
        progress=progress,
        on_result=None,
        on_error=collect,
    )
    if errors:  # after the results of the other runs are stored
        raise errors[0]
