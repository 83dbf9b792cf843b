"""`sdssm train`, run as a command: output, interruptions, terminals, errors."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sdssm.cli import main
from sdssm.errors import TaskError
from sdssm.files import write_atomic
from sdssm.runs import RunFolder, find_runs
from sdssm.training import train
from tests.programs import SDSSM, run_command, run_on_terminal, run_without

#: Settings of a training that takes about a second.
SMALL = ["--batch", "8", "--device", "cpu", "--set", "state=8", "dictionary=4", "checkpoint_every=20", "log_every=10"]
IN_PARITY = ["--out", "runs/parity"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_weights(path: str) -> dict[str, torch.Tensor]:
    return RunFolder.open(path).load_checkpoint().tensors


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


# -- training ----------------------------------------------------------------------------------------------------------


def test_progress_and_table_of_a_training(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "train", "parity", "--seeds", "2", "--steps", "40", *IN_PARITY, *SMALL)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    progress, table = out[: out.index("balanced %")], out[out.index("balanced %") :]
    values = r"accuracy min \d+\.\d\d, median \d+\.\d\d, max \d+\.\d\d % \(best constant 50\), median loss \d"
    assert re.search(rf"^step 40 of 40.*: {values}", progress, re.MULTILINE)
    rows = [line.split() for line in table.splitlines()]
    assert [row[-1] for row in rows[1:3]] == ["runs/parity/seed-0", "runs/parity/seed-1"]
    assert [(row[1], row[3]) for row in rows[1:3]] == [("50", "50")] * 2  # chance, best constant
    assert [row[5] for row in rows[1:3]] == ["40", "40"]
    assert out.endswith("sdssm evaluate runs/parity\n")
    config = RunFolder.open("runs/parity/seed-1").config
    assert (config.seed, config.model.mixer.state, config.train.batch) == (1, 8, 8)


def test_the_state_size_that_was_chosen_is_printed_and_stored(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--steps", "1", "--batch", "2", "--train-length", "10", "--device", "cpu"]
    code, out, _ = run_command(capsys, "train", "parity", "random:60x2:0", "--state", "auto", *tiny)
    assert code == 0
    assert [line for line in out.splitlines() if ": state=" in line] == [
        "parity: state=64 (auto): the smallest that auto chooses; enough for 2 states",
        "random:60x2:0: state=128 (auto): at least 1.2 times the label rank, which is 60, for 60 states",
    ]
    sizes = {run.config.task: run.config.model.mixer.state for run in find_runs("runs")}
    assert sizes == {"parity": 64, "random:60x2:0": 128}
    _, out, _ = run_command(capsys, "train", "parity", "--state", "8", *tiny)
    assert ": state=" not in out


def test_quiet_training_of_several_tasks_and_seeds_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--out",
        "runs/parity+even_pairs",
        "--seeds",
        "5,3",
        "--lr",
        "1e-4",
        "--train-length",
        "9",
        "--steps",
        "20",
        "--quiet",
    ]
    code, out, _ = run_command(capsys, "train", "parity", "even_pairs", *options, *SMALL)
    assert code == 0
    assert re.fullmatch(
        r"4 runs in runs/parity\+even_pairs: 4 finished; "
        r"balanced accuracy at training lengths: mean [\d.]+ %, min [\d.]+ %, balanced chance [\d. to]+ %; "
        r"accuracy of the last steps: mean [\d.]+ %, min [\d.]+ %, best constant answer [\d. to]+ %\n",
        out,
    )
    runs = find_runs("runs/parity+even_pairs")
    assert {str(run.path) for run in runs} == {
        f"runs/parity+even_pairs/{task}/seed-{seed}" for task in ("parity", "even_pairs") for seed in (3, 5)
    }
    assert {run.status for run in runs} == {"finished"}
    assert {(run.config.train.lr, run.config.train_length) for run in runs} == {(1e-4, 9)}


def test_runs_are_not_overwritten_without_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    again = ["train", "parity", "--steps", "20", "--quiet", *IN_PARITY, *SMALL]
    assert run_command(capsys, *again)[0] == 0
    before = load_weights("runs/parity/seed-0")
    code, out, err = run_command(capsys, *again)
    assert (code, out) == (2, "")
    assert err == (
        "sdssm: runs/parity/seed-0 already holds a run; continue it with --resume or replace it with --overwrite\n"
    )
    assert run_command(capsys, *again, "--resume")[0] == 0
    assert run_command(capsys, *again, "--overwrite")[0] == 0
    assert equal(load_weights("runs/parity/seed-0"), before)


def test_the_default_folder_carries_preset_and_settings_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """So that two trainings of one task do not collide, and the same command finds its runs again."""
    tiny = ["--steps", "1", "--batch", "2", "--train-length", "3", "--device", "cpu", "--quiet"]
    first, second = ["train", "parity", *tiny], ["train", "parity", "--preset", "paper", *tiny]
    for command, folder in (
        (first, "runs/parity-batch=2-steps=1-train_length=3"),
        (second, "runs/parity-paper-batch=2"),
    ):
        code, out, err = run_command(capsys, *command)
        assert (code, err) == (0, "")
        assert out.startswith(f"1 run in {folder}")
    code, out, err = run_command(capsys, *second, "--resume")
    assert (code, err) == (0, "")
    code, out, err = run_command(capsys, *second)
    assert code == 2 and "already holds a run; continue it with --resume or replace it with --overwrite" in err
    assert len(list(Path("runs").iterdir())) == 2


# -- interrupting and resuming------------------------------------------------------------------------------------------


def interrupt(*arguments: str, when: Callable[[], bool], how: signal.Signals) -> tuple[int, str]:
    """Send a signal to a training as soon as `when` is true; return the exit code and standard error."""
    with subprocess.Popen(
        [*SDSSM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not when():
            time.sleep(0.01)
        process.send_signal(how)
        _, err = process.communicate(timeout=60)
    return process.returncode, err


def has_reached(path: str, step: int) -> Callable[[], bool]:
    return lambda: any(int(file.stem[5:]) >= step for file in Path(path).glob("checkpoints/step-*.safetensors"))


LONGER = ["train", "parity", "--seeds", "2", "--steps", "400", *SMALL]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same training without an interruption."""
    path = tmp_path_factory.mktemp("uninterrupted")
    assert main([*LONGER, "--quiet", "--out", str(path)]) == 0
    return path


