"""A plan on a real Ray cluster of two nodes, one of them killed in the middle, against the same on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sdssm.cli import main
from sdssm.errors import DeviceError, MissingExtraError, RunError, SdssmError
from sdssm.experiments import Narrowing, engine_named, evaluate_plan, make_plan, run_plan, spec_named
from sdssm.experiments.execution.ray_executor import absolute
from sdssm.experiments.execution.ray_jobs import Job, _again, _with_more_memory
from sdssm.experiments.execution.ray_tasks import MARK, Outcome, Share, make_mark, train_group
from sdssm.experiments.execution.runner import groups_of
from sdssm.experiments.execution.watcher import standing
from sdssm.experiments.specs.spec import Spec
from sdssm.runs import RunFolder
from sdssm.runs.claim import release
from sdssm.runs.folder import EVENTS
from sdssm.training.progress import Silent
from sdssm.training.trainer import TrainingStopped

TINY = """
name = "tiny"
seeds = 2
tasks = ["parity"]
[evaluate]
max_length = 12
strings = 32
[[rows]]
model = "sd-ssm"
settings = { state = 8, dictionary = 4, batch = 16, steps = 300, train_length = 6, checkpoint_every = 30 }
[[rows]]
model = "lstm"
settings = { state = 8, batch = 16, steps = 300, train_length = 6, checkpoint_every = 30 }
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    path = tmp_path_factory.mktemp("spec") / "tiny.toml"
    path.write_text(TINY)
    return spec_named(path)


