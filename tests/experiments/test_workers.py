"""Workers end with their parent process, and an interrupted evaluation keeps its finished results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sdssm.errors import RunError
from sdssm.evaluation.evaluation import evaluate_subjects
from sdssm.evaluation.prepared import MOST_MODELS
from sdssm.experiments import evaluate_plan, make_plan, run_plan
from sdssm.experiments.execution.evaluation_files import missing_evaluations
from sdssm.experiments.execution.workers import worker_pool
from sdssm.experiments.specs.parsing import parse_spec
from sdssm.training.signals import interrupt_on_signal

#: A process with two workers that are busy for a long time; each writes a file named after its process id.
BUSY = """
import os, sys, time
from pathlib import Path
from sdssm.experiments.execution.workers import worker_pool
from sdssm.training.signals import interrupt_on_signal

def busy(number):
    (Path(sys.argv[1]) / f"{os.getpid()}").touch()
    time.sleep(600)

if __name__ == "__main__":
    try:
        with interrupt_on_signal(), worker_pool(2) as pool:
            list(pool.map(busy, range(9)))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def is_alive(process: int) -> bool:
    """Return whether a process runs; a zombie, which some containers do not reap, does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_workers_do_not_outlive_their_parent(tmp_path: Path, number: signal.Signals, code: int) -> None:
    script, seen = tmp_path / "busy.py", tmp_path / "seen"
    script.write_text(BUSY)
    seen.mkdir()
    parent = subprocess.Popen([sys.executable, str(script), str(seen)], stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: len(list(seen.iterdir())) == 2)
        workers = [int(path.name) for path in seen.iterdir()]
        assert all(map(is_alive, workers))
        parent.send_signal(number)
        assert parent.wait(timeout=60) == code
        assert wait_until(lambda: not any(map(is_alive, workers)))
    finally:
        parent.kill()
        parent.wait()


def test_killed_worker_is_reported_in_one_line() -> None:
    with pytest.raises(RunError, match="one of 1 evaluation processes was killed"), worker_pool(1) as pool:
        pool.submit(os._exit, 3).result()


SPEC = """
name = "mine"
seeds = 3
[evaluate]
max_length = 10
strings = 16
[[rows]]
model = "lstm"
tasks = ["parity"]
settings = { state = 4, batch = 8, steps = 5, train_length = 6 }
"""


def test_sigterm_loses_only_the_evaluation_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(parse_spec(SPEC, source="mine.toml"), tmp_path)
    run_plan(plan, "cpu")
    before = signal.getsignal(signal.SIGTERM)
    calls: list[Any] = []

    def interrupt_second(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        return evaluate_subjects(*arguments, **options)

    monkeypatch.setattr("sdssm.experiments.execution.evaluations.evaluate_subjects", interrupt_second)
    monkeypatch.setitem(MOST_MODELS, "cpu", 1)  # groups of one run
    with pytest.raises(KeyboardInterrupt):
        evaluate_plan(plan, "cpu")
    assert [len(missing_evaluations(run.folder, run.task, plan.spec.evaluate)) for run in plan.runs] == [0, 1, 1]
    assert signal.getsignal(signal.SIGTERM) is before
    evaluate_plan(plan, "cpu")
    assert not any(missing_evaluations(run.folder, run.task, plan.spec.evaluate) for run in plan.runs)
    assert len(calls) == 4


def test_other_threads_ignore_the_signal_handler() -> None:
    calls = []

    def enter() -> None:
        with interrupt_on_signal():
            calls.append(True)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert calls
