"""What the Ray engine does, without a cluster: tasks run where they are submitted."""

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
from sdssm.experiments import Narrowing, Spec, make_plan, make_plans, reuse, run_plan, together
from sdssm.experiments.execution.ray_executor import RayEngine
from sdssm.experiments.execution.ray_jobs import Job, work
from sdssm.experiments.execution.ray_tasks import Outcome
from sdssm.experiments.execution.runner import groups_of, unevaluated
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.runs import RunFolder
from sdssm.training.progress import Silent
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


class OneProcess:
    """As much of Ray as the engine calls. A task has ended when it was submitted."""

    def __init__(self) -> None:
        names = ("WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError", "LocalRayletDiedError")
        kinds = {name: type(name, (Exception,), {}) for name in (*names, "TaskCancelledError", "RayError")}
        self.exceptions = SimpleNamespace(**kinds, RayTaskError=type("RayTaskError", (Exception,), {}))
        self.called: list[tuple[Any, ...]] = []

    def remote(self, **_: Any) -> Callable[..., Any]:
        def wrapped(call: Callable[..., Outcome]) -> Any:
            def submit(*given: Any) -> tuple[str, Outcome]:
                self.called.append(given)
                return f"task {len(self.called)}", call(*given)

            return SimpleNamespace(remote=submit)

        return wrapped

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def wait(self, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return tasks, []

    def get(self, task: Any) -> Outcome:
        found: Outcome | Exception = task[1]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> OneProcess:
    found = OneProcess()
    monkeypatch.setattr("sdssm.experiments.execution.ray_executor.ray_module", lambda: found)
    return found


@pytest.fixture(scope="module")
def spec() -> Spec:
    return parse_spec(SPEC, source="mine.toml")


class Shown(Silent):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def start(self, names: Any, steps: int, first: int) -> None:
        self.steps += [steps, first]

    def update(self, step: int, *_: Any) -> None:
        self.steps.append(step)


def test_progress_to_a_share_of_the_steps(spec: Spec, ray: OneProcess, tmp_path: Path) -> None:
    shown = Shown()
    RayEngine("cpu").run_plan(replace(make_plan(spec, tmp_path), until=0.25), shown)
    assert (shown.steps[:2], shown.steps[-1]) == ([10, 0], 10)  # of 10, not of 40
    assert [run.status for run in make_plan(spec, tmp_path).runs] == ["stopped"] * 2


def test_experiments_together(spec: Spec, ray: OneProcess, tmp_path: Path) -> None:
    """What they share is one task, and so is what they have of one shape."""
    (row,) = spec.rows
    other = replace(spec, name="other", rows=(replace(row, tasks=("even_pairs", "parity")), replace(row, model="rnn")))
    plans = make_plans([spec, other], tmp_path)
    RayEngine("cpu").run_plan(together(plans))
    assert [len(planned) for _, _, planned, *_ in ray.called] == [4, 2]
    assert {run.status for plan in plans for run in plan.runs} == {"finished"}


def test_a_group_with_one_that_diverged_comes_further(spec: Spec, ray: OneProcess, tmp_path: Path) -> None:
    """Nodes may be lost as often as they like as long as it does."""
    plan = make_plan(spec, tmp_path)
    (group,) = groups_of(plan)
    first, other = (RunFolder.create(run.folder, run.config) for run in group)
    first.log({"step": 10, "diverged": True})
    first.finish("diverged")
    job = RayEngine("cpu")._training(group, plan, "")
    seen = []
    for step in (20, 30):
        other.log({"step": step, "loss": 0.5, "accuracy": 50.0})
        seen.append(job.step())
    assert seen == [20, 30]
    other.finish("diverged")
    assert job.step() == 30


def test_reused_runs_that_no_worker_may_see_are_evaluated_here(spec: Spec, ray: OneProcess, tmp_path: Path) -> None:
    """Of two runs one lies in --out, the other elsewhere."""
    out = tmp_path / "out"
    run_plan(make_plan(spec, tmp_path / "elsewhere", Narrowing(seeds=[0])), "cpu")
    run_plan(make_plan(spec, out, Narrowing(seeds=[1])), "cpu")
    plan = reuse(make_plan(spec, out), [tmp_path / "elsewhere"])
    told: list[tuple[int, int]] = []
    RayEngine("cpu").evaluate_plan(plan, lambda done, of: told.append((done, of)))
    assert [folder for _, _, files, *_ in ray.called for folder, _ in files] == [
        run.folder for run in plan.runs if not run.reused
    ]
    assert told == [(1, 2), (2, 2)] and unevaluated(plan) == []


def job(found: Outcome | Exception, do: Callable[[], None] = lambda: None) -> Job:
    def submit(share: float, again: bool) -> tuple[str, Any]:
        do()
        return f"task {id(found)}", found

    return Job(name="lstm on parity", submit=submit, step=lambda: 0)


def test_an_error_is_told_though_somebody_stops_the_rest(ray: OneProcess) -> None:
    failed = ray.exceptions.RayTaskError()
    failed.cause = RunError("the disk is full")

    def look() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RunError, match="the disk is full"):
        work(ray, [job(failed), job(Outcome())], print, look)
    assert work(ray, [job(Outcome())], print, look)
    assert not work(ray, [job(Outcome())], print)


def test_stopped_when_all_had_ended_is_stopped(spec: Spec, ray: OneProcess, tmp_path: Path) -> None:
    class Stops(Shown):
        def update(self, step: int, *_: Any) -> None:
            if len(self.steps) == 2:  # the first after the start
                os.kill(os.getpid(), signal.SIGTERM)
            super().update(step)

    with pytest.raises(TrainingStopped):
        RayEngine("cpu").run_plan(make_plan(spec, tmp_path), Stops())
    assert {run.status for run in make_plan(spec, tmp_path).runs} == {"finished"}
