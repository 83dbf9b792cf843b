"""Names of tasks, folders, states and symbols with control characters: none of them reaches the terminal."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import pytest

from sdssm.automata import Machine, get_machine
from sdssm.cli.output import print_facts, print_json, print_table, print_text
from sdssm.cli.program import _show_warning
from sdssm.errors import RunWarning
from sdssm.printable import PrintableStream, make_lines_printable, make_printable, printable_output, styled_stream
from sdssm.progress import ProgressEvent, ProgressLine
from sdssm.tasks import Task
from sdssm.training.displays import PlainLines
from tests.evaluation.test_evaluate import create_run
from tests.programs import run_command

Capture = pytest.CaptureFixture[str]
#: Sets the title of a terminal, colours with a C1 code, reverses the text, starts a line, erases; and half a pair.
HOSTILE = "\x1b]0;pwned\x07\x9b31m\u202e\nfake: line\r\x7f\u2028"
SURROGATE = "\udcff"


def assert_printable(*texts: str) -> None:
    for text in texts:
        assert make_lines_printable(text) == text
        assert not any(line.startswith("fake: line") for line in text.splitlines())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose task, folder, states and symbols have hostile names."""
    monkeypatch.chdir(tmp_path)
    machine = Machine(table=[[0, 1], [1, 0]], states=[f"even{HOSTILE}", "odd"], symbols=[f"a{HOSTILE}", "\u03b1"])
    task = Task(name=f"task{HOSTILE}{SURROGATE}", machine=machine, train_length=8, test_length=20)
    return create_run(tmp_path / f"folder{HOSTILE}{SURROGATE}" / "seed-0", get_machine("parity"), task=task).path


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "."],
        ["runs", "RUN", "--json"],
        ["evaluate", "RUN", "--max-length", "9", "--strings", "8", "--device", "cpu"],
        ["evaluate", "RUN", "--lengths", "5", "--strings", "8", "--device", "cpu", "--json"],
        ["certify", "RUN", "--quiet"],
        ["certify", "RUN", "--json", "--quiet"],
        ["horizon", "RUN", "--max-length", "9", "--strings", "8", "--quiet"],
        ["extract", "RUN", "--lengths", "5", "--strings", "8", "--quiet", "--out", "MACHINE.json"],
        ["snap", "RUN", "--out", "MODEL", "--quiet"],
        ["export", "RUN", "--format", "numpy", "--out", "WEIGHTS"],
        ["report", "RUN", "--out", "REPORT.html", "--title", HOSTILE],
        ["playground", "RUN", "--out", "PAGE.html"],
        ["check", "RUN", "--sections", "accuracy", "--max-length", "9", "--strings", "8", "--device", "cpu"],
    ],
)
def test_commands_on_a_run_with_hostile_names(arguments: list[str], run: Path, capsys: Capture) -> None:
    filled = [str(run) if argument == "RUN" else argument for argument in arguments]
    code, out, err = run_command(capsys, *filled)
    assert code in (0, 2), err
    assert_printable(out, err)
    if "--json" in arguments and code == 0:
        assert out.isascii() and "\x7f" not in out
        json.loads(out)


@pytest.mark.parametrize(
    "command", [["tasks", "show"], ["train", "--dry-run"], ["compile", "--out", "MODEL", "--length", "9"]]
)
def test_commands_on_a_file_with_hostile_names(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"file{HOSTILE}{SURROGATE}.json"
    table = {"table": [[0, 1], [1, 0]], "states": [f"even{HOSTILE}", "odd"], "symbols": [f"a{HOSTILE}", "\u03b1"]}
    file.write_text(json.dumps(table))
    code, out, err = run_command(capsys, *command, str(file))
    assert code == 0, err
    assert_printable(out, err)
    file.write_text(json.dumps({HOSTILE: 1, **table}))
    code, out, err = run_command(capsys, *command, str(file))
    assert code == 2 and err.count("\n") == 1
    assert_printable(out, err)


def test_what_prints_escapes(capsys: Capture) -> None:
    with printable_output():
        print_table([HOSTILE, "b"], [[HOSTILE, "\u03b1\u03b2"]])
        print_facts(HOSTILE, {"name": HOSTILE})
        print_text(HOSTILE)
        print_json({HOSTILE: SURROGATE})
        sys.stdout.write(HOSTILE.replace("\n", ""))
    out, err = capsys.readouterr()
    assert_printable(out, err)
    assert "\u03b1\u03b2" in out and "\\x1b]0;pwned\\x07\\x9b31m\\u202e" in out


def test_warnings_are_one_printable_line(capsys: Capture) -> None:
    with printable_output():
        _show_warning(RunWarning(f"{HOSTILE}; left out"), RunWarning, "file.py", 1)
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("sdssm: warning: ")
    assert_printable(err)


def test_progress_displays_escape_names() -> None:
    assert_printable(ProgressEvent(f"evaluate {HOSTILE}", 1, 2, "lengths", 4.0).describe())
    stream = StringIO()
    lines = PlainLines(stream)
    lines.start([f"{HOSTILE}/seed-0", "b/seed-0"], 10, 0)
    lines.update(5, [0.5, 0.5], [50.0, 50.0], [True, True])
    lines.message(f"a {make_printable(HOSTILE)}")
    lines.stop()
    assert_printable(stream.getvalue())


def test_our_own_codes_pass_below_the_stream() -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    stream = PrintableStream(terminal)
    assert styled_stream(stream) is terminal and styled_stream(terminal) is terminal  # type: ignore[arg-type]
    times = iter([0.0, 2e9])  # a test shows no line before
    line = ProgressLine(stream, clock=lambda: next(times))  # type: ignore[arg-type]
    line(ProgressEvent(f"evaluate {HOSTILE}", 1, 2, "lengths", 4.0))
    shown = terminal.getvalue()
    assert shown.startswith("\r\x1b[K") and make_printable(shown[4:]) == shown[4:]
    assert stream.isatty() and stream.write("\x1b[2J\n") == 5
    assert terminal.getvalue().endswith("\\x1b[2J\n")
