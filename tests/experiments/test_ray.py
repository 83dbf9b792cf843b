"""A plan on a real Ray cluster of two nodes, one of which is killed, compared with a local run."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
import torch

from sdssm.cli import main
from sdssm.errors import DeviceError, MissingExtraError, RunError, SdssmError
from sdssm.experiments import Selection, evaluate_plan, get_executor, get_spec, make_plan, run_plan
from sdssm.experiments.execution.ray_executor import absolute
from sdssm.experiments.execution.ray_jobs import RayJob, _after_loss, _with_more_memory
from sdssm.experiments.execution.ray_tasks import MARK, DeviceShare, TaskOutcome, make_mark, train_group
from sdssm.experiments.execution.watcher import read_progress
from sdssm.experiments.planning.remaining import training_groups
from sdssm.experiments.specs.spec import Spec
from sdssm.runs import RunFolder
from sdssm.runs.claim import release_folder
from sdssm.runs.own_files import EVENTS_FILE
from sdssm.training.progress import SilentProgress
from sdssm.training.trainer import TrainingStopped
from tests.strangers import SUM, stranger

__all__ = ["stranger"]

#: Enough that a node can be lost while it trains: removing one takes a second.
STEPS = 1_200
TINY = f"""
name = "tiny"
seeds = 2
tasks = ["parity"]
[evaluate]
max_length = 12
strings = 32
[[rows]]
model = "sd-ssm"
settings = {{ state = 8, dictionary = 4, batch = 16, steps = {STEPS}, train_length = 6, checkpoint_every = 30 }}
[[rows]]
model = "lstm"
settings = {{ state = 8, batch = 16, steps = {STEPS}, train_length = 6, checkpoint_every = 30 }}
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    path = tmp_path_factory.mktemp("spec") / "tiny.toml"
    path.write_text(TINY)
    return get_spec(path)


