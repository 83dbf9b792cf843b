"""Several devices share the groups of a training, each in a process of its own; two CPU workers stand for two GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from sdssm.errors import ModelError, RunError
from sdssm.runs import RunFolder
from sdssm.runs.claim import is_held
from sdssm.runs.own_files import EVENTS_FILE
from sdssm.training import TrainingStopped, resume, train, trainer, worker_link
from sdssm.training.group import ReplicaGroup
from sdssm.training.planning import plan_runs
from sdssm.training.progress import SilentProgress
from sdssm.training.sharing import WORTH_STEPS, Worker, choose_workers, expected_work, next_groups
from sdssm.training.trainer import train_runs
from sdssm.training.workers import WorkerPool
from tests.training.plans import plan_groups
from tests.training.test_queue import outcome

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

#: Two fake devices. Each trains one group at a time, so that the third group waits.
PAIR = [Worker("cpu", at_once=1), Worker("cpu", at_once=1)]


class Display(SilentProgress):
    """Records what is shown, and may send a signal at a step."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.steps: list[int] = []
        self.rows: list[int] = []
        self.messages: list[str] = []
        self.is_stopped = False

    def update(self, step: int, loss: Sequence[float], accuracy: Sequence[float], alive: Sequence[bool]) -> None:
        self.steps.append(step)
        self.rows.append(len(alive))
        if self.stop_at is not None and step >= self.stop_at:
            self.stop_at = None
            os.kill(os.getpid(), signal.SIGINT)

    def message(self, text: str) -> None:
        self.messages.append(text)

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Which worker took which group: the number of the worker, and the folder of the group."""
    taken: list[tuple[int, str]] = []
    original = WorkerPool._hand_over

    def recorded(self: WorkerPool, state: Any, wanted: int) -> Any:
        groups = original(self, state, wanted)
        taken.extend((self._states.index(state), group.folders[0].parent.name) for group in groups)
        return groups

    monkeypatch.setattr(WorkerPool, "_hand_over", recorded)
    return taken


@pytest.fixture(scope="module")
def on_one_device(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("one-device")
    train_runs(out, plan_groups(out), device="cpu")
    return outcome(out)


def test_workers_share_the_groups(tmp_path: Path, on_one_device: dict[str, Any], handed: list[tuple[int, str]]) -> None:
    display = Display()
    runs = train_runs(tmp_path, plan_groups(tmp_path), workers=PAIR, progress=display)
    assert {run.status for run in runs} == {"finished"}
    # Each group exactly once. One worker may take all of them, if the other starts late.
    assert sorted(name for _, name in handed) == ["state-3", "state-4", "state-5"]
    assert outcome(tmp_path) == on_one_device  # weights and events, to the last bit
    assert display.is_stopped and set(display.rows) == {6} and display.steps[-1] == 10
    assert display.steps == sorted(display.steps)
    assert not any(is_held(run.path) for run in runs)


def test_interrupt_saves_all_workers_and_resume_is_exact(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    train_runs(whole, plan_groups(whole, steps=200), device="cpu")
    with pytest.raises(TrainingStopped) as stopped:
        train_runs(halves, plan_groups(halves, steps=200), workers=PAIR, progress=Display(stop_at=1))
    statuses = [run.status for run in stopped.value.runs]
    assert "stopped" in statuses and "running" not in statuses
    assert any(0 < run.step < 200 for run in stopped.value.runs)  # in the middle, and saved there
    assert not any(is_held(run.path) for run in stopped.value.runs)
    train_runs(halves, plan_groups(halves, steps=200), workers=PAIR, resume=True)
    assert outcome(halves) == outcome(whole)


def test_resume_uses_several_workers(
    tmp_path: Path, on_one_device: dict[str, Any], handed: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    train_runs(tmp_path, plan_groups(tmp_path), device="cpu", until=0.5)
    monkeypatch.setattr(trainer, "choose_workers", lambda devices, groups: PAIR)
    assert {run.status for run in resume(tmp_path, device="cpu")} == {"finished"}
    assert len(handed) == 3
    assert outcome(tmp_path) == on_one_device


def test_other_workers_continue_if_one_fails(tmp_path: Path, on_one_device: dict[str, Any]) -> None:
    """The log of one group is a folder, so its worker cannot write; the others train the remaining groups."""
    plan = plan_groups(tmp_path)

    class Damage(Display):
        def start(self, names: Sequence[str], steps: int, first: int, constant: Sequence[float] = ()) -> None:
            (tmp_path / "state-3" / "seed-0" / EVENTS_FILE).mkdir()

    display = Damage()
    with pytest.raises(RunError, match="cannot write .*state-3"):
        train_runs(tmp_path, plan, workers=PAIR, progress=display)
    assert [line for line in display.messages if line.startswith("cpu failed: ") and "1 other device" in line]
    (tmp_path / "state-3" / "seed-0" / EVENTS_FILE).rmdir()
    statuses = {str(path.relative_to(tmp_path)): RunFolder.open(path).status for path in tmp_path.rglob("seed-*")}
    assert {status for name, status in statuses.items() if "state-3" not in name} == {"finished"}
    assert not any(is_held(path) for path in tmp_path.rglob("seed-*"))
    train_runs(tmp_path, plan, workers=PAIR, resume=True)
    weights, expected = outcome(tmp_path), on_one_device  # the event that could not be written is missing
    assert {name: run[0] for name, run in weights.items()} == {name: run[0] for name, run in expected.items()}


def test_killed_worker_is_an_error_that_says_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = []
    original = worker_link.WorkerLink.__init__

    def recorded(self: worker_link.WorkerLink, *args: Any) -> None:
        original(self, *args)
        links.append(self)

    class Killer(Display):
        def update(self, *args: Any) -> None:
            links[0]._process.kill()

    monkeypatch.setattr(worker_link.WorkerLink, "__init__", recorded)
    with pytest.raises(RunError, match=r"the process that trained on cpu was killed.* sdssm train --resume"):
        train_runs(tmp_path, plan_groups(tmp_path, steps=200), workers=PAIR, progress=Killer())
    assert all(link._process.poll() is not None for link in links)
    runs = resume(tmp_path, device="cpu")
    assert {run.status for run in runs} == {"finished"}


def test_workers_end_with_the_training(tmp_path: Path) -> None:
    """A worker whose training is gone exits at once, and its folders are free."""
    received: list[Any] = []
    settings = worker_link.WorkerSettings(device="cpu", threads=1, at_once=1, models=(), shows_warnings_only=True)
    link = worker_link.WorkerLink(settings, received.append)
    deadline = time.monotonic() + 60
    while not received and time.monotonic() < deadline:
        time.sleep(0.05)
    assert received[0] == ("take", 1)
    link._to_worker.close()
    assert link._process.wait(10) == 1
    link.close()


def test_an_error_of_the_display_saves_all_workers(tmp_path: Path) -> None:
    class Broken(Display):
        def update(self, *args: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train_runs(tmp_path, plan_groups(tmp_path, steps=200), workers=PAIR, progress=Broken())
    runs = [RunFolder.open(path) for path in tmp_path.rglob("seed-*")]
    assert {run.status for run in runs} == {"stopped"} and any(run.step > 0 for run in runs)


def make_groups(out: Path) -> list[ReplicaGroup]:
    """Return three groups of one run each, in out/state-3 to out/state-5."""
    train_runs(out, plan_groups(out), device="cpu", until=0.1)
    runs = [RunFolder.open(out / name / "seed-0") for name in ("state-3", "state-4", "state-5")]
    return [ReplicaGroup([(run, run.config.load_task())], 1) for run in runs]


def test_work_is_measured_in_seconds_if_all_are_known(tmp_path: Path) -> None:
    groups = make_groups(tmp_path)
    groups[1] = ReplicaGroup(list(zip(groups[1].folders, groups[1].tasks, strict=True)), 5)
    assert expected_work(groups, {}) == [9 * 4 * 5, 5 * 4 * 5, 9 * 4 * 5]  # steps left, batch, length
    seconds = dict(zip([group.folders[0].path for group in groups], [2.0, 1.0, 3.0], strict=True))
    assert expected_work(groups, seconds) == [2.0, 1.0, 3.0]
    assert expected_work(groups, dict(list(seconds.items())[:2])) == expected_work(groups, {})


def test_longest_groups_are_dealt_out_first() -> None:
    waiting = {0: 1.0, 1: 8.0, 2: 4.0, 3: 3.0}
    assert next_groups(waiting, 0.0, [0.0], 16) == [1]  # 8 against 4 + 3 + 1
    assert next_groups(waiting, 0.0, [0.0], 0) == []
    assert next_groups({0: 1.0, 2: 4.0, 3: 3.0}, 0.0, [8.0], 16) == [2, 3, 0]
    assert next_groups({0: 1.0, 2: 4.0, 3: 3.0}, 0.0, [8.0], 2) == [2, 3]
    assert next_groups({0: 1.0}, 5.0, [2.0], 16) == []  # the other one shall have it
    assert next_groups({0: 1.0}, 0.0, [0.0, 0.0], 16) == [0]  # one that holds nothing is never sent away


def test_groups_on_a_cpu_share_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, groups = [torch.device("cpu")], make_groups(tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert choose_workers(cpu, groups) == [Worker("cpu")]  # not worth the start of a process
    monkeypatch.setattr("sdssm.training.sharing.WORTH_STEPS", sum(group.end_step - group.step for group in groups))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert choose_workers(cpu, groups) == [Worker("cpu")]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert choose_workers(cpu, groups) == [Worker("cpu", threads=2, at_once=1)] * 2
    assert choose_workers(cpu, groups[:1]) == [Worker("cpu")]
    assert choose_workers(cpu, groups, at_once=1) == [Worker("cpu", at_once=1)]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    assert len(choose_workers(cpu, groups)) == 3
    pair = [torch.device("cuda:0"), torch.device("cuda:1")]
    assert choose_workers(pair, groups) == [Worker("cuda:0"), Worker("cuda:1")]


def test_numbers_do_not_depend_on_the_workers_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transformer depends on the number of threads in its last bits; so each worker has as many."""
    outcomes, counts = list[Any](), list[int]()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(WorkerPool, "run", _counted(WorkerPool.run, counts))
    for name, worth in (("workers", 1), ("alone", WORTH_STEPS)):
        monkeypatch.setattr("sdssm.training.sharing.WORTH_STEPS", worth)
        train(
            ["parity", "a5"],
            model="transformer",
            seeds=2,
            steps=4,
            out=tmp_path / name,
            settings={"batch": 64, "train_length": 16},
            device="cpu",
        )
        outcomes.append(outcome(tmp_path / name))
    torch.set_num_threads(before)
    assert counts == [2] and outcomes[0] == outcomes[1]


def _counted(run: Any, counts: list[int]) -> Any:
    def counted(self: WorkerPool) -> None:
        counts.append(len(self._workers))
        run(self)

    return counted


def test_idle_devices_are_named(tmp_path: Path) -> None:
    display = Display()
    train_runs(tmp_path, plan_groups(tmp_path)[:2], workers=[*PAIR, Worker("cpu")], progress=display)
    assert any("cpu, cpu stays idle" in line and "there is 1 group" in line for line in display.messages)


def test_model_of_a_session_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    def build(n_symbols: int, n_classes: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Embedding(n_symbols, n_classes))

    out = tmp_path / "out"
    with pytest.raises(ModelError, match="other processes cannot import it"):
        path, planned = plan_runs(
            "parity", model=build, preset=None, seeds=1, steps=2, out=out, settings=None, variants=None, device=None
        )
        train_runs(path, planned, workers=PAIR)
    assert not out.exists()


def test_one_device_needs_no_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    train("parity", steps=2, out=tmp_path, settings={"state": 4, "batch": 4}, device="cpu")
