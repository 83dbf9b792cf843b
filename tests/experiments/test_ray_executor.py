"""The Ray executor without a cluster: tasks run in this process when they are submitted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sdssm.errors import RunError
from sdssm.experiments import Selection, Spec, make_plan, make_plans, merge_plans, reuse_runs, run_plan
from sdssm.experiments.execution.evaluation_files import missing_files
from sdssm.experiments.execution.ray_executor import RayExecutor, absolute, wait_until_ended
from sdssm.experiments.execution.ray_jobs import RayJob, run_jobs
from sdssm.experiments.execution.ray_tasks import TaskOutcome
from sdssm.experiments.planning.plan import PlannedRun
from sdssm.experiments.planning.remaining import training_groups
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.runs import RunFolder
from sdssm.runs.claim import release_folder
from sdssm.runs.plan_file import PATTERN, planned_start
from sdssm.training.progress import SilentProgress
from sdssm.training.trainer import TrainingStopped

SPEC = """
name = "mine"
seeds = 2
tasks = ["parity"]
[evaluate]
max_length = 8
strings = 16
[[rows]]
model = "lstm"
settings = { state = 4, batch = 8, steps = 40, train_length = 6, log_every = 10 }
"""


class FakeRay:
    """The part of Ray that the executor calls. A task has ended when `submit` returns."""

    def __init__(self) -> None:
        names = ("WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError", "LocalRayletDiedError")
        kinds = {name: type(name, (Exception,), {}) for name in (*names, "TaskCancelledError", "RayError")}
        self.exceptions = SimpleNamespace(**kinds, RayTaskError=type("RayTaskError", (Exception,), {}))
        self.called: list[tuple[Any, ...]] = []

    def remote(self, **_: Any) -> Callable[..., Any]:
        def wrapped(call: Callable[..., TaskOutcome]) -> Any:
            def submit(*arguments: Any) -> tuple[str, TaskOutcome]:
                self.called.append(arguments)
                return f"task {len(self.called)}", call(*arguments)

            return SimpleNamespace(remote=submit)

        return wrapped

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def wait(self, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return tasks, []

    def get(self, task: Any) -> TaskOutcome:
        outcome: TaskOutcome | Exception = task[1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setattr("sdssm.experiments.execution.ray_executor.ray_module", lambda: fake)
    return fake


@pytest.fixture(scope="module")
def spec() -> Spec:
    return parse_spec(SPEC, source="mine.toml")


class StepRecorder(SilentProgress):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def start(self, names: Any, steps: int, first: int, chance: Any = ()) -> None:
        self.steps += [steps, first]

    def update(self, step: int, *_: Any) -> None:
        self.steps.append(step)


def test_progress_up_to_a_share_of_the_steps(spec: Spec, ray: FakeRay, tmp_path: Path) -> None:
    recorder = StepRecorder()
    RayExecutor("cpu").run_plan(replace(make_plan(spec, tmp_path), until=0.25), recorder)
    assert (recorder.steps[:2], recorder.steps[-1]) == ([10, 0], 10)  # of 10, not of 40
    assert [run.status for run in make_plan(spec, tmp_path).runs] == ["stopped"] * 2


def test_driver_waits_until_it_sees_the_runs_ended(
    spec: Spec, ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network file system the status of a run may be older than the report of its worker."""
    original, stale = vars(PlannedRun)["status"].fget, [20]

    def status(self: PlannedRun) -> str:
        current = str(original(self))
        stale[0] -= current == "finished"
        return "running" if current == "finished" and stale[0] >= 0 else current

    monkeypatch.setattr(PlannedRun, "status", property(status))
    monkeypatch.setattr("sdssm.experiments.execution.ray_executor.sleep", lambda _: None)
    executor, plan = RayExecutor("cpu"), make_plan(spec, tmp_path)
    executor.run_plan(plan)
    assert not list(tmp_path.glob(PATTERN))
    assert len(missing_files(plan)) == len(plan.runs)  # all of them can be evaluated
    monkeypatch.setattr("sdssm.experiments.execution.ray_executor.SEEN_WITHIN", -1.0)
    stale[0], lines = 10**9, list[str]()
    wait_until_ended(plan, lines.append)
    assert len(lines) == 1 and "this machine does not see it" in lines[0]


