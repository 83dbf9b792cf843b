"""A plan on a Ray cluster: each group of replicas one task, in run folders that all nodes share.

Ray starts tasks where there is room and says which were lost; all else is in the run folders. A group that was lost
with its node goes on elsewhere from its last checkpoints, and comes to the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sdssm.errors import DeviceError, RunError, SdssmError
from sdssm.experiments.engines import Found
from sdssm.experiments.plan import Plan, PlannedRun
from sdssm.experiments.ray_cluster import ClusterError, join, ray_module
from sdssm.experiments.ray_tasks import Outcome, Share, evaluate_files, gpus_here, make_mark, train_group
from sdssm.experiments.runner import unevaluated, unfinished
from sdssm.experiments.shares import bytes_needed, share_of
from sdssm.experiments.watch import Watch, standing
from sdssm.extras import require
from sdssm.models.classifier import CONFIG
from sdssm.runs import RunFolder
from sdssm.train.engine import shape
from sdssm.train.planning import check_folders
from sdssm.train.progress import Progress, Silent
from sdssm.train.trainer import Runs, TrainingStopped, stop_on_signal

#: Seconds between two looks at the run folders.
POLL = 1.0
#: Seconds that tasks have to save and end after Ctrl-C.
STOP_WITHIN = 120.0
#: Times that a group may be lost one after the other without having come further.
TRIES = 3
#: Evaluations that one task does at most; and tasks for each place on the cluster, so that none ends much later.
BATCH, SPREAD = 16, 4
#: The memory of a GPU that does not say.
SMALL = 16 * 2**30


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task: what it is called with, how often it was lost since it last came further, and how far it was then."""

    name: str
    submit: Callable[[float, bool], Any]
    step: Callable[[], int]
    share: float = 0.0
    lost: int = 0
    seen: int = 0


