from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sdssm.cli import main
from sdssm.files import write_atomic
from sdssm.runs import RunFolder, find_runs
from tests.programs import run_command
from tests.programs import run_without

#: A training of a second or so.
SMALL = ["--batch", "8", "--device", "cpu", "--set", "state=8", "dictionary=4", "checkpoint_every=20", "log_every=10"]
SDSSM = [sys.executable, "-m", "sdssm"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weights(path: str) -> dict[str, torch.Tensor]:
    return RunFolder.open(path).load_checkpoint().tensors


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


# -- training ----------------------------------------------------------------------------------------------------------


def test_from_nothing_to_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "train", "parity", "--seeds", "2", "--steps", "40", *SMALL)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    progress, table = out[: out.index("accuracy %")], out[out.index("accuracy %") :]
    assert re.search(r"^step 40 of 40, .*: accuracy .* %, loss ", progress, re.MULTILINE)
    rows = [line.split() for line in table.splitlines()]
    assert [row[-1] for row in rows[1:3]] == ["runs/parity/seed-0", "runs/parity/seed-1"]
    assert [row[2] for row in rows[1:3]] == ["40", "40"]
    assert out.endswith("sdssm evaluate runs/parity\n")
    config = RunFolder.open("runs/parity/seed-1").config
    assert (config.seed, config.model.mixer.state, config.train.batch) == (1, 8, 8)


def test_tasks_seeds_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--seeds", "5,3", "--lr", "1e-4", "--train-length", "9", "--steps", "20", "--quiet"]
    code, out, _ = run_command(capsys, "train", "parity", "even_pairs", *options, *SMALL)
    assert code == 0
    assert out.startswith("accuracy %")
    runs = find_runs("runs/parity+even_pairs")
    assert {str(one.path) for one in runs} == {
        f"runs/parity+even_pairs/{task}/seed-{seed}" for task in ("parity", "even_pairs") for seed in (3, 5)
    }
    assert {one.status for one in runs} == {"finished"}
    assert {(one.config.train.lr, one.config.train_length) for one in runs} == {(1e-4, 9)}


def test_a_run_is_not_overwritten_by_accident(capsys: pytest.CaptureFixture[str]) -> None:
    again = ["train", "parity", "--steps", "20", "--quiet", *SMALL]
    assert run_command(capsys, *again)[0] == 0
    before = weights("runs/parity/seed-0")
    code, out, err = run_command(capsys, *again)
    assert (code, out) == (2, "")
    assert err == (
        "sdssm: runs/parity/seed-0 holds a run already; go on with --resume or start anew with --overwrite\n"
    )
    assert run_command(capsys, *again, "--resume")[0] == 0
    assert run_command(capsys, *again, "--overwrite")[0] == 0
    assert same(weights("runs/parity/seed-0"), before)


# -- stopping and going on ---------------------------------------------------------------------------------------------


