"""Running a plan on a Ray cluster: each group of replicas is one task, in shared run folders.

Ray starts tasks and reports lost ones; everything else is in the run folders. A group whose node is lost resumes on
another node from its last checkpoints, and its result is bit-identical.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self, TypeVar

from sdssm.errors import DeviceError, first_line
from sdssm.experiments.execution.evaluation_files import EvaluationFile, missing_files
from sdssm.experiments.execution.evaluations import (
    EvaluationCallback,
    evaluate_locally,
    models_of_files,
    start_evaluations,
)
from sdssm.experiments.execution.gpu_memory import bytes_needed, share_of
from sdssm.experiments.execution.ray_cluster import ClusterError, join, ray_module
from sdssm.experiments.execution.ray_jobs import RayJob, run_jobs
from sdssm.experiments.execution.ray_tasks import (
    SEEN_WITHIN,
    DeviceShare,
    TaskOutcome,
    evaluate_files,
    list_gpus,
    make_mark,
    train_sent_group,
)
from sdssm.experiments.execution.watcher import ProgressWatcher, least_step
from sdssm.experiments.planning.plan import Plan, PlannedRun, TrainingPlan
from sdssm.experiments.planning.remaining import training_groups, unfinished_runs
from sdssm.experiments.specs.spec import EvaluationSpec
from sdssm.extras import import_extra
from sdssm.models.sent_models import send_models
from sdssm.models.settings import CONFIG_FILE
from sdssm.progress import ProgressOption, report_progress
from sdssm.runs import FINAL_STATUSES, RunFolder
from sdssm.runs.plan_file import missing_runs, planned_start
from sdssm.training.planning import check_folders
from sdssm.training.progress import Progress, SilentProgress
from sdssm.training.trained_runs import Runs
from sdssm.training.trainer import TrainingStopped

#: The most evaluations per task, and the least number of tasks per slot of the cluster, so that slots end together.
BATCH, TASKS_PER_SLOT = 16, 4
#: The memory assumed for a GPU that does not report it.
DEFAULT_GPU_BYTES = 16 * 2**30

AnyPlan = TypeVar("AnyPlan", bound=TrainingPlan)


class RayExecutor:
    """Runs plans on a Ray cluster.

    Use it as `with RayExecutor(address="10.0.0.1:6379") as executor:` and call `run_plan` and `evaluate_plan`.
    Without an address a cluster is started on this machine, and shut down at the end of the block.

    Args:
        device: auto (GPUs if the cluster has any), cpu or cuda.
        workers: number of evaluations at a time on one GPU.
        address: HOST:PORT of the cluster, or auto.
    """

    def __init__(self, device: str = "auto", *, workers: int = 1, address: str | None = None) -> None:
        if device not in ("auto", "cpu", "cuda"):
            raise DeviceError(f"the device is {device!r}, but Ray chooses the GPU; give auto, cpu or cuda")
        self._ray = ray_module()
        self._device, self._workers, self._address = device, workers, address
        self._is_owner = False  # of the connection to the cluster
        self._gpus: list[tuple[str, int]] = []

    def __enter__(self) -> Self:
        self._is_owner = join(self._address)
        try:
            gpus = self._ray.cluster_resources().get("GPU", 0)
            if self._device == "cuda" and not gpus:
                raise DeviceError(
                    "the device is cuda, but no node of the Ray cluster has a GPU; use --device cpu or auto"
                )
            self._device = "cuda" if gpus and self._device != "cpu" else "cpu"
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
        if self._is_owner:
            self._is_owner = False
            self._ray.shutdown()

    @property
    def device(self) -> str:
        """The kind of device that tasks get, cpu or cuda; known inside the `with` block."""
        return self._device

    @property
    def device_name(self) -> str:
        if self._device == "cpu":
            return "CPU"
        return ", ".join(dict.fromkeys(name for name, _ in self._gpus)) or "GPU"

    def _find_gpus(self) -> list[tuple[str, int]]:
        strategies = import_extra("ray.util.scheduling_strategies", "--engine ray")
        remote = self._ray.remote(num_cpus=0)(list_gpus)
        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]
        tasks = [
            remote.options(
                scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            ).remote()
            for node in nodes
        ]
        try:
            return [gpu for gpus in self._ray.get(tasks, timeout=120) for gpu in gpus]
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f"a node with a GPU does not answer: {first_line(error)}") from None

    # -- training ----------------------------------------------------------------------------------------------------

    def run_plan(self, plan: TrainingPlan, progress: Progress | None = None) -> None:
        """Train the selected runs of a plan.

        A group whose node is lost resumes on another. On Ctrl-C all groups are saved, and `TrainingStopped` is raised.
        """
        plan = absolute(plan)
        if not training_groups(plan):
            return
        check_folders(plan.out, plan.trainings(), resume=True, overwrite=False)
        send_models(run.config.model for run in plan.own_runs())  # an error is raised before anything is written
        plan = with_planned_configs(plan)
        groups = training_groups(plan)
        mark, display = make_mark(plan.out), progress or SilentProgress()
        jobs = [self._training_job(group, plan, mark) for group in groups]
        runs = [run for group in groups for run in group if run.status not in FINAL_STATUSES]
        watcher = ProgressWatcher(runs, plan.out, display, plan.until)
        missing = {run.folder: run.config for run in runs if run.status == "missing"}
        try:
            with planned_start(plan.out, missing):  # the workers create them when their turn comes
                is_stopped = run_jobs(self._ray, jobs, display.message, watcher.update)
                if not is_stopped:
                    wait_until_ended(replace(plan, runs=tuple(runs)), display.message)
            watcher.update(force=True)
        finally:
            display.stop()
        if is_stopped:
            started = [RunFolder.open(run.folder) for run in runs if (run.folder / CONFIG_FILE).exists()]
            raise TrainingStopped(Runs(plan.out, started))

    def _training_job(self, group: Sequence[PlannedRun], plan: TrainingPlan, mark: str) -> RayJob:
        sent = [(run.folder, run.task, json.dumps(run.config.to_json())) for run in group]
        models = send_models(run.config.model for run in group)
        folders = [run.folder for run in group]
        memory = min((size for _, size in self._gpus), default=DEFAULT_GPU_BYTES)
        is_gpu = self._device == "cuda"
        share = share_of(bytes_needed([run.config for run in group]), memory) if is_gpu else 0.0

        def submit(share: float, is_retry: bool) -> Any:
            arguments = (models, plan.out, mark, sent, plan.until, self._device_share(share), is_retry)
            return self._remote(train_sent_group, share).remote(*arguments)

        names = dict.fromkeys(f"{run.config.model.name} on {run.task.name}" for run in group)
        return RayJob(name=", ".join(names), submit=submit, step=lambda: least_step(folders), share=share)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def evaluate_plan(
        self, plan: Plan, on_evaluated: EvaluationCallback | None = None, *, progress: ProgressOption = False
    ) -> None:
        """Evaluate the selected runs that were not yet evaluated as the experiment requires.

        Runs below `out` are evaluated on the cluster. Reused runs are evaluated in this process, as other nodes may
        not see their folders.
        """
        plan = absolute(plan)
        spec, files = plan.spec.evaluate, missing_files(plan)
        out = plan.out.resolve()
        shared, local = list[EvaluationFile](), list[EvaluationFile]()
        for file in files:
            (shared if file[0].resolve().is_relative_to(out) else local).append(file)
        with report_progress(progress) as reporter:
            start_evaluations(reporter, plan, files)

            def report(done: int) -> None:
                reporter.update(done)
                if on_evaluated is not None:
                    on_evaluated(done, len(files))

            evaluate_locally(
                local,
                spec,
                "auto" if self._device == "cuda" else "cpu",
                workers=self._workers,
                on_evaluated=lambda done, _: report(done),
            )
            if shared:
                self._evaluate_shared(plan.out, shared, spec, lambda done: report(len(local) + done))

    def _evaluate_shared(
        self, out: Path, files: Sequence[EvaluationFile], spec: EvaluationSpec, report: Callable[[int], None]
    ) -> None:
        mark = make_mark(out)
        share = 1 / max(1, self._workers) if self._device == "cuda" else 0.0
        size = max(1, min(BATCH, len(files) // (self._slots(share) * TASKS_PER_SLOT)))
        done = 0

        def make_job(batch: Sequence[EvaluationFile]) -> RayJob:
            models = models_of_files(batch)

            def submit(share: float, is_retry: bool) -> Any:
                arguments = (models, out, mark, batch, spec, self._device_share(share))
                return self._remote(evaluate_files, share).remote(*arguments)

            return RayJob(name=f"evaluation of {len(batch)} runs", submit=submit, step=lambda: 0, share=share)

        def on_done() -> None:
            nonlocal done
            done += 1
            report(min(done * size, len(files)))

        jobs = [make_job(files[first : first + size]) for first in range(0, len(files), size)]
        if run_jobs(self._ray, jobs, lambda text: None, on_done=on_done):
            raise KeyboardInterrupt

    def _slots(self, share: float) -> int:
        """Return how many tasks with this share of a GPU, or without a GPU, run at a time on the cluster."""
        resources = self._ray.cluster_resources()
        return max(1, int(resources.get("GPU", 0) / share if share else resources.get("CPU", 1)))

    # -- other work --------------------------------------------------------------------------------------------------

    def run_calls(
        self,
        call: Callable[..., TaskOutcome],
        calls: Sequence[tuple[str, tuple[Any, ...]]],
        message: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Run one function with the arguments of each named call, and a `DeviceShare` after them; a GPU for each.

        A call whose node is lost is made again on another. On Ctrl-C, KeyboardInterrupt is raised.
        """
        share = 1.0 if self._device == "cuda" else 0.0

        def make_job(name: str, arguments: tuple[Any, ...]) -> RayJob:
            def submit(share: float, is_retry: bool) -> Any:
                return self._remote(call, share).remote(*arguments, self._device_share(share))

            return RayJob(name=name, submit=submit, step=lambda: 0, share=share)

        if run_jobs(self._ray, [make_job(name, arguments) for name, arguments in calls], message):
            raise KeyboardInterrupt

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _remote(self, call: Callable[..., TaskOutcome], share: float) -> Any:
        """Make a remote function without retries: only `run_jobs` knows how far a group is when it is lost."""
        if share:  # the process ends after each call, which frees its GPU memory
            return self._ray.remote(num_cpus=1, num_gpus=share, max_retries=0, max_calls=1)(call)
        return self._ray.remote(num_cpus=1, max_retries=0)(call)

    def _device_share(self, share: float) -> DeviceShare:
        return DeviceShare(device=self._device, memory=share or 1.0)