class RayEngine:
    """`with RayEngine(address="10.0.0.1:6379") as engine:` then `run_plan` and `evaluate_plan`.

    Without an address a Ray of its own is started on this machine, and ended with it. `device` is auto (GPUs where the
    cluster has some), cpu or cuda; `workers` evaluate at a time on one GPU.
    """

    def __init__(self, device: str = "auto", *, workers: int = 1, address: str | None = None) -> None:
        if device not in ("auto", "cpu", "cuda"):
            raise DeviceError(f"Ray chooses the GPU, and the device is {device!r}; give auto, cpu or cuda")
        self._ray = ray_module()
        self._device, self._workers, self._address = device, workers, address
        self._ours = False
        self._gpus: list[tuple[str, int]] = []

    def __enter__(self) -> Self:
        self._ours = join(self._address)
        try:
            there = self._ray.cluster_resources().get("GPU", 0)
            if self._device == "cuda" and not there:
                raise DeviceError(
                    "cuda was asked for, but no node of the Ray cluster has a GPU; use --device cpu or auto"
                )
            self._device = "cuda" if there and self._device != "cpu" else "cpu"
            if self._device == "cuda":
                self._gpus = self._find_gpus()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._ours:
            self._ours = False
            self._ray.shutdown()

    @property
    def device_name(self) -> str:
        if self._device == "cpu":
            return "CPU"
        return ", ".join(dict.fromkeys(name for name, _ in self._gpus)) or "GPU"

    def _find_gpus(self) -> list[tuple[str, int]]:
        strategies = require("ray.util.scheduling_strategies", "--engine ray")
        ask = self._ray.remote(num_cpus=0)(gpus_here)
        nodes = [one for one in self._ray.nodes() if one["Alive"] and one["Resources"].get("GPU")]
        asked = [
            ask.options(
                scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node_id=one["NodeID"], soft=False)
            ).remote()
            for one in nodes
        ]
        try:
            return [gpu for found in self._ray.get(asked, timeout=120) for gpu in found]
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f"a node with a GPU does not answer: {_line(error)}") from None

    # -- training ----------------------------------------------------------------------------------------------------

    def run_plan(self, plan: Plan, progress: Progress | None = None) -> None:
        """Train what a plan wants. A group whose node is lost goes on elsewhere; Ctrl-C saves all, and ends it."""
        plan = absolute(plan)
        groups = groups_of(plan)
        if not groups:
            return
        check_folders(plan.out, plan.planned(), resume=True, overwrite=False)
        mark, shown = make_mark(plan.out), progress or Silent()
        jobs = [self._training(group, plan, mark) for group in groups]
        runs = [run for group in groups for run in group if run.status not in ("finished", "diverged")]
        watch = Watch(runs, plan.out, shown)
        try:
            stopped = self._work(jobs, shown.message, watch.look)
            watch.look(last=True)
        finally:
            shown.stop()
        if stopped:
            there = [RunFolder.open(run.folder) for run in runs if (run.folder / CONFIG).exists()]
            raise TrainingStopped(Runs(plan.out, there))

    def _training(self, group: Sequence[PlannedRun], plan: Plan, mark: str) -> Job:
        planned = [(run.folder, run.task, run.config) for run in group]
        memory = min((size for _, size in self._gpus), default=SMALL)
        gpu = self._device == "cuda"
        share = share_of(bytes_needed([run.config for run in group]), memory) if gpu else 0.0

        def submit(share: float, again: bool) -> Any:
            given = (plan.out, mark, planned, plan.until, self._share(share), again)
            return self._remote(train_group, share).remote(*given)

        def step() -> int:
            return min(standing(run.folder).step for run in group)

        names = dict.fromkeys(f"{run.config.model.name} on {run.task.name}" for run in group)
        return Job(name=", ".join(names), submit=submit, step=step, share=share)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def evaluate_plan(self, plan: Plan, found: Found | None = None) -> None:
        """Evaluate what a plan wants and nobody has evaluated as it asks."""
        plan = absolute(plan)
        work = unevaluated(plan)
        if not work:
            return
        mark, asked = make_mark(plan.out), plan.spec.evaluate
        share = 1 / max(1, self._workers) if self._device == "cuda" else 0.0
        places = self._places(share)
        size = max(1, min(BATCH, len(work) // (places * SPREAD)))
        done = 0

        def job(some: Sequence[tuple[Path, str]]) -> Job:
            def submit(share: float, again: bool) -> Any:
                return self._remote(evaluate_files, share).remote(out, mark, some, asked, self._share(share))

            return Job(name=f"evaluation of {len(some)} runs", submit=submit, step=lambda: 0, share=share)

        def ended(count: int) -> None:
            nonlocal done
            done += count
            if found is not None:
                found(min(done * size, len(work)), len(work))

        out = plan.out
        jobs = [job(work[first : first + size]) for first in range(0, len(work), size)]
        if self._work(jobs, _quiet, ended=ended):
            raise KeyboardInterrupt

    def _places(self, share: float) -> int:
        there = self._ray.cluster_resources()
        return max(1, int(there.get("GPU", 0) / share if share else there.get("CPU", 1)))

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _remote(self, call: Callable[..., Outcome], share: float) -> Any:
        """We try again ourselves: Ray would not know how far a group came, nor that it must wait for a dying one."""
        if share:  # what a process leaves on a GPU goes with it
            return self._ray.remote(num_cpus=1, num_gpus=share, max_retries=0, max_calls=1)(call)
        return self._ray.remote(num_cpus=1, max_retries=0)(call)

    def _share(self, share: float) -> Share:
        return Share(device=self._device, memory=share or 1.0)

    def _work(
        self,
        jobs: Sequence[Job],
        message: Callable[[str], None],
        look: Callable[[], None] | None = None,
        ended: Callable[[int], None] | None = None,
    ) -> bool:
        """Submit all, and those that were lost again, until all have ended; whether somebody stopped it before.

        An error of one job is raised when the others have ended: they may have days behind them.
        """
        errors: list[SdssmError] = []
        with stop_on_signal() as stop:
            pending = {job.submit(job.share, False): replace(job, seen=job.step()) for job in jobs}
            while pending and not stop():
                done, _ = self._ray.wait(list(pending), num_returns=len(pending), timeout=POLL)
                for task in done:
                    job = pending.pop(task)
                    try:
                        again = self._ended(task, job, message, stop)
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
                self._cancel(list(pending))
                return True
        if errors:
            raise errors[0] if len(errors) == 1 else _several(errors, len(jobs))
        return False

    def _cancel(self, tasks: Sequence[Any]) -> None:
        """Tell workers to save and end, and wait until they have."""
        for task in tasks:
            self._ray.cancel(task)
        if tasks:
            self._ray.wait(list(tasks), num_returns=len(tasks), timeout=STOP_WITHIN)

    def _ended(self, task: Any, job: Job, message: Callable[[str], None], stop: Callable[[], bool]) -> Job | None:
        """The job again, if it has not come to its end; None if it has."""
        errors = self._ray.exceptions
        lost = (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
            errors.LocalRayletDiedError,
            errors.TaskCancelledError,
        )
        try:
            outcome: Outcome = self._ray.get(task)
        except errors.RayTaskError as error:
            if isinstance(error.cause, SdssmError):
                raise error.cause from None
            raise RunError(f"{job.name} failed: {type(error.cause).__name__}: {_line(error.cause)}") from error
        except lost as error:
            why = "its node was short of memory" if isinstance(error, errors.OutOfMemoryError) else "its node was lost"
        except errors.RayError as error:
            raise ClusterError(f"{job.name} failed on the Ray cluster: {_line(error)}") from error
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


def _line(error: object) -> str:
    words = str(error).strip().splitlines() or [type(error).__name__]
    return words[0][:200]


def _quiet(text: str) -> None:
    pass


# -- plans -------------------------------------------------------------------------------------------------------------


def absolute(plan: Plan) -> Plan:
    """The plan with paths that mean the same on every node."""
    runs = tuple(replace(run, folder=run.folder.absolute()) for run in plan.runs)
    return replace(plan, out=plan.out.absolute(), runs=runs)


def groups_of(plan: Plan) -> list[list[PlannedRun]]:
    """Runs that share every launch, as on one machine: of each such group all, if one of them has yet to be trained."""
    found: dict[Any, list[PlannedRun]] = {}
    for run in plan.wanted():
        found.setdefault((shape(run.config, run.task), run.config.begun), []).append(run)
    left = {run.folder for run in unfinished(plan)}
    return [group for group in found.values() if any(run.folder in left for run in group)]