def assert_identical(name: str, other: Path) -> None:
    for seed in ("seed-0", "seed-1"):
        assert equal(load_weights(f"{name}/{seed}"), load_weights(str(other / seed)))
        logs = [RunFolder.open(path).events() for path in (f"{name}/{seed}", other / seed)]
        assert logs[0] != []
        assert [{**event, "seconds": 0} for event in logs[0]] == [{**event, "seconds": 0} for event in logs[1]]


def test_resume_after_ctrl_c_is_identical_to_an_uninterrupted_training(
    capsys: pytest.CaptureFixture[str], uninterrupted: Path
) -> None:
    code, err = interrupt(*LONGER, "--out", "a", when=has_reached("a/seed-0", 20), how=signal.SIGINT)
    assert code == 130
    match = re.fullmatch(r"sdssm: stopped at step ([\d,]+); to continue: sdssm train --resume a\n", err)
    assert match, err
    stopped = RunFolder.open("a/seed-1")
    assert stopped.status == "stopped"
    assert 20 <= stopped.step == int(match[1].replace(",", "")) < 400
    code, out, err = run_command(capsys, "train", "--resume", "a")
    assert (code, err) == (0, "")
    assert out.endswith("sdssm evaluate a\n")
    assert_identical("a", uninterrupted)
    code, out, _ = run_command(capsys, "train", "--resume", "a")
    assert (code, out) == (0, "Nothing to do: all 2 runs in a have ended.\n")


