"""`sdssm tasks`, and what all commands have in common: errors in one line, terminals and pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sdssm.cli.parser import COMMANDS
from sdssm.tasks import EXAMPLE_TASKS, PAPER_TASKS
from tests.programs import SDSSM, run_command, run_on_terminal


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "--help")
    assert (code, err) == (0, "")
    assert run_command(capsys) == (0, out, "")  # without arguments
    for name in COMMANDS:
        assert f"\n    {name} " in out
        code, shown, err = run_command(capsys, name, "--help")
        assert (code, err) == (0, "")
        assert f"usage: sdssm {name} " in shown and f"examples:\n  sdssm {name}" in shown
        assert "%(" not in shown and "%%" not in shown  # a placeholder that argparse did not fill


def test_list_of_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_command(capsys, "tasks")
    assert (code, err) == (0, "")
    for name in (*PAPER_TASKS, *EXAMPLE_TASKS):
        assert any(line.startswith(name + " ") for line in out.splitlines())
    assert "\x1b" not in out
    code, out, _ = run_command(capsys, "tasks", "--json")
    facts = {task["name"]: task for task in json.loads(out)}
    assert facts["a5"]["solvable"] is False
    assert facts["arithmetic"]["monoid_size"] == 129
    assert facts["arithmetic"]["group_orders"] == [4, 5]


def test_show_one_task(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "a5.svg"
    code, out, err = run_command(capsys, "tasks", "show", "a5", "--svg", str(picture), "--length", "5")
    assert (code, err) == (0, "")
    assert picture.read_text().startswith("<svg")
    assert "not solvable" in out
    assert "identified        yes; strings of up to 11 symbols are enough" in out
    assert str(picture) in out
    code, out, _ = run_command(capsys, "tasks", "show", "arithmetic", "--json", "--length", "8")
    shown = json.loads(out)
    assert len(shown["samples"]) == 3
    assert (shown["training"]["sampling"], shown["training"]["states"]) == ("uniform", 50)
    for sample in shown["samples"]:
        assert len(sample["tokens"]) == 7
        assert sample["labels"][-1] == eval(sample["text"]) % 5
        assert sample["labels"][1] == -1
    code, out, _ = run_command(capsys, "tasks", "show", "z97", "--train-length", "50", "--json")
    training = json.loads(out)["training"]
    assert (training["train_length"], training["reached_states"], training["identifying_length"]) == (50, 51, 97)
    code, out, _ = run_command(capsys, "tasks", "show", "random:100x2:0")
    assert "unknown (monoid > 20,000)" in out


def test_no_command_overwrites_the_file_that_it_reads(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = '{"table": [[0, 1], [1, 0]], "outputs": [0, 1]}'
    Path("lang.json").write_text(text)
    Path("copy.json").symlink_to("lang.json")
    run_command(capsys, "train", "lang.json", "--steps", "1", "--set", "batch=2", "state=2", "--out", "runs", "--quiet")
    assert run_command(capsys, "compile", "lang.json", "--out", "exact", "--quiet")[0] == 0
    refused = "is the file that the task was read from, and no command overwrites what it reads"
    for command in (
        ("tasks", "show", "lang.json", "--out", "lang.json"),
        ("tasks", "show", "lang.json", "--out", "copy.json"),
        ("extract", "runs", "--out", "lang.json"),
        ("extract", "runs/seed-0", "--out", "./lang.json"),
        ("extract", "exact", "--out", "lang.json"),
        ("export", "exact", "--format", "json", "--out", "lang.json", "--overwrite"),
        ("check", "exact", "--json", "lang.json", "--overwrite"),
    ):
        code, out, err = run_command(capsys, *command)
        assert (code, out) == (2, "") and refused in err, command
        assert "lang-new.json" in err or "copy-new.json" in err, command
    for command in (
        ("extract", "runs", "--out", "runs/seed-0/config.json"),
        ("check", "exact", "--json", "exact/task.json", "--overwrite"),
        ("snap", "exact", "--out", "exact", "--overwrite"),
    ):
        code, out, err = run_command(capsys, *command)
        assert (code, out) == (2, "") and "of the model that is read" in err, command
    assert Path("lang.json").read_text() == text
    assert run_command(capsys, "extract", "runs", "--out", "lang-new.json", "--quiet")[0] == 0
    assert run_command(capsys, "extract", "runs", "--out", "lang-new.json", "--quiet")[0] == 0  # not read by it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tasks", "show", "parety"], "is called 'parety'; did you mean 'parity'?"),
        (["tasks", "show", "s99"], "the most is 10,000, choose a smaller one"),
        (["tasks", "show", "regex:("], "a group is not closed"),
        (["tasks", "show", "regex:(a|b)*a(a|b){40}"], "more than 10,000 states"),
        (["tasks", "show", "nowhere.json"], "cannot read nowhere.json"),
        (["tasks", "show", "a5", "--length", "0"], "'0' is not a whole number from 1 to 10,000"),
        (["tasks", "show", "a5", "--svg", "/nowhere/a5.svg"], "cannot write /nowhere/a5.svg"),
        (["tasks", "show", "s7", "--svg", "s7.svg"], "at most 200 states"),
        (["tasks", "show"], "the following arguments are required: TASK"),
        (["taks"], "sdssm: there is no command 'taks'; did you mean 'tasks'"),
        (["trian", "a5"], "sdssm: there is no command 'trian'; did you mean 'train'?"),
        (["qqqq"], "sdssm: there is no command 'qqqq'; known: tasks, models, "),
        (["tasks", "a5", "d4"], "sdssm tasks show: unexpected argument 'd4'"),
        (["tasks", "a5", "--sgv", "a5.svg"], "sdssm tasks show: there is no option --sgv; did you mean --svg?"),
        (["tasks", "--jsn"], "sdssm tasks: there is no option --jsn; did you mean --json?"),
        (["--vers"], "sdssm: there is no option --vers; did you mean --version?"),
        (["extract", "runs", "--method", "state"], "sdssm extract: --method is 'state'; did you mean 'states'"),
        (["extract", "runs", "--lengths", ","], "--lengths: the list of lengths is empty; give some, such as 500,5000"),
        (["evaluate", "runs", "--lengths", ""], "the list of lengths is empty"),
        (["tasks", "show", "a5", "--length", "x"], "'x' is not a whole number from 1 to 10,000"),
        (
            ["tasks", "show", "a5", "--svg", "a5.svg", "--length", "1000000000000"],
            "not a whole number from 1 to 10,000",
        ),
        (["tasks", "show", "a5", "--svg", "a5.svg", "--seed", "9" * 30], "not a whole number from 0 to"),
        (["tasks", "show", "a5", "--svg", "."], ". is not the name of a picture; state diagrams are written as .svg"),
        (["tasks", "show", "two\nlines.json"], r"cannot read 'two\nlines.json'"),
        (["tasks", "show", "*".join(["z2"] * 1500)], "choose a smaller one"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run_command(capsys, *arguments)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []


BAD_FILES = {
    "missing.json": ('{"table": [[0, 1], [1]]}', "state 1 has 1 of 2 entries"),
    "range.json": ('{"table": [[0, 7]]}', "symbol 1 sends state 0 to 7"),
    "names.json": ('{"table": [[0, 0]], "symbols": ["a", "a"]}', "symbol name 'a' is used for both 0 and 1"),
    "empty.json": ('{"table": [[]]}', "the alphabet is empty"),
    "surrogate.json": ('{"table": [[0, 0]], "symbols": ["\\ud800", "b"]}', "half of a surrogate pair"),
    "digits.json": ('{"table": [[' + "9" * 5000 + "]]}", "a number that is too long"),
    "broken.json": ('{"table": [[0, 1]', "not JSON"),
    "broken.dot": ("digraph { a -> ", "the graph ends too early"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_reported_in_one_line(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text, message = BAD_FILES[name]
    (tmp_path / name).write_text(text)
    code, out, err = run_command(capsys, "tasks", "show", str(tmp_path / name))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_output_is_coloured_on_a_terminal_and_plain_in_a_pipe() -> None:
    piped = subprocess.run([*SDSSM, "tasks", "show", "parity"], capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in piped
    code, shown = run_on_terminal("tasks", "show", "parity")
    assert code == 0
    assert "\x1b[" in shown
    assert "solvable" in shown


def test_the_states_that_training_strings_reach_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "tasks", "show", "z97", "--states")
    assert code == 0
    rows = [line.split() for line in out[out.index("shortest string") :].splitlines()[1:98]]
    assert len([row for row in rows if row[-2:] == ["-", "-"]]) == 97 - 41  # no training string reaches them
    assert rows[0][0] == "41" and rows[0][-6:] == ["41", "0", "of", "2", "-", "-"]
    _, out, _ = run_command(capsys, "tasks", "show", "z97", "--states", "--json", "--train-length", "97")
    states = json.loads(out)["reached_states"]
    assert len(states) == 97 and all(row["reached"] for row in states)
    assert sum(row["uniform"] for row in states) == pytest.approx(1)
    assert sum(row["training"] for row in states) == pytest.approx(1)


def test_names_from_a_file_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "sly.json"
    path.write_text(json.dumps({"table": [[0, 0]], "states": ["\x1b[31mred"], "symbols": ["\n", "b"]}))
    code, out, _ = run_command(capsys, "tasks", "show", str(path))
    assert code == 0
    assert "\x1b" not in out
    assert r"\x1b[31mred" in out


def test_closed_full_and_ascii_output() -> None:
    def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        line = f"{sys.executable} -m sdssm tasks show {command}"
        return subprocess.run(
            line, shell=True, capture_output=True, text=True, env=os.environ | environment, check=False
        )

    closed = shell("a5 >&-")
    assert closed.returncode == 0, closed.stderr
    full = shell("a5 > /dev/full")
    assert (full.returncode, full.stderr) == (2, "sdssm: cannot write the output: No space left on device\n")
    ascii_only = shell("'regex:é*' --json", PYTHONIOENCODING="ascii")
    assert ascii_only.returncode == 0, ascii_only.stderr
    assert json.loads(ascii_only.stdout)["symbols"] == ["é"]


def test_a_closed_pipe_is_not_an_error() -> None:
    line = f"{sys.executable} -m sdssm tasks | head -n 1"
    process = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
    assert process.stderr == ""
