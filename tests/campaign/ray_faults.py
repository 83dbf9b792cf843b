"""Faults of a Ray cluster: killed workers, a head that restarts, a file system that shows renamed files late.

The result must be that of a training on this machine, and whatever is trained twice must have been said. Each function
makes one attempt in an empty folder, and returns how many things were tried, how many held, and what did not hold.

    python -m tests.campaign.ray_faults kill_workers restart_head delay_renames
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from random import Random
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from sdssm.experiments import get_executor, get_spec, make_plan, run_plan
from sdssm.experiments.execution.evaluation_files import missing_files
from sdssm.runs import RunFolder, find_runs
from sdssm.training.progress import SilentProgress
from tests.campaign.kills import ENVIRONMENT, Outcome

#: An experiment of two groups of two runs, with checkpoints every few steps.
SPEC = """
name = "tiny"
seeds = 2
tasks = ["parity"]
[evaluate]
max_length = 12
strings = 32
[[rows]]
model = "sd-ssm"
settings = { state = 8, dictionary = 4, batch = 8, steps = STEPS, train_length = 6, checkpoint_every = 10 }
[[rows]]
model = "lstm"
settings = { state = 8, batch = 8, steps = STEPS, train_length = 6, checkpoint_every = 10 }
"""
#: How often workers are killed in one training.
KILLS = 20
#: The most seconds that a renamed file is seen late.
LAG_SECONDS = 0.3
#: Seconds after which a driver counts as hanging; Ray itself waits a minute for a head that is gone.
PATIENCE = 300.0
#: The cluster that is started here has a token of its own, so that no other process joins it.
WITH_TOKEN = {**ENVIRONMENT, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}
#: A driver: the address of the cluster, the file of the experiment, the folder of its runs.
DRIVER = """
import sys
from pathlib import Path
from sdssm.experiments import get_executor, get_spec, make_plan
from sdssm.experiments.execution import ray_cluster
ray_cluster.JOIN_SECONDS, ray_cluster.PROBE_SECONDS = 60, 90  # this machine may be busy
with get_executor("ray", device="cpu", address=sys.argv[1]) as executor:
    executor.run_plan(make_plan(get_spec(Path(sys.argv[2])), Path(sys.argv[3])))
"""


class Messages(SilentProgress):
    """A display that keeps the messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


def kill_workers(random: Random, folder: Path) -> Outcome:
    """Kill the process that trains, many times, each time after it has saved a checkpoint."""
    steps = 10 * (KILLS + 10)
    spec, expected = _train_here(folder, steps)
    out, finished, killed = folder / "there", threading.Event(), list[int]()

    def kill() -> None:
        saved: dict[Path, int] = {}  # the checkpoint at the last kill of a worker in this folder
        while not finished.wait(0.002) and len(killed) < KILLS:
            for path in out.rglob("owner"):
                with suppress(OSError, IndexError, ValueError):
                    process = int(path.read_text().split()[1])
                    step = max(RunFolder.open(path.parent).checkpoints(), default=0)
                    if step > saved.get(path.parent.parent, 0) and process != os.getpid():
                        time.sleep(random.uniform(0.0, 0.05))
                        os.kill(process, signal.SIGKILL)
                        saved[path.parent.parent] = step
                        killed.append(process)
                        break

    thread, messages = threading.Thread(target=kill), Messages()
    with _cluster():
        thread.start()
        try:
            with get_executor("ray", device="cpu") as executor:
                executor.run_plan(make_plan(spec, out), messages)
        finally:
            finished.set()
            thread.join()
    problems = _compare(out, expected)
    losses = [line for line in messages.lines if "resuming from its last checkpoint" in line]
    # Two kills may hit the same process, and one may hit a process that has just ended its task.
    if len(losses) < len(set(killed)) - 2:
        problems.append(f"{len(set(killed))} workers were killed, but {len(losses)} losses were reported")
    return len(set(killed)), 0 if problems else len(set(killed)), problems


def restart_head(random: Random, folder: Path) -> Outcome:
    """Kill the head of a cluster during a training, start another one, and run the driver again."""
    _, expected = _train_here(folder, 600)
    out, file, port = folder / "there", folder / "tiny.toml", random.randint(20_000, 30_000)
    problems, codes, endings, text = list[str](), list[int](), list[str](), ""
    for attempt in range(2):
        with _head(port) as head:
            command = [sys.executable, "-c", DRIVER, f"127.0.0.1:{port}", str(file), str(out)]
            with subprocess.Popen(
                command, env=WITH_TOKEN, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            ) as driver:
                try:
                    if attempt == 0:
                        _wait_for_checkpoint(out, driver)
                        os.killpg(head.pid, signal.SIGKILL)
                    text = driver.communicate(timeout=PATIENCE)[0].decode().strip()
                except subprocess.TimeoutExpired:
                    problems.append(f"the driver hangs {'after its head was killed' if attempt == 0 else ''}")
                    os.killpg(driver.pid, signal.SIGKILL)
                    driver.communicate()
            codes.append(driver.returncode)
            endings.append(text.splitlines()[-1] if text else "")
        _wait_until_released(out)
    if codes[-1] != 0:
        problems.append(f"the drivers ended with {codes}: {endings}")
    problems += _compare(out, expected)
    return 1, int(not problems), problems


