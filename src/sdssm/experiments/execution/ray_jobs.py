"""Submitting tasks to a Ray cluster, and submitting them again if their node is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sdssm.errors import RunError, SdssmError, first_line
from sdssm.experiments.execution.ray_cluster import ClusterError
from sdssm.experiments.execution.ray_tasks import TaskOutcome
from sdssm.training.signals import stop_on_signal

#: Seconds between two updates of the progress display.
POLL = 1.0
#: Seconds that tasks have to save and end after Ctrl-C.
STOP_WITHIN = 120.0
#: How often in a row a task may be lost without having made progress.
TRIES = 3


@dataclass(frozen=True, kw_only=True)
class RayJob:
    """A task to submit. `submit(share, is_retry)` starts it, and `step()` returns how far it is."""

    name: str
    submit: Callable[[float, bool], Any]
    step: Callable[[], int]
    share: float = 0.0  #: of a GPU
    losses: int = 0  #: since it last made progress
    last_step: int = 0  #: when it was last lost, or at the start


def run_jobs(
    ray: Any,
    jobs: Sequence[RayJob],
    message: Callable[[str], None],
    update: Callable[[], None] | None = None,
    on_done: Callable[[], None] | None = None,
) -> bool:
    """Run jobs until all have ended, and return whether a signal stopped them.

    Lost jobs are submitted again. `update` is called about every second, `on_done` after each job. The error of a job
    is raised only after the other jobs have ended or were stopped, as they may have trained for days.
    """
    errors: list[SdssmError] = []
    with stop_on_signal() as is_stopped:
        pending = {job.submit(job.share, False): replace(job, last_step=job.step()) for job in jobs}
        while pending and not is_stopped():
            done, _ = ray.wait(list(pending), num_returns=len(pending), timeout=POLL)
            for task in done:
                job = pending.pop(task)
                try:
                    retry = _retry_of(ray, task, job, message, is_stopped)
                except SdssmError as error:
                    errors.append(error)
                    continue
                if retry is not None:
                    pending[retry.submit(retry.share, True)] = retry
                elif on_done is not None:
                    on_done()
            if update is not None:
                update()
        if is_stopped():
            _cancel(ray, list(pending))
    if errors:
        raise errors[0] if len(errors) == 1 else _summarize(errors, len(jobs))
    return is_stopped()


def _cancel(ray: Any, tasks: Sequence[Any]) -> None:
    """Tell workers to save and end, and wait until they have."""
    for task in tasks:
        ray.cancel(task)
    if tasks:
        ray.wait(list(tasks), num_returns=len(tasks), timeout=STOP_WITHIN)


def _retry_of(
    ray: Any, task: Any, job: RayJob, message: Callable[[str], None], is_stopped: Callable[[], bool]
) -> RayJob | None:
    """Return the job to submit again if its task was lost; None if the task is done."""
    errors = ray.exceptions
    lost = (
        errors.WorkerCrashedError,
        errors.NodeDiedError,
        errors.OutOfMemoryError,
        errors.ObjectLostError,
        errors.LocalRayletDiedError,
        errors.TaskCancelledError,
    )
    try:
        outcome: TaskOutcome = ray.get(task)
    except errors.RayTaskError as error:
        if isinstance(error.cause, SdssmError):
            raise error.cause from None
        raise RunError(f"{job.name} failed: {type(error.cause).__name__}: {first_line(error.cause)}") from error
    except lost as error:
        reason = "its node ran out of memory" if isinstance(error, errors.OutOfMemoryError) else "its node was lost"
    except errors.RayError as error:
        raise ClusterError(f"{job.name} failed on the Ray cluster: {first_line(error)}") from error
    else:
        for line in outcome.messages:
            message(line)
        if outcome.ended == "done":
            return None
        if outcome.ended == "memory":
            return _with_more_memory(job, outcome, message)
        reason = f"node {outcome.node} stopped it"
    if is_stopped():
        return None
    return _after_loss(job, reason, message)


def _with_more_memory(job: RayJob, outcome: TaskOutcome, message: Callable[[str], None]) -> RayJob:
    if job.share >= 1:
        raise RunError(f"{job.name} needs more memory than a GPU of node {outcome.node} has; make it smaller")
    share = min(1.0, 2 * job.share)
    message(f"{job.name}: {job.share:.2f} of a GPU was too little memory; resuming with {share:.2f}")
    return replace(job, share=share)


def _after_loss(job: RayJob, reason: str, message: Callable[[str], None]) -> RayJob:
    step = job.step()
    losses = 1 if step > job.last_step else job.losses + 1
    if losses >= TRIES:
        raise RunError(
            f"{job.name} was lost {losses} times at step {step:,}: {reason}; run the command again to resume"
        )
    message(f"{job.name}: {reason} at about step {step:,}; resuming from its last checkpoint on another node")
    return replace(job, losses=losses, last_step=step)


def _summarize(errors: Sequence[SdssmError], total: int) -> RunError:
    return RunError(f"{len(errors)} of {total} tasks failed; the first error is: {errors[0]}")
