"""A plan on a Ray cluster: each group of replicas one task, in run folders that all nodes share.

Ray starts tasks where there is room and says which were lost; all else is in the run folders. A group that was lost
with its node goes on elsewhere from its last checkpoints, and comes to the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sdssm.errors import DeviceError
from sdssm.experiments.execution.executors import Found
from sdssm.experiments.execution.gpu_memory import bytes_needed, share_of
from sdssm.experiments.execution.ray_cluster import ClusterError, first_line, join, ray_module
from sdssm.experiments.execution.ray_jobs import Job, work
from sdssm.experiments.execution.ray_tasks import Outcome, Share, evaluate_files, gpus_here, make_mark, train_group
from sdssm.experiments.execution.runner import File, evaluate_here, groups_of, unevaluated
from sdssm.experiments.execution.watcher import Watch, least_step
from sdssm.experiments.planning.plan import Plan, PlannedRun, Trainings
from sdssm.experiments.specs.spec import Asked
from sdssm.extras import import_extra
from sdssm.models.classifier import CONFIG
from sdssm.runs import ENDED, RunFolder
from sdssm.training.planning import check_folders
from sdssm.training.progress import Progress, Silent
from sdssm.training.trainer import Runs, TrainingStopped

#: Evaluations that one task does at most; and tasks for each place on the cluster, so that none ends much later.
BATCH, SPREAD = 16, 4
#: The memory of a GPU that does not say.
SMALL = 16 * 2**30

AnyPlan = TypeVar("AnyPlan", bound=Trainings)


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
        strategies = import_extra("ray.util.scheduling_strategies", "--engine ray")
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
            raise ClusterError(f"a node with a GPU does not answer: {first_line(error)}") from None

    # -- training ----------------------------------------------------------------------------------------------------

    def run_plan(self, plan: Trainings, progress: Progress | None = None) -> None:
        """Train what a plan wants. A group whose node is lost goes on elsewhere; Ctrl-C saves all, and ends it."""
        plan = absolute(plan)
        groups = groups_of(plan)
        if not groups:
            return
        check_folders(plan.out, plan.planned(), resume=True, overwrite=False)
        mark, shown = make_mark(plan.out), progress or Silent()
        jobs = [self._training(group, plan, mark) for group in groups]
        runs = [run for group in groups for run in group if run.status not in ENDED]
        watch = Watch(runs, plan.out, shown, plan.until)
        try:
            stopped = work(self._ray, jobs, shown.message, watch.look)
            watch.look(last=True)
        finally:
            shown.stop()
        if stopped:
            there = [RunFolder.open(run.folder) for run in runs if (run.folder / CONFIG).exists()]
            raise TrainingStopped(Runs(plan.out, there))

    def _training(self, group: Sequence[PlannedRun], plan: Trainings, mark: str) -> Job:
        planned = [(run.folder, run.task, run.config) for run in group]
        folders = [run.folder for run in group]
        memory = min((size for _, size in self._gpus), default=SMALL)
        gpu = self._device == "cuda"
        share = share_of(bytes_needed([run.config for run in group]), memory) if gpu else 0.0

        def submit(share: float, again: bool) -> Any:
            given = (plan.out, mark, planned, plan.until, self._share(share), again)
            return self._remote(train_group, share).remote(*given)

        names = dict.fromkeys(f"{run.config.model.name} on {run.task.name}" for run in group)
        return Job(name=", ".join(names), submit=submit, step=lambda: least_step(folders), share=share)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def evaluate_plan(self, plan: Plan, found: Found | None = None) -> None:
        """Evaluate what a plan wants and nobody has evaluated as it asks: in `out` on the cluster, and here the runs
        that were made elsewhere, in folders that other nodes may not see."""
        plan = absolute(plan)
        asked, every = plan.spec.evaluate, unevaluated(plan)
        out = plan.out.resolve()
        shared, here = list[File](), list[File]()
        for one in every:
            (shared if one[0].resolve().is_relative_to(out) else here).append(one)
        told = found or (lambda done, of: None)
        evaluate_here(
            here,
            asked,
            "auto" if self._device == "cuda" else "cpu",
            workers=self._workers,
            found=lambda done, _: told(done, len(every)),
        )
        if shared:
            self._evaluate(plan.out, shared, asked, lambda done: told(len(here) + done, len(every)))

    def _evaluate(self, out: Path, files: Sequence[File], asked: Asked, found: Callable[[int], None]) -> None:
        mark = make_mark(out)
        share = 1 / max(1, self._workers) if self._device == "cuda" else 0.0
        places = self._places(share)
        size = max(1, min(BATCH, len(files) // (places * SPREAD)))
        done = 0

        def job(some: Sequence[File]) -> Job:
            def submit(share: float, again: bool) -> Any:
                return self._remote(evaluate_files, share).remote(out, mark, some, asked, self._share(share))

            return Job(name=f"evaluation of {len(some)} runs", submit=submit, step=lambda: 0, share=share)

        def ended(count: int) -> None:
            nonlocal done
            done += count
            found(min(done * size, len(files)))

        jobs = [job(files[first : first + size]) for first in range(0, len(files), size)]
        if work(self._ray, jobs, _quiet, ended=ended):
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


def _quiet(text: str) -> None:
    pass


# -- plans -------------------------------------------------------------------------------------------------------------


def absolute(plan: AnyPlan) -> AnyPlan:
    """The plan with paths that mean the same on every node."""
    runs = tuple(replace(run, folder=run.folder.absolute()) for run in plan.runs)
    return replace(plan, out=plan.out.absolute(), runs=runs)
