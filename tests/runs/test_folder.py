"""Run folders: creating, saving, damage, killed processes, concurrent processes."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
import torch

from sdssm import files
from sdssm.errors import CheckpointWarning, RunError, RunWarning
from sdssm.runs import RunFolder, find_runs, group_by_resume_step
from tests.runs.configs import make_config

#: The number of no process: greater than the largest that Linux gives.
NO_PROCESS = 1 << 23


def tensors(step: int) -> dict[str, torch.Tensor]:
    return {"w": torch.full((50,), float(step)), "t": torch.tensor(step)}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", make_config())


def checkpoint_file(folder: RunFolder, step: int) -> Path:
    return folder.path / "checkpoints" / f"step-{step:09d}.safetensors"


def test_run_from_start_to_end(folder: RunFolder) -> None:
    assert (folder.status, folder.step, folder.checkpoints(), folder.events()) == ("running", 0, [], [])
    for step in (10, 20, 30):
        folder.log({"step": step, "loss": 1 / step})
        folder.save_checkpoint(step, tensors(step), seconds=step / 10, loss=1 / step, accuracy=99.5, device="CPU")
    assert folder.checkpoints() == [30, 20]
    folder.finish("finished")
    again = RunFolder.open(folder.path)
    assert again.config == folder.config == make_config()
    assert (again.status, again.step) == ("finished", 30)
    assert again.load_checkpoint().tensors["t"] == 30
    assert again.load_checkpoint(20).tensors["t"] == 20
    assert [event["step"] for event in again.events()] == [10, 20, 30]
    status = folder.read_json("status.json")
    assert status == {
        "status": "finished",
        "step": 30,
        "steps": folder.config.train.steps,
        "seconds": 3.0,
        "loss": 1 / 30,
        "accuracy": 99.5,
        "device": "CPU",
    }
    names = sorted(item.name for item in folder.path.iterdir())
    assert names == ["checkpoints", "config.json", "events.jsonl", "status.json"]


# -- damage ------------------------------------------------------------------------------------------------------------


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 4]) + data[-8:]


@pytest.mark.parametrize("damage", [truncate, flip, lambda _: b"", lambda data: data + b"\0"])
def test_damaged_checkpoint_is_skipped(folder: RunFolder, damage: Callable[[bytes], bytes]) -> None:
    folder.save_checkpoint(10, tensors(10))
    folder.save_checkpoint(20, tensors(20))
    newest, older = checkpoint_file(folder, 20), checkpoint_file(folder, 10)
    newest.write_bytes(damage(newest.read_bytes()))
    with pytest.warns(CheckpointWarning, match=r"step-000000020.safetensors is damaged: .*; using an older one"):
        assert folder.load_checkpoint().step == 10
    with pytest.raises(RunError, match="is damaged"):
        folder.load_checkpoint(20)
    older.write_bytes(damage(older.read_bytes()))
    with pytest.warns(CheckpointWarning), pytest.raises(RunError, match="every checkpoint of .* is damaged"):
        folder.load_checkpoint()


def test_checkpoint_with_the_name_of_another_step_is_refused(folder: RunFolder) -> None:
    folder.save_checkpoint(10, tensors(10))
    checkpoint_file(folder, 10).rename(checkpoint_file(folder, 90))
    with pytest.raises(RunError, match="is damaged: it is of step 10"):
        folder.load_checkpoint(90)


def test_missing_checkpoints(folder: RunFolder) -> None:
    with pytest.raises(RunError, match="has no checkpoint yet"):
        folder.load_checkpoint()
    folder.save_checkpoint(10, tensors(10))
    with pytest.raises(RunError, match="no checkpoint of step 5; there are 10"):
        folder.load_checkpoint(5)


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
def test_full_disk_leaves_the_last_checkpoint_intact(
    folder: RunFolder, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save_checkpoint(10, tensors(10))
    before = sorted(folder.path.rglob("*"))

    def full(*_: object, **__: object) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    with monkeypatch.context() as patch:
        if operation == "rename":
            patch.setattr(os, "replace", full)
        elif operation == "sync":
            patch.setattr(os, "fsync", full)
        else:
            patch.setattr(files, "_write_part", full)
        with pytest.raises(
            RunError, match="cannot write .*: the disk is full; all earlier checkpoints are intact"
        ) as error:
            folder.save_checkpoint(20, tensors(20))
    assert "\n" not in str(error.value)
    assert sorted(folder.path.rglob("*")) == before
    assert folder.load_checkpoint().step == 10
    folder.save_checkpoint(20, tensors(20))
    assert folder.checkpoints() == [20, 10]


def test_file_size_limit(folder: RunFolder) -> None:
    folder.save_checkpoint(10, tensors(10))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(RunError, match="cannot write .*File too large"):
            folder.save_checkpoint(20, {"w": torch.ones(5000)})
        with pytest.raises(RunError, match="cannot write"):
            folder.log({"step": 10, "text": "x" * 2000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert folder.load_checkpoint().step == 10
    assert folder.events() == []
    folder.log({"step": 11})
    assert folder.events() == [{"step": 11}]


# -- killed processes --------------------------------------------------------------------------------------------------

WRITER = """
import sys, torch
from sdssm.runs import RunFolder
folder = RunFolder.open(sys.argv[1])
step = folder.step
print("ready", flush=True)
while True:
    step += 1
    folder.log({"step": step, "text": "x" * 500})
    folder.save_checkpoint(step, {"w": torch.full((20_000,), float(step))})