def interrupted(*arguments: str, when: Callable[[], bool], how: signal.Signals) -> tuple[int, str]:
    """The exit code and errors of a training that gets a signal."""
    with subprocess.Popen(
        [*SDSSM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not when():
            time.sleep(0.01)
        process.send_signal(how)
        _, err = process.communicate(timeout=60)
    return process.returncode, err


def reached(path: str, step: int) -> Callable[[], bool]:
    return lambda: any(int(file.stem[5:]) >= step for file in Path(path).glob("checkpoints/step-*.safetensors"))


LONGER = ["train", "parity", "--seeds", "2", "--steps", "400", *SMALL]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same training that nothing disturbed."""
    path = tmp_path_factory.mktemp("uninterrupted")
    assert main([*LONGER, "--quiet", "--out", str(path)]) == 0
    return path


def assert_same(name: str, other: Path) -> None:
    for seed in ("seed-0", "seed-1"):
        assert same(weights(f"{name}/{seed}"), weights(str(other / seed)))
        logs = [RunFolder.open(path).events() for path in (f"{name}/{seed}", other / seed)]
        assert logs[0] != []
        assert [{**event, "seconds": 0} for event in logs[0]] == [{**event, "seconds": 0} for event in logs[1]]


def test_ctrl_c_stops_and_resume_goes_on(capsys: pytest.CaptureFixture[str], uninterrupted: Path) -> None:
    code, err = interrupted(*LONGER, "--out", "a", when=reached("a/seed-0", 20), how=signal.SIGINT)
    assert code == 130
    found = re.fullmatch(r"sdssm: stopped at step ([\d,]+); sdssm train --resume a goes on\n", err)
    assert found, err
    stopped = RunFolder.open("a/seed-1")
    assert stopped.status == "stopped"
    assert 20 <= stopped.step == int(found[1].replace(",", "")) < 400
    code, out, err = run_command(capsys, "train", "--resume", "a")
    assert (code, err) == (0, "")
    assert out.endswith("sdssm evaluate a\n")
    assert_same("a", uninterrupted)
    code, out, _ = run_command(capsys, "train", "--resume", "a")
    assert (code, out) == (0, "Nothing to do: none of the 2 runs in a is unfinished.\n")


def test_killed_and_resumed_twice(capsys: pytest.CaptureFixture[str], uninterrupted: Path) -> None:
    interrupted(*LONGER, "--quiet", "--out", "a", when=reached("a/seed-0", 20), how=signal.SIGKILL)
    assert RunFolder.open("a/seed-0").interrupted
    newest = RunFolder.open("a/seed-0").checkpoints()[0]
    interrupted("train", "--resume", "a", "--quiet", when=reached("a/seed-0", newest + 40), how=signal.SIGKILL)
    folder = RunFolder.open("a/seed-0")
    newest = folder.checkpoints()[0]
    damaged = folder.path / "checkpoints" / f"step-{newest:09d}.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    code, _, err = run_command(capsys, "train", "--resume", "a", "--quiet")
    assert code == 0
    assert err.startswith("sdssm: warning: the checkpoint a/seed-0/checkpoints/step-")
    assert err.count("\n") == 1
    assert_same("a", uninterrupted)


def test_a_full_disk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full_at_40(path: Path, data: bytes) -> None:
        if "000000040" in path.name:
            raise OSError(28, "No space left on device")
        write_atomic(path, data)

    monkeypatch.setattr("sdssm.runs.folder.write_whole", full_at_40)
    code, out, err = run_command(capsys, "train", "parity", "--steps", "60", "--quiet", *SMALL)
    assert (code, out) == (2, "")
    assert "step-000000040.safetensors: the disk is full; what was saved before is whole" in err
    assert err.count("\n") == 1
    monkeypatch.setattr("sdssm.runs.folder.write_whole", write_atomic)
    assert RunFolder.open("runs/parity/seed-0").load_checkpoint().step == 20
    assert run_command(capsys, "train", "--resume", "runs/parity", "--quiet")[0] == 0


# -- where it is shown -------------------------------------------------------------------------------------------------


def test_on_a_terminal_there_is_a_live_table() -> None:
    command = [*SDSSM, "train", "parity", "--seeds", "2", "--steps", "60", *SMALL]
    reader, writer = pty.openpty()
    with subprocess.Popen(command, stdout=writer, env=os.environ | {"TERM": "xterm", "COLUMNS": "100"}) as process:
        os.close(writer)
        shown = b""
        while True:
            try:
                piece = os.read(reader, 4096)
            except OSError:  # Linux ends a closed terminal so
                break
            if not piece:
                break
            shown += piece
    os.close(reader)
    text = shown.decode()
    assert process.returncode == 0
    assert "\x1b[2K" in text  # lines are drawn again
    assert "of 60" in text
    assert text.index("seed-1") < text.rindex("sdssm evaluate runs/parity")


def test_a_reader_that_goes_away_does_not_end_the_training() -> None:
    line = " ".join([*SDSSM, "train", "parity", "--steps", "60", *SMALL, "| true"])
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert RunFolder.open("runs/parity/seed-0").status == "finished"


def test_without_rich_and_without_tensorboard() -> None:
    code = f"""
from sdssm.cli import main
assert main(["train", "parity", "--steps", "20", *{SMALL}]) == 0
assert main(["train", "parity", "--steps", "20", "--tensorboard", "--out", "board", *{SMALL}]) == 2
"""
    assert "accuracy" in run_without({"rich", "tensorboard"}, code)
    assert not Path("board").exists()


def test_tensorboard(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    again = ["train", "parity", "--steps", "20", "--tensorboard", "--quiet", *SMALL]
    assert run_command(capsys, *again)[0] == 0
    assert len(list(Path("runs/parity/seed-0").glob("events.out.tfevents.*"))) == 1
    assert run_command(capsys, *again, "--overwrite")[0] == 0
    assert len(list(Path("runs/parity/seed-0").glob("events.out.tfevents.*"))) == 1


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no task was given; as in sdssm train a5, or sdssm train --resume DIR"),
        (["parety"], "no machine is called 'parety'; did you mean 'parity'?"),
        (["parity", "--preset", "papre"], "there is no preset 'papre'; did you mean 'paper'?"),
        (["s5", "--preset", "paper"], "preset 'paper' has no settings for sd-ssm on s5"),
        (["parity", "--model", "mambo"], "there is no model 'mambo'; did you mean 'mamba'?"),
        (["parity", "--set", "stat=3"], "there is no setting 'stat'; did you mean 'state'"),
        (["parity", "--set", "state"], "--set 'state' has no value; write NAME=VALUE"),
        (["parity", "--set", "=3"], "--set '=3' has no value; write NAME=VALUE"),
        (["parity", "--set", "state=small"], "state is 'small'; it must be a whole number"),
        (["parity", "--set", "state=2.5"], "state is 2.5; it must be a whole number"),
        (["parity", "--lr", "1e-3", "--set", "lr=1e-4"], "lr is set twice; keep one of them"),
        (["parity", "--steps", "0"], "steps is 0; it must be at least 1"),
        (["parity", "--steps", "many"], "steps is 'many'; it must be a whole number"),
        (["parity", "--steps", "none"], "steps is None; it must be a whole number"),
        (["parity", "--lr", "nan"], "lr is nan; it must be a finite number"),
        (["parity", "--seeds", "0"], "'0' is neither a number of seeds, as 3, nor a list, as 0,1,5"),
        (["parity", "--seeds", "a"], "'a' is neither a number of seeds, as 3, nor a list, as 0,1,5"),
        (["parity", "--seeds", "1,1"], "'1,1' holds a seed twice; keep one of them"),
        (["parity", "--device", "gpu"], "there is no device 'gpu'; choose auto, cpu, cuda or cuda:1"),
        (["parity", "--resume", "a", "--out", "b"], "--resume says a and --out b; keep one of them"),
        (["parity", "--resume", "--overwrite"], "leave one of them out"),
        (["--resume", "nowhere"], "there is no folder nowhere"),
        (["--resume", "full"], "there is no run folder in full or below"),
        (["--resume", "full", "--lr", "1"], "--resume goes on as it began, but lr was given"),
        (["--resume", "full", "--seeds", "2"], "--resume goes on as it began, but seeds was given"),
        (["parity", "--out", "full/note"], "cannot write full/note/seed-0: Not a directory"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    Path("full").mkdir()
    Path("full/note").touch()
    code, out, err = run_command(capsys, "train", *arguments)
    assert (code, out) == (2, ""), err
    assert message in err
    assert err.count("\n") == 1
    assert [item.name for item in folder.iterdir()] == ["full"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, err = run_command(capsys, "train", "parity", "--device", "cuda")
    assert (code, out) == (2, "")
    assert "cuda was asked for, but torch sees no GPU here" in err
    assert err.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_a_task_that_changed_since(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.json").write_text('{"table": [[0, 1], [1, 0]]}')
    code, _, err = run_command(capsys, "train", "my.json", "--steps", "40", "--quiet", "--out", "mine", *SMALL)
    assert code == 0, err
    folder = RunFolder.open("mine/seed-0")
    folder.forget_after(20)
    folder.finish("stopped")
    Path("my.json").write_text('{"table": [[1, 1], [1, 0]]}')
    code, out, err = run_command(capsys, "train", "--resume", "mine")
    assert (code, out) == (2, "")
    assert "changed since" in err
    assert err.count("\n") == 1