def delay_renames(random: Random, folder: Path) -> Outcome:
    """Let the driver see files as they were a moment before they were replaced, as on a network file system."""
    from tests.experiments.test_ray_executor import FakeRay

    spec, expected = _train_here(folder, 100)
    out, messages = folder / "there", Messages()
    with patch("sdssm.experiments.execution.ray_executor.ray_module", FakeRay), _late_renames(random, out):
        executor = get_executor("ray", device="cpu")
        plan = make_plan(spec, out)
        with _one_thread():
            executor.run_plan(plan, messages)
        left = len(missing_files(make_plan(spec, out)))
    problems = _compare(out, expected)
    if left != len(expected):
        problems.append(f"the driver evaluates {left} of {len(expected)} runs: it does not see that the others ended")
    return 1, int(not problems), problems + [line for line in messages.lines if "does not see" in line]


@contextmanager
def _late_renames(random: Random, out: Path) -> Iterator[None]:
    """Delay renames, and show the previous contents of a file to the driver for a while after it was replaced.

    A process sees its own writes at once, so tasks of workers, which run in this process, see the files as they are.
    """
    from sdssm.experiments.execution import ray_executor
    from sdssm.experiments.execution.ray_tasks import train_sent_group

    replaced: dict[Path, tuple[float, bytes | None]] = {}
    is_worker = [False]
    replace, read_bytes, exists, train = Path.replace, Path.read_bytes, Path.exists, train_sent_group

    def late_replace(self: Path, target: Any) -> Any:
        path = Path(target)
        time.sleep(random.uniform(0.0, 0.01))
        if path.is_relative_to(out):
            before = read_bytes(path) if exists(path) else None
            replaced[path] = time.monotonic() + random.uniform(0.0, LAG_SECONDS), before
        return replace(self, target)

    def old_content(path: Path) -> tuple[bool, bytes | None]:
        until, before = replaced.get(path, (0.0, None))
        return not is_worker[0] and time.monotonic() < until, before

    def late_read(self: Path) -> bytes:
        is_old, before = old_content(self)
        if is_old and before is None:
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return before if is_old and before is not None else read_bytes(self)

    def late_exists(self: Path, **options: Any) -> bool:
        is_old, before = old_content(self)
        return before is not None if is_old else exists(self, **options)

    def train_as_worker(*arguments: Any) -> Any:
        is_worker[0] = True
        try:
            return train(*arguments)
        finally:
            is_worker[0] = False

    with (
        patch.object(Path, "replace", late_replace),
        patch.object(Path, "read_bytes", late_read),
        patch.object(Path, "exists", late_exists),
        patch.object(ray_executor, "train_sent_group", train_as_worker),
    ):
        yield


def _train_here(folder: Path, steps: int) -> tuple[Any, dict[str, str]]:
    """Train the experiment on this machine; return it, and the hashes of its weights."""
    file = folder / "tiny.toml"
    file.write_text(SPEC.replace("STEPS", str(steps)))
    spec = get_spec(file)
    with _one_thread():
        run_plan(make_plan(spec, folder / "here"), "cpu")
    return spec, _hashes(folder / "here")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread, as Ray's workers do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _cluster() -> Iterator[None]:
    """Start a cluster of one core in this process, so that one group trains at a time."""
    from sdssm.experiments.execution.ray_cluster import OBJECT_STORE_BYTES, ray_module

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = ray_module()
    package = str(Path(sys.modules["sdssm"].__file__ or "").parent)
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level="error",
        runtime_env={"py_modules": [package]},
        _system_config={"worker_niceness": 0},
    )
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _head(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start the head of a cluster in a process group of its own, and end that group."""
    script = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
    options = ["start", "--head", f"--port={port}", "--num-cpus=1", "--include-dashboard=false", "--block"]
    options += ["--object-store-memory=100000000", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    with subprocess.Popen(
        [sys.executable, "-c", script, *options],
        env=WITH_TOKEN,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as head:
        try:
            _wait_for_port(port)
            yield head
        finally:
            with suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)
            head.wait()


def _wait_for_port(port: int) -> None:
    import socket

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            time.sleep(3)  # its raylet starts after its server
            return
        time.sleep(0.2)


def _wait_for_checkpoint(out: Path, driver: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while driver.poll() is None and time.monotonic() < deadline:
        if any(out.rglob("step-00000002*.safetensors")):
            return
        time.sleep(0.01)


def _wait_until_released(out: Path) -> None:
    """Wait until no worker of a killed cluster holds a folder: it ends a moment after its raylet."""
    from sdssm.runs.claim import is_held

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and any(is_held(path.parent) for path in out.rglob("config.json")):
        time.sleep(0.1)


def _hashes(out: Path) -> dict[str, str]:
    runs = find_runs(out)
    return {
        str(run.path.relative_to(out)): sha256((run.path / "model.safetensors").read_bytes()).hexdigest()
        for run in runs
    }


def _compare(out: Path, expected: dict[str, str]) -> list[str]:
    """Return what is different from the training on this machine."""
    try:
        found = _hashes(out)
    except (OSError, ValueError) as error:
        return [f"not all runs have ended: {error}"]
    different = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    events = [
        run.path.name
        for run in find_runs(out)
        if (steps := [event["step"] for event in run.events()]) != sorted(set(steps))
    ]
    problems = [f"different weights: {different}"] if different else []
    return problems + ([f"steps that are logged twice: {events}"] if events else [])


def main() -> None:
    """Make one attempt of each function that is named."""
    functions = {"kill_workers": kill_workers, "restart_head": restart_head, "delay_renames": delay_renames}
    for name in sys.argv[1:] or functions:
        with TemporaryDirectory() as folder:
            start = time.monotonic()
            outcome = functions[name](Random(0), Path(folder))
            sys.stdout.write(f"{name}: {outcome}, {time.monotonic() - start:.0f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
