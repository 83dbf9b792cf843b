"""Evaluations of several tasks at the same time: bounded by memory, and the same files as one after the other."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

import sdssm
from sdssm.errors import RunError
from sdssm.evaluation.stored import EVALUATION_FILE, LENGTHS_FILE
from sdssm.experiments.execution import evaluations
from sdssm.experiments.execution.evaluation_files import EvaluationFile
from sdssm.experiments.execution.evaluations import (
    describe_task,
    evaluate_group,
    evaluate_locally,
    group_files,
)
from sdssm.experiments.execution.gpu_memory import table_bytes
from sdssm.experiments.execution.in_flight import TaskEvaluations, run_in_flight
from sdssm.experiments.specs.spec import EvaluationSpec
from sdssm.runs import RunFolder
from sdssm.runs.own_files import STATES_FILE
from sdssm.tasks.streamed_strings import SHARED_STRINGS
from sdssm.training.signals import Interrupted

SPEC = EvaluationSpec(max_length=20, lengths=(30, 600), strings=16)
NAMES = (EVALUATION_FILE, LENGTHS_FILE)


class Recorder:
    """Runs the calls of tasks, and records which tasks are open at the same time and what has ended."""

    def __init__(self, sizes: dict[str, float], calls: int = 2) -> None:
        self.sizes, self.open, self.together, self.ended = sizes, set[str](), list[set[str]](), list[str]()
        self.calls, self._lock = calls, Lock()

    def tasks(self) -> Iterator[TaskEvaluations[str]]:
        for name, size in self.sizes.items():
            yield TaskEvaluations([f"{name}{k}" for k in range(self.calls)], size, self.keep(name))

    @contextmanager
    def keep(self, name: str) -> Iterator[None]:
        self.open.add(name)
        self.together.append(set(self.open))
        yield
        self.open.remove(name)

    def call(self, group: str) -> None:
        assert group[0] in self.open
        time.sleep(0.01)
        with self._lock:
            self.ended.append(group)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_tasks_start_in_order_and_no_more_than_allowed(most: int) -> None:
    recorder = Recorder(dict.fromkeys("abcde", 1.0))
    with ThreadPoolExecutor(6) as pool:
        yielded = list(run_in_flight(pool, recorder.call, recorder.tasks(), memory=math.inf, most=most))
    assert sorted(yielded) == sorted(recorder.ended) == [f"{name}{k}" for name in "abcde" for k in range(2)]
    assert max(map(len, recorder.together)) == most and not recorder.open
    assert [max(names) for names in recorder.together] == list("abcde")


def test_tasks_fit_into_memory_and_a_larger_one_runs_alone() -> None:
    recorder = Recorder({"a": 4, "b": 4, "c": 4, "d": 99, "e": math.inf, "f": 1, "g": 1})
    with ThreadPoolExecutor(6) as pool:
        assert len(list(run_in_flight(pool, recorder.call, recorder.tasks(), memory=10, most=3))) == 14
    assert {"a", "b"} in recorder.together and {"f", "g"} in recorder.together
    assert all(len(names) == 1 for names in recorder.together if names & {"d", "e"})
    assert max(sum(recorder.sizes[name] for name in names) for names in recorder.together if len(names) > 1) <= 10


def test_nothing_starts_after_an_error_and_the_first_one_in_order_is_raised() -> None:
    recorder, failed = Recorder(dict.fromkeys("abcd", 1.0), calls=3), Event()

    def call(group: str) -> None:
        if group == "b0":
            failed.set()
            raise RunError(group)
        if group == "a1":
            failed.wait(5)
            time.sleep(0.05)
            raise RunError(group)
        recorder.call(group)

    yielded = []
    with ThreadPoolExecutor(4) as pool, pytest.raises(RunError, match="a1"):
        for group in run_in_flight(pool, call, recorder.tasks(), memory=math.inf, most=2):
            yielded.append(group)
    assert not recorder.open and set().union(*recorder.together) == {"a", "b"}
    assert sorted(yielded) == sorted(recorder.ended)  # what has ended counts
    assert {"a0", "a2"} <= set(yielded)


def test_strings_are_freed_after_the_calls_in_progress_end() -> None:
    recorder, started = Recorder(dict.fromkeys("abc", 1.0)), Event()

    def call(group: str) -> None:
        if group != "a0":
            started.set()
            time.sleep(0.1)
        recorder.call(group)  # its task is still open

    with ThreadPoolExecutor(2) as pool:
        completed = run_in_flight(pool, call, recorder.tasks(), memory=math.inf, most=2)
        assert next(completed) == "a0" and started.wait(5)
        with pytest.raises(KeyboardInterrupt):
            completed.throw(KeyboardInterrupt())
        assert not recorder.open and {"a1"} <= set(recorder.ended[1:]) <= {"a1", "b0"}
        ended = list(recorder.ended)
        time.sleep(0.05)
        assert recorder.ended == ended


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[EvaluationFile]:
    """The evaluation files of two runs of each of four tasks."""
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        run
        for task in ("parity", "tomita4", "d4", "arithmetic")
        for run in sdssm.train(task, seeds=2, steps=2, out=folder / task, device="cpu")
    ]
    return [(Path(run.path), name) for run in runs for name in NAMES]


def read_files(files: list[EvaluationFile]) -> dict[Path, bytes]:
    paths = [folder / name for folder, name in files] + [folder / STATES_FILE for folder, _ in files]
    return {path: path.read_bytes() for path in paths if path.exists()}


def test_the_estimate_of_memory_grows_with_runs_and_lengths(
    files: list[EvaluationFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ([[(folder, LENGTHS_FILE) for folder in runs]] for runs in ([files[0][0]], [files[0][0], files[2][0]]))
    longer = replace(SPEC, lengths=(30, 50_000))
    single, pair, long = (describe_task(*task).bytes_needed for task in ((one, SPEC), (two, SPEC), (one, longer)))
    assert 0 < single < pair < 2 * single and single < long < 2**36
    both = describe_task([*one, *one], SPEC).bytes_needed
    assert both == 2 * single - table_bytes(RunFolder.open(files[0][0]).config, SPEC.lengths)

    def fail(*args: object) -> float:
        raise RunError("code of others")

    monkeypatch.setattr(evaluations, "evaluation_bytes", fail)
    assert describe_task(one, SPEC).bytes_needed == math.inf  # it runs alone


@pytest.fixture(scope="module")
def alone(files: list[EvaluationFile]) -> dict[Path, bytes]:
    """The files of each run evaluated by itself; they are removed again."""
    for file in files:
        evaluate_group([file], SPEC, "cpu")
    contents = read_files(files)
    remove(contents)
    return contents


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink()


@pytest.fixture
def _streams(files: list[EvaluationFile], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Evaluate on a CPU as on a GPU, in threads; remove the files that are written."""
    monkeypatch.setitem(evaluations.HAS_STREAMS, "cpu", True)
    yield
    remove(read_files(files))


