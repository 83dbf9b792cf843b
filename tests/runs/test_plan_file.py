"""The plan of a training is on disk before its first run folder, so that a resume completes it."""

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sdssm
from sdssm.checksums import encode_json_with_checksum
from sdssm.cli import main
from sdssm.errors import RunError, RunWarning
from sdssm.runs import RunFolder, find_runs
from sdssm.runs.claim import is_held
from sdssm.runs.plan_file import PATTERN, StartPlan, missing_runs, planned_start
from sdssm.training import TrainingStopped
from sdssm.training.group import ReplicaGroup
from tests.runs.configs import make_config


class Killed(BaseException):
    """Ends the training as if the process was killed."""


def train(out: Path, **options: Any) -> sdssm.training.Runs:
    settings = {"state": 6, "batch": 8, "train_length": 6, **options.pop("settings", {})}
    return sdssm.train("parity", **{"seeds": 4, "steps": 10, "device": "cpu", "out": out, **options}, settings=settings)


def weights(out: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.rglob("model.safetensors")}


def fail_at(monkeypatch: pytest.MonkeyPatch, number: int, action: Callable[[], None]) -> None:
    """Call a function before run folder `number`, counted from 0, is created."""
    original, calls = RunFolder.create.__func__, []  # type: ignore[attr-defined]  # of a class method

    def create(cls: type[RunFolder], *arguments: Any, **options: Any) -> RunFolder:
        calls.append(arguments)
        if len(calls) == number + 1:
            action()
        return original(cls, *arguments, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(RunFolder, "create", classmethod(create))


def kill() -> None:
    raise Killed


def kill_while_creating(out: Path, number: int = 2, **options: Any) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        fail_at(patch, number, kill)
        train(out, **options)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("uninterrupted")
    train(out)
    assert not list(out.glob(PATTERN))
    return weights(out)


@pytest.mark.parametrize("number", [0, 2])
def test_resume_creates_the_missing_runs_and_names_them(
    tmp_path: Path, uninterrupted: dict[str, bytes], number: int
) -> None:
    kill_while_creating(tmp_path, number)
    names = ", ".join(f"seed-{seed}" for seed in range(number, 4))
    with pytest.warns(RunWarning, match=f"runs that were planned and not yet created are started now: {names}$"):
        runs = sdssm.resume(tmp_path, device="cpu")
    assert [run.status for run in runs] == ["finished"] * 4
    assert weights(tmp_path) == uninterrupted
    assert not list(tmp_path.glob(PATTERN))


def test_the_same_command_with_resume_completes_the_group(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    kill_while_creating(tmp_path)
    assert len(train(tmp_path, seeds=5, resume=True)) == 5  # one more, which is in a group of its own
    trained = weights(tmp_path)
    assert trained.pop("seed-4") and trained == uninterrupted


def test_a_signal_while_folders_are_created(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(TrainingStopped) as stopped:
        fail_at(patch, 2, lambda: signal.raise_signal(signal.SIGTERM))
        train(tmp_path)
    assert [run.status for run in stopped.value.runs] == ["stopped"] * 3
    assert not any(is_held(run.path) for run in stopped.value.runs)
    with pytest.warns(RunWarning, match="started now: seed-3"):
        sdssm.resume(stopped.value.runs, device="cpu")
    assert weights(tmp_path) == uninterrupted


def test_command_line_names_runs_that_were_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, 1, lambda: signal.raise_signal(signal.SIGTERM))
        sizes = ("--steps", "5", "--batch", "4", "--state", "4", "--train-length", "6", "--device", "cpu", "--quiet")
        assert main(["train", "parity", "--seeds", "3", "--out", "a", *sizes]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == (
        "sdssm: stopped with 1 run in a not yet created; to continue: sdssm train --resume a\n"
    )
    assert main(["train", "--resume", "a", "--device", "cpu", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.startswith(
        "1 run that was planned and not yet created is started now: seed-2\n3 runs in a"
    )
    assert main(["train", "--resume", "a"]) == 0
    assert capsys.readouterr().out == "Nothing to do: all 3 runs in a have ended.\n"


def test_overwriting_is_completed_too(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    train(tmp_path, settings={"lr": 0.5})
    kill_while_creating(tmp_path, overwrite=True)
    with pytest.warns(RunWarning, match="started now: seed-2, seed-3"):
        sdssm.resume(tmp_path, device="cpu")
    assert weights(tmp_path) == uninterrupted


def test_a_run_that_was_removed_is_not_started_again(tmp_path: Path) -> None:
    with pytest.raises(Killed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplicaGroup, "start", lambda self, device: kill())
        train(tmp_path)
    for file in sorted((tmp_path / "seed-1").rglob("*"), reverse=True):
        file.unlink()
    (tmp_path / "seed-1").rmdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(sdssm.resume(tmp_path, device="cpu")) == 3


def test_starting_over_replaces_the_plan(tmp_path: Path) -> None:
    kill_while_creating(tmp_path, 0)  # nothing was created: the next training starts over
    train(tmp_path, seeds=[0], settings={"lr": 0.5})
    assert not missing_runs(tmp_path)
    kill_while_creating(tmp_path, 1, seeds=[1, 2, 3])
    train(tmp_path, seeds=[2])
    assert [folder.name for folder in missing_runs(tmp_path)] == ["seed-3"]


def test_folder_that_was_moved_and_resumed_from_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        fail_at(patch, 1, kill)
        train(tmp_path / "a", seeds=1, variants={"x": {}, "y": {}, "z": {}})
    (tmp_path / "a").rename(tmp_path / "b")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(RunWarning, match="1 run that was planned and not yet created is started now: seed-0"):
        sdssm.resume("b/y", device="cpu")
    with pytest.warns(RunWarning, match="started now: b/z/seed-0"):
        sdssm.resume(".", device="cpu")
    assert [run.status for run in find_runs(tmp_path)] == ["finished"] * 3
    assert not list(tmp_path.rglob(PATTERN))


def test_another_process_that_creates_the_runs_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "seed-0"
    with planned_start(tmp_path, {folder: make_config()}):
        assert not missing_runs(tmp_path)
        with pytest.raises(RunError, match="another process is starting the training in .*seed-0"):
            train(tmp_path, seeds=1, resume=True)
        with pytest.raises(RunError, match="no run folder"):
            sdssm.resume(tmp_path, device="cpu")
    assert list(missing_runs(tmp_path)) == [folder]


@pytest.mark.parametrize("change", ["flip", "outside", "above", "link", "not JSON", "newer"])
def test_damaged_and_hostile_plans_start_nothing(tmp_path: Path, change: str) -> None:
    out = tmp_path / "out"
    name = {"outside": "/tmp/evil", "above": "../evil", "link": "link/seed-0"}.get(change, "seed-0")
    out.mkdir()
    (out / "link").symlink_to(tmp_path)
    plan = StartPlan(file=out / "plan-00000000.json", configs={out / "seed-0": make_config()})
    plan.write()
    content = json.loads(plan.file.read_text())
    content["runs"][0]["folder"], checksum = name, content.pop("checksum")
    content["format"] = 2 if change == "newer" else 1
    text = encode_json_with_checksum(content).decode()  # a stranger can compute checksums too
    if change == "flip":
        content["configs"][0]["train"]["lr"] *= 2
        text = json.dumps({**content, "checksum": checksum})
    plan.file.write_text(text[:-9] if change == "not JSON" else text)
    with pytest.warns(RunWarning, match="plan-00000000.json is damaged") as caught:
        assert not missing_runs(out)
    assert all(len(str(warning.message)) < 300 for warning in caught)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_kill_between_the_last_checkpoints_of_a_group(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    """No run counts as finished while another one of its group has still to be trained."""
    original, calls = RunFolder.finish, []

    def finish(self: RunFolder, status: Any) -> None:
        calls.append(len(self.checkpoints()))
        original(self, status)
        kill()

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(RunFolder, "finish", finish)
        train(tmp_path)
    assert [run.checkpoints() for run in find_runs(tmp_path)] == [[10, 0]] * 4
    sdssm.resume(tmp_path, device="cpu")
    assert weights(tmp_path) == uninterrupted


def test_a_stop_while_the_plan_of_an_earlier_training_is_completed(
    tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    """The plan stays as it is: the runs still train beside those that were created before."""
    kill_while_creating(tmp_path, 1)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(TrainingStopped):
        fail_at(patch, 1, lambda: signal.raise_signal(signal.SIGTERM))
        train(tmp_path, resume=True)
    assert [folder.name for folder in missing_runs(tmp_path)] == ["seed-3"]
    train(tmp_path, resume=True)
    assert weights(tmp_path) == uninterrupted


def test_a_plan_that_is_superseded_before_it_is_held_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trainings that overwrite and start at the same moment: one of them must succeed."""
    write, removed = StartPlan.write, list[Path]()

    def write_and_lose(plan: StartPlan) -> None:
        write(plan)
        if not removed:  # by the other process
            removed.append(plan.file)
            plan.file.unlink()

    monkeypatch.setattr(StartPlan, "write", write_and_lose)
    train(tmp_path, overwrite=True)
    assert removed and not list(tmp_path.glob(PATTERN))


def test_a_start_whose_folders_are_taken_leaves_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a later resume would replace the runs of the other process."""
    folder = tmp_path / "seed-0"
    monkeypatch.setattr("sdssm.runs.plan_file.is_held", lambda path: path == folder)
    with pytest.raises(RunError, match="taken"), planned_start(tmp_path, {folder: make_config()}, overwrite=True):
        raise RunError("taken")
    assert not list(tmp_path.glob(PATTERN))
