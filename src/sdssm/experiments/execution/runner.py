"""From a plan to results: train what is missing, go on with what is not finished, evaluate what was not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sdssm.errors import ModelError, RunError
from sdssm.evaluation import evaluate
from sdssm.evaluation.evaluation import FILE, LISTED_FILE
from sdssm.evaluation.records import FRESH, PREFIXES
from sdssm.experiments.execution.workers import stopped_by_sigterm, worker_pool
from sdssm.experiments.planning.plan import Plan, PlannedRun, Trainings
from sdssm.experiments.specs.spec import Asked
from sdssm.runs import ENDED, RunFolder
from sdssm.tasks import Task
from sdssm.training.group import last_step
from sdssm.training.planning import side_by_side
from sdssm.training.progress import Progress
from sdssm.training.trainer import train_all

#: The seed of the test strings, the same for all runs.
STRING_SEED = 1
#: A folder, and the name of a file with results there.
File = tuple[Path, str]


def run_plan(plan: Trainings, device: str | torch.device = "auto", progress: Progress | None = None) -> None:
    """Train what a plan wants, on this machine. What is finished stays as it is, what is not goes on."""
    if unfinished(plan):
        # Those that ended too: a group goes on with as many beside each other as it began with.
        train_all(plan.out, plan.planned(), device=device, resume=True, progress=progress, until=plan.until)


def unfinished(plan: Trainings) -> list[PlannedRun]:
    """What a plan has still to train."""
    going = [run for run in plan.wanted() if run.status not in ENDED]
    return [run for run in going if plan.until >= 1 or reached(run) < last_step(run.config.train, plan.until)]


def groups_of(plan: Trainings) -> list[list[PlannedRun]]:
    """Runs that share every launch: of each such group all, if one of them has yet to be trained."""
    left = {run.folder for run in unfinished(plan)}
    groups = side_by_side(plan.own(), lambda run: (run.config, run.task))
    return [group for group in groups if any(run.folder in left for run in group)]


def reached(run: PlannedRun) -> int:
    """How many steps of a run are saved."""
    return 0 if run.status == "missing" else RunFolder.open(run.folder).step


# -- evaluation --------------------------------------------------------------------------------------------------------


def evaluate_plan(
    plan: Plan,
    device: str | torch.device = "auto",
    *,
    workers: int = 1,
    found: Callable[[int, int], None] | None = None,
) -> None:
    """Evaluate what a plan wants and nobody has evaluated as it asks; `found` is told how many of how many are done.

    Each result is written when it is there: Ctrl-C or SIGTERM loses those in progress alone.
    """
    evaluate_here(unevaluated(plan), plan.spec.evaluate, device, workers=workers, found=found)


def evaluate_here(
    work: Sequence[File],
    asked: Asked,
    device: str | torch.device,
    *,
    workers: int = 1,
    found: Callable[[int, int], None] | None = None,
) -> None:
    """Make these files, on this machine."""
    call = partial(evaluate_file, asked=asked, device=str(device))
    alone = workers <= 1 or len(work) <= 1
    with stopped_by_sigterm(), nullcontext() if alone else worker_pool(workers) as pool:
        done = map(call, work) if pool is None else pool.map(call, work)  # a GPU takes several at a time
        for number, _ in enumerate(done):
            if found is not None:
                found(number + 1, len(work))


def unevaluated(plan: Plan) -> list[File]:
    """What a plan has still to evaluate: folders, and the files that are missing there."""
    todo = [run for run in plan.wanted() if run.status in ENDED]
    return [(run.folder, file) for run in todo for file in missing(run.folder, run.task, plan.spec.evaluate)]


def missing(folder: Path, of: Task, asked: Asked) -> list[str]:
    """The files that an evaluation as asked has yet to write into a run's folder."""
    run = RunFolder.open(folder)
    files = []
    if not _covers(_read(run, FILE), of, asked):
        files.append(FILE)
    if asked.lengths and not _lists(_read(run, LISTED_FILE), asked):
        files.append(LISTED_FILE)
    return files


def curve_of(folder: Path, of: Task, asked: Asked) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """What evaluations found of a run as asked: at every length, and at lengths named one by one."""
    run = RunFolder.open(folder)
    every, listed = _read(run, FILE), _read(run, LISTED_FILE)
    return every if _covers(every, of, asked) else None, listed if _lists(listed, asked) else {}


def evaluate_file(work: File, asked: Asked, device: str) -> None:
    """Evaluate one run for one file of its folder."""
    folder, file = work
    lengths: Sequence[int] | None = asked.lengths if file == LISTED_FILE else None
    try:
        evaluate(
            RunFolder.open(folder),
            max_length=None if lengths else asked.max_length,
            lengths=lengths,
            strings=asked.strings,
            seed=STRING_SEED,
            fresh=asked.fresh and not lengths,
            device=device,
        )
    except (ModelError, RunError):
        if RunFolder.open(folder).status != "diverged":  # one that diverged at once has nothing to be read
            raise


def _read(run: RunFolder, name: str) -> dict[str, Any]:
    try:
        found = run.read_json(name)
    except RunError:  # damaged: as good as none
        return {}
    return found if isinstance(found, dict) else {}


def _covers(found: dict[str, Any], of: Task, asked: Asked) -> bool:
    """Whether an evaluation read all that is asked, in the way that is asked."""
    longest = asked.max_length or of.test_length
    reach = isinstance(found.get("max_length"), int) and found["max_length"] >= longest
    if not _alike(found, asked) or not reach or len(found.get("accuracy") or ()) != found["max_length"]:
        return False
    # Some models can be read in no other way, and the note says so.
    forced = found.get("read") == FRESH and str(found.get("note") or "").startswith("fresh strings")
    return forced or found.get("read") == (FRESH if asked.fresh else PREFIXES)


def _lists(found: dict[str, Any], asked: Asked) -> bool:
    return found.get("lengths") == list(asked.lengths) and _alike(found, asked)


def _alike(found: dict[str, Any], asked: Asked) -> bool:
    """Whether it read the strings that are asked for, after the training had ended."""
    same = (found.get("strings"), found.get("string_seed")) == (asked.strings, STRING_SEED)
    return same and found.get("status") in ENDED