"""


def test_kill_at_any_moment(folder: RunFolder) -> None:
    folder.finish("stopped")
    last = 0
    for delay in (0.0, 0.01, 0.05):
        command = [sys.executable, "-c", WRITER, str(folder.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        again = RunFolder.open(folder.path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a file that was being written is not visible
            if again.checkpoints():
                checkpoint = again.load_checkpoint()
                assert checkpoint.step in (again.step, again.step + 1)
                assert checkpoint.tensors["w"].eq(checkpoint.step).all()
                assert checkpoint.step >= last
                last = checkpoint.step
            assert all(event["text"] == "x" * 500 for event in again.events())
    again.log({"step": 10**6, "text": "after"})
    assert again.events()[-1]["text"] == "after"
    assert not list(again.path.rglob("*.part"))
    again.finish("stopped")


def exit_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit as after kill -9, just before or just after the call number `call` of those that change the disk."""
    calls = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            for after in (False, True):
                if calls == call:
                    os._exit(9)
                calls += 1
                if not after:
                    result = real(*arguments, **options)
            return result

        return wrapper

    for name in ("fsync", "open", "replace", "unlink", "mkdir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


def test_kill_at_every_moment_of_saving_a_checkpoint(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    for call in range(100):
        folder.rewind(0)
        for step in (10, 20):
            folder.save_checkpoint(step, tensors(step))
        child = os.fork()
        if child == 0:
            exit_at(call, monkeypatch)
            folder.save_checkpoint(30, tensors(30))
            os._exit(0)
        _, code = os.waitpid(child, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            steps.append(folder.load_checkpoint().step)
            assert folder.step in (20, 30)
            assert len(folder.checkpoints()) >= 2
        if code == 0:
            break
    assert len(steps) > 15
    assert steps == sorted(steps)
    assert set(steps) == {20, 30}


def test_only_leftovers_of_killed_writers_are_removed(folder: RunFolder) -> None:
    folder.finish("stopped")
    leftovers = ["config.json.7.part", "status.json.123.part", "checkpoints/step-000000020.safetensors.5.part"]
    leftovers.append(f"evaluation.json.{NO_PROCESS}.part")
    others = [
        "film.mkv.part",
        f"evaluation.json.{os.getpid()}.part",
        "notes.txt",
    ]  # an evaluation may be writing it now
    for name in (*leftovers, *others):
        (folder.path / "checkpoints").mkdir(exist_ok=True)
        (folder.path / name).write_text("half a fi")
    again = RunFolder.open(folder.path)
    assert again.checkpoints() == []
    assert all((folder.path / name).exists() for name in leftovers)  # reading changes nothing
    again.log({"step": 0})
    assert not any((folder.path / name).exists() for name in leftovers)
    assert all((folder.path / name).exists() for name in others)


def test_two_processes_cannot_train_in_one_folder(folder: RunFolder) -> None:
    command = [sys.executable, "-c", WRITER, str(folder.path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"another process trains in {folder.path}" in refused.stderr
    RunFolder.open(folder.path).log({"step": 1})  # the same process may
    folder.finish("stopped")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while folder.step == 0:
            time.sleep(0.01)
        assert not folder.is_interrupted
        with pytest.raises(RunError, match="another process trains"):
            folder.log({})
        with pytest.raises(RunError, match="another process trains"):
            RunFolder.create(folder.path, make_config(), overwrite=True)
        process.kill()
    assert folder.is_interrupted
    folder.log({"step": 0})
    assert not folder.is_interrupted


# -- events ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("incomplete", [b'{"step": 3, "lo', b"\0\0\0\0", b"\xff\xfe", b'{"step": 3}'])
def test_incomplete_last_line_is_ignored_and_then_removed(folder: RunFolder, incomplete: bytes) -> None:
    path = folder.path / "events.jsonl"
    for step in (1, 2):
        folder.log({"step": step})
    with path.open("ab") as file:
        file.write(incomplete)
    assert folder.events() == [{"step": 1}, {"step": 2}]
    folder.log({"step": 3})
    assert [json.loads(line)["step"] for line in path.read_bytes().splitlines()] == [1, 2, 3]


def test_incomplete_first_line_is_ignored(folder: RunFolder) -> None:
    (folder.path / "events.jsonl").write_bytes(b'{"st')
    assert folder.events() == []
    folder.log({"step": 1})
    assert folder.events() == [{"step": 1}]


def test_damaged_line_is_ignored(folder: RunFolder) -> None:
    (folder.path / "events.jsonl").write_bytes(b'{"step": 1}\nnonsense\n[5]\n{"step": 2}\n')
    with pytest.warns(RunWarning, match="line [23] of .* is damaged; ignored") as warned:
        assert folder.events() == [{"step": 1}, {"step": 2}]
    assert len(warned) == 2


def test_numbers_that_are_not_finite_become_null(folder: RunFolder) -> None:
    folder.log({"step": 1, "loss": math.nan, "norms": [1.0, math.inf], "rate": torch.tensor([0.5, math.nan])})
    assert folder.events() == [{"step": 1, "loss": None, "norms": [1.0, None], "rate": [0.5, None]}]
    folder.save_checkpoint(1, tensors(1), loss=math.nan)
    assert folder.progress.loss is None
    folder.write_json("evaluation.json", {"accuracy": [math.nan, 50.0]})
    assert folder.read_json("evaluation.json") == {"accuracy": [None, 50.0]}


def test_rewind_removes_all_that_is_later_than_a_step(folder: RunFolder) -> None:
    folder.log({"text": "started"})
    for step in (10, 20):
        folder.log({"step": step})
        folder.save_checkpoint(step, tensors(step))
    folder.log({"step": 25})
    folder.write_json("evaluation.json", {})
    folder.write_model(b"weights")
    folder.finish("stopped")
    folder.rewind(10)
    assert folder.events() == [{"text": "started"}, {"step": 10}]
    assert folder.checkpoints() == [10]
    assert (folder.status, folder.step) == ("running", 10)
    assert folder.read_json("evaluation.json") is None
    assert not (folder.path / "model.safetensors").exists()


# -- creating and opening ----------------------------------------------------------------------------------------------


def test_existing_run_is_replaced_only_with_overwrite(folder: RunFolder) -> None:
    folder.log({"step": 1})
    folder.save_checkpoint(1, tensors(1))
    folder.write_json("evaluation.json", {})
    notes = folder.path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(RunError, match="already holds a run; continue it with resume=True or replace it with overwr"):
        RunFolder.create(folder.path, make_config())
    new = RunFolder.create(folder.path, make_config(seed=5), overwrite=True)
    assert (new.events(), new.checkpoints(), new.step) == ([], [], 0)
    assert RunFolder.open(folder.path).config == make_config(seed=5)
    assert new.read_json("evaluation.json") is None
    assert notes.read_text() == "mine"


def test_folders_of_other_programs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    for overwrite in (False, True):
        with pytest.raises(RunError, match="holds files but no run; choose an empty or a new folder"):
            RunFolder.create(tmp_path, make_config(), overwrite=overwrite)
    (tmp_path / "config.json").write_text('{"theme": "dark"}')
    with pytest.raises(RunError, match="is not a run folder: its config.json is not that of a run"):
        RunFolder.create(tmp_path, make_config(), overwrite=True)
    assert (tmp_path / "config.json").read_text() == '{"theme": "dark"}'
    with pytest.raises(RunError, match="cannot write .*Not a directory"):
        RunFolder.create(tmp_path / "thesis.tex", make_config())
    with pytest.raises(RunError, match="cannot write"):
        RunFolder.create(tmp_path / "thesis.tex" / "run", make_config())


def test_create_after_a_killed_creation(tmp_path: Path) -> None:
    (tmp_path / "config.json.77.part").write_text("{")
    folder = RunFolder.create(tmp_path, make_config())
    assert not list(tmp_path.glob("*.part"))
    (tmp_path / "status.json").unlink()  # killed just before it was written
    assert (folder.status, folder.step) == ("running", 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a run folder: it has no config.json"),
        ("{", "config.json is damaged: it is not JSON"),
        ("[" * 100_000, "config.json is damaged: it is not JSON"),
        ("[]", "is not a run folder: its config.json is not that of a run"),
        ('{"model": 1}', "is not a run folder: its config.json is not that of a run"),
        (
            '{"format": 9, "versions": {"sdssm": "3.2.1"}}',
            "was written by sdssm 3.2.1 in format 9; this version reads formats up to 1: install a newer sdssm",
        ),
        ('{"format": 9}', "was written by another sdssm in format 9"),
        ('{"format": 1, "nonsense": 3}', "config.json: "),
        ('{"format": 1}', "config.json: "),
    ],
)
def test_folders_without_a_run_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(RunError) as error:
        RunFolder.open(tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_folders_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", Path("a\0b")):
        with pytest.raises(RunError):
            RunFolder.open(path)
        with pytest.raises(RunError):
            find_runs(path)
    with pytest.raises(RunError, match="there is no run folder in .* or below; sdssm train TASK --out DIR makes one"):
        find_runs(tmp_path)


def test_only_results_are_written_as_json(folder: RunFolder) -> None:
    with pytest.raises(RunError, match="'config.json' is not a file for results"):
        folder.write_json("config.json", {})


# -- many runs ---------------------------------------------------------------------------------------------------------


def test_find_runs(tmp_path: Path) -> None:
    for name in ("a5/seed-10", "a5/seed-2", "parity/seed-0"):
        RunFolder.create(tmp_path / name, make_config())
    (tmp_path / "empty").mkdir()
    names = [str(run.path.relative_to(tmp_path)) for run in find_runs(tmp_path)]
    assert names == ["a5/seed-2", "a5/seed-10", "parity/seed-0"]
    assert [run.path for run in find_runs(tmp_path / "parity" / "seed-0")] == [tmp_path / "parity" / "seed-0"]
    (tmp_path / "parity" / "seed-0" / "config.json").write_text("{")
    with pytest.warns(RunWarning, match="is damaged: it is not JSON; left out"):
        assert len(find_runs(tmp_path)) == 2


def test_runs_side_by_side_resume_from_a_shared_step(tmp_path: Path) -> None:
    runs = [RunFolder.create(tmp_path / f"seed-{seed}", make_config(seed)) for seed in range(3)]
    assert group_by_resume_step(runs) == [(0, runs)]
    for run in runs:
        run.save_checkpoint(10, tensors(10))
    runs[0].save_checkpoint(20, tensors(20))
    assert group_by_resume_step(runs) == [(10, runs)]
    for run in runs:
        run.save_checkpoint(20, tensors(20))
    assert group_by_resume_step(runs) == [(20, runs)]
    checkpoint_file(runs[1], 20).write_bytes(b"")
    with pytest.warns(CheckpointWarning, match="the file is empty"):
        assert group_by_resume_step(runs) == [(10, runs)]
    runs[2].rewind(10)
    runs[2].save_checkpoint(15, tensors(15))
    runs[2].save_checkpoint(16, tensors(16))
    with pytest.warns(CheckpointWarning):  # no shared step: each from its own newest checkpoint
        assert group_by_resume_step(runs) == [(10, [runs[1]]), (16, [runs[2]]), (20, [runs[0]])]
    checkpoint_file(runs[1], 10).write_bytes(b"")
    with pytest.warns(CheckpointWarning), pytest.raises(RunError, match="every checkpoint of .*seed-1 is damaged"):
        group_by_resume_step(runs)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '{"mood": "good"}',
        '{"steps": "x"}',
        '{"steps": 5, "loss": "x"}',
        '{"steps": 5, "status": "bogus"}',
    ],
)
def test_damaged_status(tmp_path: Path, text: str) -> None:
    run = RunFolder.create(tmp_path, make_config())
    run.save_checkpoint(10, tensors(10))
    (tmp_path / "status.json").write_text(text)
    with pytest.warns(RunWarning, match="status.json is damaged; using the other files of the run instead"):
        assert (run.progress.status, run.progress.step) == ("running", 10)


@pytest.mark.parametrize(
    ("name", "value"),
    [("task", 5), ("train_length", None), ("n_symbols", "x"), ("preset", 5), ("seed", 1.5), ("versions", 3)],
)
def test_config_with_an_invalid_value_is_refused(tmp_path: Path, name: str, value: object) -> None:
    RunFolder.create(tmp_path, make_config())
    data = json.loads((tmp_path / "config.json").read_text())
    del data["checksum"]  # edited on purpose
    (tmp_path / "config.json").write_text(json.dumps({**data, name: value}))
    with pytest.raises(RunError, match="config"):
        RunFolder.open(tmp_path)


def test_check_free_creates_no_folder(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "seed-1", make_config(1))
    with pytest.raises(RunError, match="seed-1 already holds a run"):
        for seed in (0, 1):
            RunFolder.check_free(tmp_path / f"seed-{seed}")
    RunFolder.check_free(tmp_path / "seed-1", overwrite=True)
    assert [item.name for item in tmp_path.iterdir()] == ["seed-1"]


def test_progress_between_checkpoints(tmp_path: Path) -> None:
    """The progress is newer than the last checkpoint, from which the run resumes."""
    run = RunFolder.create(tmp_path / "run", make_config())
    run.save_checkpoint(20, {"w": torch.ones(2)}, seconds=2.0, loss=1.0, accuracy=50.0)
    run.log({"step": 20, "seconds": 1.9})
    run.log({"step": 30, "seconds": 3.1})
    run.write_progress(35, seconds=3.5, loss=0.5, accuracy=80.0, device="CPU")
    assert (run.progress.step, run.progress.accuracy, run.step) == (35, 80.0, 20)
    run.rewind(20)  # as after a kill
    assert (run.progress.step, run.progress.seconds, run.step) == (20, 1.9, 20)
    run.write_progress(25, seconds=3.0, loss=0.5, accuracy=80.0, device="CPU")
    run.finish("diverged")  # the weights of the last checkpoint remain
    assert (run.progress.step, run.step, run.status) == (20, 20, "diverged")