@pytest.mark.usefixtures("_streams")
@pytest.mark.parametrize(("most", "memory"), [(1, math.inf), (3, math.inf), (3, 0.0)])
def test_files_do_not_depend_on_the_tasks_in_flight(
    most: int, memory: float, files: list[EvaluationFile], alone: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_tasks, together, keep, done = set[str](), list[int](), SHARED_STRINGS.keep, list[tuple[int, int]]()

    @contextmanager
    def counted_keep(digest: str) -> Iterator[None]:
        open_tasks.add(digest)
        together.append(len(open_tasks))
        with keep(digest):
            yield
        open_tasks.remove(digest)

    monkeypatch.setattr(SHARED_STRINGS, "keep", counted_keep)
    monkeypatch.setattr(evaluations, "MOST_TASKS", most)
    monkeypatch.setattr(evaluations, "free_memory", lambda device: memory)
    evaluate_locally(files, SPEC, "cpu", on_evaluated=lambda count, total: done.append((count, total)))
    assert read_files(files) == alone
    assert done == [(count, len(files)) for count in range(1, len(files) + 1)]
    assert max(together) == (1 if memory == 0 else most) and not open_tasks


@pytest.mark.usefixtures("_streams")
def test_an_interruption_leaves_only_finished_files(files: list[EvaluationFile], alone: dict[Path, bytes]) -> None:
    def interrupt(done: int, total: int) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        evaluate_locally(files, SPEC, "cpu", on_evaluated=interrupt)
    written = read_files(files)
    assert written and len(written) < len(alone)
    assert all(alone[path] == data for path, data in written.items())
    assert not [path for folder, _ in files for path in folder.glob("*.part*")]


@pytest.mark.usefixtures("_streams")
def test_an_error_in_one_task_is_raised_after_the_others_have_ended(
    files: list[EvaluationFile], alone: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate_group = evaluations.evaluate_group

    def evaluate_or_fail(group: list[EvaluationFile], *args: Any, **options: Any) -> None:
        if RunFolder.open(group[0][0]).config.task == "tomita4":
            raise RunError("tomita4 cannot be read")
        evaluate_group(group, *args, **options)

    monkeypatch.setattr(evaluations, "evaluate_group", evaluate_or_fail)
    with pytest.raises(RunError, match="tomita4 cannot be read"):
        evaluate_locally(files, SPEC, "cpu")
    written = read_files(files)
    assert all(alone[path] == data for path, data in written.items())
    assert not any("tomita4" in str(path) for path in written)
    assert not any("arithmetic" in str(path) for path in written)  # the fourth task: three are in flight
    assert len(group_files(files, 64)) == 8