@pytest.fixture(scope="module")
def local(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on this machine, with as many threads as a worker has."""
    out, threads = tmp_path_factory.mktemp("local"), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        plan = make_plan(spec, out)
        run_plan(plan, "cpu")
        evaluate_plan(plan, "cpu")
    finally:
        torch.set_num_threads(threads)
    return out


def left(out: Path) -> dict[str, Any]:
    """What runs left, run for run: weights, events and evaluations, but for times and places."""
    found: dict[str, Any] = {}
    for path in sorted(out.rglob("seed-*")):
        run, name = RunFolder.open(path), str(path.relative_to(out))
        found[name] = {
            "weights": (path / "model.safetensors").read_bytes(),
            "events": [{**event, "seconds": 0} for event in run.events()],
            "evaluation": {**(run.read_json("evaluation.json") or {}), "folder": ""},
            "step": run.step,
            "status": run.status,
            "files": sorted(item.name for item in path.iterdir()),
        }
    return found


class Cluster:
    """Two nodes of one core each: Ray's own for tests, which are processes of this machine."""

    def __init__(self) -> None:
        utils = pytest.importorskip("ray.cluster_utils")
        small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        fair = {"worker_niceness": 0}  # else all that runs beside it comes before its workers
        head = {**small, "include_dashboard": False, "_system_config": fair}
        self._cluster = utils.Cluster(initialize_head=True, head_node_args=head)
        self._other = self._cluster.add_node(**small)
        self.address: str = self._cluster.address

    def trains_on_the_other(self, folder: Path) -> bool:
        """Whether the process that trains there is a worker of the node that is to be lost."""
        try:
            process = (folder / "owner").read_text().split()[1]
            parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # nobody does, or not yet
            return False
        return bool(parent == self._other.all_processes["raylet"][0].process.pid)

    def lose_the_other(self) -> None:
        self._cluster.remove_node(self._other, allow_graceful=False)

    def end(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    found = Cluster()
    yield found
    found.end()


class Heard(Silent):
    """What is worth a line; SIGINT as soon as there is something to see, if asked."""

    def __init__(self, *, interrupts: bool = False) -> None:
        self.lines: list[str] = []
        self._interrupts = interrupts

    def update(self, step: int, loss: Any, accuracy: Any, alive: Any) -> None:
        if self._interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            self._interrupts = False

    def message(self, text: str) -> None:
        self.lines.append(text)


def newest(folder: Path) -> int:
    return max(RunFolder.open(folder).checkpoints(), default=0)


def test_stopped_continued_and_a_node_lost_is_as_on_one_machine(
    spec: Spec, local: Path, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("runs")  # workers are elsewhere: it must mean the same for them
    with engine_named("ray", device="cpu", address=cluster.address) as engine:
        with pytest.raises(TrainingStopped):
            engine.run_plan(make_plan(spec, out), Heard(interrupts=True))
        plan = make_plan(spec, out)
        states = {run.status for run in plan.runs}
        assert "stopped" in states and states <= {"stopped", "missing"}  # saved where it was, or not begun
        before = {run.folder: newest(run.folder) if run.status == "stopped" else 0 for run in plan.runs}
        assert max(before.values()) < 300
        over = threading.Event()

        def lose() -> None:
            """Once one that trains there has come further."""
            there = cluster.trains_on_the_other
            while not over.wait(0.01):
                if any(there(folder) and newest(folder) > step for folder, step in before.items()):
                    cluster.lose_the_other()
                    return

        thread = threading.Thread(target=lose)
        thread.start()
        heard = Heard()
        try:
            engine.run_plan(make_plan(spec, out), heard)
        finally:
            over.set()
            thread.join()
        assert len(heard.lines) == 1 and "its node was lost" in heard.lines[0]
        told: list[tuple[int, int]] = []
        engine.evaluate_plan(make_plan(spec, out), lambda done, every: told.append((done, every)))
        assert told[-1] == (4, 4)
        assert engine.device_name == "CPU"
        engine.run_plan(make_plan(spec, out))  # nothing is left to do
        engine.evaluate_plan(make_plan(spec, out))
    found, wanted = left(tmp_path / "runs"), left(local)
    assert list(found) == list(wanted)
    for run, parts in wanted.items():
        for part, value in parts.items():
            assert found[run][part] == value, (run, part)


# -- without a cluster -------------------------------------------------------------------------------------------------


def test_a_lost_worker_does_not_write_beside_its_successor(spec: Spec, local: Path, tmp_path: Path) -> None:
    """A group half made by a worker that was lost begins as one; the folder goes to the last that came."""
    plan = absolute(make_plan(spec, tmp_path, Narrowing(models=["lstm"])))
    (group,) = groups_of(plan)
    lost = RunFolder.create(group[0].folder, group[0].config)
    (group[0].folder / "owner").write_text("another one, on another machine\n")
    with pytest.raises(RunError, match="another process has taken over"):
        lost.log({"step": 1})
    with pytest.raises(RunError, match="another process has taken over"):
        lost.finish("finished")
    release(lost.path)
    assert (lost.path / "owner").exists()  # not ours to remove
    planned = [(run.folder, run.task, run.config) for run in group]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        outcome = train_group(tmp_path, make_mark(tmp_path), planned, 1.0, Share(device="cpu"), True)
    finally:
        torch.set_num_threads(before)
    assert (outcome.ended, outcome.messages) == ("done", ())
    evaluate_plan(plan, "cpu")
    assert left(tmp_path) == {name: run for name, run in left(local).items() if "lstm" in name}


def test_a_node_that_does_not_share_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdssm.experiments.execution.ray_tasks.SEEN_WITHIN", 0.0)
    mark = make_mark(tmp_path)
    assert mark == make_mark(tmp_path)
    (tmp_path / MARK).unlink()
    with pytest.raises(RunError, match="does not see .* that all nodes share"):
        train_group(tmp_path, mark, [], 1.0, Share(device="cpu"), False)


def test_how_often_a_group_is_tried_again() -> None:
    lines: list[str] = []
    steps = iter((10, 20, 30, 30, 30))  # it comes further, then it does not
    job = Job(name="lstm on parity", submit=lambda share, again: None, step=lambda: next(steps), share=0.3)
    for _ in range(4):
        job = _again(job, "its node was lost", lines.append)
    with pytest.raises(RunError, match="was lost 3 times at step 30"):
        _again(job, "its node was lost", lines.append)
    shares = []
    with pytest.raises(RunError, match="more memory than a GPU"):
        while True:
            shares.append(job.share)
            job = _with_more_memory(job, Outcome(node="one"), lines.append)
    assert shares == [0.3, 0.6, 1.0]


def test_what_a_run_says_of_itself(tmp_path: Path) -> None:
    assert standing(tmp_path).step == 0
    events = [{"step": step, "loss": 1 / step, "accuracy": float(step), "seconds": 0.1} for step in range(1, 99)]
    lines = [json.dumps(event) for event in events]
    (tmp_path / EVENTS).write_text("\n".join([*lines, '{"step": 99, "lo']))
    found = standing(tmp_path)
    assert (found.step, found.accuracy, found.diverged) == (98, 98.0, False)
    (tmp_path / EVENTS).write_text("\n".join([*lines, '{"step": 98, "diverged": true}', ""]))
    assert standing(tmp_path).diverged


def test_ray_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="--engine ray needs ray; install sdssm\\[ray\\]"):
        engine_named("ray")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "rya"}, "did you mean 'ray'"),
        ({"name": "local", "address": "10.0.0.1:6379"}, "add --engine ray"),
    ],
)
def test_engines_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SdssmError, match=message):
        engine_named(**options)


def test_addresses_that_nobody_answers_at(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    assert spec.folder is not None
    with pytest.raises(DeviceError, match="Ray chooses the GPU"):
        engine_named("ray", device="cuda:1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"  # nobody listens
        for address, reason in ((closed, "connection refused"), ("10.0.0.1", "not HOST:PORT"), ("a:0", "not HOST")):
            file = str(spec.folder / "tiny.toml")
            assert main(["reproduce", file, "--engine", "ray", "--device", "cpu", "--address", address]) == 2
            error = capsys.readouterr().err
            assert reason in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
