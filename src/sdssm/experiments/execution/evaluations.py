"""Evaluating the runs of a plan: which evaluations are missing, making them, and reading them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from sdssm.devices import resolve_device
from sdssm.errors import ModelError, RunError
from sdssm.evaluation import evaluate
from sdssm.evaluation.records import READ_FRESH, READ_PREFIXES
from sdssm.evaluation.stored import EVALUATION_FILE, LENGTHS_FILE, read_stored
from sdssm.experiments.execution.workers import worker_pool
from sdssm.experiments.planning.plan import Plan
from sdssm.experiments.specs.spec import EvaluationSpec
from sdssm.models.sent_models import SentModel, import_sent_models, send_models
from sdssm.progress import SILENT, ProgressEvent, ProgressOption, ProgressReporter, report_progress
from sdssm.runs import FINAL_STATUSES, RunFolder
from sdssm.tasks import Task
from sdssm.training.signals import interrupt_on_signal

#: The seed of the test strings, the same for all runs.
STRING_SEED = 1
#: A process evaluates about this many times a part of the runs.
PARTS = 4
#: Evaluations at the same time on a GPU: the strings of one leave most of it idle.
STREAMS = 6
#: A run folder, and the name of an evaluation file in it.
EvaluationFile = tuple[Path, str]
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
    has_streams = workers <= 1 and device.type == "cuda"
    is_serial = len(files) <= 1 or (workers <= 1 and not has_streams)
    models = () if is_serial or has_streams else models_of_files(files)
    call = partial(evaluate_file, spec=spec, device=str(device), models=models)
    done = 0

    def report_part(event: ProgressEvent) -> None:
        reporter.update(done + (min(event.done / event.total, 1.0) if event.total else 0.0))

    pool_context = nullcontext() if is_serial else stream_pool(device) if has_streams else worker_pool(workers)
    with interrupt_on_signal(), pool_context as pool:
        if pool is None:
            completed: Iterator[None] = map(partial(call, progress=report_part), files)
        else:
            # The runs of a task follow each other, and a process computes the tables of their strings once.
            size = max(1, len(files) // (PARTS * workers))
            groups = files_by_task(files) if has_streams else [files]
            completed = chain.from_iterable(pool.map(call, group, chunksize=size) for group in groups)
        for number, _ in enumerate(completed):
            done = number + 1
            reporter.update(done)
            if on_evaluated is not None:
                on_evaluated(number + 1, len(files))


def files_by_task(files: Sequence[EvaluationFile]) -> list[list[EvaluationFile]]:
    """Return the files of each task apart.

    One task after the other: the memory of its strings must not be freed while another thread reads them.
    """
    groups = dict[str, list[EvaluationFile]]()
    for file in files:
        groups.setdefault(RunFolder.open(file[0]).config.digest, []).append(file)
    return list(groups.values())


@contextmanager
def stream_pool(device: torch.device) -> Iterator[Executor]:
    """Provide threads, each with its own stream of a GPU, so that their kernels run at the same time."""

    def set_stream() -> None:
        torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]  # torch's own

    pool = ThreadPoolExecutor(STREAMS, initializer=set_stream)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # after an interruption, only those in progress are finished


def missing_files(plan: Plan) -> list[EvaluationFile]:
    """Return the evaluation files that a plan has still to compute, for its runs that have ended."""
    ended = [run for run in plan.selected_runs() if run.status in FINAL_STATUSES]
    return [
        (run.folder, name) for run in ended for name in missing_evaluations(run.folder, run.task, plan.spec.evaluate)
    ]


def missing_evaluations(folder: Path, task: Task, spec: EvaluationSpec) -> list[str]:
    """Return the names of the evaluation files that a run folder lacks."""
    run = RunFolder.open(folder)
    names = []
    if not _has_every_length(_read(run, EVALUATION_FILE), task, spec):
        names.append(EVALUATION_FILE)
    if spec.lengths and not _has_listed_lengths(_read(run, LENGTHS_FILE), spec):
        names.append(LENGTHS_FILE)
    return names


def read_evaluations(folder: Path, task: Task, spec: EvaluationSpec) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the evaluations of a run at every length and at listed lengths.

    The first is None, or the second an empty dictionary, if it is missing or does not match the spec.
    """
    run = RunFolder.open(folder)
    curve, listed = _read(run, EVALUATION_FILE), _read(run, LENGTHS_FILE)
    return curve if _has_every_length(curve, task, spec) else None, listed if _has_listed_lengths(listed, spec) else {}


def models_of_files(files: Sequence[EvaluationFile]) -> tuple[SentModel, ...]:
    """Return the models of others that other processes need to evaluate these runs."""
    return send_models(RunFolder.open(folder).config.model for folder in dict.fromkeys(folder for folder, _ in files))


def evaluate_file(
    file: EvaluationFile,
    spec: EvaluationSpec,
    device: str,
    progress: ProgressOption = False,
    models: Sequence[SentModel] = (),
) -> None:
    """Evaluate one run and write one evaluation file into its folder; `models` are those to import for it."""
    import_sent_models(models)
    folder, name = file
    lengths: Sequence[int] | None = spec.lengths if name == LENGTHS_FILE else None
    try:
        evaluate(
            RunFolder.open(folder),
            max_length=None if lengths else spec.max_length,
            lengths=lengths,
            strings=spec.strings,
            seed=STRING_SEED,
            fresh=spec.fresh and not lengths,
            device=device,
            overwrite=True,  # a stored evaluation may be longer, but is not what the experiment requires
            progress=progress,
        )
    except (ModelError, RunError):
        if RunFolder.open(folder).status != "diverged":  # a run that diverged at once has no weights to load
            raise


def _read(run: RunFolder, name: str) -> dict[str, Any]:
    content = read_stored(run, name)
    return content if isinstance(content, dict) else {}


def _has_every_length(evaluation: dict[str, Any], task: Task, spec: EvaluationSpec) -> bool:
    """Return whether an evaluation has the lengths and the strings that the spec requires."""
    longest = spec.max_length or task.test_length
    is_long_enough = isinstance(evaluation.get("max_length"), int) and evaluation["max_length"] >= longest
    if not _has_same_strings(evaluation, spec) or not is_long_enough:
        return False
    if len(evaluation.get("accuracy") or ()) != evaluation["max_length"] or not _has_measures(evaluation, spec):
        return False
    # Some models can be evaluated on fresh strings only; the note of the evaluation says so.
    is_forced = evaluation.get("read") == READ_FRESH and str(evaluation.get("note") or "").startswith("fresh strings")
    return is_forced or evaluation.get("read") == (READ_FRESH if spec.fresh else READ_PREFIXES)


def _has_listed_lengths(evaluation: dict[str, Any], spec: EvaluationSpec) -> bool:
    has_lengths = evaluation.get("lengths") == list(spec.lengths) and _has_measures(evaluation, spec)
    return has_lengths and _has_same_strings(evaluation, spec)


def _has_measures(evaluation: dict[str, Any], spec: EvaluationSpec) -> bool:
    """Return whether an evaluation was made by a version that takes the measures of the scores; they may be null."""
    return all(score.measure is None or score.measure in evaluation for score in spec.scores)


def _has_same_strings(evaluation: dict[str, Any], spec: EvaluationSpec) -> bool:
    """Return whether an evaluation used the strings of the spec, and was made after the training ended."""
    strings = (evaluation.get("strings"), evaluation.get("string_seed"))
    return strings == (spec.strings, STRING_SEED) and evaluation.get("status") in FINAL_STATUSES