def wait_until_ended(plan: TrainingPlan, message: Callable[[str], None]) -> None:
    """Wait until this machine sees that all runs of a plan have ended, as their workers have reported.

    On a network file system it may see older files for a while: a run would seem unfinished, and not be evaluated.
    """
    deadline = monotonic() + SEEN_WITHIN
    while left := unfinished_runs(plan):
        if monotonic() > deadline:
            message(
                f"{len(left)} of {len(plan.runs)} runs have ended, but this machine does not see it after "
                f"{SEEN_WITHIN:.0f} s, such as {left[0].folder}; run the command again when it does"
            )
            return
        sleep(0.1)


def with_planned_configs(plan: AnyPlan) -> AnyPlan:
    """Return the plan with the configs that a killed process had planned for runs that it did not come to create.

    They say which runs were started together, and so which train side by side.
    """
    missing = missing_runs(plan.out)
    runs = tuple(
        replace(run, config=missing[run.folder])
        if run.folder in missing and run.config.matches(missing[run.folder])
        else run
        for run in plan.runs
    )
    return replace(plan, runs=runs)


def absolute(plan: AnyPlan) -> AnyPlan:
    """Return the plan with absolute paths, which are valid on every node."""
    runs = tuple(replace(run, folder=run.folder.absolute()) for run in plan.runs)
    return replace(plan, out=plan.out.absolute(), runs=runs)
