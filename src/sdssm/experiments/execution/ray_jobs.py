"""Tasks of a Ray cluster: submitted, watched, and submitted again where a node was lost with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sdssm.errors import RunError, SdssmError
from sdssm.experiments.execution.ray_cluster import ClusterError, first_line
from sdssm.experiments.execution.ray_tasks import Outcome
from sdssm.training.signals import stop_on_signal

#: Seconds between two looks at the run folders.
POLL = 1.0
#: Seconds that tasks have to save and end after Ctrl-C.
STOP_WITHIN = 120.0
#: Times that a group may be lost one after the other without having come further.
TRIES = 3


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task: what it is called with, how often it was lost since it last came further, and how far it was then."""

    name: str
    submit: Callable[[float, bool], Any]
    step: Callable[[], int]
    share: float = 0.0
    lost: int = 0
    seen: int = 0


def work(
    ray: Any,
    jobs: Sequence[Job],
    message: Callable[[str], None],
    look: Callable[[], None] | None = None,
    ended: Callable[[int], None] | None = None,
) -> bool:
    """Submit all, and those that were lost again, until all have ended; whether somebody asked to stop meanwhile.

    An error of one job is raised when the others have ended, or were stopped: they may have days behind them.
    """
    errors: list[SdssmError] = []
    with stop_on_signal() as stop:
        pending = {job.submit(job.share, False): replace(job, seen=job.step()) for job in jobs}
        while pending and not stop():
            done, _ = ray.wait(list(pending), num_returns=len(pending), timeout=POLL)
            for task in done:
                job = pending.pop(task)
                try:
                    again = _ended(ray, task, job, message, stop)
                except SdssmError as error:
                    errors.append(error)
                    continue
                if again is not None:
                    pending[again.submit(again.share, True)] = again
                elif ended is not None:
                    ended(1)
            if look is not None:
                look()
        if stop():
            _cancel(ray, list(pending))
    if errors:
        raise errors[0] if len(errors) == 1 else _several(errors, len(jobs))
    return stop()


def _cancel(ray: Any, tasks: Sequence[Any]) -> None:
    """Tell workers to save and end, and wait until they have."""
    for task in tasks:
        ray.cancel(task)
    if tasks:
        ray.wait(list(tasks), num_returns=len(tasks), timeout=STOP_WITHIN)


def _ended(ray: Any, task: Any, job: Job, message: Callable[[str], None], stop: Callable[[], bool]) -> Job | None:
    """The job again, if it has not come to its end; None if it has."""
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
        outcome: Outcome = ray.get(task)
    except errors.RayTaskError as error:
        if isinstance(error.cause, SdssmError):
            raise error.cause from None
        raise RunError(f"{job.name} failed: {type(error.cause).__name__}: {first_line(error.cause)}") from error
    except lost as error:
        why = "its node was short of memory" if isinstance(error, errors.OutOfMemoryError) else "its node was lost"
    except errors.RayError as error:
        raise ClusterError(f"{job.name} failed on the Ray cluster: {first_line(error)}") from error
    else:
        for line in outcome.messages:
            message(line)
        if outcome.ended == "done":
            return None
        if outcome.ended == "memory":
            return _with_more_memory(job, outcome, message)
        why = f"node {outcome.node} stopped it"
    if stop():
        return None
    return _again(job, why, message)


def _with_more_memory(job: Job, outcome: Outcome, message: Callable[[str], None]) -> Job:
    if job.share >= 1:
        raise RunError(f"{job.name} needs more memory than a GPU of node {outcome.node} has; make it smaller")
    share = min(1.0, 2 * job.share)
    message(f"{job.name}: {job.share:.2f} of a GPU was too little; it goes on with {share:.2f}")
    return replace(job, share=share)


def _again(job: Job, why: str, message: Callable[[str], None]) -> Job:
    step = job.step()
    lost = 1 if step > job.seen else job.lost + 1
    if lost >= TRIES:
        raise RunError(f"{job.name} was lost {lost} times at step {step:,}: {why}; the same command goes on from there")
    message(f"{job.name}: {why} at about step {step:,}; it goes on elsewhere from its last checkpoint")
    return replace(job, lost=lost, seen=step)


def _several(errors: Sequence[SdssmError], every: int) -> RunError:
    return RunError(f"{len(errors)} of {every} tasks failed, the first one so: {errors[0]}")