def test_resume_twice_after_sigkill_and_with_a_damaged_checkpoint(
    capsys: pytest.CaptureFixture[str], uninterrupted: Path
) -> None:
    interrupt(*LONGER, "--quiet", "--out", "a", when=has_reached("a/seed-0", 20), how=signal.SIGKILL)
    assert RunFolder.open("a/seed-0").is_interrupted
    newest = RunFolder.open("a/seed-0").checkpoints()[0]
    interrupt("train", "--resume", "a", "--quiet", when=has_reached("a/seed-0", newest + 40), how=signal.SIGKILL)
    folder = RunFolder.open("a/seed-0")
    newest = folder.checkpoints()[0]
    damaged = folder.path / "checkpoints" / f"step-{newest:09d}.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    code, _, err = run_command(capsys, "train", "--resume", "a", "--quiet")
    assert code == 0
    assert err.startswith("sdssm: warning: the checkpoint a/seed-0/checkpoints/step-")
    assert err.count("\n") == 1
    assert_identical("a", uninterrupted)


def test_a_full_disk_keeps_the_last_checkpoint(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_at_40(path: Path, data: bytes, *, durable: bool = True, is_real_folder: bool = False) -> None:
        if "000000040" in path.name:
            raise OSError(28, "No space left on device")
        write_atomic(path, data, durable=durable, is_real_folder=is_real_folder)

    monkeypatch.setattr("sdssm.runs.folder.write_atomic", full_at_40)
    code, out, err = run_command(capsys, "train", "parity", "--steps", "60", "--quiet", *IN_PARITY, *SMALL)
    assert (code, out) == (2, "")
    assert "step-000000040.safetensors: the disk is full; all earlier checkpoints are intact" in err
    assert err.count("\n") == 1
    monkeypatch.setattr("sdssm.runs.folder.write_atomic", write_atomic)
    assert RunFolder.open("runs/parity/seed-0").load_checkpoint().step == 20
    assert run_command(capsys, "train", "--resume", "runs/parity", "--quiet")[0] == 0


# -- where it prints ---------------------------------------------------------------------------------------------------


def test_a_terminal_shows_a_live_table() -> None:
    code, shown = run_on_terminal("train", "parity", "--seeds", "2", "--steps", "60", *IN_PARITY, *SMALL)
    assert code == 0
    assert "\x1b[2K" in shown  # lines are drawn again
    assert "of 60" in shown
    assert shown.index("seed-1") < shown.rindex("sdssm evaluate runs/parity")


def test_a_closed_pipe_does_not_end_the_training() -> None:
    line = " ".join([*SDSSM, "train", "parity", "--steps", "60", *IN_PARITY, *SMALL, "| true"])
    process = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
    assert process.stderr == ""
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
    again = ["train", "parity", "--steps", "20", "--tensorboard", "--quiet", *IN_PARITY, *SMALL]
    assert run_command(capsys, *again)[0] == 0
    assert len(list(Path("runs/parity/seed-0").glob("events.out.tfevents.*"))) == 1
    assert run_command(capsys, *again, "--overwrite")[0] == 0
    assert len(list(Path("runs/parity/seed-0").glob("events.out.tfevents.*"))) == 1


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no task was given; name one, as in sdssm train a5, or use sdssm train --resume DIR"),
        (["parety"], "is called 'parety'; did you mean 'parity'?"),
        (["parity", "--preset", "papre"], "there is no preset 'papre'; did you mean 'paper'?"),
        (["s5", "--preset", "paper"], "preset 'paper' has no settings for sd-ssm on s5"),
        (["parity", "--model", "mambo"], "there is no model 'mambo'; did you mean 'mamba'?"),
        (["parity", "--set", "stat=3"], "there is no setting 'stat'; did you mean 'state'"),
        (["parity", "--set", "state"], "--set 'state' has no value; write NAME=VALUE"),
        (["parity", "--set", "=3"], "--set '=3' has no value; write NAME=VALUE"),
        (["parity", "--set", "state=small"], "state is 'small'; it must be a whole number"),
        (["parity", "--set", "state=2.5"], "state is 2.5; it must be a whole number"),
        (["parity", "--lr", "1e-3", "--set", "lr=1e-4"], "lr is set twice; keep one of them"),
        (["parity", "--steps", "0"], "steps is 0; it must be from 1 to"),
        (["parity", "--steps", "many"], "steps is 'many'; it must be a whole number"),
        (["parity", "--steps", "none"], "steps is None; it must be a whole number"),
        (["parity", "--lr", "nan"], "lr is nan; it must be a finite number"),
        (["parity", "--seeds", "0"], "'0' is neither a number of seeds, such as 3, nor a list of seeds, such as 0,1,5"),
        (["parity", "--seeds", "a"], "'a' is neither a number of seeds, such as 3, nor a list of seeds, such as 0,1,5"),
        (["parity", "--seeds", "1,1"], "'1,1' has a seed twice; keep one of them"),
        (["paritty"], "is called 'paritty'; did you mean 'parity'?"),
        (["parity", "--step", "10"], "sdssm train: there is no option --step; did you mean --steps?"),
        (["parity", "--step=10"], "sdssm train: there is no option --step; did you mean --steps?"),
        (
            ["parity", "--train_length", "10"],
            "sdssm train: there is no option --train_length; did you mean --train-length",
        ),
        (["parity", "--device", "gpu"], "there is no device 'gpu'; did you mean 'cuda'?"),
        (["parity", "--device", "mps"], "there is no device 'mps'; choose auto, cpu, cuda or cuda:1"),
        (["parity", "--resume", "a", "--out", "b"], "--resume is a, but --out is b; keep one of them"),
        (
            ["parity", "--resume", "--overwrite"],
            "--resume continues runs and --overwrite replaces them; leave one of them out",
        ),
        (["parity", "--out", "."], "--out is the current folder; name a folder for the runs, as in --out runs/a5"),
        (
            ["--resume", "nowhere"],
            "there is no folder nowhere, and no folder runs yet; sdssm train parity --steps 400 makes one",
        ),
        (["--resume", "fulll"], "there is no folder fulll; did you mean full?"),
        (["--resume", "fulll/note"], "there is no folder fulll/note; did you mean full/note?"),
        (["full/node"], "is called 'full/node'"),
        (["full/note.dot"], "cannot read full/note.dot: No such file or directory; did you mean full/note?"),
        (["--resume", "full"], "there is no run folder in full or below"),
        (["--resume", "full", "--lr", "1"], "--resume keeps the settings of the runs, but --lr was given"),
        (["--resume", "full", "--seeds", "2"], "--resume keeps the settings of the runs, but --seeds was given"),
        (["parity", "--out", "full/note"], "cannot write full/note: Not a directory"),
    ],
)
def test_bad_input_is_one_line_and_creates_nothing(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    Path("full").mkdir()
    Path("full/note").touch()
    code, out, err = run_command(capsys, "train", *arguments)
    assert (code, out) == (2, ""), err
    assert message in err
    assert err.count("\n") == 1
    assert [item.name for item in folder.iterdir()] == ["full"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_an_error(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, err = run_command(capsys, "train", "parity", "--device", "cuda")
    assert (code, out) == (2, "")
    assert "cuda was requested, but torch sees no GPU here" in err
    assert err.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_resuming_uses_the_stored_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """A run folder opens nothing outside of itself; a file that the user names is compared with it."""
    Path("my.json").write_text('{"table": [[0, 1], [1, 0]]}')
    code, _, err = run_command(capsys, "train", "my.json", "--steps", "40", "--quiet", "--out", "mine", *SMALL)
    assert code == 0, err
    folder = RunFolder.open("mine/seed-0")
    folder.rewind(20)
    folder.finish("stopped")
    Path("my.json").write_text('{"table": [[1, 1], [1, 0]]}')
    code, out, err = run_command(capsys, "train", "my.json", "--steps", "40", "--resume", "--out", "mine", *SMALL)
    assert (code, out) == (2, "") and err.count("\n") == 1
    Path("my.json").unlink()
    code, _, err = run_command(capsys, "train", "--resume", "mine", "--quiet")
    assert code == 0, err
    assert RunFolder.open("mine/seed-0").status == "finished"


def test_a_dry_run_prints_the_facts_and_trains_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(
        capsys, "train", "parity", "tomita2", "--seeds", "2", "--dry-run", "--train-length", "9"
    )
    assert (code, err) == (0, "") and not Path("runs").exists()
    assert "4 runs of sd-ssm in runs/parity+tomita2-train_length=9; nothing was started." in out
    assert "training strings  uniform, up to 9 symbols: every transition ends as many" in out
    assert re.search(r"^  training +[\d,]+ steps of [\d,]+ strings$", out, re.MULTILINE)
    assert "identified        yes; strings of up to 3 symbols are enough" in out
    code, out, err = run_command(capsys, "train", "--dry-run")
    assert code == 2 and "name a task" in err
    code, out, err = run_command(capsys, "train", "regex:(a|b)*", "--dry-run")
    assert (code, out) == (2, "") and "every valid string of regex:(a|b)* has the label 1" in err


def test_strings_that_do_not_show_the_whole_machine_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--steps", "1", "--device", "cpu", "--set", "state=4", "batch=2"]
    code, out, err = run_command(capsys, "train", "z97", *tiny)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "takes 114 of the 194 transitions of z97" in err and "use --train-length 97" in err
    code, out, err = run_command(capsys, "train", "z97", *tiny, "allow_unidentified=true")
    assert code == 0, err
    assert "\nz97: chance 1.03 %, best constant answer 12.54 % at length 40 and 3.57 % at length 500; " in out
    with pytest.raises(TaskError, match="allow_unidentified=true"):
        train("z97", steps=1, settings={"state": 4, "batch": 2}, device="cpu", out="python")


@pytest.mark.parametrize(
    ("task", "preset", "line"),
    [
        (
            "a5",
            None,
            "a5: preset=scale-free (auto): trained on labels, which distinguish all 60 states of the automaton",
        ),
        (
            "even_pairs",
            None,
            "5 states of the automaton, but uniform strings cover it; --preset states trains on its states",
        ),
        (
            "tomita4",
            None,
            "tomita4: preset=states (auto): trained on the states of the automaton as targets, not on its",
        ),
        ("tomita4", None, "uniform strings do not cover the automaton; --preset scale-free trains on labels"),
        ("tomita4", "states", "preset=states (as set): trained on the states of the automaton as targets, not on its"),
        ("tomita4", "scale-free", "preset=scale-free (as set): trained on labels, which do not distinguish all 4 "),
    ],
)
def test_the_preset_and_its_targets_are_announced(
    task: str, preset: str | None, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [] if preset is None else ["--preset", preset]
    for arguments in (["--dry-run"], ["--steps", "1", "--device", "cpu", "--set", "state=4", "batch=2"]):
        code, out, err = run_command(capsys, "train", task, *named, *arguments)
        assert code == 0, err
        assert sum(line in shown for shown in out.splitlines()) == 1
        assert out.index("preset=") < out.index("chance")
    if "states" in line and task == "tomita4" and preset != "scale-free":
        assert RunFolder.open(next(Path("runs").glob("*/seed-0"))).config.train.targets == "state"


def test_a_setting_that_does_not_fit_the_chosen_preset_says_which_preset_it_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run_command(capsys, "train", "tomita4", "--set", "layers=2")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "layers is 2" in err and "train on labels with preset=scale-free" in err
