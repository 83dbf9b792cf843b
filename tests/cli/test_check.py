"""`sdssm check`, run as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdssm.automata import get_machine
from sdssm.models.registry import forget
from tests.evaluation.machines import exact, tiring_parity
from tests.evaluation.test_evaluate import create_run
from tests.programs import run_command

Capture = pytest.CaptureFixture[str]
SHORT = ["--sections", "accuracy", "--max-length", "50", "--strings", "32", "--quiet"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return create_run(tmp_path / "parity" / "seed-0", tiring_parity(6, states=26), 0).path


def test_a_run_on_the_terminal(run: Path, capsys: Capture) -> None:
    code, out, err = run_command(capsys, "check", str(run), *SHORT)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("sd-ssm on parity: trained") and str(run) in lines[0]
    assert lines[2] == "accuracy by length" and lines[3].split() == ["chance", "50", "%"]
    assert any(line.split()[:2] == ["length", "40"] and "best constant 50 %" in line for line in lines)
    assert "==== training lengths, up to 40" in out and "\x1b" not in out


def test_a_folder_with_all_files(run: Path, capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["check", str(run), *SHORT, "--out", str(tmp_path / "card")]
    code, out, _ = run_command(capsys, *arguments)
    assert code == 0 and out.count("Written: ") == 3
    assert json.loads((tmp_path / "card" / "card.json").read_text())["task"] == "parity"
    assert "# Report card" in (tmp_path / "card" / "card.md").read_text()
    assert (tmp_path / "card" / "card.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = run_command(capsys, *arguments)
    assert (code, out) == (2, "") and "exists; choose another folder, or replace it with --overwrite" in err
    assert run_command(capsys, *arguments, "--overwrite")[0] == 0


def test_json_on_standard_output_is_nothing_else(capsys: Capture, tmp_path: Path) -> None:
    train = ["--train", "--steps", "3", "--set", "state=4", "batch=8"]
    options = ["--task", "parity", *train, "--sections", "accuracy", "--max-length", "8", "--strings", "8", "--json"]
    code, out, _ = run_command(capsys, "check", "sd-ssm", *options)
    card = json.loads(out)
    assert code == 0 and (card["weights"], card["steps"], card["folder"]) == ("trained", 3, None)
    code, out, _ = run_command(capsys, "check", "sd-ssm", *options, str(tmp_path / "card.json"), "--quiet")
    assert code == 0 and out.startswith("sd-ssm on parity: trained for 3 steps, seed 0\n")
    assert json.loads((tmp_path / "card.json").read_text())["sections"].keys() == {"accuracy"}


MY_MODEL = """
from torch import nn

class Tiny(nn.Module):
    def __init__(self, n_symbols, n_classes, width=4):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(n_symbols, width), nn.RNN(width, width, batch_first=True)
        self.out = nn.Linear(width, n_classes)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])
"""


def test_a_model_of_someone_else_is_imported_only_if_asked_for(capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "my_model.py").write_text(MY_MODEL)
    path, out = f"{tmp_path / 'my_model.py'}:Tiny", tmp_path / "card"
    train = ["--task", "parity", "--train", "--steps", "2", "--set", "batch=8", "width=3", "--out", str(out)]
    code, shown, err = run_command(capsys, "check", path, *train, *SHORT)
    assert (code, err) == (0, "") and shown.startswith("my_model.py:Tiny on parity: trained for 2 steps, seed 0")
    forget("my_model.py:Tiny")
    code, shown, err = run_command(capsys, "check", str(out / "runs"), *SHORT)
    assert (code, shown) == (2, "") and "or --trust for every folder" in err and len(err) <= 301
    for allowed in (["--trust"], ["--model", path]):
        try:
            assert run_command(capsys, "check", str(out / "runs"), *allowed, *SHORT)[0] == 0
        finally:
            forget("my_model.py:Tiny")


def test_strict_is_about_the_model(run: Path, capsys: Capture, tmp_path: Path) -> None:
    assert run_command(capsys, "check", str(run), *SHORT)[0] == 0
    code, _, err = run_command(capsys, "check", str(run), *SHORT, "--strict")
    assert code == 1 and err.startswith("not good enough: accuracy: ") and err.endswith(" below 99 %\n")
    good = create_run(tmp_path / "good", get_machine("parity"), 0).path
    assert run_command(capsys, "check", str(good), *SHORT, "--strict")[0] == 0
    assert run_command(capsys, "check", str(good), "--sections", "laws", "--quiet", "--strict")[0] == 0


def test_files_are_replaced_only_if_asked_for(run: Path, capsys: Capture, tmp_path: Path) -> None:
    page = tmp_path / "card.md"
    page.write_text("mine")
    code, out, err = run_command(capsys, "check", str(run), *SHORT, "--markdown", str(page))
    assert (code, out) == (2, "") and "card.md exists; choose another name" in err and page.read_text() == "mine"
    assert run_command(capsys, "check", str(run), *SHORT, "--markdown", str(page), "--overwrite")[0] == 0
    assert page.read_text().startswith("# Report card")


def test_a_saved_model_needs_a_task(capsys: Capture, tmp_path: Path) -> None:
    exact(get_machine("parity")).save(tmp_path / "model")
    code, out, err = run_command(capsys, "check", str(tmp_path / "model"), *SHORT)
    assert (code, out) == (2, "") and "does not know its task; add it, as in --task a5" in err
    assert run_command(capsys, "check", str(tmp_path / "model"), "--task", "parity", *SHORT)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lstn", "--task", "a5"], "there is no model and no folder 'lstn'; did you mean 'lstm'"),
        (["lstm"], "lstm does not know its task; add it, as in --task a5"),
        (["lstm", "--task", "a55"], "a55"),
        (["nowhere:Model", "--task", "a5"], "there is no module 'nowhere'"),
        (
            ["lstm", "--task", "a5", "--model", "rnn"],
            "--model names the code of a model in a folder, but lstm is",
        ),
        (["lstm", "--task", "a5", "--steps", "5"], "nothing is trained; add --train"),
        (["lstm", "--task", "a5", "--train", "--set", "stat=3"], "stat"),
        (["lstm", "--task", "a5", "--sections", "law"], "did you mean 'laws'"),
        (["lstm", "--task", "a5", "--plot", "a.jpg"], "plots are written as .png"),
        (["lstm", "--task", "a5", "--json", "nowhere/a.json"], "there is no folder nowhere"),
        (["lstm", "--task", "a5", "--markdown", "."], "it is a folder"),
        (["lstm", "--task", "a5", "--out", "."], "--out is the current folder"),
        (["lstm", "--task", "a5", "--max-seconds", "x"], "'x' is not a number of seconds"),
        (["lstm", "--task", "a5", "--max-seconds", "0"], "--max-seconds is 0.0; pass a number of seconds above 0"),
        (["lstm", "--task", "a5", "--max-length", "0"], "'0' is not a whole number from 1 to 1,000,000"),
        (["lstm", "--task", "a5", "--strings", "0"], "'0' is not a whole number from 1 to 65,536"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: list[str], message: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run_command(capsys, "check", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