def test_driver_continues_the_plan_of_a_killed_one(spec: Spec, ray: FakeRay, tmp_path: Path) -> None:
    """A group of which only some folders were created is completed, and trains as one task."""
    plan = absolute(make_plan(spec, tmp_path))
    configs = {run.folder: run.config for run in plan.runs}
    with planned_start(tmp_path, configs):
        RunFolder.create(plan.runs[0].folder, plan.runs[0].config)
        release_folder(plan.runs[0].folder)
    later = make_plan(spec, tmp_path)
    assert len({run.config.begun for run in later.runs}) == 2
    RayExecutor("cpu").run_plan(later)
    assert {RunFolder.open(folder).config.begun for folder in configs} == {plan.runs[0].config.begun}
    assert not list(tmp_path.glob(PATTERN))


def test_merged_plans_share_tasks(spec: Spec, ray: FakeRay, tmp_path: Path) -> None:
    """Runs that two experiments share, and runs of one shape, are in one task."""
    (row,) = spec.rows
    other = replace(spec, name="other", rows=(replace(row, tasks=("even_pairs", "parity")), replace(row, model="rnn")))
    plans = make_plans([spec, other], tmp_path)
    RayExecutor("cpu").run_plan(merge_plans(plans))
    assert [len(planned) for _, _, _, planned, *_ in ray.called] == [4, 2]
    assert {run.status for plan in plans for run in plan.runs} == {"finished"}


def test_diverged_run_does_not_hold_back_the_step_of_its_group(spec: Spec, ray: FakeRay, tmp_path: Path) -> None:
    """A group is retried as long as its step increases."""
    plan = make_plan(spec, tmp_path)
    (group,) = training_groups(plan)
    first, other = (RunFolder.create(run.folder, run.config) for run in group)
    first.log({"step": 10, "diverged": True})
    first.finish("diverged")
    job = RayExecutor("cpu")._training_job(group, plan, "")
    steps = []
    for step in (20, 30):
        other.log({"step": step, "loss": 0.5, "accuracy": 50.0})
        steps.append(job.step())
    assert steps == [20, 30]
    other.finish("diverged")
    assert job.step() == 30


def test_reused_runs_are_evaluated_locally(spec: Spec, ray: FakeRay, tmp_path: Path) -> None:
    """One of two runs is in --out, the other in another folder."""
    out = tmp_path / "out"
    run_plan(make_plan(spec, tmp_path / "elsewhere", Selection(seeds=[0])), "cpu")
    run_plan(make_plan(spec, out, Selection(seeds=[1])), "cpu")
    plan = reuse_runs(make_plan(spec, out), [tmp_path / "elsewhere"])
    counts: list[tuple[int, int]] = []
    RayExecutor("cpu").evaluate_plan(plan, lambda done, total: counts.append((done, total)))
    assert [folder for _, _, _, files, *_ in ray.called for folder, _ in files] == [
        run.folder for run in plan.runs if not run.reused
    ]
    assert counts == [(1, 2), (2, 2)] and missing_files(plan) == []


def job(outcome: TaskOutcome | Exception) -> RayJob:
    def submit(share: float, is_retry: bool) -> tuple[str, Any]:
        return f"task {id(outcome)}", outcome

    return RayJob(name="lstm on parity", submit=submit, step=lambda: 0)


def test_error_is_raised_even_if_the_rest_is_stopped(ray: FakeRay) -> None:
    failed = ray.exceptions.RayTaskError()
    failed.cause = RunError("the disk is full")

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RunError, match="the disk is full"):
        run_jobs(ray, [job(failed), job(TaskOutcome())], print, interrupt)
    assert run_jobs(ray, [job(TaskOutcome())], print, interrupt)
    assert not run_jobs(ray, [job(TaskOutcome())], print)


def test_stop_after_all_tasks_ended_is_reported(spec: Spec, ray: FakeRay, tmp_path: Path) -> None:
    class Stopper(StepRecorder):
        def update(self, step: int, *_: Any) -> None:
            if len(self.steps) == 2:  # the first update after the start
                os.kill(os.getpid(), signal.SIGTERM)
            super().update(step)

    with pytest.raises(TrainingStopped):
        RayExecutor("cpu").run_plan(make_plan(spec, tmp_path), Stopper())
    assert {run.status for run in make_plan(spec, tmp_path).runs} == {"finished"}
