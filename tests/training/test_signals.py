"""Signals: handlers take no lock, signals within half a second are one, and everything is saved."""

from __future__ import annotations

import ast
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import sdssm
from sdssm.runs import RunFolder
from sdssm.runs.claim import is_held
from sdssm.training import TrainingStopped, signals
from sdssm.training.group import ReplicaGroup
from sdssm.training.progress import SilentProgress
from sdssm.training.signals import interrupt_on_signal, stop_on_signal
from sdssm.training.trainer import train_runs
from tests.training.plans import plan_groups

SOURCES = Path(sdssm.__file__).parent


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise an error in the block after some seconds; it also interrupts a wait for a lock."""

    def fail(*_: Any) -> None:
        raise TimeoutError("deadlock")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def not_ignored(number: int) -> Iterator[None]:
    """Set the default handler: the tests may run below `nohup`, which ignores SIGHUP."""
    before = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_a_signal_within_the_handler_does_not_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second signal arrives at every line of the handler, and of whatever it calls."""
    monkeypatch.setattr(signals, "REPEAT_SECONDS", 1e9)  # a busy machine may take longer than half a second
    depth = 0

    def interrupt_each_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal depth
        if event == "line" and depth < 2:
            depth += 1
            signal.raise_signal(signal.SIGTERM)
            depth -= 1
        return interrupt_each_line

    with time_limit(5), stop_on_signal() as stop:
        before = sys.gettrace()
        sys.settrace(lambda frame, *_: interrupt_each_line if frame.f_code.co_name in ("handle", "set") else None)
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            sys.settrace(before)
        assert stop()


def test_no_signal_handler_takes_a_lock() -> None:
    """One module installs handlers, and they call nothing but the clock, each other and the exception they raise."""
    installed = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "signal.signal(" in text else ():
            is_install = isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal"
            if is_install and "SIG_IGN" not in ast.unparse(node):
                installed.add(str(path.relative_to(SOURCES)))
    assert installed == {"training/signals.py"}
    tree = ast.parse((SOURCES / "training/signals.py").read_text())
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("handle")]
    calls = {ast.unparse(node.func) for handler in handlers for node in ast.walk(handler) if isinstance(node, ast.Call)}
    assert len(handlers) == 2 and calls == {"monotonic", "Interrupted", "self.handle"}


def test_signals_within_half_a_second_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(signals, "monotonic", lambda: now[0])
    with stop_on_signal() as stop:
        assert not stop()
        for delay in (0.0, 0.1, 0.39):
            now[0] += delay
            signal.raise_signal(signal.SIGTERM)
            assert stop() and stop.number == signal.SIGTERM
        now[0] += 0.02
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(signals.Interrupted) as interrupted, interrupt_on_signal():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)  # the cleaning goes on
            now[0] += 1
    assert interrupted.value.number == signal.SIGTERM


def test_sighup_is_handled_unless_it_was_ignored() -> None:
    with not_ignored(signal.SIGHUP), stop_on_signal() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert stop() and stop.number == signal.SIGHUP
    with not_ignored(signal.SIGHUP):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with stop_on_signal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop() and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_handlers_of_other_threads_are_left_alone() -> None:
    before, flags = signal.getsignal(signal.SIGTERM), []

    def enter() -> None:
        with stop_on_signal() as stop:
            flags.append((stop(), signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert flags == [(False, before)]


class SignalAt(SilentProgress):
    """Sends a signal to this process at the first update."""

    def __init__(self, number: int) -> None:
        self.number = number

    def update(self, *_: Any) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_saving_does_not_end_the_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The second signal of `timeout`, or of a user who presses Ctrl-C twice, comes while groups are saved."""
    original, saved = ReplicaGroup.end, []

    def end(self: ReplicaGroup) -> None:
        os.kill(os.getpid(), number)
        original(self)
        saved.append(self)

    monkeypatch.setattr(ReplicaGroup, "end", end)
    monkeypatch.setattr(signals, "REPEAT_SECONDS", 1e9)
    with not_ignored(number), pytest.raises(TrainingStopped) as stopped:
        train_runs(tmp_path, plan_groups(tmp_path, 1000), device="cpu", progress=SignalAt(number))
    assert stopped.value.number == number and len(saved) == 3
    for run in stopped.value.runs:
        assert RunFolder.open(run.path).status == "stopped" and not is_held(run.path)


def test_a_late_second_signal_ends_the_saving_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "REPEAT_SECONDS", -1.0)
    monkeypatch.setattr(ReplicaGroup, "end", lambda self: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(signals.Interrupted) as interrupted:
        train_runs(tmp_path, plan_groups(tmp_path, 1000)[:2], device="cpu", progress=SignalAt(signal.SIGINT))
    assert not isinstance(interrupted.value, TrainingStopped)
    assert not any(is_held(folder) for folder, _, _ in plan_groups(tmp_path)[:2])