@pytest.fixture(scope="module")
def local(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders trained on this machine, with as many threads as a Ray worker has."""
    out, threads = tmp_path_factory.mktemp("local"), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        plan = make_plan(spec, out)
        run_plan(plan, "cpu")
        evaluate_plan(plan, "cpu")
    finally:
        torch.set_num_threads(threads)
    return out


def read_runs(out: Path) -> dict[str, Any]:
    """Return the content of the run folders: weights, events and evaluations, without times and paths."""
    contents: dict[str, Any] = {}
    for path in sorted(out.rglob("seed-*")):
        run, name = RunFolder.open(path), str(path.relative_to(out))
        contents[name] = {
            "weights": (path / "model.safetensors").read_bytes(),
            "events": [{**event, "seconds": 0} for event in run.events()],
            "evaluation": {**(run.read_json("evaluation.json") or {}), "folder": ""},
            "step": run.step,
            "status": run.status,
            "files": sorted(item.name for item in path.iterdir()),
        }
    return contents


class Cluster:
    """Two nodes of one core each, as processes of this machine, by Ray's test utilities."""

    def __init__(self) -> None:
        utils = pytest.importorskip("ray.cluster_utils")
        small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        config = {"worker_niceness": 0}  # otherwise its workers have the lowest priority
        head = {**small, "include_dashboard": False, "_system_config": config}
        self._cluster = utils.Cluster(initialize_head=True, head_node_args=head)
        self._second = self._cluster.add_node(**small)
        self.address: str = self._cluster.address

    def trains_on_second_node(self, folder: Path) -> bool:
        """Return whether the run in a folder is trained by a worker of the node that will be lost."""
        try:
            process = (folder / "owner").read_text().split()[1]
            parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it is not trained, or not yet
            return False
        return bool(parent == self._second.all_processes["raylet"][0].process.pid)

    def lose_second_node(self) -> None:
        self._cluster.remove_node(self._second, allow_graceful=False)

    def end(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster()
    yield cluster
    cluster.end()


class Recorder(SilentProgress):
    """Records messages; with `interrupts` it sends SIGINT at the first update."""

    def __init__(self, *, interrupts: bool = False) -> None:
        self.lines: list[str] = []
        self._interrupts = interrupts

    def update(self, step: int, loss: Any, accuracy: Any, alive: Any) -> None:
        if self._interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            self._interrupts = False

    def message(self, text: str) -> None:
        self.lines.append(text)


def last_checkpoint(folder: Path) -> int:
    return max(RunFolder.open(folder).checkpoints(), default=0)


def test_models_of_others_train_on_both_nodes_as_here(cluster: Cluster, stranger: Path, tmp_path: Path) -> None:
    """The package is not installed, and workers use the copy that Ray sends: its folder is gone before they start."""
    text = TINY.replace("lstm", SUM).replace("sd-ssm", SUM).replace("state = 8, dictionary = 4", "state = 3")
    text = text.replace(f"steps = {STEPS}", "steps = 40").replace("[[rows]]", '[[rows]]\nlabel = "small"', 1)
    path = tmp_path / "strange.toml"
    path.write_text(text)
    spec, threads = get_spec(path), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run_plan(make_plan(spec, Path("here")), "cpu")
        evaluate_plan(make_plan(spec, Path("here")), "cpu")
    finally:
        torch.set_num_threads(threads)
    with get_executor("ray", device="cpu", address=cluster.address) as executor:
        rmtree(tmp_path / "code")
        executor.run_plan(make_plan(spec, Path("there")))
        executor.evaluate_plan(make_plan(spec, Path("there")))
    here, there = read_runs(Path("here")), read_runs(Path("there"))
    assert len(here) == 4 and {run["status"] for run in here.values()} == {"finished"}
    assert all(run["evaluation"]["model"] == SUM and run["evaluation"]["accuracy"] for run in here.values())
    assert here == there


def test_stopped_resumed_and_with_a_lost_node_equals_local(
    spec: Spec, local: Path, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("runs")  # relative: workers have another current folder
    with get_executor("ray", device="cpu", address=cluster.address) as executor:
        with pytest.raises(TrainingStopped):
            executor.run_plan(make_plan(spec, out), Recorder(interrupts=True))
        plan = make_plan(spec, out)
        states = {run.status for run in plan.runs}
        assert "stopped" in states and states <= {"stopped", "missing"}  # saved, or not started
        before = {run.folder: last_checkpoint(run.folder) if run.status == "stopped" else 0 for run in plan.runs}
        assert max(before.values()) < STEPS
        finished = threading.Event()

        def lose() -> None:
            """Remove the node once a run on it has made progress."""
            while not finished.wait(0.01):
                if any(
                    cluster.trains_on_second_node(folder) and last_checkpoint(folder) > step
                    for folder, step in before.items()
                ):
                    cluster.lose_second_node()
                    return

        thread = threading.Thread(target=lose)
        thread.start()
        recorder = Recorder()
        try:
            executor.run_plan(make_plan(spec, out), recorder)
        finally:
            finished.set()
            thread.join()
        assert len(recorder.lines) == 1 and "its node was lost" in recorder.lines[0]
        counts: list[tuple[int, int]] = []
        executor.evaluate_plan(make_plan(spec, out), lambda done, total: counts.append((done, total)))
        assert counts[-1] == (4, 4)
        assert executor.device_name == "CPU"
        executor.run_plan(make_plan(spec, out))  # nothing is left to train
        executor.evaluate_plan(make_plan(spec, out))
    actual, expected = read_runs(tmp_path / "runs"), read_runs(local)
    assert list(actual) == list(expected)
    for run, parts in expected.items():
        for part, value in parts.items():
            assert actual[run][part] == value, (run, part)


# -- without a cluster -------------------------------------------------------------------------------------------------


def test_lost_worker_cannot_write_after_its_successor_started(spec: Spec, local: Path, tmp_path: Path) -> None:
    """The next worker creates the folders that a lost worker did not, and owns all of them."""
    plan = absolute(make_plan(spec, tmp_path, Selection(models=["lstm"])))
    (group,) = training_groups(plan)
    lost = RunFolder.create(group[0].folder, group[0].config)
    (group[0].folder / "owner").write_text("another one, on another machine\n")
    with pytest.raises(RunError, match="another process has taken over"):
        lost.log({"step": 1})
    with pytest.raises(RunError, match="another process has taken over"):
        lost.finish("finished")
    release_folder(lost.path)
    assert (lost.path / "owner").exists()  # it belongs to the other process
    planned = [(run.folder, run.task, run.config) for run in group]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        outcome = train_group(tmp_path, make_mark(tmp_path), planned, 1.0, DeviceShare(device="cpu"), True)
    finally:
        torch.set_num_threads(before)
    assert (outcome.ended, outcome.messages) == ("done", ())
    evaluate_plan(plan, "cpu")
    assert read_runs(tmp_path) == {name: run for name, run in read_runs(local).items() if "lstm" in name}


def test_node_without_the_shared_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdssm.experiments.execution.ray_tasks.SEEN_WITHIN", 0.0)
    mark = make_mark(tmp_path)
    assert mark == make_mark(tmp_path)
    (tmp_path / MARK).unlink()
    with pytest.raises(RunError, match="does not see .* that all nodes share"):
        train_group(tmp_path, mark, [], 1.0, DeviceShare(device="cpu"), False)


def test_lost_job_is_retried_while_it_makes_progress() -> None:
    lines: list[str] = []
    steps = iter((10, 20, 30, 30, 30))  # it makes progress, then it does not
    job = RayJob(name="lstm on parity", submit=lambda share, is_retry: None, step=lambda: next(steps), share=0.3)
    for _ in range(4):
        job = _after_loss(job, "its node was lost", lines.append)
    with pytest.raises(RunError, match="was lost 3 times at step 30"):
        _after_loss(job, "its node was lost", lines.append)
    shares = []
    with pytest.raises(RunError, match="more memory than a GPU"):
        while True:
            shares.append(job.share)
            job = _with_more_memory(job, TaskOutcome(node="one"), lines.append)
    assert shares == [0.3, 0.6, 1.0]


def test_progress_is_read_from_the_event_log(tmp_path: Path) -> None:
    assert read_progress(tmp_path).step == 0
    events = [{"step": step, "loss": 1 / step, "accuracy": float(step), "seconds": 0.1} for step in range(1, 99)]
    lines = [json.dumps(event) for event in events]
    (tmp_path / EVENTS_FILE).write_text("\n".join([*lines, '{"step": 99, "lo']))
    progress = read_progress(tmp_path)
    assert (progress.step, progress.accuracy, progress.diverged) == (98, 98.0, False)
    (tmp_path / EVENTS_FILE).write_text("\n".join([*lines, '{"step": 98, "diverged": true}', ""]))
    assert read_progress(tmp_path).diverged


def test_error_names_the_extra_if_ray_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="--engine ray needs ray; install sdssm\\[ray\\]"):
        get_executor("ray")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "rya"}, "did you mean 'ray'"),
        ({"name": "local", "address": "10.0.0.1:6379"}, "add --engine ray"),
    ],
)
def test_invalid_executors_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SdssmError, match=message):
        get_executor(**options)


def test_unreachable_addresses_are_refused(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    assert spec.folder is not None
    with pytest.raises(DeviceError, match="Ray chooses the GPU"):
        get_executor("ray", device="cuda:1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"  # no server listens
        for address, reason in ((closed, "connection refused"), ("10.0.0.1", "not HOST:PORT"), ("a:0", "not HOST")):
            file = str(spec.folder / "tiny.toml")
            assert main(["reproduce", file, "--engine", "ray", "--device", "cpu", "--address", address]) == 2
            error = capsys.readouterr().err
            assert reason in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
